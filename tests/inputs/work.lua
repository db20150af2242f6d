local function sieve(n)
  local composite, primes = {}, {}
  for i = 2, n do
    if not composite[i] then
      primes[#primes + 1] = i
      for j = i * i, n, i do composite[j] = true end
    end
  end
  return primes
end
local p = sieve(20000)
print(#p, p[#p])
local C = setmetatable({}, { __index = function(_, k) return k .. "!" end, __call = function(_, a) return a * 2 end })
print(C.hello, C(21))
local co = coroutine.wrap(function() for i = 1, 5 do coroutine.yield(i * i) end end)
print(co(), co(), co())
print(pcall(error, { code = 1 }), select("#", pcall(error)))
print(select(2, pcall(function() local x = nil; return x.y end)))
local s = string.rep("the quick brown fox ", 200)
print(#s:gsub("quick", "slow"), s:find("brown", 50), (s:gsub("%w+", string.upper)):sub(1, 30))
local t = {}
for i = 1, 2000 do t[i] = (i * 7919) % 2003 end
table.sort(t, function(a, b) return a > b end)
print(t[1], t[1000], t[2000], string.format("%.14g %5d %q", math.pi, 42, "a\nb"))
print(math.tointeger(2 ^ 53), 7 // 2, 7.5 // 2, -7 % 3, 1 << 62, 0xff ~ 0x0f)

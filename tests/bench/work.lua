-- Calls, tables, strings, closures, sorting and floating point.
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
local n = fib(30)
local words = {}
for i = 1, 60000 do words[i] = string.format("w%05d", (i * 7919) % 60013) end
table.sort(words)
local text = table.concat(words, " ")
local count = 0
for w in text:gmatch("%w+7%f[%W]") do count = count + #w end
local objects, meta = {}, { __index = function(t, k) return #k end }
for i = 1, 100000 do objects[i % 1000] = setmetatable({ x = i, y = i * 0.5 }, meta) end
local sum = 0
for _ = 1, 300 do for _, o in pairs(objects) do sum = sum + o.x * o.y % 7 + o.name end end
local grid = {}
for i = 0, 399 do for j = 0, 399 do grid[i * 400 + j] = (i * j) % 3 end end
for _ = 1, 20 do
  for i = 1, 398 do
    for j = 1, 398 do
      local k = i * 400 + j
      grid[k] = (grid[k - 1] + grid[k + 1] + grid[k - 400] + grid[k + 400]) % 5
    end
  end
end
print(n, count, string.format("%.3f", sum), grid[40 * 400 + 77])

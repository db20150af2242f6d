# Exceptions, fibers, floating point and a case in Crystal.
class Refused < Exception
  getter code : Int32

  def initialize(@code)
    super("refused")
  end
end

def act(n : Int32) : Int32
  case n % 8
  when 0 then n + 3
  when 1 then n * 5
  when 2 then n - 7
  when 3 then raise Refused.new(n)
  when 4 then n ^ 0x55
  when 5 then n << 2
  when 6 then n // 3
  else        -n
  end
end

def guarded(n : Int32) : Int32
  act(n)
rescue e : Refused
  e.code * 100
end

sum = 0
1000.times { |i| sum += guarded(i) }
puts "sum #{sum}"
channel = Channel(Int32).new
4.times do |k|
  spawn { channel.send((k...k + 300).sum { |i| guarded(i) }) }
end
puts "total #{(0...4).sum { channel.receive }}"
wave = (1..99).sum { |i| Math.sin(i * 0.1) * Math.sqrt(i) }
puts "wave #{wave.round(6)}"
words = "the cat and the dog and the bird".split.tally
puts words
begin
  [1, 2][sum]
rescue IndexError
  puts "range"
end
begin
  1 // (words.size - 5)
rescue e
  puts e.message
end
exit 3

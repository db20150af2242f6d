# Exceptions, threads, floating point, closures and a case in Nim.
import std/[math, strutils, tables]

type Refused = object of CatchableError
  code: int

proc act(n: int): int =
  case n mod 8
  of 0: n + 3
  of 1: n * 5
  of 2: n - 7
  of 3: raise (ref Refused)(msg: "refused", code: n)
  of 4: n xor 0x55
  of 5: n shl 2
  of 6: n div 3
  else: -n

proc guarded(n: int): int =
  var left = 0
  defer: left += 1
  try:
    result = act(n) + left
  except Refused as e:
    result = e.code * 100
  finally:
    left += 10

iterator upTo(n: int): int {.closure.} =
  for i in 0 ..< n: yield i * i

proc work(args: tuple[first: int, sum: ptr int]) {.thread.} =
  for i in args.first ..< args.first + 300:
    args.sum[] += guarded(i)

var sum = 0
for i in 0 ..< 1000: sum += guarded(i)
echo "sum ", sum
var parts: array[4, int]
var threads: array[4, Thread[tuple[first: int, sum: ptr int]]]
for i in 0 ..< 4: createThread(threads[i], work, (i, addr parts[i]))
joinThreads(threads)
echo "total ", parts
var wave = 0.0
for i in 1 .. 99: wave += sin(float(i) * 0.1) * sqrt(float(i))
echo "wave ", formatFloat(wave, ffDecimal, 6)
var count = initCountTable[string]()
for word in "the cat and the dog and the bird".split: count.inc(word)
count.sort()
echo count
for square in upTo(4): stdout.write(square, " ")
echo ""
var few = @[5, 3, 9]
try:
  if sum > few.len: raise newException(IndexDefect, "no such place")
  few[sum] = 1
except IndexDefect:
  echo "range"
quit(3)

# packages: wasmtime
"""A virtual machine in Rust: code made at run time, traps by signals, unwinding through generated code, callbacks."""
import wasmtime

engine = wasmtime.Engine()
store = wasmtime.Store(engine)
module = wasmtime.Module(engine, """(module
  (import "host" "twice" (func $twice (param i32) (result i32)))
  (memory (export "memory") 1)
  (func $fib (export "fib") (param i32) (result i32)
    (if (result i32) (i32.lt_s (local.get 0) (i32.const 2)) (then (local.get 0))
      (else (i32.add (call $fib (i32.sub (local.get 0) (i32.const 1))) (call $fib (i32.sub (local.get 0) (i32.const 2)))))))
  (func (export "both") (param i32) (result i32) (call $twice (call $fib (local.get 0))))
  (func (export "load") (param i32) (result i32) (i32.load (local.get 0)))
  (func (export "divide") (param i32 i32) (result i32) (i32.div_s (local.get 0) (local.get 1)))
  (func (export "stop") unreachable)
  (func $deep (export "deep") (result i32) (i32.add (i32.const 1) (call $deep))))""")
def twice(x):
    if x > 900:
        raise ValueError(x)
    return x * 2
host = wasmtime.Func(store, wasmtime.FuncType([wasmtime.ValType.i32()], [wasmtime.ValType.i32()]), twice)
exports = wasmtime.Instance(store, module, [host]).exports(store)
print(exports["fib"](store, 18), exports["both"](store, 12), exports["load"](store, 65532), exports["divide"](store, 7, -2))
for name, words in (("load", [65536 * 40]), ("load", [-1]), ("divide", [1, 0]), ("divide", [-2**31, -1]), ("stop", []), ("deep", [])) * 3:
    try:
        exports[name](store, *words)
    except wasmtime.Trap as trap:
        print(name, trap.message.splitlines()[-1], len(trap.frames) > 0)
try:
    exports["both"](store, 20)
except ValueError as error:
    print(repr(error))
print(len(module.serialize()) > 1000, exports["fib"](store, 15))

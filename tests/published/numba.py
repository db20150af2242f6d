# packages: numba llvmlite numpy
"""LLVM in a library, which compiles code at run time that calls back into Python and other libraries."""
import numba
import numpy as np
from numba import njit, prange

@njit
def sieve(n):
    flags = np.ones(n, np.uint8)
    for i in range(2, int(n ** 0.5) + 1):
        if flags[i]:
            flags[i * i::i] = 0
    return flags[2:].sum()

@njit(parallel=True)
def total(values):
    s = 0.0
    for i in prange(values.size):
        s += np.round(values[i] * 64)
    return s

@njit
def fails(x):
    if x > 3:
        raise ValueError("too large")
    return np.linalg.solve(np.eye(3) * x, np.ones(3)).sum()

@numba.vectorize(["float64(float64)"])
def twice(x):
    return x * 2

print(sieve(100_000), total(np.arange(5000) / 7), fails(2), twice(np.arange(4.0)))
try:
    fails(5)
except ValueError as error:
    print(error)
@numba.cfunc("float64(float64)")
def callback(x):
    return x * x
print(callback.ctypes(3.0))

# packages: numpy
"""OpenBLAS and LAPACK with threads, FFT, sorting with vector instructions, strings, callbacks."""
import threading
import numpy as np

rng = np.random.default_rng(7)
a = rng.standard_normal((160, 160))
print(repr(np.linalg.det(a[:20, :20])), repr(np.abs(np.linalg.eigvals(a)).sum()))
u, s, v = np.linalg.svd(a)
print(np.allclose(u * s @ v, a), repr(s[:3]))
print(repr(np.abs(np.fft.fft(a.ravel())).max()))
for kind in ("int32", "int64", "float32", "float64", "uint16"):
    values = (rng.random(50_000) * 60_000).astype(kind)
    print(kind, np.sort(values)[[0, 77, -1]], int(np.argsort(values, kind="stable")[123]), repr(np.partition(values, 9)[9]))
print(np.array(["b", "aa", "c"] * 1000).astype("S4").view("u1").sum(), np.unique(rng.integers(0, 50, 9000)).size)
print(np.einsum("ij,jk,kl->il", a[:9], a, a[:, :9]).trace())
print(np.frompyfunc(lambda x, y: x + y, 2, 1)(np.arange(100), 1).sum(), np.piecewise(a, [a < 0], [np.sin, np.cos]).sum())
try:
    np.linalg.inv(np.zeros((3, 3)))
except np.linalg.LinAlgError as error:
    print(error)
with np.errstate(all="raise"):
    try:
        np.float64(1) / np.zeros(3)
    except FloatingPointError as error:
        print(error)
results = [None] * 4
def work(number):
    b = np.random.default_rng(number).standard_normal((200, 200))
    results[number] = repr(float((b @ b).sum()))
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(results)

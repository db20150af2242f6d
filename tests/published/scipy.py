# packages: scipy numpy
"""Fortran's runtime, Cython, C++ (HiGHS, pocketfft, boost), callbacks from compiled code, exceptions."""
import numpy as np
from scipy import fft, integrate, interpolate, linalg, ndimage, optimize, signal, sparse, spatial, special, stats
from scipy.sparse import linalg as sparse_linalg

rng = np.random.default_rng(3)
print(integrate.quad(lambda x: np.exp(-x * x), 0, 3), integrate.solve_ivp(lambda t, y: [-y[1], y[0]], (0, 9), [1, 0], method="LSODA").y[:, -1])
print(optimize.minimize(optimize.rosen, [1.3, 0.7, 0.8], method="L-BFGS-B").nfev, optimize.brentq(np.cos, 0, 3))
print(optimize.linprog([-1, 4], A_ub=[[-3, 1], [1, 2]], b_ub=[6, 4], bounds=[(None, None), (-3, None)]).x)
print(optimize.milp(c=-np.array([3, 5, 4]), constraints=optimize.LinearConstraint([[2, 3, 1]], ub=11), integrality=np.ones(3), bounds=optimize.Bounds(0, 4)).x)
matrix = sparse.random(300, 300, 0.02, random_state=1, format="csc") + sparse.eye(300) * 4
print(sparse_linalg.spsolve(matrix.tocsc(), np.ones(300)).sum(), sparse_linalg.eigs(matrix, k=2, v0=np.ones(300))[0].real.round(9))
print(linalg.expm(np.diag([1.0, 2.0, 3.0])).trace(), linalg.schur(rng.random((30, 30)))[0].trace())
print(special.jv(2.5, np.linspace(0, 9, 5)), special.gammaln(77.3), stats.norm.ppf(0.975), stats.ks_2samp(rng.random(99), rng.random(99)).statistic)
points = rng.random((500, 3))
print(spatial.cKDTree(points).query(points[:5] + 0.01, k=3)[1].tolist(), spatial.ConvexHull(points).volume, spatial.Delaunay(points[:40]).simplices.shape)
print(ndimage.gaussian_filter(rng.random((40, 40)), 2).sum(), signal.lfilter(*signal.butter(4, 0.2), rng.random(500)).sum(), interpolate.CubicSpline(range(9), np.sin(range(9)))(3.3), fft.dct(rng.random(99)).sum())
try:
    linalg.cholesky([[1, 2], [2, 1]])
except linalg.LinAlgError as error:
    print(error)

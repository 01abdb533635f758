"""Factors and values by each version of the C routines that this processor runs, NumPy beside."""

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from kernelrt.ir.routine import Routine
from kernelrt.native.routines import ADDRESSES

FUNCTION = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64)
)  # fmt: skip
GUARD = 64
#: Around multiples of what a vector holds, and beyond what fits on the stack.
SIZES = (1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 48, 70)
ROUNDING = {"f32": 2.0**-23, "f64": 2.0**-52}

versions = pytest.mark.parametrize("version", ADDRESSES)
kinds = pytest.mark.parametrize("kind", ["f32", "f64"])


def call(
    version: int, name: str, rows: int, numbers: tuple[int, ...], *operands: np.ndarray
) -> tuple[np.ndarray, int]:
    """A row for each problem, in float64, and the status; nothing is written behind the result."""
    routine = Routine(name, rows, numbers)
    dtype = np.dtype(f"f{routine.signature.gives.itemsize}")
    size = rows * routine.shape[1]
    out = np.full(size + 2 * GUARD, 77, dtype)
    status = np.zeros(1, np.int64)
    arrays = [*(np.ascontiguousarray(x, dtype) for x in operands), status]
    bufs = (ctypes.c_void_p * (1 + len(arrays)))(
        out[GUARD:].ctypes.data, *(x.ctypes.data for x in arrays)
    )
    vals = (ctypes.c_int64 * (3 + len(numbers)))(rows, 1, *numbers, 0)
    FUNCTION(ADDRESSES[version][name])(bufs, vals)
    assert (out[:GUARD] == 77).all()
    assert (out[GUARD + size :] == 77).all()
    return out[GUARD : GUARD + size].reshape(rows, -1).astype(np.float64), int(status[0])


def _low(rng: np.random.Generator, m: int, n: int, rank: int) -> np.ndarray:
    return rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))


def _grades(n: int) -> np.ndarray:
    return 10.0 ** -np.arange(n).clip(0, 30)


#: Matrices whose values coincide, vanish, or lie as far apart as numbers allow.
MATRICES: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
    "random": lambda rng, m, n: rng.standard_normal((m, n)),
    "rank one": lambda rng, m, n: _low(rng, m, n, 1),
    "half the rank": lambda rng, m, n: _low(rng, m, n, max(1, min(m, n) // 2)),
    "zeros": lambda _, m, n: np.zeros((m, n)),
    "ones": lambda _, m, n: np.ones((m, n)),
    "signs": lambda rng, m, n: rng.integers(-1, 2, (m, n)).astype(float),
    "identity": lambda _, m, n: np.eye(m, n),
    "nilpotent": lambda _, m, n: np.eye(m, n, 1),
    "graded columns": lambda rng, m, n: rng.standard_normal((m, n)) * _grades(n),
    "graded rows": lambda rng, m, n: rng.standard_normal((m, n)) * _grades(m)[::-1, None],
    "tiny": lambda rng, m, n: rng.standard_normal((m, n)) * 1e-30,
    "huge": lambda rng, m, n: rng.standard_normal((m, n)) * 1e30,
    "subnormal": lambda rng, m, n: rng.standard_normal((m, n)) * 1e-40,
    "spread": lambda rng, m, n: rng.standard_normal((m, n)) * 10.0 ** rng.uniform(-30, 0, (m, n)),
    "bidiagonal": lambda rng, m, n: np.tril(np.triu(rng.standard_normal((m, n))), 1),
    "zeros in the diagonal": lambda rng, m, n: np.tril(np.triu(rng.standard_normal((m, n))), 1)
    * (1 - np.eye(m, n) * (np.arange(n) % 3 == 1)),
    "columns of zeros": lambda rng, m, n: rng.standard_normal((m, n)) * (np.arange(n) % 2),
    "rows of zeros": lambda rng, m, n: rng.standard_normal((m, n)) * (np.arange(m) % 2)[:, None],
    "hilbert": lambda _, m, n: 1 / (1.0 + np.arange(m)[:, None] + np.arange(n)),
    "kahan": lambda _, m, n: np.eye(m, n) - 0.3 * np.triu(np.ones((m, n)), 1),
}  # fmt: skip


def matrix(name: str, kind: str, m: int, n: int) -> np.ndarray:
    made = MATRICES[name](np.random.default_rng(m * 1000 + n), m, n)
    return made.astype(f"f{int(kind[1:]) // 8}").astype(np.float64)


def near(found: np.ndarray, wanted: np.ndarray, kind: str, scale: float) -> None:
    size = max(found.shape)
    limit = (10 + 2 * size) * ROUNDING[kind] * max(scale, 1e-300)
    assert np.isfinite(found).all()
    assert abs(found - wanted).max() <= limit + (1.5e-45 if kind == "f32" else 0)


@versions
@kinds
@pytest.mark.parametrize("name", MATRICES)
def test_svd(version: int, kind: str, name: str) -> None:
    for n in SIZES:
        for m in {n, n + 1, 3 * n + 2}:
            a = matrix(name, kind, m, n)
            found, status = call(version, f"svd_{kind}", 1, (m, n), a.T)
            assert not status, (m, n)
            u, s, vt = np.split(found[0][: n * m + n + n * n], (n * m, n * m + n))
            u, vt = u.reshape(n, m).T, vt.reshape(n, n)
            wanted = np.linalg.svd(a, compute_uv=False)
            assert (s >= 0).all()
            assert (np.diff(s) <= 0).all()
            near(s, wanted, kind, wanted[0])
            near(u.T @ u, np.eye(n), kind, 1)
            near(vt @ vt.T, np.eye(n), kind, 1)
            near((u * s) @ vt, a, kind, wanted[0])


@versions
@kinds
@pytest.mark.parametrize("name", MATRICES)
def test_eigh(version: int, kind: str, name: str) -> None:
    for n in SIZES:
        a = np.tril(matrix(name, kind, n, n))
        a += np.tril(a, -1).T
        junk = a + np.triu(np.full((n, n), np.nan), 1)  # which is not read
        found, status = call(version, f"eigh_{kind}", 1, (n,), junk)
        assert not status, n
        v, values = found[0][: n * n].reshape(n, n), found[0][n * n : n * n + n]
        wanted = np.linalg.eigvalsh(a)
        scale = abs(wanted).max()
        assert (np.diff(values) >= 0).all()
        near(values, wanted, kind, scale)
        near(v @ v.T, np.eye(n), kind, 1)
        near((v.T * values) @ v, a, kind, scale)


#: Beside a zero diagonal; the rest of the matrix, which has 1 at its end, holds zeros.
BESIDE = [8.3e-11, 9.8e-30, 1.8e-30, 9.1e-22]


def _beside(size: int) -> np.ndarray:
    a = np.diag(np.resize(BESIDE, size - 1), -1)
    a[-1, -1] = 1
    return a


@versions
@kinds
@pytest.mark.parametrize("routine", ["svd", "eigh"])
@pytest.mark.parametrize("made", ["graded up", "graded down", "beside"])
def test_values_that_are_set_apart_slowly(
    version: int, kind: str, routine: str, made: str
) -> None:
    n = 6 if made == "beside" else 118
    grades = 10.0 ** (-(0.15 if kind == "f32" else 1.2) * np.arange(n))
    grades = grades if made == "graded down" else grades[::-1]
    for seed in range(5):
        a = np.random.default_rng(seed).standard_normal((n, n)) * grades * grades[:, None]
        a = np.tril(_beside(n) if made == "beside" else a)
        a = (a + np.tril(a, -1).T).astype(f"f{int(kind[1:]) // 8}").astype(np.float64)
        numbers = (n, n) if routine == "svd" else (n,)
        found, status = call(version, f"{routine}_{kind}", 1, numbers, a)
        assert not status
        values = np.sort(abs(found[0][n * n : n * n + n]))[::-1]
        near(values, np.linalg.svd(a, compute_uv=False), kind, abs(values).max())


@versions
@kinds
@pytest.mark.parametrize("routine", ["svd", "eigh"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_has_no_values(
    version: int, kind: str, routine: str, bad: float
) -> None:
    a = np.random.default_rng(0).standard_normal((3, 5, 5))
    a[1, 3, 2] = bad
    numbers = (5, 5) if routine == "svd" else (5,)
    found, status = call(version, f"{routine}_{kind}", 3, numbers, a)
    assert status == 1 << 8 | 1  # row 1
    asked = found[:, : 25 + 5 + 25 * (routine == "svd")]
    assert np.isnan(asked[1]).all()
    assert np.isfinite(asked[[0, 2]]).all()


@versions
@kinds
def test_cholesky(version: int, kind: str) -> None:
    rng = np.random.default_rng(0)
    for n in SIZES:
        x = rng.standard_normal((2, n, n))
        a = x @ x.mT + np.eye(n)
        junk = a + np.triu(np.full((n, n), np.nan), 1)
        found, status = call(version, f"cholesky_{kind}", 2, (n, 1), junk)
        lower = found[:, : n * n].reshape(2, n, n)
        assert not status
        assert (np.triu(lower, 1) == 0).all()
        near(lower, np.linalg.cholesky(a), kind, 10 * float(abs(a).max()))
        near(lower @ lower.mT, a, kind, float(abs(a).max()))


@versions
@kinds
def test_cholesky_of_what_is_not_definite(version: int, kind: str) -> None:
    a = np.stack([np.eye(6), np.diag([1.0, 1, -1, 1, 1, 1])])
    found, status = call(version, f"cholesky_{kind}", 2, (6, 1), a)
    assert status == 1 << 8 | 1
    np.testing.assert_array_equal(found[0][:36].reshape(6, 6), np.eye(6))
    assert np.isnan(found[1][2 * 6 + 2])
    assert call(version, f"cholesky_{kind}", 2, (6, 0), a)[1] == 0


@versions
@kinds
def test_solve_and_qr(version: int, kind: str) -> None:
    rng = np.random.default_rng(0)
    for n in SIZES:
        a = rng.standard_normal((n, n)) + n * np.eye(n)
        b = rng.standard_normal((n, 3))
        found, status = call(version, f"solve_{kind}", 1, (n, 3, 1), a, b)
        assert not status
        near(found[0][: n * 3].reshape(n, 3), np.linalg.solve(a, b), kind, 4)
        for m in (n, n + 5):
            tall = rng.standard_normal((m, n))
            found, _ = call(version, f"qr_{kind}", 1, (m, n, n), tall)
            q, r = found[0][: m * n].reshape(m, n), found[0][m * n : m * n + n * n].reshape(n, n)
            near(q.T @ q, np.eye(n), kind, 1)
            near(q @ r, tall, kind, 4 * float(abs(tall).max()))
            assert (np.tril(r, -1) == 0).all()

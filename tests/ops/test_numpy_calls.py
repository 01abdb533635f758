"""NumPy's functions of tensors give tensors with NumPy's values."""

from __future__ import annotations

import io

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.tensor.free_functions.numpy_calls import FUNCTIONS

A = np.array([[0.5, 0.25, 2.0, 1.0], [1.5, 0.75, 0.1, 3.0], [2.5, 0.6, 0.9, 0.3]], np.float64)
B = A[::-1] * 1.5
HOLES = np.where(A > 2, np.nan, A)

CALLS = {
    "sum": [lambda x, _: np.sum(x), lambda x, _: np.sum(x, 0, np.float64),
            lambda x, _: np.sum(x, axis=(0, 1), keepdims=True)],
    "prod": [lambda x, _: np.prod(x, axis=1)], "mean": [lambda x, _: np.mean(x, -1)],
    "nansum": [lambda x, _: np.nansum(x + HOLES, 0)],
    "nanmean": [lambda x, _: np.nanmean(x + HOLES, 1)],
    "amax": [lambda x, _: np.amax(x, 1)], "amin": [lambda x, _: np.amin(x)],
    "max": [lambda x, _: np.max(x, axis=0, keepdims=True)], "min": [lambda x, _: np.min(x, 1)],
    "any": [lambda x, _: np.any(x > 2, 0)], "all": [lambda x, _: np.all(x > 2, 0)],
    "argmax": [lambda x, _: np.argmax(x), lambda x, _: np.argmax(x, 1)],
    "argmin": [lambda x, _: np.argmin(x, axis=0)],
    "std": [lambda x, _: np.std(x), lambda x, _: np.std(x, 0, ddof=1)],
    "var": [lambda x, _: np.var(x, axis=1, keepdims=True)],
    "cumsum": [lambda x, _: np.cumsum(x), lambda x, _: np.cumsum(x, 1)],
    "cumprod": [lambda x, _: np.cumprod(x, axis=0)],
    "sort": [lambda x, _: np.sort(x), lambda x, _: np.sort(x, axis=None)],
    "argsort": [lambda x, _: np.argsort(x, 0, kind="stable")],
    "median": [lambda x, _: np.median(x), lambda x, _: np.median(x, axis=1)],
    "quantile": [lambda x, _: np.quantile(x, 0.3, axis=0)],
    "count_nonzero": [lambda x, _: np.count_nonzero(x > 1, axis=0)],
    "concatenate": [lambda x, y: np.concatenate([x, y], 1), lambda x, _: np.concatenate([B, x]),
                    lambda x, y: np.concatenate((x, y), axis=None)],
    "stack": [lambda x, y: np.stack([x, y], axis=-1)],
    "vstack": [lambda x, _: np.vstack([x, B])], "hstack": [lambda x, y: np.hstack([x, y])],
    "dstack": [lambda x, y: np.dstack([x, y])],
    "atleast_1d": [lambda x, _: np.atleast_1d(x[0, 0]), lambda x, y: np.atleast_1d(x, y)[1]],
    "atleast_2d": [lambda x, _: np.atleast_2d(x[0])],
    "atleast_3d": [lambda x, _: np.atleast_3d(x)],
    "column_stack": [lambda x, y: np.column_stack([x, y])],
    "where": [lambda x, y: np.where(x > 1, x, y), lambda x, _: np.where(A > 1, x, 0.0)],
    "clip": [lambda x, _: np.clip(x, 0.5, 1), lambda x, _: np.clip(x, None, 1.0)],
    "reshape": [lambda x, _: np.reshape(x, (2, -1))], "ravel": [lambda x, _: np.ravel(x)],
    "transpose": [lambda x, _: np.transpose(x), lambda x, _: np.transpose(x, (1, 0))],
    "matrix_transpose": [lambda x, _: np.matrix_transpose(x)],
    "squeeze": [lambda x, _: np.squeeze(x[:1]), lambda x, _: np.squeeze(x[:1], axis=0)],
    "expand_dims": [lambda x, _: np.expand_dims(x, 1), lambda x, _: np.expand_dims(x, (0, -1))],
    "swapaxes": [lambda x, _: np.swapaxes(x, 0, 1)],
    "moveaxis": [lambda x, _: np.moveaxis(x, 0, -1)],
    "flip": [lambda x, _: np.flip(x), lambda x, _: np.flip(x, 1)],
    "roll": [lambda x, _: np.roll(x, 2), lambda x, _: np.roll(x, 1, axis=0)],
    "tile": [lambda x, _: np.tile(x, 2), lambda x, _: np.tile(x, (2, 1))],
    "repeat": [lambda x, _: np.repeat(x, 2), lambda x, _: np.repeat(x, 2, axis=0)],
    "broadcast_to": [lambda x, _: np.broadcast_to(x, (2, 3, 4))],
    "split": [lambda x, _: np.split(x, 2, axis=1)[1], lambda x, _: np.split(x, [1, -1], 1)[1]],
    "tril": [lambda x, _: np.tril(x, -1)], "triu": [lambda x, _: np.triu(x, k=1)],
    "diagonal": [lambda x, _: np.diagonal(x, 1)],
    "dot": [lambda x, _: np.dot(x, B.T), lambda x, y: np.dot(x[0], y[1]),
            lambda x, _: np.dot(x, np.stack([B.T, A.T]))],
    "outer": [np.outer], "inner": [np.inner],
    "kron": [np.kron],
    "tensordot": [np.tensordot, lambda x, _: np.tensordot(x, B.T, axes=1)],
    "einsum": [lambda x, _: np.einsum("ij,kj->ik", x, B)],
    "linalg.norm": [lambda x, _: np.linalg.norm(x), lambda x, _: np.linalg.norm(x, 1, axis=1)],
    "zeros_like": [lambda x, _: np.zeros_like(x)], "ones_like": [lambda x, _: np.ones_like(x)],
    "full_like": [lambda x, _: np.full_like(x, 3)],
    "copy": [lambda x, _: np.copy(x)],
    "round": [lambda x, _: np.round(x, 1)], "around": [lambda x, _: np.around(x)],
    "diff": [lambda x, _: np.diff(x), lambda x, _: np.diff(x, 2, 0)],
    "nan_to_num": [lambda x, _: np.nan_to_num(x + HOLES)],
    "take_along_axis": [lambda x, _: np.take_along_axis(x, np.argsort(A, 1), 1)],
    "real": [lambda x, _: np.real(x)],
    "percentile": [lambda x, _: np.percentile(x, 30), lambda x, _: np.percentile(x, [10, 50], 0),
                   lambda x, _: np.percentile(x, 40, axis=1, method="lower", keepdims=True)],
    "nanquantile": [lambda x, _: np.nanquantile(x + HOLES, 0.3, axis=0)],
    "nanpercentile": [lambda x, _: np.nanpercentile(x + HOLES, [30, 70])],
    "nanmedian": [lambda x, _: np.nanmedian(x + HOLES), lambda x, _: np.nanmedian(x + HOLES, 0)],
    "nanmax": [lambda x, _: np.nanmax(x + HOLES, 1), lambda x, _: np.nanmax((x * 9).round())],
    "nanmin": [lambda x, _: np.nanmin(x + HOLES), lambda x, _: np.nanmin(x, axis=0, keepdims=True)],
    "ptp": [lambda x, _: np.ptp(x), lambda x, _: np.ptp(x, axis=0)],
    "average": [lambda x, y: np.average(x, weights=y), lambda x, _: np.average(x, 1, A[0]),
                lambda x, _: np.average(x, axis=0, keepdims=True)],
    "cov": [lambda x, _: np.cov(x), lambda x, _: np.cov(x, rowvar=False, ddof=0)],
    "corrcoef": [lambda x, _: np.corrcoef(x), lambda x, _: np.corrcoef(x, rowvar=False)],
    "unique": [lambda x, _: np.unique((x * 2).round()), lambda x, _: np.unique(x > 1, axis=1),
               *(lambda x, _, k=k: np.unique((x * 2).round(), True, True, True)[k]
                 for k in range(4)),
               lambda x, _: np.unique(np.vstack([x, A]), axis=0, return_index=True)[1]],
    "histogram": [lambda x, _: np.histogram(x)[0], lambda x, _: np.histogram(x, 4)[1],
                  lambda x, _: np.histogram(x, [0, 1, 2, 3], density=True)[0],
                  lambda x, y: np.histogram(x, 3, range=(0, 2), weights=y)[0]],
    "digitize": [lambda x, _: np.digitize(x, [0.25, 1, 2]),
                 lambda x, _: np.digitize(x, [2, 1, 0.25], right=True)],
    "searchsorted": [lambda x, _: np.searchsorted([0.25, 1, 2], x, side="right"),
                     lambda x, _: np.searchsorted(x[1] * 0, 1.0),
                     lambda x, _: np.searchsorted(x[0], x, sorter=np.argsort(A[0]))],
    "interp": [lambda x, _: np.interp(x, [0.5, 1, 2], [3.0, 1, 7]),
               lambda x, y: np.interp(x, np.sort(B[0]), y[0], left=-1, right=-2),
               lambda x, _: np.interp(x, [1.0], [5.0]),
               lambda x, _: np.interp(0.3, [0.0, 1], x[0, :2]),
               lambda x, _: np.interp(x, [0.5, 1, 1, 2], [3.0, 1, 5, 7])],
    "bincount": [lambda x, _: np.bincount(x.astype(int).ravel(), minlength=6)
                 if isinstance(x, np.ndarray) else np.bincount(x.int().ravel(), minlength=6)],
    "isin": [lambda x, _: np.isin(x, [0.5, 3]), lambda x, _: np.isin(A, x[0], invert=True)],
    "argwhere": [lambda x, _: np.argwhere(x > 1)],
    "flatnonzero": [lambda x, _: np.flatnonzero(x > 1)],
    "trapezoid": [lambda x, _: np.trapezoid(x, dx=0.5), lambda x, y: np.trapezoid(x, y[0])],
    "take": [lambda x, _: np.take(x, [-1, 5]), lambda x, _: np.take(x, -1, axis=1),
             lambda x, _: np.take(x, [[0, -1]], axis=1)],
    "append": [lambda x, _: np.append(x, 1.0), lambda x, _: np.append(x, B, axis=0)],
    "broadcast_arrays": [lambda x, _: np.broadcast_arrays(x, 0.5)[1],
                         lambda x, _: np.broadcast_arrays(B[0], x)[0]],
    "array_split": [lambda x, _: np.array_split(x, 3, axis=1)[0],
                    lambda x, _: np.array_split(x, [1], 1)[1]],
    "hsplit": [lambda x, _: np.hsplit(x, 2)[1]], "vsplit": [lambda x, _: np.vsplit(x, [1])[1]],
    "rot90": [lambda x, _: np.rot90(x), lambda x, _: np.rot90(x, 3, axes=(1, 0))],
    "fliplr": [lambda x, _: np.fliplr(x)], "flipud": [lambda x, _: np.flipud(x)],
    "diag": [lambda x, _: np.diag(x), lambda x, _: np.diag(x[0], 1)],
    "trace": [lambda x, _: np.trace(x, 1)],
    "cross": [lambda x, y: np.cross(x[:, :3], y[:, :3])],
    "vdot": [np.vdot], "sinc": [lambda x, _: np.sinc(x)], "i0": [lambda x, _: np.i0(x)],
    "angle": [lambda x, _: np.angle(x - 1)], "fix": [lambda x, _: np.fix(-x)],
    "isreal": [lambda x, _: np.isreal(x)],
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_values(name) -> None:
    for ask in CALLS[name]:
        ours, theirs = ask(krt.tensor(A), krt.tensor(B)), ask(A, B)
        assert isinstance(ours, krt.Tensor)
        assert ours.shape == np.shape(theirs)
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12, atol=1e-12)


def test_all_are_tested() -> None:
    assert set(FUNCTIONS) - set(CALLS) <= {"shape", "ndim", "conj", "empty_like"}
    x = krt.tensor(A)
    assert (np.shape(x), np.ndim(x), np.conj(x) is x) == ((3, 4), 2, True)
    assert np.empty_like(x, dtype="int8").dtype is krt.int8


@pytest.mark.parametrize("ask", [
    lambda x, _: np.unstack(x, axis=1)[2], lambda x, _: np.cumulative_sum(x, axis=0),
    lambda x, _: np.unique_counts(x).counts, lambda x, _: np.astype(x, np.float32),
    lambda x, _: np.meshgrid(x[0], x[1])[1], lambda x, _: np.nonzero(x > 1)[1],
    lambda x, _: np.take(x, np.array([2, 0]), axis=1), lambda x, _: np.searchsorted(B[0] * 0, x),
    lambda x, _: np.linalg.inv(x[:, :3]), lambda x, _: np.linalg.solve(x[:, :3], B),
    lambda x, _: np.linalg.solve(A[:, :3], x[:, 0]), np.linalg.vecdot, np.vecdot,
    lambda x, _: np.vecdot(B, x, axis=0),
    lambda x, _: np.linalg.svd(x)[1], lambda x, _: np.linalg.trace(x),
    lambda x, _: np.linalg.matrix_norm(x), lambda x, y: np.broadcast_arrays(x, y[0])[1],
])  # fmt: skip
def test_functions_of_the_array_api_standard(ask) -> None:
    ours, theirs = ask(krt.tensor(A), krt.tensor(B)), ask(A, B)
    assert isinstance(ours, krt.Tensor)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-9, atol=1e-12)


UNARY = [
    "exp", "expm1", "exp2", "log", "log2", "log10", "log1p", "sqrt", "square", "reciprocal",
    "sin", "cos", "tan", "arctan", "sinh", "cosh", "tanh", "arcsinh", "fabs", "rint", "degrees",
    "radians", "floor", "ceil", "trunc", "sign", "signbit", "isnan", "isinf", "isfinite",
    "logical_not",
]  # fmt: skip
BINARY = [
    "maximum", "minimum", "fmax", "fmin", "fmod", "hypot", "arctan2", "copysign", "nextafter",
    "logaddexp", "logaddexp2", "heaviside", "logical_and", "logical_or", "logical_xor",
    "float_power", "add", "power",
]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one(name) -> None:
    found = getattr(np, name)(krt.tensor(A))
    assert isinstance(found, krt.Tensor)
    np.testing.assert_allclose(found.numpy(), getattr(np, name)(A), 1e-12)


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two(name) -> None:
    do = getattr(np, name)
    for found in (do(krt.tensor(A), B), do(A, krt.tensor(B)), do(krt.tensor(A), krt.tensor(B))):
        assert isinstance(found, krt.Tensor)
        np.testing.assert_allclose(found.numpy(), do(A, B), 1e-12)


def test_methods_of_functions() -> None:
    x = krt.tensor(A)
    for do in (np.add, np.multiply, np.maximum, np.minimum):
        np.testing.assert_allclose(do.reduce(x).numpy(), do.reduce(A))
        whole = do.reduce(x, axis=None, keepdims=True)
        np.testing.assert_allclose(whole.numpy(), do.reduce(A, axis=None, keepdims=True))
    np.testing.assert_array_equal(np.logical_and.reduce(x > 0.4, 1).numpy(), (A > 0.4).all(1))
    np.testing.assert_array_equal(np.logical_or.reduce(x > 2.4, 1).numpy(), (A > 2.4).any(1))
    np.testing.assert_allclose(np.add.accumulate(x, 1).numpy(), A.cumsum(1))
    np.testing.assert_allclose(np.multiply.accumulate(x).numpy(), A.cumprod(0))


def test_what_has_no_numbers_is_broadcast_as_an_array() -> None:
    x, names, none = np.broadcast_arrays(krt.tensor(A[0]), "ab", None)
    assert isinstance(x, krt.Tensor)
    assert (names.tolist(), none.tolist()) == (["ab"] * 4, [None] * 4)


def test_masked_arrays_of_tensors() -> None:
    x = krt.tensor(HOLES)
    assert np.ma.getmask(x) is np.ma.nomask
    np.testing.assert_array_equal(np.ma.masked_invalid(x).filled(0), np.nan_to_num(HOLES))
    np.testing.assert_array_equal(np.ma.ravel(krt.tensor(A)), A.ravel())
    assert not [n for n in vars(np.ma.array([1])) if hasattr(krt.Tensor, n)]


def test_scalars_are_no_sequences() -> None:
    scalar = krt.tensor(1.5)
    assert not np.iterable(scalar)
    for ask in (len, iter):
        with pytest.raises(TypeError, match="without axes") as error:
            ask(scalar)
        assert isinstance(error.value, ShapeError)


def test_the_sign_of_nan() -> None:
    np.testing.assert_array_equal(np.sign(krt.tensor([np.nan, -2.0])).numpy(), [np.nan, -1])


def test_gradients_of_interpolation() -> None:
    x, y = (krt.tensor(v, requires_grad=True) for v in ([0.5, 1.0, 3.0], [0.0, 2.0, 6.0]))
    np.interp(x, [0.0, 1.0, 2.0], y).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([2, 4, 0], [0.5, 1.5, 1.0])


def test_they_have_gradients() -> None:
    x = krt.tensor(A, requires_grad=True)
    np.sum(np.exp(x) * B).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.exp(A) * B, 1e-12)


def test_what_reads_values_gets_arrays() -> None:
    x = krt.tensor(A)
    assert np.allclose(x, A) is True
    assert np.array_equal(x, A)
    assert np.asarray(x).dtype == np.float64
    file = io.BytesIO()
    np.save(file, x)
    file.seek(0)
    np.testing.assert_array_equal(np.load(file), A)


def test_what_cannot_be_says_the_way_out() -> None:
    x, out = krt.tensor(A), np.empty((3, 4))
    for ask in (lambda: np.linalg.eig(x), lambda: np.sum(x, out=out), lambda: np.delete(x, 1),
                lambda: np.concatenate([x, x], out=out), lambda: np.exp(x, out=out),
                lambda: np.cbrt(x), lambda: np.add.reduce(x, where=A > 1),
                lambda: np.subtract.outer(x, x)):  # fmt: skip
        with pytest.raises(DTypeError, match=r"numpy\..*x\.numpy\(\)"):
            ask()
    with pytest.raises(DTypeError, match=r"numpy\.linalg\.svd: .*compute_uv.*x\.numpy\(\)"):
        np.linalg.svd(x, compute_uv=False)
    with pytest.raises(DTypeError, match="order"):
        np.reshape(x, -1, order="F")
    with pytest.raises(ShapeError, match="equal parts"):
        np.split(x, 3, axis=1)


def test_out_is_written_and_seen_by_views():
    x, row = krt.tensor([[1.0, 2.0], [3.0, 4.0]]), krt.tensor([10.0, 20.0])
    view = x[1]
    assert np.add(x, 1, out=x) is x
    assert np.multiply(view, row, out=view) is view
    assert x.tolist() == [[2, 3], [40, 100]]
    np.sqrt(np.float32(16), out=row[0])
    assert row.tolist() == [4, 20]
    low, high = krt.zeros(2, dtype=krt.int64), krt.zeros(2, dtype=krt.int64)
    assert np.divmod(krt.tensor([7, 9]), 4, out=(low, high)) == (low, high)
    assert (low.tolist(), high.tolist()) == ([1, 2], [3, 1])
    with pytest.raises(krt.DTypeError, match=r"numpy\.add: out is int64, .* float32 result"):
        np.add(row, 1, out=low)
    with pytest.raises(krt.ShapeError, match=r"numpy\.add: out has shape \(2, 2\), .* \(2,\)"):
        np.add(row, 1, out=x)
    assert (low.tolist(), x.tolist()) == ([1, 2], [[2, 3], [40, 100]])
    with pytest.raises(krt.DTypeError, match=r"numpy\.add: this NumPy function takes arrays"):
        np.add(np.ones(2), np.ones(2), out=row, where=np.array([True, False]))
    assert row.tolist() == [4, 20]

"""kernelrt.array_api is the array API standard, 2024.12; the oracle is NumPy, which is one, too."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import kernelrt as krt
import kernelrt.array_api as xp
from kernelrt.errors import DeviceError, DTypeError, ShapeError, SharingError


def words(text: str) -> list[str]:
    return text.split()


#: The standard, section by section.
STANDARD = set(words("""
e inf nan newaxis pi arange asarray empty empty_like eye from_dlpack full full_like linspace
meshgrid ones ones_like tril triu zeros zeros_like astype broadcast_arrays broadcast_to can_cast
finfo iinfo isdtype result_type bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32
float64 complex64 complex128 abs acos acosh add asin asinh atan atan2 atanh bitwise_and
bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj
copysign cos cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag
isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not
logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow real
reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc take
take_along_axis __array_namespace_info__ __array_api_version__ matmul matrix_transpose tensordot
vecdot concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile
unstack argmax argmin count_nonzero nonzero searchsorted where unique_all unique_counts
unique_inverse unique_values argsort sort cumulative_prod cumulative_sum max mean min prod std sum
var all any diff linalg fft
"""))
LINALG = set(words("""
cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank
matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
"""))
ATTRIBUTES = words("""
dtype device mT ndim shape size T __abs__ __add__ __and__ __array_namespace__ __bool__ __complex__
__dlpack__ __dlpack_device__ __eq__ __float__ __floordiv__ __ge__ __getitem__ __gt__ __index__
__int__ __invert__ __le__ __lshift__ __lt__ __matmul__ __mod__ __mul__ __ne__ __neg__ __or__
__pos__ __pow__ __rshift__ __setitem__ __sub__ __truediv__ __xor__ to_device
""") + [
    f"__{side}{name}__"
    for name in words("add sub mul truediv floordiv mod pow and or xor lshift rshift")
    for side in "ir"
]  # fmt: skip
LACKING = {
    "complex64": "there are no complex types",
    "complex128": "there are no complex types",
    "imag": "only complex numbers have an imaginary part",
    "fft": "an extension over complex numbers",
}
TOLERANCE = {"float32": 4e-6, "float64": 1e-13}
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float32", "float64")
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 0.5, -2.5, 3.0)


def test_every_name_is_there_or_in_the_list() -> None:
    assert set(xp.__all__) == STANDARD - set(LACKING)
    assert {n for n in dir(xp) if not n.startswith("_")} <= STANDARD
    assert set(xp.linalg.__all__) == LINALG
    assert not [n for n in (*xp.__all__, *ATTRIBUTES) if n in LACKING]
    assert not [n for n in xp.__all__ if getattr(xp, n, LACKING) is LACKING]
    assert not [n for n in LINALG if not callable(getattr(xp.linalg, n))]
    assert not [n for n in ATTRIBUTES if not hasattr(krt.Tensor, n)]


def check(ours: object, theirs: object, rtol: float | None = None) -> None:
    if isinstance(theirs, tuple | list):
        assert getattr(ours, "_fields", None) == getattr(theirs, "_fields", None)
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            check(a, b, rtol)
        return
    assert isinstance(ours, krt.Tensor)
    wanted = np.asarray(theirs)
    assert ours.dtype.name == wanted.dtype.name
    assert ours.shape == wanted.shape
    close = TOLERANCE.get(wanted.dtype.name, 0) if rtol is None else rtol
    np.testing.assert_allclose(ours.numpy(), wanted, close, close, equal_nan=True)
    if wanted.dtype.kind == "f" and not close:
        np.testing.assert_array_equal(np.signbit(ours.numpy()), np.signbit(wanted))


def data(dtype: str) -> dict[str, np.ndarray]:
    """Arrays of one type, by the names that the lines below use."""
    rng = np.random.default_rng(3)
    kind = np.dtype(dtype)
    draw = rng.integers(0 if kind.kind in "ub" else -6, 2 if kind.kind == "b" else 7, (3, 4))
    x = draw.astype(dtype) if kind.kind != "f" else rng.normal(size=(3, 4)).astype(dtype)
    return {
        "x": x, "y": x[::-1] + x[1] if kind.kind == "f" else x[::-1].copy(), "v": x[1],
        "s": np.asarray(x[2, 1]), "none": x[:0], "t": np.stack([x, x[:, ::-1]]),
        "k": np.asarray([2, 0, 1, 0]), "few": np.asarray([1, 0, 2], np.uint8),
        "m": np.asarray([[True, False, True, True]] * 3),
    }  # fmt: skip


def compare(code: str, dtype: str) -> None:
    given = data(dtype)
    held = {name: krt.tensor(value) for name, value in given.items()}
    with np.errstate(all="ignore"):
        theirs = eval(code, {"xp": np, **given})  # noqa: S307 - our own lines
    check(eval(code, {"xp": xp, **held}), theirs)  # noqa: S307


EVERY = """
xp.concat([x, y])
xp.concat([x, y], axis=-1)
xp.concat((x, v), axis=None)
xp.concat([x, none])
xp.broadcast_to(v, (3, 4))
xp.expand_dims(x, axis=-1)
xp.flip(x)
xp.flip(x, axis=0)
xp.flip(x, axis=(0, -1))
xp.moveaxis(t, 0, -1)
xp.moveaxis(t, (0, 1), (-1, 0))
xp.permute_dims(t, (2, 0, 1))
xp.matrix_transpose(t)
xp.repeat(x, 2)
xp.repeat(x, 3, axis=1)
xp.repeat(x, few, axis=0)
xp.reshape(x, (2, -1))
xp.reshape(x, (4, 3), copy=True)
xp.roll(x, 2)
xp.roll(x, -1, axis=1)
xp.roll(x, 1, axis=(0, 1))
xp.roll(x, (1, 2), axis=(0, 1))
xp.squeeze(x[:1, :], axis=0)
xp.squeeze(t[:, :1, :1], axis=(1, 2))
xp.stack([x, y])
xp.stack([x, y], axis=-1)
xp.tile(x, (2,))
xp.tile(x, (2, 1, 3))
xp.tile(x, ())
xp.unstack(x)
xp.unstack(x, axis=1)
xp.meshgrid(v, x[0, :2])
xp.meshgrid(v, x[0, :2], indexing="ij")
xp.take(x, k, axis=1)
xp.take(v, k)
xp.take_along_axis(x, xp.argsort(x, axis=1), axis=1)
xp.tril(t)
xp.triu(x, k=1)
xp.tril(x, k=-1)
xp.argsort(x, stable=True)
xp.sort(x, axis=0)
xp.sort(none, axis=-1)
xp.unique_all(x)
xp.unique_counts(x)
xp.unique_inverse(x)
xp.sort(xp.unique_values(x))
xp.unique_all(s)
xp.unique_all(none)
xp.nonzero(x)
xp.nonzero(none)
xp.count_nonzero(x)
xp.count_nonzero(x, axis=0, keepdims=True)
xp.searchsorted(xp.sort(v), x)
xp.searchsorted(xp.sort(v), s, side="right")
xp.searchsorted(v, x, sorter=xp.argsort(v))
xp.where(m, x, y)
xp.where(m, x, s)
xp.all(x)
xp.any(x, axis=1, keepdims=True)
xp.all(none, axis=0)
xp.any(t, axis=(0, 2))
xp.equal(x, y)
xp.not_equal(x, v)
xp.logical_and(x, y)
xp.logical_or(x, v)
xp.logical_xor(x, s)
xp.logical_not(x)
xp.astype(x, xp.float64)
xp.astype(x, xp.bool)
xp.zeros_like(x)
xp.ones_like(none)
xp.full_like(x, 1)
xp.full_like(x, s)
xp.full((2, 0), s, dtype=xp.int8)
xp.full(3, s)
xp.full_like(x, 1, dtype=xp.float32)
xp.linalg.diagonal(t)
xp.linalg.diagonal(t, offset=1)
x[m]
x[..., None]
x[1:, ::2]
xp.asarray(x, copy=True)
xp.zeros_like(x, dtype=xp.uint16)
""".strip().splitlines()  # fmt: skip
NUMERIC = """
xp.sum(x)
xp.sum(x, axis=0)
xp.sum(t, axis=(0, -1), keepdims=True)
xp.sum(none, axis=0)
xp.sum(x, axis=())
xp.sum(x, dtype=xp.float64)
xp.prod(x, axis=1)
xp.prod(none)
xp.max(x, axis=(0, 1))
xp.min(x, axis=0, keepdims=True)
xp.argmax(x)
xp.argmin(x, axis=1, keepdims=True)
xp.argmax(x, keepdims=True)
xp.cumulative_sum(v)
xp.cumulative_sum(x, axis=0, include_initial=True)
xp.cumulative_sum(none, axis=0, include_initial=True)
xp.cumulative_prod(x, axis=1)
xp.cumulative_prod(x, axis=0, include_initial=True, dtype=xp.float64)
xp.diff(x)
xp.diff(x, axis=0, n=2)
xp.diff(x, prepend=x, append=y)
xp.abs(x)
xp.negative(x)
xp.positive(x)
xp.sign(x)
xp.square(x)
xp.ceil(x)
xp.floor(x)
xp.trunc(x)
xp.round(x)
xp.conj(x)
xp.real(x)
xp.isfinite(x)
xp.isinf(x)
xp.isnan(x)
xp.add(x, v)
xp.subtract(x, s)
xp.multiply(x, y)
xp.multiply(2, x)
xp.add(x, 3)
xp.maximum(x, v)
xp.minimum(x, 1)
xp.floor_divide(x, xp.maximum(y, xp.ones_like(y)))
xp.remainder(x, xp.maximum(y, xp.ones_like(y)))
xp.floor_divide(x, 2)
xp.pow(x, 2)
xp.less(x, v)
xp.less_equal(x, 1)
xp.greater(0, x)
xp.greater_equal(x, y)
xp.clip(x, 0, 2)
xp.clip(x, min=v)
xp.clip(x, max=s)
xp.clip(x)
xp.matmul(x, y.T)
xp.matmul(t, v)
xp.tensordot(x, y, axes=2)
xp.tensordot(x, y, axes=((0,), (0,)))
xp.tensordot(x, v, axes=0)
xp.vecdot(x, y)
xp.vecdot(x, v)
xp.vecdot(t, x, axis=-2)
xp.linalg.trace(t)
xp.linalg.trace(x, offset=-1)
xp.linalg.outer(v, v)
xp.linalg.cross(x[:, :3], y[:, :3])
xp.linalg.cross(x[:, :3], v[:3])
""".strip().splitlines()
WHOLE = """
xp.bitwise_and(x, y)
xp.bitwise_or(x, s)
xp.bitwise_xor(x, v)
xp.bitwise_invert(x)
""".strip().splitlines()
SHIFTS = """
xp.bitwise_left_shift(x, 2)
xp.bitwise_right_shift(x, xp.bitwise_and(y, xp.full_like(y, 3)))
""".strip().splitlines()
REAL = """
xp.mean(x)
xp.mean(x, axis=1, keepdims=True)
xp.mean(none, axis=1)
xp.std(x)
xp.std(x, axis=0, correction=1)
xp.var(x, axis=(0, 1), correction=0.5)
xp.var(x, axis=-1, keepdims=True)
xp.divide(x, y)
xp.reciprocal(x)
xp.signbit(x)
xp.exp(x)
xp.expm1(x)
xp.log(xp.abs(x))
xp.log2(xp.abs(x))
xp.log10(xp.abs(x))
xp.log1p(xp.abs(x))
xp.sqrt(x)
xp.sin(x)
xp.cos(x)
xp.tan(x)
xp.sinh(x)
xp.cosh(x)
xp.tanh(x)
xp.asin(xp.tanh(x))
xp.acos(xp.tanh(x))
xp.atan(x)
xp.asinh(x)
xp.acosh(1 + xp.abs(x))
xp.atanh(xp.tanh(x))
xp.pow(xp.abs(x), y)
xp.linalg.vector_norm(x)
xp.linalg.vector_norm(x, axis=0, ord=1, keepdims=True)
xp.linalg.matrix_norm(t)
xp.linalg.matrix_norm(x, ord=1, keepdims=True)
xp.linalg.matrix_rank(t)
xp.linalg.svdvals(t)
""".strip().splitlines()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float32"])
@pytest.mark.parametrize("code", EVERY)
def test_functions_of_every_type(code: str, dtype: str) -> None:
    compare(code, dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "float32", "float64"])
@pytest.mark.parametrize("code", NUMERIC)
def test_functions_of_numbers(code: str, dtype: str) -> None:
    compare(code, dtype)


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
@pytest.mark.parametrize("code", WHOLE)
def test_functions_of_bits(code: str, dtype: str) -> None:
    compare(code, dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
@pytest.mark.parametrize("code", SHIFTS)
def test_shifts(code: str, dtype: str) -> None:
    compare(code, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("code", REAL)
def test_functions_of_floats(code: str, dtype: str) -> None:
    compare(code, dtype)


ONE = words("""
abs acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor isfinite isinf isnan log log1p
log2 log10 logical_not negative positive reciprocal round sign signbit sin sinh square sqrt tan
tanh trunc
""")
TWO = words("""
add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal logaddexp
logical_and logical_or logical_xor maximum minimum multiply nextafter not_equal pow remainder
subtract
""")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_special_values(name: str, dtype: str) -> None:
    one = np.asarray(SPECIAL, dtype)
    args = [one] if name in ONE else list(np.meshgrid(one, one))
    with np.errstate(all="ignore"):
        theirs = getattr(np, name)(*args)
    ours = getattr(xp, name)(*map(krt.tensor, args))
    check(ours, theirs)
    zero = (ours.numpy() == 0) & (name not in ("maximum", "minimum"))  # which zero is not said
    assert (np.signbit(ours.numpy()) == np.signbit(theirs))[zero].all()


@pytest.mark.parametrize("code", """
xp.sort(x)
xp.argsort(x, axis=0)
xp.max(x)
xp.min(x, axis=0)
xp.argmax(x, axis=1)
xp.argmin(x)
xp.mean(x, axis=0)
xp.std(x, axis=1)
xp.sum(x, axis=1)
xp.cumulative_sum(x, axis=0)
xp.cumulative_prod(x, axis=1)
xp.clip(x, -1, 1)
xp.all(x, axis=0)
xp.any(x)
xp.nonzero(x)
xp.diff(x)
xp.unique_counts(x)
xp.unique_inverse(x).values
xp.searchsorted(xp.sort(x[0]), x)
xp.count_nonzero(x)
xp.linalg.vector_norm(x, axis=0)
xp.where(xp.isnan(x), 0.0, x)
xp.astype(x, xp.bool)
""".strip().splitlines())
def test_nan_and_infinities_among_numbers(code: str) -> None:
    x = np.asarray([[1.0, np.nan, -2.0, 0.0], [np.inf, 3.0, -0.0, 1.0], [2.0, 2.0, -np.inf, 1.0]])
    with np.errstate(all="ignore"):
        theirs = eval(code, {"xp": np, "x": x})  # noqa: S307
    check(eval(code, {"xp": xp, "x": krt.tensor(x)}), theirs)  # noqa: S307


@pytest.mark.parametrize("name", TWO)
def test_numbers_on_either_side(name: str) -> None:
    x = np.asarray([0.5, -1.5, 2.0], np.float32)
    for args in ((x, 2.0), (3.0, x)):
        ours = [krt.tensor(a) if a is x else a for a in args]
        with np.errstate(all="ignore"):
            check(getattr(xp, name)(*ours), getattr(np, name)(*args))


@pytest.mark.parametrize("pair", [("int8", "int32"), ("uint8", "int16"), ("float32", "float64")])
@pytest.mark.parametrize("name", ["add", "equal", "maximum", "remainder", "subtract"])
def test_axes_make_no_difference_to_types(name: str, pair: tuple[str, str]) -> None:
    for low, high in (pair, pair[::-1]):
        a, b = np.asarray([1, 2, 100], low), np.asarray(3, high)
        ours, theirs = getattr(xp, name), getattr(np, name)
        check(ours(krt.tensor(a), krt.tensor(b)), theirs(a, b))
        check(ours(krt.tensor(b), krt.tensor(a)), theirs(b, a))
    check(xp.where(krt.tensor(True), krt.tensor(a), krt.tensor(b)), np.where(True, a, b))
    assert xp.equal(krt.tensor([44], dtype="int8"), krt.tensor(300)).tolist() == [False]


# ---- what is made of numbers


def test_what_is_made() -> None:
    for code in (
        "xp.arange(3, dtype=xp.int16)", "xp.arange(1, 4)", "xp.arange(5, stop=0, step=-2)",
        "xp.arange(5, 0)", "xp.arange(0, 1, 0.25, dtype=xp.float64)",
        "xp.linspace(0, 1, 5, dtype=xp.float32)", "xp.linspace(0, 1, num=0, dtype=xp.float64)",
        "xp.linspace(1, 3, 4, endpoint=False, dtype=xp.float64)",
        "xp.linspace(1, 3, 0, endpoint=False, dtype=xp.float64)",
        "xp.eye(3, dtype=xp.int8)", "xp.eye(2, 4, k=1, dtype=xp.float64)",
        "xp.eye(3, 2, k=-1, dtype=xp.bool)", "xp.eye(0, dtype=xp.float64)",
        "xp.full((2, 3), 7)", "xp.full(shape=2, fill_value=True)",
        "xp.full((), 1.5, dtype=xp.float32)",
        "xp.ones((2, 0), dtype=xp.uint32)", "xp.zeros(shape=3, dtype=xp.int64)",
        "xp.zeros((2, 3), dtype=xp.float64)", "xp.asarray([[1, 2], [3, 4]])", "xp.asarray(True)",
        "xp.asarray([], dtype=xp.int8)", "xp.asarray(2, dtype=xp.float64)",
        "xp.broadcast_arrays(xp.zeros((2, 1), dtype=xp.int8), xp.ones(3, dtype=xp.int8))[0]",
    ):  # fmt: skip
        check(eval(code, {"xp": xp}), eval(code, {"xp": np}), 1e-6)  # noqa: S307
    assert xp.asarray(1.5).dtype is xp.float32
    assert xp.arange(3.0).dtype is xp.linspace(0, 1, 2).dtype is xp.full(2, 1.0).dtype is xp.float32
    lists = xp.meshgrid(krt.ones(2)), xp.broadcast_arrays(krt.ones(2)), xp.unstack(krt.ones(2))
    assert [type(made) for made in lists] == [list, list, tuple]
    assert xp.meshgrid() == xp.broadcast_arrays() == []
    assert xp.empty((2, 3), dtype=xp.int8).shape == (2, 3)
    assert xp.empty_like(krt.ones(2, dtype="int8")).dtype is xp.int8
    for make in (xp.asarray, xp.zeros, xp.eye, xp.arange):
        with pytest.raises(DeviceError, match="cuda"):
            make(2, device="cuda")
    for call in (lambda here: xp.eye(2, k=1, device=here),
                 lambda here: xp.full(2, krt.tensor(1), device=here)):  # fmt: skip
        with pytest.raises(DeviceError, match="cuda"):
            call("cuda")


def test_memory_and_copies() -> None:
    x = krt.tensor([1.0, 2.0])
    assert xp.asarray(x) is x
    assert xp.astype(x, xp.float32, copy=False) is x
    assert xp.astype(x, xp.float32) is not x
    assert xp.reshape(x, (2,), copy=True) is not x
    memory = np.arange(6.0).reshape(2, 3)
    shared, copied = xp.from_dlpack(memory, device="cpu"), xp.from_dlpack(memory, copy=True)
    inside = xp.asarray(memory, copy=False)
    memory[0, 0] = 9
    assert [float(t[0, 0]) for t in (shared, copied, inside)] == [9, 0, 9]
    check(xp.from_dlpack(memory[:, ::2]), memory[:, ::2])
    with pytest.raises(ShapeError, match="strides"):
        xp.from_dlpack(memory[:, ::2], copy=False)
    with pytest.raises(SharingError, match="copy: False"):
        xp.asarray([1.0], copy=False)
    check(xp.from_dlpack(x), x.numpy())
    with pytest.raises(DeviceError, match="device"):
        xp.from_dlpack(memory, device="cuda")


# ---- types


def test_types() -> None:
    names = ("bool", *INTEGERS, *FLOATS)
    for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating",
                 "complex floating", "numeric"):  # fmt: skip
        for name in names:
            wanted = np.isdtype(np.dtype(name), kind)
            assert xp.isdtype(getattr(xp, name), kind) == wanted, (name, kind)
        assert set(xp.__array_namespace_info__().dtypes(kind=kind)) == {
            n for n in names if np.isdtype(np.dtype(n), kind)
        }
    assert xp.isdtype(xp.int8, (xp.int16, "real floating", xp.int8))
    assert not xp.isdtype(xp.int8, ("bool", xp.uint8))
    assert xp.isdtype(krt.float16, "real floating")
    with pytest.raises(DTypeError, match="kind: expected a dtype or one of"):
        xp.isdtype(xp.int8, "whole")
    for a in names:
        for b in names:
            ours, theirs = getattr(xp, a), getattr(xp, b)
            if np.can_cast(a, b) != xp.can_cast(ours, theirs):  # NumPy rounds there
                assert (a[-2:], b) == ("64", "float64")
            mixed = {np.dtype(n).kind for n in (a, b)}
            if len(mixed) == 1 or (mixed == {"u", "i"} and "uint64" not in (a, b)):
                assert xp.result_type(ours, theirs).name == np.result_type(a, b).name


def test_types_of_tensors_and_numbers() -> None:
    small, point = krt.ones(2, dtype="int8"), krt.tensor(1, dtype="int32")
    assert xp.result_type(small, point) is xp.int32
    assert xp.result_type(small, 3, True) is xp.int8
    assert xp.result_type(xp.float64, 1.5, small) is xp.float64
    assert xp.can_cast(small, xp.int16)
    assert not xp.can_cast(point, xp.int16)
    with pytest.raises(DTypeError, match="at least one tensor or dtype"):
        xp.result_type(1, 2.0)
    for name in FLOATS:
        ours, theirs = xp.finfo(getattr(xp, name)), np.finfo(name)
        for part in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(ours, part) == float(getattr(theirs, part)), (name, part)
        assert ours.dtype is getattr(xp, name)
    for name in INTEGERS:
        info = xp.iinfo(krt.ones(1, dtype=name))
        theirs = np.iinfo(name)
        assert (info.bits, info.min, info.max) == (theirs.bits, theirs.min, theirs.max)
        assert info.dtype is getattr(xp, name)


def test_what_the_namespace_says_of_itself() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {
        "boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64,
    }  # fmt: skip
    assert info.default_device() in info.devices()
    assert krt.ones(2).device in info.devices()
    kinds = info.default_dtypes()
    assert kinds["real floating"] is xp.asarray(1.0).dtype
    assert kinds["integral"] is xp.asarray(1).dtype
    assert kinds["indexing"] is xp.argmax(krt.ones(2)).dtype
    assert set(info.dtypes()) == {"bool", *INTEGERS, *FLOATS}
    assert set(info.dtypes(kind=("bool", "real floating"))) == {"bool", *FLOATS}
    assert xp.__array_api_version__ == "2024.12"
    for ask in (info.default_dtypes, info.dtypes):
        with pytest.raises(DeviceError, match="cuda"):
            ask(device="cuda")


# ---- tensors


def test_tensors_know_their_namespace() -> None:
    x = krt.tensor([1, 2])
    assert x.__array_namespace__() is xp
    for version in ("2021.12", "2022.12", "2023.12", "2024.12"):
        assert x.__array_namespace__(api_version=version) is xp
    with pytest.raises(ValueError, match="api_version: expected"):
        x.__array_namespace__(api_version="2019.01")
    code = (
        "import sys, kernelrt as krt;"
        "assert 'kernelrt.array_api' not in sys.modules;"
        "assert krt.ones(1).__array_namespace__() is krt.array_api"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_attributes_of_tensors() -> None:
    x = krt.tensor([[1, 2]])
    assert complex(krt.tensor(2.5)) == 2.5 + 0j
    with pytest.raises(ShapeError, match=r"complex\(\)"):
        complex(krt.ones(2))
    assert [4, 5, 6, 7][krt.tensor(2)] == 6
    y = x
    y <<= 3
    assert y is x
    assert x.tolist() == [[8, 16]]
    y >>= krt.tensor([1, 2])
    assert (y is x, x.tolist()) == (True, [[4, 4]])
    assert x.mT.shape == (2, 1)


def test_what_is_refused() -> None:
    x = krt.ones(2, 3)
    for call, word in (
        (lambda: xp.squeeze(x, 0), "size 1"),
        (lambda: xp.take(x, krt.tensor([0])), "needs an axis"),
        (lambda: xp.cumulative_sum(x), "needs an axis"),
        (lambda: xp.nonzero(krt.tensor(1)), "nonzero"),
        (lambda: xp.cumulative_prod(krt.tensor(1), axis=0, include_initial=True), "1 axis"),
        (lambda: xp.vecdot(x, krt.ones(2, 1)), "the same size"),
        (lambda: xp.vecdot(krt.tensor(1), x), "the same size"),
        (lambda: xp.full(2, x), "fill_value: expected"),
        (lambda: xp.linalg.qr(x, mode="r"), "mode"), (lambda: xp.max(x[:0]), "empty"),
    ):  # fmt: skip
        with pytest.raises(ShapeError, match=word):
            call()
    with pytest.raises(DTypeError, match="floating"):
        xp.mean(krt.tensor([1, 2]))


def test_descending_and_stable() -> None:
    x = krt.tensor([1, 3, 1, 3, 2])
    assert xp.sort(x, descending=True).tolist() == [3, 3, 2, 1, 1]
    assert xp.argsort(x, descending=True, stable=True).tolist() == [1, 3, 4, 0, 2]


def test_equal_values_of_sets() -> None:
    x = np.asarray([np.nan, 0.0, -0.0, np.nan, 1.0])
    ours, theirs = xp.unique_all(krt.tensor(x)), np.unique_all(x)
    check(ours.counts, theirs.counts)
    check(ours.values, theirs.values)
    check(xp.take(krt.tensor(x), ours.indices), theirs.values)
    assert ours.indices.tolist()[:2] == [1, 4]


# ---- linear algebra


def matrices(dtype: str, *lead: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    square = rng.normal(size=(*lead, 3, 3)) + 3 * np.eye(3)
    return square.astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("code", """
xp.linalg.det(a)
xp.linalg.inv(a)
xp.linalg.pinv(a[..., :2])
xp.linalg.pinv(a, rtol=small)
xp.linalg.matrix_rank(a, rtol=small)
xp.linalg.matrix_power(a, 3)
xp.linalg.slogdet(a)
xp.linalg.solve(a, b)
xp.linalg.solve(a, b[..., 0, :][0])
xp.linalg.solve(a, b[0])
xp.linalg.solve(a[0], b)
xp.linalg.cholesky(p)
xp.linalg.eigvalsh(p)
xp.linalg.eigh(p).eigenvalues
xp.linalg.svdvals(a)
xp.linalg.svd(a).S
xp.linalg.svd(a[..., :2], full_matrices=False).S
""".strip().splitlines())  # fmt: skip
def test_linear_algebra(code: str, dtype: str) -> None:
    a, b = matrices(dtype, 2), matrices(dtype, 2)[..., :2] + 1
    given = {"a": a, "b": np.ascontiguousarray(np.swapaxes(np.swapaxes(b, -1, -2), -1, -2)),
             "p": a @ np.swapaxes(a, -1, -2), "small": np.asarray([0.5, 1e-5], dtype)}  # fmt: skip
    code = code.replace("b[..., 0, :][0]", "a[0, 0]")
    theirs = eval(code, {"xp": np, **given})  # noqa: S307
    held = {name: krt.tensor(value) for name, value in given.items()}
    ours = eval(code, {"xp": xp, **held})  # noqa: S307
    assert getattr(ours, "_fields", None) == getattr(theirs, "_fields", None)
    rtol = 1e-3 if dtype == "float32" else 1e-10
    check(tuple(ours) if isinstance(theirs, tuple) else ours,
          tuple(theirs) if isinstance(theirs, tuple) else theirs, rtol)  # fmt: skip


def test_factors() -> None:
    a = krt.tensor(matrices("float64", 2))
    for mode in ("reduced", "complete"):
        q, r = xp.linalg.qr(a[..., :2], mode=mode)
        assert q.shape[-1] == (2 if mode == "reduced" else 3)
        check(q @ r, a[..., :2].numpy(), 1e-12)
    factors = xp.linalg.svd(a)
    assert factors._fields == ("U", "S", "Vh")
    check(factors.U * factors.S[..., None, :] @ factors.Vh, a.numpy(), 1e-12)
    upper = xp.linalg.cholesky(a @ a.mT, upper=True)
    check(upper.mT @ upper, (a @ a.mT).numpy(), 1e-12)


def test_tolerances_of_no_values() -> None:
    empty = krt.zeros(2, 3, 0)
    limits = krt.ones(2)
    assert xp.linalg.pinv(empty, rtol=limits).shape == (2, 0, 3)
    assert xp.linalg.matrix_rank(empty, rtol=limits).tolist() == [0, 0]


# ---- programs


def program(points, weights):
    """Weighted principal axes, and where points lie along the first one."""
    xp = points.__array_namespace__()
    kind = xp.result_type(points, weights)
    assert xp.isdtype(kind, "real floating")
    share = weights / xp.sum(weights)
    centre = xp.vecdot(xp.matrix_transpose(points), share)
    apart = points - centre
    spread = xp.matrix_transpose(apart) @ (apart * share[:, xp.newaxis])
    sizes, axes = xp.linalg.eigh(spread)
    first = xp.take(axes, xp.argmax(sizes)[None], axis=1)
    along = xp.squeeze(xp.abs(apart @ first), axis=1)
    order = xp.argsort(along, stable=True)
    steps = xp.diff(xp.concat([xp.zeros((1,), dtype=kind), xp.take(along, order)]))
    beyond = xp.count_nonzero(along > xp.std(along, correction=1))
    return sizes, along, xp.cumulative_sum(steps), beyond, xp.where(along > 1, along, 0)


def test_a_program_is_the_same_in_both() -> None:
    rng = np.random.default_rng(8)
    points, weights = rng.normal(size=(20, 3)) * [3, 1, 0.5], rng.uniform(size=20)
    theirs = program(points, weights)
    held = krt.tensor(points), krt.tensor(weights)
    check(program(*held), theirs, 1e-10)
    check(krt.jit(program)(*held), theirs, 1e-10)


def test_numbers_of_jitted_functions_are_numbers() -> None:
    step = krt.jit(xp.multiply)
    out = step(krt.ones(2), 2.5)
    assert (out.tolist(), out.dtype) == ([2.5, 2.5], krt.float32)


def test_gradients_go_through() -> None:
    x = krt.tensor([1.0, 2.0, 4.0], requires_grad=True)
    (xp.var(x) + xp.sum(xp.sign(x) * xp.clip(x, 1.5, 3.0))).backward()
    mean = 7 / 3
    wanted = [2 * (v - mean) / 3 + (1.5 <= v <= 3) for v in (1.0, 2.0, 4.0)]
    np.testing.assert_allclose(x.grad.numpy(), wanted, 1e-5)

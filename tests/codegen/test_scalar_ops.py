"""Every elementwise instruction against NumPy, on values chosen to hurt."""

from __future__ import annotations

import numpy as np
import pytest

from kernelrt import dtype as dt
from kernelrt.ir import Op

INTEGERS = [d for d in dt.ALL if d.is_int]
FLOATS = [dt.float16, dt.float32, dt.float64]


def edge_values(dtype: dt.DType) -> np.ndarray:
    kind = dt.to_numpy(dtype)
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_float:
        top = float(np.finfo(kind).max)
        tiny = float(np.finfo(kind).smallest_subnormal)
        values = [0.0, -0.0, 1, -1, 2.5, -2.5, 0.5, 1.5, np.inf, -np.inf, np.nan, top, -top, tiny]
        return np.array(values, kind)
    low, high = int(dtype.min), int(dtype.max)
    values = {0, 1, 2, 3, 7, high, high - 1, high // 2, low, low + 1, low // 3}
    if not dtype.is_unsigned:
        values |= {-1, -2, -7}
    return np.array(sorted(values), kind)


def pairs(dtype: dt.DType) -> tuple[np.ndarray, np.ndarray]:
    values = edge_values(dtype)
    x, y = np.meshgrid(values, values)
    return np.ascontiguousarray(x.ravel()), np.ascontiguousarray(y.ravel())


def binary(run, build, op, dtype, x, y, result=None):
    r = build.range(x.size, 0)
    a, b = (build.load(build.param(s, x.size, dtype), r) for s in (1, 2))
    result = result or dtype
    out = np.zeros(x.size, dt.to_numpy(result))
    run(build.sink(build.store(build.param(0, x.size, result), r, a.alu(op, b))), [out, x, y])
    return out


ARITHMETIC = {
    Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.MAX: np.maximum,
    Op.MIN: np.minimum,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [*INTEGERS, dt.float32, dt.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("op", ARITHMETIC, ids=lambda o: o.name)
def test_arithmetic(run, build, op, dtype):
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        expected = ARITHMETIC[op](x, y)
    np.testing.assert_array_equal(binary(run, build, op, dtype, x, y), expected)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
@pytest.mark.parametrize("op", [Op.IDIV, Op.MOD], ids=lambda o: o.name)
def test_integer_division_never_traps(run, build, op, dtype):
    """By zero and least // -1 included; NumPy's floor semantics."""
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        expected = (np.floor_divide if op is Op.IDIV else np.remainder)(x, y)
    np.testing.assert_array_equal(binary(run, build, op, dtype, x, y), expected)


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("op", [Op.IDIV, Op.MOD, Op.DIV], ids=lambda o: o.name)
def test_float_division(run, build, op, dtype):
    x, y = pairs(dtype)
    numpy_op = {Op.IDIV: np.floor_divide, Op.MOD: np.remainder, Op.DIV: np.divide}[op]
    with np.errstate(all="ignore"):
        expected = numpy_op(x, y)
    np.testing.assert_array_equal(binary(run, build, op, dtype, x, y), expected)


@pytest.mark.parametrize("dtype", [*INTEGERS, dt.float32, dt.bool_], ids=lambda d: d.name)
@pytest.mark.parametrize("op", [Op.LT, Op.LE, Op.EQ, Op.NE], ids=lambda o: o.name)
def test_comparison(run, build, op, dtype):
    x, y = pairs(dtype)
    numpy_op = {Op.LT: np.less, Op.LE: np.less_equal, Op.EQ: np.equal, Op.NE: np.not_equal}[op]
    got = binary(run, build, op, dtype, x, y, result=dt.bool_)
    np.testing.assert_array_equal(got, numpy_op(x, y))


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
@pytest.mark.parametrize("op", [Op.SHL, Op.SHR], ids=lambda o: o.name)
def test_shifts_by_any_amount_are_defined(run, build, op, dtype):
    values = edge_values(dtype)
    amounts = np.array([0, 1, dtype.bits - 1, dtype.bits, dtype.bits + 1, 100], values.dtype)
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(values, amounts))
    numpy_op = np.left_shift if op is Op.SHL else np.right_shift
    np.testing.assert_array_equal(binary(run, build, op, dtype, x, y), numpy_op(x, y))


@pytest.mark.parametrize("dtype", [*INTEGERS, dt.bool_], ids=lambda d: d.name)
@pytest.mark.parametrize("op", [Op.AND, Op.OR, Op.XOR], ids=lambda o: o.name)
def test_bitwise(run, build, op, dtype):
    x, y = pairs(dtype)
    numpy_op = {Op.AND: np.bitwise_and, Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor}[op]
    np.testing.assert_array_equal(binary(run, build, op, dtype, x, y), numpy_op(x, y))


UNARY = {
    Op.NEG: np.negative, Op.ABS: np.abs, Op.SQRT: np.sqrt, Op.FLOOR: np.floor, Op.CEIL: np.ceil,
    Op.TRUNC: np.trunc, Op.ROUND: np.rint,
}  # fmt: skip


def compare_unary(run, build, op, dtype, x):
    """Compare `op` of the elements of `x` with NumPy; return both results."""
    r = build.range(x.size, 0)
    value = build.load(build.param(1, x.size, dtype), r).alu(op)
    out = np.zeros_like(x)
    run(build.sink(build.store(build.param(0, x.size, dtype), r, value)), [out, x])
    with np.errstate(all="ignore"):
        expected = UNARY[op](x)
    np.testing.assert_array_equal(out, expected)
    return out, expected


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("op", UNARY, ids=lambda o: o.name)
def test_unary(run, build, op, dtype):
    compare_unary(run, build, op, dtype, edge_values(dtype))


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("op", [Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND], ids=lambda o: o.name)
def test_rounding_without_an_instruction(run_plain, build, op, dtype):
    rng = np.random.default_rng(0)
    kind = np.dtype(dt.to_numpy(dtype))
    quarters = rng.integers(-40, 40, 500).astype(kind) / 4
    close = np.ldexp(kind.type(1), rng.integers(-3, 60, 500)).astype(kind) + quarters
    x = np.concatenate([quarters, close, -close, np.nextafter(quarters, quarters * 2)])
    random = np.frombuffer(rng.bytes(kind.itemsize * 2000), kind)
    x = np.concatenate([edge_values(dtype), x, random])
    out, expected = compare_unary(run_plain, build, op, dtype, x)
    known = ~np.isnan(x)
    np.testing.assert_array_equal(np.signbit(out)[known], np.signbit(expected)[known])
    np.testing.assert_array_equal(np.signbit(out[:2]), np.signbit(expected[:2]))


def expected_cast(x: np.ndarray, to: dt.DType) -> np.ndarray:
    """NumPy's cast, except that floats saturate into integers and NaN is no index of any axis."""
    kind = dt.to_numpy(to)
    if x.dtype.kind == "f" and to.is_int:
        out = np.zeros(x.shape, kind)
        for i, value in enumerate(x.astype(np.float64)):
            if np.isnan(value):
                out[i] = to.max if to.is_unsigned else to.min
            elif value >= float(to.max):
                out[i] = to.max
            elif value <= float(to.min):
                out[i] = to.min
            else:
                out[i] = int(value)
        return out
    with np.errstate(all="ignore"):
        return x.astype(kind)


@pytest.mark.parametrize("to", [d for d in dt.ALL if d is not dt.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("of", [d for d in dt.ALL if d is not dt.bfloat16], ids=lambda d: d.name)
def test_cast_is_defined_for_every_value(run, build, of, to):
    x = edge_values(of)
    if of.is_float:
        limits = np.array([s * 2.0**n for n in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1)])
        with np.errstate(over="ignore"):
            limits = np.concatenate([limits - 1, limits, limits + 0.5]).astype(x.dtype)
        x = np.concatenate([x, limits, np.nextafter(limits, x.dtype.type(0))])
    r = build.range(x.size, 0)
    value = build.load(build.param(1, x.size, of), r).cast(to)
    out = np.zeros(x.size, dt.to_numpy(to))
    run(build.sink(build.store(build.param(0, x.size, to), r, value)), [out, x])
    np.testing.assert_array_equal(out, expected_cast(x, to))


def test_bfloat16_rounds_to_nearest_even(run, build, rng):
    x = rng.standard_normal(200).astype(np.float32)
    r = build.range(x.size, 0)
    value = build.load(build.param(1, x.size), r).cast(dt.bfloat16).cast(dt.float32)
    out = np.zeros_like(x)
    run(build.sink(build.store(build.param(0, x.size), r, value)), [out, x])
    bits = x.view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
    np.testing.assert_array_equal(out, rounded)


@pytest.mark.parametrize("constant", [0.0, 1.0, -3.0])
def test_maximum_with_a_constant_passes_nan_on(run, build, constant):
    x = edge_values(dt.float32)
    r = build.range(x.size, 0)
    for op, numpy_op in ((Op.MAX, np.maximum), (Op.MIN, np.minimum)):
        value = build.load(build.param(1, x.size), r).alu(op, constant)
        out = np.zeros_like(x)
        run(build.sink(build.store(build.param(0, x.size), r, value)), [out, x])
        np.testing.assert_array_equal(out, numpy_op(x, np.float32(constant)))


@pytest.mark.parametrize("op", [Op.MAX, Op.MIN], ids=lambda o: o.name)
def test_a_reduction_passes_nan_on(run, build, rng, op):
    for at in (0, 5, 17, 99):
        x = rng.standard_normal(100).astype(np.float32)
        x[at] = np.nan
        r = build.range(100, 0)
        value = build.reduce(op, build.load(build.param(1, 100), r), r)
        out = np.zeros(1, np.float32)
        run(build.sink(build.store(build.param(0, 1), r.const_like(0), value)), [out, x])
        assert np.isnan(out[0])

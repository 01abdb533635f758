"""Approximations of transcendental functions, interpreted op by op: accuracy and special values.

What compiled kernels give is measured in tests/codegen/test_math_compiled.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.math_truth import BINARY, NUMPY, TRUTH, UNARY, promised, same_special, ulps
from support.scalars import evaluate, fused_multiply_add
from support.skip_list import needs

from kernelrt import dtype as dt
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op, UOp, const, rewrite, toposort
from kernelrt.ir.kernel_spec import verify_kernel
from kernelrt.loops.math.decompositions import decompose, decompositions

if TYPE_CHECKING:
    from kernelrt.ir.rewrite import Table

Array = np.ndarray
Run = Callable[..., Array]
WIDE = [dt.float32, dt.float64]
needs_wide = needs("a long double wider than float64")
#: Types whose results are compared with those of a wider type.
CHECKED = [dt.float32, pytest.param(dt.float64, marks=needs_wide)]
by_name = {"ids": lambda v: v.name}

#: Functions that take long here, and by what to divide the samples.
COARSER = {Op.LGAMMA: 16}

#: Greatest errors in ULP, somewhat above what sweeps over all float32 numbers found (see
#: decompositions.py).
LIMIT = {
    (Op.EXP, dt.float32): 1.65, (Op.LOG, dt.float32): 0.95, (Op.SIN, dt.float32): 1.65,
    (Op.COS, dt.float32): 1.65, (Op.TANH, dt.float32): 2.0, (Op.ERF, dt.float32): 1.55,
    (Op.POW, dt.float32): 1.3, (Op.EXP2, dt.float32): 1.2, (Op.EXPM1, dt.float32): 1.7,
    (Op.LOG2, dt.float32): 1.2, (Op.LOG10, dt.float32): 1.2, (Op.LOG1P, dt.float32): 1.2,
    (Op.TAN, dt.float32): 1.95, (Op.ASIN, dt.float32): 1.6, (Op.ACOS, dt.float32): 1.6,
    (Op.ATAN, dt.float32): 1.6, (Op.SINH, dt.float32): 1.7, (Op.COSH, dt.float32): 1.5,
    (Op.ASINH, dt.float32): 1.5, (Op.ACOSH, dt.float32): 1.8, (Op.ATANH, dt.float32): 1.5,
    (Op.ERFC, dt.float32): 1.5, (Op.LGAMMA, dt.float32): 0.6, (Op.ATAN2, dt.float32): 1.9,
    (Op.EXP, dt.float64): 1.6, (Op.LOG, dt.float64): 0.9, (Op.SIN, dt.float64): 0.85,
    (Op.COS, dt.float64): 0.85, (Op.TANH, dt.float64): 2.0, (Op.ERF, dt.float64): 1.9,
    (Op.POW, dt.float64): 1.6, (Op.EXP2, dt.float64): 1.2, (Op.EXPM1, dt.float64): 1.7,
    (Op.LOG2, dt.float64): 1.2, (Op.LOG10, dt.float64): 1.2, (Op.LOG1P, dt.float64): 1.2,
    (Op.TAN, dt.float64): 1.5, (Op.ASIN, dt.float64): 1.6, (Op.ACOS, dt.float64): 1.6,
    (Op.ATAN, dt.float64): 1.6, (Op.SINH, dt.float64): 1.8, (Op.COSH, dt.float64): 1.5,
    (Op.ASINH, dt.float64): 1.5, (Op.ACOSH, dt.float64): 1.95, (Op.ATANH, dt.float64): 1.5,
    (Op.ERFC, dt.float64): 1.6, (Op.LGAMMA, dt.float64): 1.8, (Op.ATAN2, dt.float64): 1.9,
}  # fmt: skip


def leaf(dtype: dt.DType, slot: int) -> UOp:
    return UOp(Op.LOAD, dtype, (UOp(Op.PARAM, dtype, (), (slot, 1)), const(0, dt.int64)))


def node(op: Op, dtype: dt.DType) -> UOp:
    return UOp(op, dtype, tuple(leaf(dtype, 1 + k) for k in range(2 if op in BINARY else 1)))


#: Targets with and without a fused multiply-add instruction.
TARGETS = {"fused": DeviceSpec.avx2(), "separate": DeviceSpec.sse4()}


@pytest.fixture(params=TARGETS)
def table(request: pytest.FixtureRequest) -> Table:
    """The decompositions for a target."""
    return decompositions(TARGETS[request.param])


@pytest.fixture
def run(table: Table) -> Run:
    """A function that applies an op to arrays through its decomposition."""

    def call(op: Op, *arrays: Array, dtype: dt.DType | None = None) -> Array:
        u = node(op, dtype or dt.parse(arrays[0].dtype))
        return evaluate(rewrite([u], table)[0], dict(zip(u.src, arrays, strict=True)))

    return call


def every(dtype: dt.DType, count: int, seed: int = 0) -> Array:
    """Numbers of every kind: random representations (signaling NaN apart, which C treats apart)."""
    bits = np.random.default_rng(seed).bytes(count * dtype.itemsize)
    x = np.frombuffer(bits, dt.to_numpy(dtype)).copy()
    x[np.isnan(x)] = np.nan
    return x


def edges(dtype: dt.DType) -> Array:
    """Numbers around which functions change their ways."""
    info = np.finfo(dt.to_numpy(dtype))
    near = [
        0.0, info.smallest_subnormal, info.tiny, info.eps, 0.25, 0.5, np.log(3) / 2, np.sqrt(0.5),
        1.0, np.pi / 4, np.pi / 2, np.pi, 2.0, 3.92, 5.93, 9.0, 10.0, 19.06, 22.0,
        88.72284, 87.33655, 103.9721, 709.782712893384, 708.3964185322641,
        745.1332191019411, 2.0**23, 2.0**24, 2.0**31, 2.0**50, 2.0**52, 2.0**53, 2.0**63, 2.0**77,
        2.0**103, 1e22, info.max,
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        x = np.array(near).astype(info.dtype)
        x = np.concatenate([x, np.nextafter(x, info.dtype.type(np.inf)), np.nextafter(x, x * 0)])
    return np.concatenate([x, -x, np.array([np.inf, -np.inf, np.nan], info.dtype)])


def ordinary(op: Op, dtype: dt.DType, count: int) -> Array:
    """Arguments of the sizes that programs have."""
    rng = np.random.default_rng(int(op))
    steep = 80.0 if dtype is dt.float32 else 700.0
    top = {Op.TANH: 10.0, Op.ERF: 5.0, Op.ERFC: 9.0, Op.ASIN: 1.0, Op.ACOS: 1.0, Op.ATANH: 1.0}
    top |= dict.fromkeys((Op.EXP, Op.EXP2, Op.EXPM1, Op.SINH, Op.COSH), steep)
    if op in (Op.LOG, Op.LOG2, Op.LOG10):
        x = np.concatenate(
            [rng.uniform(0, 3, count // 2), np.exp(rng.uniform(-80, 80, count // 2))]
        )
    else:
        x = rng.uniform(-1, 1, count) * top.get(op, 100.0)
        x[: count // 4] = rng.standard_normal(count // 4)
    if op is Op.ACOSH:
        x = 1 + np.abs(x) ** 2
    return promised(op, x.astype(dt.to_numpy(dtype)))


def truth(op: Op, *arrays: Array) -> Array:
    wide = np.float64 if arrays[0].dtype.itemsize < 8 else np.longdouble
    with np.errstate(all="ignore"):
        return TRUTH[op](*(a.astype(wide) for a in arrays))


def check(run: Run, op: Op, *arrays: Array) -> None:
    got = run(op, *arrays)
    assert got.dtype == arrays[0].dtype
    distance = ulps(got, truth(op, *arrays))
    worst = int(np.argmax(distance))
    arguments = [a[worst] for a in arrays]
    assert distance[worst] <= LIMIT[op, dt.parse(got.dtype)], (arguments, got[worst])


# Accuracy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", UNARY, **by_name)
def test_float32_over_its_whole_range(run: Run, op: Op) -> None:
    bits = np.arange(0, 1 << 32, 21613 * COARSER.get(op, 1), dtype=np.uint64)
    check(run, op, bits.astype(np.uint32).view(np.float32))


@pytest.mark.parametrize(("low", "high", "limit"), [(1, 2, 1.25), (2, 4, 0.7), (4, 20, 0.55)])
@pytest.mark.parametrize("dtype", CHECKED, **by_name)
def test_tanh_keeps_the_distance_from_1(
    run: Run, dtype: dt.DType, low: float, high: float, limit: float
) -> None:
    x = np.random.default_rng(4).uniform(low, high, 100_000).astype(dt.to_numpy(dtype))
    for signed in (x, -x):
        assert ulps(run(Op.TANH, signed), truth(Op.TANH, signed)).max() <= limit


@pytest.mark.parametrize("op", UNARY, **by_name)
def test_float32_where_it_is_used(run: Run, op: Op) -> None:
    check(run, op, ordinary(op, dt.float32, 100_000 // COARSER.get(op, 1)))


@needs_wide
@pytest.mark.parametrize("op", UNARY, **by_name)
def test_float64(run: Run, op: Op) -> None:
    check(run, op, promised(op, every(dt.float64, 4000)))
    check(run, op, ordinary(op, dt.float64, 30_000 // COARSER.get(op, 1)))


@pytest.mark.parametrize("dtype", CHECKED, **by_name)
@pytest.mark.parametrize("op", UNARY, **by_name)
def test_edges_are_as_accurate_as_the_rest(run: Run, op: Op, dtype: dt.DType) -> None:
    check(run, op, promised(op, edges(dtype)))


@pytest.mark.parametrize(
    "op",
    [Op.TANH, Op.ERF, Op.SIN, Op.TAN, Op.ASIN, Op.ATAN, Op.SINH, Op.ASINH, Op.ATANH],
    **by_name,
)  # fmt: skip
@pytest.mark.parametrize("dtype", WIDE, **by_name)
def test_small_arguments_keep_their_digits(run: Run, op: Op, dtype: dt.DType) -> None:
    """Relative accuracy down to the smallest subnormal number."""
    kind = dt.to_numpy(dtype)
    info = np.finfo(kind)
    x = np.ldexp(kind.type(1.37), np.arange(info.minexp - info.nmant, 0)).astype(kind)
    factor = {Op.ERF: 2 / np.sqrt(np.pi)}.get(op, 1.0)
    small = np.abs(x) < 1e-9
    distance = np.abs(run(op, x)[small] - factor * x[small].astype(np.longdouble))
    assert (distance <= 2 * np.spacing(x[small])).all()


@needs_wide
@pytest.mark.parametrize(
    "x", [1e22, 2.0**1023, np.pi, 355.0, 1.5707963267948966, 6381956970095103.0, 5e-324, 1e300]
)
def test_angles_of_any_size(run: Run, x: float) -> None:
    """Multiples of pi/2 as close as they come, and circles beyond counting."""
    angle = np.array([x, -x])
    for op in (Op.SIN, Op.COS, Op.TAN):
        check(run, op, angle)
        with np.errstate(over="ignore"):
            check(run, op, angle.astype(np.float32))


def powers(dtype: dt.DType) -> list[tuple[Array, Array]]:
    """Bases and exponents: results over the whole range, bases near 1, anything, negative."""
    kind = dt.to_numpy(dtype)
    rng = np.random.default_rng(3)
    top = np.log(float(np.finfo(kind).max))
    base = np.exp(rng.uniform(-5, 5, 8000)).astype(kind)
    close = (1 + rng.uniform(-1, 1, 8000) * 10 ** rng.uniform(-6, -1, 8000)).astype(kind)
    close = close[close != 1]
    out = [(every(dtype, 2000, 1), every(dtype, 2000, 2))]
    for x in (base, close):
        y = rng.uniform(-1.05, 1.05, len(x)) * top / np.abs(np.log(x.astype(np.float64)))
        out.append((x, y.astype(kind)))
    whole = rng.integers(-40, 40, 8000).astype(kind)
    out.append((-np.exp(rng.uniform(-2, 2, 8000)).astype(kind), whole))
    return out


@pytest.mark.parametrize("dtype", CHECKED, **by_name)
def test_powers(run: Run, dtype: dt.DType) -> None:
    for x, y in powers(dtype):
        check(run, Op.POW, x, y)


# Special values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", WIDE, **by_name)
@pytest.mark.parametrize("op", UNARY, **by_name)
def test_special_values_are_numpys(run: Run, op: Op, dtype: dt.DType) -> None:
    x = np.concatenate([edges(dtype), every(dtype, 1000, 5)])
    with np.errstate(all="ignore"):
        expected = NUMPY[op](x)
    same = same_special(run(op, x), expected)
    assert same.all(), x[~same]


@pytest.mark.parametrize("dtype", WIDE, **by_name)
def test_special_powers_are_numpys(run: Run, dtype: dt.DType) -> None:
    """Every pair of numbers that the C standard has a rule for, and their neighbours."""
    kind = dt.to_numpy(dtype)
    info = np.finfo(kind)
    marks = [
        0, 1, 2, 3, 0.5, 1 / 3, 2.5, 1e10, np.inf, info.max, info.tiny, info.smallest_subnormal,
        1 + info.eps, 1 - info.epsneg, 2.0**23, 2.0**24, 2.0**24 + 2, 2.0**52 + 1, 2.0**53,
    ]  # fmt: skip
    values = np.array([*marks, *(-m for m in marks), np.nan], kind)
    values[len(marks)] = -0.0
    x, y = (v.ravel() for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    same = same_special(run(Op.POW, x, y), expected)
    assert same.all(), list(zip(x[~same], y[~same], strict=True))


@pytest.mark.parametrize("dtype", WIDE, **by_name)
def test_saturation_is_exact(run: Run, dtype: dt.DType) -> None:
    kind = dt.to_numpy(dtype)
    x = np.array([30.0, 1e4, np.inf], kind)
    for op in (Op.TANH, Op.ERF):
        np.testing.assert_array_equal(run(op, x), np.ones(3, kind))
        np.testing.assert_array_equal(run(op, -x), -np.ones(3, kind))
    np.testing.assert_array_equal(run(Op.EXP, np.zeros(2, kind)), np.ones(2, kind))
    np.testing.assert_array_equal(run(Op.COS, np.zeros(2, kind)), np.ones(2, kind))


@pytest.mark.parametrize("dtype", WIDE, **by_name)
@pytest.mark.parametrize(
    "op",
    [Op.TANH, Op.ERF, Op.SIN, Op.COS, Op.TAN, Op.ASIN, Op.ATAN, Op.SINH, Op.COSH, Op.ASINH,
     Op.ATANH],
    **by_name,
)  # fmt: skip
def test_symmetry_is_exact_and_results_stay_within_one(run: Run, op: Op, dtype: dt.DType) -> None:
    x = np.concatenate([ordinary(op, dtype, 20_000), edges(dtype)])
    there, back = run(op, x), run(op, -x)
    np.testing.assert_array_equal(there, back if op in (Op.COS, Op.COSH) else -back)
    if op in (Op.TANH, Op.ERF, Op.SIN, Op.COS):
        assert np.nanmax(np.abs(there)) <= 1


@pytest.mark.parametrize("dtype", CHECKED, **by_name)
def test_angles_of_points(run: Run, dtype: dt.DType) -> None:
    kind = dt.to_numpy(dtype)
    rng = np.random.default_rng(8)
    for x, y in (
        (every(dtype, 4000, 1), every(dtype, 4000, 2)),
        (rng.standard_normal(20_000).astype(kind), rng.standard_normal(20_000).astype(kind)),
    ):
        check(run, Op.ATAN2, x, y)


@pytest.mark.parametrize("dtype", WIDE, **by_name)
def test_special_points_have_numpys_angles(run: Run, dtype: dt.DType) -> None:
    info = np.finfo(dt.to_numpy(dtype))
    marks = [0, 1, 2.5, info.max, info.tiny, info.smallest_subnormal, np.inf]
    values = np.array([*marks, *(-m for m in marks), np.nan], info.dtype)
    values[len(marks)] = -0.0
    y, x = (v.ravel() for v in np.meshgrid(values, values))
    got, expected = run(Op.ATAN2, y, x), np.arctan2(y, x)
    assert same_special(got, expected).all()
    np.testing.assert_allclose(got, expected, rtol=2 * info.eps)


@pytest.mark.parametrize("dtype", WIDE, **by_name)
def test_powers_of_two_are_exact(run: Run, dtype: dt.DType) -> None:
    info = np.finfo(dt.to_numpy(dtype))
    exponents = np.arange(info.minexp - info.nmant, info.maxexp).astype(info.dtype)
    powers = np.ldexp(info.dtype.type(1), exponents.astype(np.int32))
    np.testing.assert_array_equal(run(Op.EXP2, exponents), powers)
    np.testing.assert_array_equal(run(Op.LOG2, powers), exponents)


@pytest.mark.parametrize("dtype", WIDE, **by_name)
def test_an_element_does_not_depend_on_rare_neighbours(run: Run, dtype: dt.DType) -> None:
    usual = np.linspace(-9, 9, 101, dtype=dt.to_numpy(dtype))
    beside = np.concatenate([usual, np.array([1e30, -np.inf, np.nan], usual.dtype)])
    for op in (Op.SIN, Op.TAN, Op.LGAMMA):
        np.testing.assert_array_equal(run(op, beside)[: len(usual)], run(op, usual))


# Other types, constants, the graph ----------------------------------------------------------------


@pytest.mark.parametrize("op", [*UNARY, *BINARY], **by_name)
def test_half_precision_is_float32_rounded_once(run: Run, op: Op) -> None:
    x = np.arange(0, 1 << 16, 7, dtype=np.uint16).view(np.float16)
    arrays = (x, x[::-1].copy()) if op in BINARY else (x,)
    with np.errstate(all="ignore"):
        expected = run(op, *(a.astype(np.float32) for a in arrays)).astype(np.float16)
    np.testing.assert_array_equal(run(op, *arrays), expected)


def test_bfloat16_is_float32_rounded_once(run: Run) -> None:
    x = np.linspace(-3, 3, 100).astype(np.float32)
    x = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    got = run(Op.EXP, x, dtype=dt.bfloat16)
    assert not (got.view(np.uint32) & np.uint32(0xFFFF)).any()
    np.testing.assert_allclose(got, np.exp(x), rtol=2.0**-8)


@pytest.mark.parametrize("dtype", [*WIDE, dt.float16], **by_name)
@pytest.mark.parametrize("exponent", [-1.0, 0.0, 0.5, 1.0, 2.0, 3.0])
def test_simple_constant_exponents_are_plain_arithmetic(
    table: Table, dtype: dt.DType, exponent: float
) -> None:
    x = leaf(dtype, 1)
    lowered = rewrite([x.alu(Op.POW, exponent)], table)[0]
    assert len(list(toposort([lowered], stop=lambda u: u is x))) <= 10
    values = np.concatenate([edges(dtype), every(dtype, 1000)])
    got = evaluate(lowered, {x: values})
    got = np.broadcast_to(got, values.shape)
    with np.errstate(all="ignore"):
        # An array of exponents: NumPy takes a root for the scalar 1/2, which differs for -inf.
        expected = np.power(values, np.full_like(values, exponent))
        wide = np.power(values.astype(np.longdouble), exponent)
    assert same_special(got, expected).all()
    finite = np.isfinite(expected)
    assert ulps(got[finite], wide[finite]).max(initial=0) <= 2


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16, *WIDE], **by_name)
@pytest.mark.parametrize("op", [*UNARY, *BINARY], **by_name)
def test_what_is_left_is_legal_plain_arithmetic(table: Table, op: Op, dtype: dt.DType) -> None:
    u = rewrite([node(op, dtype)], table)[0]
    assert u.dtype is dtype
    assert not any(n.op in table for n in toposort([u]))
    store = UOp(Op.STORE, dtype, (UOp(Op.PARAM, dtype, (), (0, 1)), const(0, dt.int64), u))
    verify_kernel(UOp(Op.SINK, dtype, (store,)))


def test_sine_and_cosine_of_one_angle_share_their_work(table: Table) -> None:
    x = leaf(dt.float32, 1)
    alone = len(list(toposort(rewrite([x.alu(Op.SIN)], table))))
    both = len(list(toposort(rewrite([x.alu(Op.SIN), x.alu(Op.COS)], table))))
    assert both < alone + 10


def test_other_nodes_are_left_alone() -> None:
    x = leaf(dt.float32, 1)
    assert decompose(x + 1.0) is None
    assert decompose(UOp(Op.POW, dt.int64, (leaf(dt.int64, 1), leaf(dt.int64, 2)))) is None


# The interpreter that all of this rests on --------------------------------------------------------


@pytest.mark.parametrize("dtype", WIDE, **by_name)
def test_the_interpreters_fma_rounds_once(dtype: dt.DType) -> None:
    """Against exact rational arithmetic, cancellation and subnormal results included."""
    from fractions import Fraction

    kind = dt.to_numpy(dtype)
    rng = np.random.default_rng(9)
    a, b = rng.standard_normal((2, 600)).astype(kind)
    wobble = 1 + rng.integers(-2, 3, 600) * np.finfo(kind).eps
    c = (-(a * b) * wobble).astype(kind)
    tiny = np.finfo(kind).tiny
    a = np.concatenate([a, a * tiny, a])
    b = np.concatenate([b, b, b])
    c = np.concatenate([c, c * tiny, c * np.exp2(rng.uniform(-90, 90, 600))]).astype(kind)
    got = fused_multiply_add(a, b, c)
    for x, y, z, value in zip(a, b, c, got, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        below, above = (np.nextafter(value, value.dtype.type(end)) for end in (-np.inf, np.inf))
        error = abs(exact - Fraction(float(value)))
        assert error <= abs(exact - Fraction(float(below)))
        assert error <= abs(exact - Fraction(float(above)))

"""Facts about types, integer arithmetic and reducers that all floors ask for, against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, Variable, const
from kernelrt.ir.integers import EXACT, exact
from kernelrt.ir.reducers import empty_result, is_identity, start, start_is_empty_result
from kernelrt.ir.span import span
from kernelrt.runtime.sizes import evaluate
from kernelrt.schedule.rewrite.constant_folding import fold

INTEGERS = [d for d in dt.ALL if d.is_int]
FLOATS = [d for d in dt.ALL if d.is_float and d is not dt.bfloat16]
NUMPY = {
    Op.NEG: np.negative, Op.ABS: np.abs, Op.NOT: np.invert, Op.ADD: np.add, Op.SUB: np.subtract,
    Op.MUL: np.multiply, Op.IDIV: np.floor_divide, Op.MOD: np.remainder, Op.MAX: np.maximum,
    Op.MIN: np.minimum, Op.AND: np.bitwise_and, Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor,
    Op.SHL: np.left_shift, Op.SHR: np.right_shift, Op.LT: np.less, Op.LE: np.less_equal,
    Op.EQ: np.equal, Op.NE: np.not_equal,
}  # fmt: skip
UNARY = {Op.NEG, Op.ABS, Op.NOT}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_formats_are_those_of_numpy(dtype: dt.DType) -> None:
    info = np.finfo(dt.to_numpy(dtype))
    assert dtype.digits == info.nmant + 1
    assert dtype.exponent_bits == info.nexp
    assert dtype.is_narrow is (info.bits == 16)


def test_bfloat16_is_float32_cut_short() -> None:
    assert dt.bfloat16.digits == 8
    assert dt.bfloat16.exponent_bits == dt.float32.exponent_bits
    assert dt.bfloat16.is_narrow
    assert not any(d.is_narrow for d in dt.ALL if not d.is_float)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    list(itertools.product([d for d in dt.ALL if d is not dt.bfloat16], repeat=2)),
)
def test_a_type_contains_another_where_numpy_casts_safely(
    wide: dt.DType, narrow: dt.DType
) -> None:
    safe = np.can_cast(dt.to_numpy(narrow), dt.to_numpy(wide))
    # NumPy counts int64 in float64 as safe, though it rounds.
    rounds = wide.is_float and narrow.is_int and narrow.bits > wide.digits
    assert dt.contains(wide, narrow) is (bool(safe) and not rounds)


def edges(dtype: dt.DType) -> list[int]:
    low, high = int(dtype.min), int(dtype.max)
    found = {low, low + 1, high - 1, high, 0, 1, 2, 3, 7, dtype.bits - 1}
    return sorted(found | ({-1, -2, -7} if low < 0 else set()))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("op", NUMPY, ids=lambda op: op.name)
def test_integer_arithmetic_is_that_of_numpy(op: Op, dtype: dt.DType) -> None:
    kind = dt.to_numpy(dtype).type
    for values in itertools.product(edges(dtype), repeat=1 if op in UNARY else 2):
        if op in (Op.SHL, Op.SHR) and not 0 <= values[1] < dtype.bits:
            continue
        with np.errstate(all="ignore"):
            wanted = NUMPY[op](*map(kind, values))
        folded = fold(op, dt.bool_ if wanted.dtype == bool else dtype,
                      [const(v, dtype) for v in values])  # fmt: skip
        assert folded is not None
        assert folded.arg == wanted


def test_shifts_by_the_width_or_more_leave_nothing_or_the_sign() -> None:
    for by in (8, 200, -1):
        assert exact(Op.SHL, dt.int8, [3, by]) == 0
        assert exact(Op.SHR, dt.int8, [-3, by]) == -1
        assert exact(Op.SHR, dt.uint8, [253, by]) == 0


def test_what_is_no_integer_arithmetic_has_no_number() -> None:
    assert exact(Op.EXP, dt.int64, [1]) is None
    assert set(EXACT) <= {*NUMPY, Op.WHERE}


def test_sizes_and_their_bounds_agree_with_python() -> None:
    n, m = Variable("n", 1, 9), Variable("m", 2, 5)
    for node, number in (
        ((n * m + 3) // 4, lambda n, m: (n * m + 3) // 4),
        ((n - m * 2) % 3, lambda n, m: (n - m * 2) % 3),
        (UOp(Op.MAX, dt.int64, (n - m, const(0, dt.int64))), lambda n, m: max(n - m, 0)),
        ((n < m).where(n, m), lambda n, m: min(m, n)),
    ):
        every = [(a, b) for a in range(1, 10) for b in range(2, 6)]
        wanted = [number(a, b) for a, b in every]
        assert [evaluate(node, {"n": a, "m": b}) for a, b in every] == wanted
        low, high = span(node)
        assert low <= min(wanted)
        assert max(wanted) <= high
        if node.op is not Op.WHERE:
            assert (low, high) == (min(wanted), max(wanted))


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
def test_integers_are_rounded_once(dtype: dt.DType) -> None:
    bits = (1 << np.arange(63, dtype=np.int64))[:, None]
    data = np.unique([bits + (bits >> 24) + d for d in (-1, 0, 1)])
    data = np.concatenate([data, -data])
    wanted = data.astype(dt.to_numpy(dtype)).tolist()
    assert [dt.nearest(n, dtype) for n in data.tolist()] == wanted
    assert [const(n, dtype).arg for n in data.tolist()] == wanted
    folded = [fold(Op.CAST, dtype, [const(n, dt.int64)]) for n in data.tolist()]
    assert [f.arg for f in folded if f is not None] == wanted


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_go_round_in_a_circle(dtype: dt.DType) -> None:
    numbers = np.array([0, 1, -1, 127, 128, -129, 1 << 31, 1 << 62, -(1 << 63)], np.int64)
    wanted = numbers.astype(dt.to_numpy(dtype)).tolist()
    assert [dt.wrapped(n, dtype) for n in numbers.tolist()] == wanted
    assert dt.wrapped(1 << 80, dtype) == 0


@pytest.mark.parametrize("reducer", [Op.ADD, Op.MUL], ids=lambda op: op.name)
def test_reductions_of_nothing_are_those_of_numpy(reducer: Op) -> None:
    for dtype in (*INTEGERS, *FLOATS):
        wanted = NUMPY[reducer].reduce(np.zeros(0, dt.to_numpy(dtype)))
        assert empty_result(reducer, dtype) == wanted


@pytest.mark.parametrize("reducer", [Op.ADD, Op.MUL, Op.MAX, Op.MIN], ids=lambda op: op.name)
def test_what_a_reduction_starts_with_changes_no_element(reducer: Op) -> None:
    for dtype in (*INTEGERS, *FLOATS):
        kind = dt.to_numpy(dtype).type
        inner = [-0.0, 0.0, -1.5, np.inf, -np.inf] if dtype.is_float else edges(dtype)
        for value in map(kind, inner):
            found = NUMPY[reducer](kind(start(reducer, dtype)), value)
            assert found == value
            assert np.signbit(found) == np.signbit(value)


def test_only_sums_of_floats_start_with_another_zero() -> None:
    for reducer, dtype in itertools.product((Op.ADD, Op.MUL, Op.MAX, Op.MIN), dt.ALL):
        assert start_is_empty_result(reducer, dtype) is not (reducer is Op.ADD and dtype.is_float)
        assert is_identity(const(start(reducer, dtype), dtype), reducer)
    assert not is_identity(const(0.0, dt.float32), Op.ADD)

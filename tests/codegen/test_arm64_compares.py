"""On arm64, LLVM folds no two compares of floats into one of their maximum or minimum.

It folds ``a >= c or b >= c`` into ``fmaxnm(a, b) >= c``, which is wrong where one operand is a
signaling NaN.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from support.assembly import assembly, kernels_of
from support.math_truth import BINARY as BINARY_MATH
from surface.rows import tables

from kernelrt import dtype as dt
from kernelrt.backend.llvm.guarded_compares import GuardedCompares
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op, UOp, const
from kernelrt.ir.ops import EXPANSIONS

SPEC = DeviceSpec.neon()
BINARY = {*BINARY_MATH, Op.MOD, Op.IDIV, Op.MAX, Op.MIN}
WIDE = [dt.float32, dt.float64]


def folded(ast: UOp) -> list[str]:
    text = assembly(ast, SPEC)
    assert "ret" in text
    return re.findall(r"f(?:max|min)nm.*", text)


def loads(build, size, dtype, count):
    r = build.range(size, 0)
    return r, [build.load(build.param(1 + k, size, dtype), r) for k in range(count)]


def written(build, size, r, value):
    return build.sink(build.store(build.param(0, size, value.dtype), r, value))


def inverted(x):
    return UOp(Op.NOT, dt.bool_, (x,))


@pytest.mark.cases(12)
@pytest.mark.parametrize("size", [1, 7, 16])
@pytest.mark.parametrize("dtype", [*WIDE, dt.float16], ids=str)
@pytest.mark.parametrize(
    "op", [*EXPANSIONS, Op.MOD, Op.IDIV, Op.MAX, Op.MIN], ids=lambda op: op.name
)
def test_functions(op, dtype, size, build):
    r, values = loads(build, size, dtype, 1 + (op in BINARY))
    assert not folded(written(build, size, r, UOp(op, dtype, tuple(values))))


@pytest.mark.parametrize("size", [1, 4, 7, 16])
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_selects_of_the_operands_of_a_compare(dtype, size, build):
    r, (x,) = loads(build, size, dtype, 1)
    c = const(1.5, dtype)
    for op in (Op.LT, Op.LE):
        for p in (UOp(op, dt.bool_, (x, c)), UOp(op, dt.bool_, (c, x))):
            for mask in (p, inverted(p)):
                for value in (mask.where(x, c), mask.where(c, x)):
                    assert not folded(written(build, size, r, value))


@pytest.mark.parametrize("size", [1, 4, 7, 64])
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_signaling_nans_beside_numbers(dtype, size, build, run):
    """On every machine; on arm64 it runs what the other tests read."""
    kind = dt.to_numpy(dtype)
    words = np.array([np.nan, 1.0, 2.0], kind).view(f"u{dtype.itemsize}")
    words[0] ^= 1 | 1 << (22 if dtype is dt.float32 else 51)  # not quiet, but no infinity
    rng = np.random.default_rng(size)
    x, y = (words[rng.integers(0, 3, size)].view(kind) for _ in range(2))
    r, (a, b) = loads(build, size, dtype, 2)
    c = const(1.5, dtype)
    above, also = UOp(Op.LT, dt.bool_, (c, a)), UOp(Op.LT, dt.bool_, (c, b))
    kept = {
        UOp(Op.OR, dt.bool_, (above, also)): (x > 1.5) | (y > 1.5),
        UOp(Op.AND, dt.bool_, (inverted(above), inverted(also))): ~(x > 1.5) & ~(y > 1.5),
        above.where(a, c): np.where(x > 1.5, x, 1.5),
        above.where(c, also.where(c, const(0.0, dtype))): np.where((x > 1.5) | (y > 1.5), 1.5, 0.0),
    }
    for value, expected in kept.items():
        out = np.zeros(size, dt.to_numpy(value.dtype))
        run(written(build, size, r, value), [out, x, y])
        np.testing.assert_array_equal(out, expected)


@pytest.mark.cases(30)
@pytest.mark.parametrize("row", [pytest.param(row, id=f"{t}-{row.name}") for t, row in tables()])
def test_kernels_of_operations(row):
    for ast in kernels_of(row, SPEC):
        assert not folded(ast)


def compares(op, x, y, low, high):
    """Compares of `x` and `y` with the same number, or of it with both."""
    yield UOp(op, dt.bool_, (x, low)), UOp(op, dt.bool_, (y, low))
    yield UOp(op, dt.bool_, (low, x)), UOp(op, dt.bool_, (low, y))
    yield UOp(op, dt.bool_, (x, low)), UOp(op, dt.bool_, (low, y))
    yield UOp(op, dt.bool_, (low, x)), UOp(op, dt.bool_, (high, x))


def joined(p, q, other, number):
    """Every way to join two masks."""
    for op in (Op.OR, Op.AND, Op.ADD, Op.MUL, Op.MAX, Op.MIN):
        yield UOp(op, dt.bool_, (p, q))
        yield UOp(op, dt.bool_, (inverted(p), inverted(q)))
        yield inverted(UOp(op, dt.bool_, (p, q)))
        yield UOp(op, dt.bool_, (UOp(op, dt.bool_, (p, other)), q))
    for op, outer in itertools.permutations((Op.OR, Op.AND)):
        yield UOp(outer, dt.bool_, (UOp(op, dt.bool_, (p, other)), UOp(op, dt.bool_, (q, other))))
        yield UOp(op, dt.int32, (p.cast(dt.int32), q.cast(dt.int32)))
    one = const(1.0, number.dtype)
    yield p.where(one, q.where(one, number))
    yield p.where(q.where(number, one), one)
    yield p.where(one, inverted(q).where(number, one))
    yield inverted(p).where(q.where(one, number), one)
    yield inverted(p).where(inverted(q).where(number, one), one)
    yield p.where(q, const(False, dt.bool_))
    yield p.where(const(True, dt.bool_), q)


@pytest.mark.cases(1)
@pytest.mark.parametrize("size", [1, 4, 7, 16])
@pytest.mark.parametrize("op", [Op.LT, Op.LE], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_two_compares(dtype, op, size, build):
    r, (x, y, z, low, high) = loads(build, size, dtype, 5)
    other = build.load(build.param(6, size, dt.bool_), r)
    for common in (const(3.5, dtype), low):
        for pair in compares(op, x, y, common, high):
            for value in joined(*pair, other, z):
                assert not folded(written(build, size, r, value)), value


@pytest.mark.parametrize("size", [4, 8, 60, 256])
@pytest.mark.parametrize("dtype", WIDE, ids=str)
@pytest.mark.parametrize("op", [Op.ADD, Op.MAX, Op.MUL, Op.MIN], ids=lambda op: op.name)
def test_any_and_all_of_a_row(op, dtype, size, build):
    i, j = build.range(9, 0), build.range(size, 1)
    for compare in (Op.LT, Op.LE):
        x = build.load(build.param(1, 9 * size, dtype), i * size + j)
        for mask in (UOp(compare, dt.bool_, (x, const(2.0, dtype))),
                     inverted(UOp(compare, dt.bool_, (x, const(2.0, dtype))))):
            value = build.reduce(op, mask, j)
            assert not folded(build.sink(build.store(build.param(0, 9, dt.bool_), i, value)))


def test_the_spelling_of_or_and_and():
    lines: list[str] = []

    def emit(instruction: str) -> str:
        lines.append(instruction)
        return f"%v{len(lines)}"

    guarded = GuardedCompares(emit, lambda ty, text: emit(f"fence {ty} {text}"))
    x, y = (guarded.emit(f"fcmp oge <4 x float> %{name}, %c") for name in "ab")
    e = guarded.emit("fcmp oeq <4 x float> %a, %c")
    begun = len(lines)
    guarded.emit(f"or <4 x i1> {x}, {e}")
    guarded.emit(f"and <4 x i1> {x}, {y}")
    assert len(lines) == begun + 2
    assert guarded.emit(f"or <4 x i1> {x}, {y}") == "%v8"
    assert lines[begun + 2 :] == [
        f"and <4 x i1> {x}, {y}", f"xor <4 x i1> {x}, {y}", "xor <4 x i1> %v6, %v7",
    ]  # fmt: skip


def test_a_compare_or_select_in_another_spelling_is_noticed():
    guarded = GuardedCompares(lambda instruction: "%v", lambda ty, text: text)
    for text in ("select i1 %p, {i32, i32} %x, {i32, i32} %y", "fcmp fast olt float %x, %y"):
        with pytest.raises(AssertionError, match=text.split()[0]):
            guarded.emit(text)

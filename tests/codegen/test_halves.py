"""Numbers of 64 bits that are put together from halves, as an argmax orders elements by."""

from __future__ import annotations

import re

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.backend.llvm.wide_multiply import halves
from kernelrt.device.spec import TARGETS
from kernelrt.ir import Op, UOp


def shifted(value, by=32):
    wide = UOp(Op.CAST, dt.int64, (value,))
    return wide.alu(Op.SHL, wide.const_like(by))


def keys(build, n, place, *, swapped=False, by=32):
    """Of n int32 each one above `place(i)`."""
    i = build.range(n, 0)
    high, low = shifted(build.load(build.param(1, n, dt.int32), i), by), place(i)
    value = low.alu(Op.OR, high) if swapped else high.alu(Op.OR, low)
    return build.sink(build.store(build.param(0, n, dt.int64), i, value))


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("n", [1, 7, 64, 1000, 4099])
@pytest.mark.parametrize(
    ("place", "by"),
    [
        (lambda i: i, 32),
        (lambda i: i * 7 + 3, 32),
        (lambda i: i * -1 + (2**32 - 1), 32),
        (lambda i: i.const_like(2**31 + 5), 32),
        (lambda i: i // 3, 32),
        (lambda i: i * 2**30, 32),
        (lambda i: i - 5, 32),
        (lambda i: i, 31),
    ],
    ids=["place", "steps", "backwards", "number", "parts", "too large", "below 0", "no halves"],
)
def test_values(build, run, n, place, by, swapped):
    x = np.random.default_rng(n).integers(-(2**31), 2**31, n).astype(np.int32)
    out = np.zeros(n, np.int64)
    run(keys(build, n, place, swapped=swapped, by=by), [out, x])
    i = build.range(n, 0)
    wanted = [(int(v) << by) | evaluated(place(i), at) for at, v in enumerate(x)]
    wrapped = np.array([w % 2**64 for w in wanted], np.uint64).view(np.int64)
    np.testing.assert_array_equal(out, wrapped)


def evaluated(u, i):
    """What an expression over one RANGE comes to at `i`."""
    if u.op is Op.RANGE:
        return i
    if u.op is Op.CONST:
        return int(u.arg)
    a, b = (evaluated(s, i) for s in u.src)
    return {Op.ADD: a + b, Op.SUB: a - b, Op.MUL: a * b, Op.IDIV: b and a // b}[u.op]


@pytest.mark.parametrize("target", TARGETS)
def test_lanes_are_interleaved_where_there_are_halves(build, target):
    def joined(place, by=32):
        source = LLVMRenderer(TARGETS[target]()).render(keys(build, 1024, place, by=by)).src
        return bool(re.search(r"shufflevector <\d+ x i32> [^,]+, <\d+ x i32> %", source))

    assert not joined(lambda i: i, 31)
    assert joined(lambda i: i)
    assert joined(lambda i: i * -1 + (2**32 - 1))
    assert not joined(lambda i: i - 1)
    assert not joined(lambda i: i * 2**23)


def test_what_has_halves(build):
    x = build.load(build.param(1, 8, dt.int32), build.range(8, 0))
    wide = build.load(build.param(2, 8, dt.int64), build.range(8, 0))
    i = build.range(8, 0)
    assert halves(shifted(x).alu(Op.OR, i)) == (i, x)
    assert halves(i.alu(Op.OR, shifted(x))) == (i, x)
    assert halves(shifted(x).alu(Op.ADD, i)) is None
    assert halves(shifted(x).alu(Op.OR, wide)) is None
    assert halves(wide.alu(Op.SHL, wide.const_like(32)).alu(Op.OR, i)) is None
    assert halves(shifted(UOp(Op.CAST, dt.int16, (x,))).alu(Op.OR, i)) is None


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("shape", [(3, 5), (7, 1000), (64, 513), (100, 17)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int8, np.int64])
def test_positions_of_the_best(shape, axis, dtype):
    x = np.random.default_rng(0).integers(-50, 50, shape).astype(dtype)
    if x.dtype.kind == "f":
        x[0, -1] = np.nan
        x[1] = -0.0
        x[1, 2] = 0.0
    for name in ("argmax", "argmin"):
        found = getattr(krt.tensor(x), name)(axis).numpy()
        np.testing.assert_array_equal(found, getattr(np, name)(x, axis))


def test_positions_along_an_axis_of_any_size():
    greatest = krt.jit(lambda x: x.argmax(1), dynamic={"x": {1: krt.Variable("n", 1, 3000)}})
    rng = np.random.default_rng(0)
    for n in (1, 2, 15, 16, 17, 100, 2999):
        x = rng.integers(0, 40, (5, n)).astype(np.float32)
        np.testing.assert_array_equal(greatest(x).numpy(), x.argmax(1))

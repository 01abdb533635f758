"""Long reductions to few elements are shared by several cores."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.device import Buffer
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op, UOp, const, toposort
from kernelrt.schedule import schedule

SPEC = DeviceSpec.avx512()


def buffer(size, dtype=dt.float32):
    return UOp(Op.BUFFER, dtype, (), Buffer(size, dtype))


def reduced(x, *axes, op=Op.ADD):
    return UOp(Op.REDUCE_AXIS, x.dtype, (x,), (op, axes or tuple(range(len(x.shape)))))


def stored(plan):
    """Elements that each kernel stores, in order."""
    return [k.ast.src[0].src[0].arg[1] for k in plan.kernels]


@pytest.mark.parametrize("reduction", ["sum", "mean", "amax", "amin", "argmax", "std"])
@pytest.mark.parametrize("shape", [(1_000_000,), (1024, 1536), (3, 1 << 19), (1 << 19, 3)])
def test_every_long_pass_has_chunks(reduction, shape):
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    f = krt.jit(lambda x: getattr(x, reduction)())
    plan = f.plan(values)
    # An argmax by blocks searches the rest of the elements apart.
    long = [k for k in plan.kernels if isinstance(k.flops, int) and k.flops >= values.size // 2]
    assert long
    assert all(k.global_size[0] > 1 for k in long)
    named = {"amax": np.max, "amin": np.min, "std": lambda x: np.std(x, ddof=1)}
    expected = named.get(reduction, getattr(np, reduction, None))(values.astype(np.float64))
    np.testing.assert_allclose(f(values).numpy(), expected, rtol=1e-5, atol=2e-2)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_few_results_keep_their_axes(axis):
    shape = [4, 2, 2]
    shape[axis] = 1 << 18
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    got = krt.jit(lambda x: x.sum(axis))
    assert got.plan(values).kernels[0].global_size[0] > 1
    np.testing.assert_allclose(
        got(values).numpy(), values.astype(np.float64).sum(axis), rtol=1e-5, atol=1e-2
    )


@pytest.mark.parametrize("spec", [DeviceSpec.avx2(), SPEC], ids=lambda d: d.cpu)
def test_parts_of_few_rows_are_runs_of_memory(spec):
    x = UOp(Op.RESHAPE, dt.float32, (buffer(32 * 50000),), (32, 50000))
    first, _ = schedule([reduced(x, op=Op.MAX)], device=spec).kernels
    [fold] = [n for n in toposort([first.ast]) if n.op is Op.REDUCE]
    assert len(fold.src[1:]) == 1
    parts = stored(schedule([reduced(x, op=Op.MAX)], device=spec))[0]
    assert parts % 32 == 0
    assert parts > 32


@pytest.mark.parametrize("reduction", ["sum", "amax"])
@pytest.mark.parametrize("shape", [(32, 50000), (5, 7, 60000), (2, 3, 1 << 18), (37, 41011)])
def test_values_of_few_rows(reduction, shape):
    values = np.random.default_rng(0).integers(-9, 9, shape)
    found = krt.jit(lambda x: getattr(x, reduction)())(values).item()
    assert found == getattr(np, reduction)(values)


@pytest.mark.parametrize("shape", [(61, 305183), (5, 61, 30011), (4, 1000003)], ids=str)
def test_rows_are_the_parts_if_nothing_divides_them(shape):
    x = UOp(Op.RESHAPE, dt.float32, (buffer(math.prod(shape)),), shape)
    assert stored(schedule([reduced(x)], device=SPEC))[0] == max(shape[:-1])
    values = np.random.default_rng(0).integers(-9, 9, shape).astype(np.int32)
    assert krt.jit(lambda x: x.sum())(values).item() == values.sum()


@pytest.mark.parametrize("rows", [2, 5, 17, 48, 61, 63])
def test_there_are_never_many_more_parts_than_wanted(rows):
    for columns in (60 << 17, 61 * 100003, 7**8, 11**7):
        x = UOp(Op.RESHAPE, dt.float32, (buffer(rows * columns),), (rows, columns))
        assert 4 <= stored(schedule([reduced(x)], device=SPEC))[0] < 4 * 64


def test_how_many_parts_follows_from_shapes_and_not_from_cores():
    x = buffer(1 << 22)
    one, many = (stored(schedule([reduced(x)], device=replace(SPEC, cores=n))) for n in (1, 64))
    assert one == many
    assert len(one) == 2
    assert one[0] > 4


def test_what_one_core_does_quickly_is_one_kernel():
    assert stored(schedule([reduced(buffer(1 << 16))], device=SPEC)) == [1]
    # Enough results to share are shared as they are.
    many = UOp(Op.RESHAPE, dt.float32, (buffer(1 << 22),), (1 << 10, 1 << 12))
    assert stored(schedule([reduced(many, 1)], device=SPEC)) == [1 << 10]


def test_narrow_floats_are_rounded_once():
    values = np.full(1 << 22, 0.25, np.float16)
    assert stored(schedule([reduced(buffer(values.size, dt.float16))], device=SPEC)) == [1]
    got = krt.jit(lambda x: x.sum() / 1024)(values).float().numpy()
    np.testing.assert_allclose(got, values.size * 0.25 / 1024, rtol=1e-3)


def test_checked_indices_are_looked_at_where_they_were():
    size = 1 << 22
    index = UOp(Op.BOUND, dt.int64, (buffer(size, dt.int64), const(8, dt.int64)), False)
    plan = schedule([reduced(UOp(Op.GATHER, dt.float32, (buffer(8), index)))], device=SPEC)
    assert stored(plan) == [1]
    assert any(n.op is Op.BOUND for n in toposort([plan.kernels[0].ast]))

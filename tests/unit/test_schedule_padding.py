"""Zeros around an image are stored with it, once for all that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.graphs import (
    TARGET,
    Memory,
    add,
    alu,
    base,
    check,
    contiguous,
    conv2d,
    mul,
    pad,
    permute,
    reduce,
    relu,
    reshape,
    shrink,
)

from kernelrt.ir import Op, UOp, toposort
from kernelrt.schedule.rewrite.materialize_padding import materialize_padding

if TYPE_CHECKING:
    from kernelrt.schedule import Schedule


@pytest.fixture
def mem() -> Memory:
    return Memory(11)


def predicated(plan: Schedule) -> list[UOp]:
    """LOADs that a kernel does under a condition."""
    nodes = toposort([kernel.ast for kernel in plan.kernels])
    return [n for n in nodes if n.op is Op.LOAD and len(n.src) == 3]


def stored(plan: Schedule, size: int) -> int:
    """Buffers of so many elements that kernels write."""
    return len({b for kernel in plan.kernels for b in kernel.outs if b.arg.size == size})


def test_a_padded_image_has_no_copy_without_its_zeros(mem: Memory) -> None:
    x = relu(add(mem.random(4, 8, 20, 20), mem.random(8, 1, 1)))
    y = conv2d(x, mem.random(16, 8, 3, 3), padding=1)
    plan = check(mem, [y, reduce(x, Op.ADD, 0, 2, 3)])
    assert stored(plan, 4 * 8 * 22 * 22) == 1
    assert stored(plan, 4 * 8 * 20 * 20) == 0
    assert not predicated(plan), "zeros are stored apart"


def test_the_widest_margin_is_that_of_all(mem: Memory) -> None:
    x = relu(add(mem.random(4, 8, 20, 20), 0.5))
    ways = [
        conv2d(pad(x, (0, 0), (0, 0), (low, high), (high, low)), mem.random(8, 8, 3, 3))
        for low, high in ((1, 1), (0, 2), (2, 0))
    ]
    plan = check(mem, ways)
    assert stored(plan, 4 * 8 * 24 * 24) == 1
    assert stored(plan, 4 * 8 * 22 * 22) == 0


def test_channels_stay_innermost(mem: Memory) -> None:
    x = relu(conv2d(mem.random(8, 16, 8, 8), mem.random(32, 16, 3, 3)))
    y = conv2d(x, mem.random(32, 32, 3, 3), padding=1)
    plan = check(mem, [reduce(y, Op.ADD, 0, 2, 3), reduce(x, Op.MAX, 1)], tolerance=1e-3)
    assert stored(plan, 8 * 32 * 8 * 8) == 1
    assert not predicated(plan)


def test_an_image_in_other_axes(mem: Memory) -> None:
    """As of a pool's gradient, which is computed window by window."""
    x = mem.random(4, 8, 10, 2, 10, 2)
    x = alu(Op.WHERE, alu(Op.LT, x, 0.0), mul(x, 0.5), x)
    image = reshape(x, (4, 8, 20, 20))
    y = conv2d(image, mem.random(16, 8, 3, 3), padding=2)
    plan = check(mem, [y, reduce(permute(image, 1, 0, 2, 3), Op.ADD, 1, 2, 3)])
    assert stored(plan, 4 * 8 * 24 * 24) == 1
    assert stored(plan, 4 * 8 * 20 * 20) == 0


def test_what_is_wanted_or_padded_otherwise_is_copied(mem: Memory) -> None:
    x = relu(mem.random(4, 8, 20, 20))
    y = conv2d(x, mem.random(16, 8, 3, 3), padding=1)
    assert materialize_padding([y, x], TARGET) == [y, x]
    rows = pad(reshape(x, (4, 8, 400)), (0, 0), (0, 0), (1, 1))
    assert materialize_padding([y, reduce(rows, Op.MAX, 0)], TARGET)[0] is y
    check(mem, [y, x, reduce(rows, Op.MAX, 0)])


def test_small_images_are_padded_where_they_are_read(mem: Memory) -> None:
    x = relu(mem.random(1, 1, 3, 3))
    y = conv2d(x, mem.random(2, 1, 3, 3), padding=1)
    roots = [y, reduce(x, Op.ADD, 0, 2, 3)]
    assert materialize_padding(roots, TARGET) == roots


@pytest.mark.parametrize(
    "widths",
    [((1, 2), (0, 3)), ((0, 0), (2, 0)), ((3, 0), (0, 0)), ((0, 1), (0, 0)), ((1, 1), (17, 40))],
    ids=str,
)
def test_a_stored_pad_asks_for_no_condition(
    mem: Memory, widths: tuple[tuple[int, int], ...]
) -> None:
    x = add(mem.random(3, 5, 18), 1.0)
    padded = contiguous(pad(x, (0, 0), *widths))
    plan = check(mem, [padded, reduce(padded, Op.MAX, 0, 2)])
    assert not predicated(plan)


def test_a_pad_of_nothing_and_one_that_is_committed(mem: Memory) -> None:
    check(mem, [contiguous(pad(shrink(mem.random(3, 5), (0, 3), (2, 2)), (0, 0), (2, 3)))])
    target, x = mem.random(7, 9), mem.random(5, 6)
    grown = contiguous(pad(add(x, 1.0), (1, 1), (0, 3)))
    check(mem, [], [(base(target), reshape(grown, (63,)))])

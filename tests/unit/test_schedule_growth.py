"""Work and code that grow with the graph and not faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.graphs import (
    Memory,
    add,
    alu,
    cat,
    check,
    expand,
    flip,
    gather,
    iota,
    mul,
    pad,
    reduce,
    reshape,
    scalar,
    shrink,
)  # fmt: skip
from support.work import lines_run

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, toposort
from kernelrt.schedule import schedule

if TYPE_CHECKING:
    from collections.abc import Callable

MEM = Memory(3)
X = MEM.random(4)
#: Far above what is needed, far below what anything exponential takes.
MOST_LINES = 1_000_000


def chain(depth: int) -> UOp:
    x = X
    for _ in range(depth):
        x = add(mul(x, 0.5), X)
    return x


def reductions(depth: int) -> UOp:
    x = X
    for _ in range(depth):
        x = add(x, expand(reduce(x, Op.ADD, 0, keep=True), (4,)))
    return x


def positions(depth: int) -> UOp:
    """Index arithmetic, which costs nothing while it is shallow."""
    i = iota(4)
    for _ in range(depth):
        i = alu(Op.MOD, alu(Op.ADD, alu(Op.MUL, i, 3), 1), 4)
    return gather(X, i)


def assigned(depth: int) -> UOp:
    """Each row of a tensor is made of the one before, and assigned to it."""
    rows = reshape(MEM.random(1), (1, 1))
    out = expand(rows, (depth, 1))
    for k in range(depth):
        widths = (k, depth - k - 1), (0, 0)
        part = add(mul(shrink(out, (max(k - 1, 0), max(k, 1)), (0, 1)), 0.5), rows)
        mask = pad(reshape(scalar(True, dt.bool_), (1, 1)), *widths)
        out = alu(Op.WHERE, mask, pad(part, *widths), out)
    return out


def parts_added(depth: int) -> UOp:
    """The gradient of a tensor of which rows are read one by one."""
    row = MEM.random(1, 1)
    out = pad(row, (0, depth - 1), (0, 0))
    for k in range(1, depth):
        row = add(mul(row, 0.5), row)
        out = add(out, pad(row, (k, depth - k - 1), (0, 0)))
    return out


@pytest.mark.cases(1)
@pytest.mark.parametrize("build", [chain, reductions, positions, assigned, parts_added])
def test_work_grows_with_the_graph(build: Callable[[int], UOp]) -> None:
    def work(depth: int) -> int:
        node = build(depth)
        return lines_run(lambda: schedule([node]))

    work(100)
    assert work(1600) < 9 * work(200)


@pytest.mark.exhaustive
def test_no_depth_is_too_deep() -> None:
    assert schedule([chain(30_000)]).kernels


def test_a_part_of_what_repeats_is_found_once() -> None:
    x = MEM.random(2, 2)
    for _ in range(40):
        x = flip(reshape(reshape(x, (4,)), (2, 2)), 0)
        x = mul(x, x)
    part = shrink(x, (1, 2), (0, 2))
    assert lines_run(lambda: schedule([part]), most=MOST_LINES) > 0


def test_a_condition_on_other_loops_is_no_second_value() -> None:
    """What does not vary along the joined axis is computed once, whichever part it goes to."""
    x, y = MEM.random(16, 1), MEM.random(16, 7)
    total = add(reduce(mul(y, y), Op.ADD, 1, keep=True), x)
    joined = cat(1, *(mul(expand(total, (16, n)), float(n)) for n in (2, 3, 4)))
    padded = pad(expand(total, (16, 3)), (0, 0), (1, 2))
    for node in (mul(joined, 2.0), add(joined, pad(padded, (0, 0), (1, 2)))):
        (kernel,) = check(MEM, [node], kernels=1).kernels
        assert sum(n.op is Op.REDUCE for n in toposort([kernel.ast])) == 1

"""Work and code that grow with the graph and not faster."""

from __future__ import annotations

import time

from support.graphs import Memory, add, cat, check, expand, flip, mul, pad, reduce, reshape, shrink

from kernelrt.ir import Op, toposort
from kernelrt.schedule import schedule

MEM = Memory(3)


def test_a_part_of_what_repeats_is_found_once() -> None:
    x = MEM.random(2, 2)
    started = time.perf_counter()
    for _ in range(40):
        x = flip(reshape(reshape(x, (4,)), (2, 2)), 0)
        x = mul(x, x)
    schedule([shrink(x, (1, 2), (0, 2))])
    assert time.perf_counter() - started < 5


def test_a_condition_on_other_loops_is_no_second_value() -> None:
    """What does not vary along the joined axis is computed once, whichever part it goes to."""
    x, y = MEM.random(16, 1), MEM.random(16, 7)
    total = add(reduce(mul(y, y), Op.ADD, 1, keep=True), x)
    joined = cat(1, *(mul(expand(total, (16, n)), float(n)) for n in (2, 3, 4)))
    padded = pad(expand(total, (16, 3)), (0, 0), (1, 2))
    for node in (mul(joined, 2.0), add(joined, pad(padded, (0, 0), (1, 2)))):
        (kernel,) = check(MEM, [node], kernels=1).kernels
        assert sum(n.op is Op.REDUCE for n in toposort([kernel.ast])) == 1

"""What is changed part by part is put together once, and read part by part."""

import numpy as np
import pytest
from support.graphs import (
    Memory,
    add,
    alu,
    base,
    cat,
    check,
    exp,
    expand,
    mul,
    pad,
    permute,
    reduce,
    reshape,
    scalar,
    shrink,
)

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, Variable, toposort
from kernelrt.schedule.memory.partial_writes import FEW, concatenate_assigned
from kernelrt.schedule.rewrite.simplify import simplify_graph

STEPS = 2 * FEW


@pytest.fixture
def mem() -> Memory:
    return Memory(17)


def among_zeros(x, part, *starts):
    """`part` where it begins at `starts`, among zeros of the shape of `x`."""
    sizes = zip(starts, part.shape, x.shape, strict=True)
    return pad(part, *((start, whole - start - size) for start, size, whole in sizes))


def put(x, part, *starts):
    """`x` with `part` where it begins at `starts`."""
    mask = expand(scalar(True, dt.bool_), part.shape)
    return alu(Op.WHERE, among_zeros(x, mask, *starts), among_zeros(x, part, *starts), x)


def plus(x, part, *starts):
    """`x` with `part` added where it begins at `starts`."""
    return add(x, among_zeros(x, part, *starts))


def row(x, k, n=1):
    return shrink(x, (k, k + n), *((0, d) for d in x.shape[1:]))


def ops(*roots):
    return [n.op for n in toposort(concatenate_assigned(simplify_graph(roots)))]


def zeros(*shape):
    return expand(scalar(0.0), shape)


def rows_of_state(mem, steps=STEPS):
    """Each row is made of the one before, which is read from the whole."""
    x = mem.random(steps, 3)
    out = zeros(steps, 3)
    for k in range(steps):
        before = row(out, k - 1) if k else zeros(1, 3)
        out = put(out, add(mul(before, 0.5), row(x, k)), k, 0)
    return out


def test_a_loop_over_rows_joins_them_once(mem: Memory) -> None:
    out = rows_of_state(mem)
    found = ops(out)
    assert Op.WHERE not in found
    assert found.count(Op.CAT) == 1
    check(mem, [out])


def test_a_few_changes_stay_as_they_are(mem: Memory) -> None:
    out = mem.random(9, 3)
    for k in range(FEW):
        out = put(out, mem.random(1, 3), k, 0)
    assert Op.CAT not in ops(out)
    check(mem, [out], kernels=1)


def test_columns_blocks_and_elements(mem: Memory) -> None:
    columns = mem.random(3, STEPS)
    for k in range(STEPS):
        columns = put(columns, mem.random(3, 1), 0, k)
    blocks = mem.random(2 * STEPS + 1, 2, 3)
    for k in range(STEPS):
        blocks = put(blocks, mem.random(2, 2, 3), 2 * k, 0, 0)
    table = mem.random(6, 5)
    for i in range(1, 5):
        for j in range(5):
            known = shrink(table, (i - 1, i), (j, j + 1))
            table = put(table, add(known, mem.random(1, 1)), i, j)
    for out in (columns, blocks, table):
        assert Op.WHERE not in ops(out)
    check(mem, [columns, blocks, table])


def test_what_is_put_over_other_parts(mem: Memory) -> None:
    out = mem.random(STEPS, 3)
    for k in range(STEPS - 2):
        out = put(out, mul(row(out, k, 3), 0.5), k, 0)
    check(mem, [out])
    wide = put(out, mem.random(STEPS - 4, 3), 2, 0)
    check(mem, [wide])


def test_what_is_wanted_whole_on_the_way(mem: Memory) -> None:
    out = zeros(STEPS, 3)
    for k in range(STEPS):
        known = reshape(reduce(out, Op.ADD, 0), (1, 3))
        out = put(out, add(known, mem.random(1, 3)), k, 0)
    assert Op.CAT not in ops(out)
    check(mem, [out])
    half = rows_of_state(mem)
    both = half
    for k in range(STEPS):
        both = put(both, mem.random(1, 3), k // 2, 0)
    assert ops(half, both).count(Op.CAT) == 2
    check(mem, [half, both])


def test_other_axes_by_turns(mem: Memory) -> None:
    out = mem.random(STEPS, 4)
    for k in range(STEPS):
        out = put(out, mem.random(1, 4), k, 0)
        out = put(out, shrink(mul(out, 2.0), (0, STEPS), (k % 3, k % 3 + 1)), 0, 3)
    check(mem, [out, permute(out, 1, 0)])


def test_reads_of_few_parts_and_of_many(mem: Memory) -> None:
    out = rows_of_state(mem)
    few, many = row(out, 3, 4), row(out, 1, STEPS - 2)
    assert Op.WHERE not in ops(few)
    assert Op.CAT in ops(few)
    check(mem, [few, many])


def test_sums_over_other_parts_and_assignments_between(mem: Memory) -> None:
    out = mem.random(STEPS, 3)
    for k in range(STEPS - 1):
        out = plus(out, mul(row(out, k), 0.5), k + 1, 0)
        out = plus(out, mem.random(2, 3), k, 0)
        out = put(out, mem.random(1, 3), k, 0) if k % 3 == 0 else out
    assert ops(out).count(Op.WHERE) == 0
    check(mem, [out])


def test_sums_of_a_few_parts_are_added_where_they_lie(mem: Memory) -> None:
    out = mem.random(STEPS + 1, 3)
    for k in range(STEPS):
        parts = plus(among_zeros(out, mem.random(1, 3), k + 1, 0), mem.random(1, 3), k, 0)
        out = add(parts, out) if k % 2 else add(out, parts)
    assert Op.PAD not in ops(out)
    check(mem, [out])


def test_parts_over_each_other_round_as_their_sum(mem: Memory) -> None:
    """x + (a + b) is not (x + a) + b."""
    x, a, b = (mem.of(np.float32([[v]] * (STEPS + 1))) for v in (1.0, 2.0**-24, 2.0**-24))
    out = x
    for k in range(STEPS):
        both = plus(among_zeros(x, row(a, k), k, 0), row(b, k), k, 0)
        out = add(out, both)
    check(mem, [out], tolerance=0)


def test_minus_zero_becomes_zero_where_a_sum_passes(mem: Memory) -> None:
    x = mem.of(np.full((STEPS + 2, 1), -0.0, np.float32))
    out = x
    for k in range(STEPS):
        out = plus(out, row(x, k), k, 0)
    for k in range(0, STEPS, 3):
        out = put(out, row(x, k), k, 0)
    plan = check(mem, [out, alu(Op.DIV, scalar(1.0), out)], tolerance=0)
    assert plan.kernels
    one = plus(x, row(x, 0), 0, 0)
    check(mem, [alu(Op.DIV, scalar(1.0), put(one, row(x, 1), 1, 0))], tolerance=0)


def test_axes_of_open_size_are_taken_whole(mem: Memory) -> None:
    n = Variable("n", 1, 6)
    x = shrink(mem.random(STEPS, 6), (0, STEPS), (0, n))
    out = x
    for k in range(STEPS):
        before = row(out, max(k - 1, 0))
        mask = expand(scalar(True, dt.bool_), (1, n))
        widths = (k, STEPS - k - 1), (0, 0)
        new = pad(add(before, row(x, k)), *widths)
        out = alu(Op.WHERE, pad(mask, *widths), new, out)
    assert ops(out).count(Op.WHERE) == 0
    check(mem, [out], n=4)


def test_integers_and_a_commit(mem: Memory) -> None:
    out = mem.indices(9, STEPS, 2)
    for k in range(STEPS):
        out = put(out, alu(Op.ADD, row(out, k), row(out, STEPS - 1 - k)), k, 0)
    state = mem.random(STEPS, 3)
    new = state
    for k in range(STEPS):
        new = put(new, add(row(new, k), row(state, STEPS - 1 - k)), k, 0)
    check(mem, [out], [(base(state), reshape(new, (3 * STEPS,)))])


def test_parts_of_a_join(mem: Memory) -> None:
    parts = [exp(mem.random(1, 3)) for _ in range(STEPS)]
    out = cat(0, *parts)
    for k in range(STEPS):
        out = plus(out, mem.random(1, 3), k, 0)
    check(mem, [out])


@pytest.mark.parametrize("seed", range(12))
def test_random_changes(seed: int) -> None:
    mem, rng = Memory(seed), np.random.default_rng(seed)
    shape = tuple(int(d) for d in rng.integers(2, 7, rng.integers(1, 4)))
    out: UOp = mem.random(*shape) if seed % 3 else zeros(*shape)
    kept: list[UOp] = []
    for _ in range(int(rng.integers(5, 40))):
        low = [int(rng.integers(0, d)) for d in shape]
        size = [int(rng.integers(1, d - s + 1)) for s, d in zip(low, shape, strict=True)]
        if rng.random() < 0.6:  # as loops do: a row, a column or an element
            axis = int(rng.integers(0, len(shape)))
            inner = rng.random() < 0.3
            for a, d in enumerate(shape):
                if a != axis and not (inner and a < axis):
                    low[a], size[a] = 0, d
                else:
                    size[a] = 1
        part = mem.random(*size)
        if rng.random() < 0.5:
            at = [int(rng.integers(0, d - s + 1)) for s, d in zip(size, shape, strict=True)]
            bounds = zip(at, size, strict=True)
            part = add(part, shrink(out, *((s, s + n) for s, n in bounds)))
        out = (put if rng.random() < 0.6 else plus)(out, part, *low)
        if rng.random() < 0.1:
            kept.append(out)
    check(mem, [out, *kept])

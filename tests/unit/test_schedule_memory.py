"""Hazards as byte ranges, the order of items, and the arena."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import (
    Memory,
    add,
    check,
    contiguous,
    exp,
    flip,
    matmul,
    reduce,
    relu,
    shrink,
)  # fmt: skip
from support.kernel_reference import HostBuffer

from kernelrt import dtype as dt
from kernelrt.device.allocator import ALIGNMENT
from kernelrt.device.byte_ranges import ByteRange
from kernelrt.ir import Op, UOp
from kernelrt.schedule import CopyItem, Intermediate, Schedule, schedule
from kernelrt.schedule.memory.arena import most_alive, plan_arena, touched
from kernelrt.schedule.memory.hazards import Extents, accesses, dependencies, extent, waves

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kernelrt.schedule import Item

WHOLE = HostBuffer(np.zeros(16, np.float32))


def buffer(holder: HostBuffer | Intermediate) -> UOp:
    return UOp(Op.BUFFER, dt.float32, (), holder)


def edges_of(items: Sequence[Item]) -> tuple[tuple[int, ...], ...]:
    return dependencies(accesses(items, Extents()))


def overlap(a: UOp, b: UOp) -> bool:
    return extent(a).meets(extent(b))


def intermediate(size: int = 4) -> UOp:
    return buffer(Intermediate(size, dt.float32))


def copy(dst: UOp, src: UOp) -> CopyItem:
    return CopyItem(dst, src, int(dst.arg.size) * 4)


def test_extents_of_views_share_their_storage() -> None:
    part = buffer(WHOLE.view(4, 4))
    assert extent(part) == ByteRange(WHOLE, 16, 32)
    assert overlap(part, buffer(WHOLE))
    assert overlap(part, buffer(WHOLE.view(7, 2)))
    assert not overlap(part, buffer(WHOLE.view(0, 4)))
    assert not overlap(part, buffer(WHOLE.view(8, 4)))
    nested = buffer(WHOLE.view(4, 8).view(2, 2))
    assert extent(nested) == ByteRange(WHOLE, 24, 32)


def test_empty_extents_touch_nothing() -> None:
    assert not overlap(intermediate(0), buffer(WHOLE))
    assert not ByteRange(WHOLE, 8, 8).meets(ByteRange(WHOLE, 0, 64))


def test_device_buffers_are_understood() -> None:
    from kernelrt.device.buffer import Buffer

    whole = Buffer(16, dt.float32)
    part = buffer(whole.view(16, 4, dt.float32))
    assert overlap(part, buffer(whole))
    assert not overlap(part, buffer(whole.view(0, 4, dt.float32)))


def test_the_three_hazards() -> None:
    a, b, c = intermediate(), intermediate(), intermediate()
    read_after_write = (copy(a, b), copy(c, a))
    assert edges_of(read_after_write) == ((), (0,))
    write_after_read = (copy(a, b), copy(b, c))
    assert edges_of(write_after_read) == ((), (0,))
    write_after_write = (copy(a, b), copy(a, c))
    assert edges_of(write_after_write) == ((), (0,))
    two_readers = (copy(a, c), copy(b, c))
    assert edges_of(two_readers) == ((), ())


def test_a_partial_write_does_not_hide_an_earlier_one() -> None:
    x, y = intermediate(16), intermediate(4)
    whole, part = buffer(WHOLE), buffer(WHOLE.view(0, 4))
    items = (copy(whole, x), copy(part, y), copy(intermediate(16), whole))
    assert edges_of(items) == ((), (0,), (0, 1))


@given(st.lists(st.tuples(*[st.integers(0, 7)] * 4), max_size=12))
@settings(max_examples=200, deadline=None)
def test_dependencies_order_every_conflict(picks: list[tuple[int, int, int, int]]) -> None:
    views = [buffer(WHOLE.view(s, n)) for s in (0, 4) for n in (2, 4, 6, 8)]
    items = [copy(views[d], views[s]) for d, s, _, _ in picks]
    before = closure(edges_of(items))
    for k, late in enumerate(items):
        for j in range(k):
            early = items[j]
            clash = (
                overlap(early.dst, late.src) or overlap(early.src, late.dst)
                or overlap(early.dst, late.dst)
            )  # fmt: skip
            if clash:
                assert j in before[k]


def closure(deps: tuple[tuple[int, ...], ...]) -> list[set[int]]:
    out: list[set[int]] = []
    for before in deps:
        out.append(set(before).union(*(out[d] for d in before)))
    return out


def test_waves() -> None:
    assert waves(((), (), (0,), (0, 1), (3,))) == [[0, 1], [2, 3], [4]]
    assert waves(()) == []


def test_the_most_bytes_alive_at_once_agree_with_a_count_at_each_item() -> None:
    rng = np.random.default_rng(5)
    assert most_alive(()) == 0
    for _ in range(50):
        ends = np.sort(rng.integers(0, 12, (rng.integers(1, 9), 2)), axis=1)
        lives = [(int(a), int(b), int(rng.integers(0, 100))) for a, b in ends]
        by_item = [sum(n for a, b, n in lives if a <= at <= b) for at in range(12)]
        assert most_alive(lives) == max(by_item)


def test_arena_reuses_bytes_along_a_chain() -> None:
    chain = [intermediate(100) for _ in range(6)]
    items = [copy(b, a) for a, b in itertools.pairwise(chain)]
    keep = {chain[0].arg}
    offsets, size = plan_arena(touched(items), edges_of(items), keep)
    assert size == 2 * 448
    assert all(o % ALIGNMENT == 0 for o in offsets.values())
    assert keep.isdisjoint(offsets)


def test_arena_gives_parallel_branches_their_own_bytes() -> None:
    source = intermediate(16)
    branches = [[intermediate(16), intermediate(16)] for _ in range(3)]
    items = [copy(first, source) for first, _ in branches]
    items += [copy(second, first) for first, second in branches]
    offsets, _ = plan_arena(touched(items), edges_of(items), {source.arg})
    firsts = [offsets[first.arg] for first, _ in branches]
    assert len(set(firsts)) == 3
    for first, second in branches:
        clashing = [f for f, _ in branches if offsets[f.arg] == offsets[second.arg]]
        assert not clashing, "no edge orders another branch, and this one reads its first"
        assert offsets[first.arg] != offsets[second.arg]


def test_arena_without_reuse() -> None:
    chain = [intermediate(100) for _ in range(6)]
    items = [copy(b, a) for a, b in itertools.pairwise(chain)]
    offsets, size = plan_arena(touched(items), edges_of(items), (), reuse=False)
    assert size == 6 * 448
    assert len(set(offsets.values())) == 6


@st.composite
def programs(draw: st.DrawFn) -> list[CopyItem]:
    pool = [intermediate(draw(st.integers(1, 60))) for _ in range(draw(st.integers(2, 10)))]
    picks = draw(st.lists(st.tuples(*[st.integers(0, len(pool) - 1)] * 2), max_size=20))
    return [copy(pool[d], pool[s]) for d, s in picks if d != s]


@given(programs())
@settings(max_examples=200, deadline=None)
def test_shared_bytes_are_ordered_by_the_edges_alone(items: list[CopyItem]) -> None:
    check_shared_bytes(items)


@pytest.mark.cases(1)
@pytest.mark.parametrize("recent", [3, 10, 40])
def test_shared_bytes_of_many_intermediates(recent: int) -> None:
    """Copies among the latest of 300 intermediates: gaps between those in use are joined."""
    rng = np.random.default_rng(recent)
    for _ in range(10):
        pool = [intermediate(int(n)) for n in rng.integers(1, 200, 300)]
        items = [copy(pool[1], pool[0])]
        for k in range(2, len(pool)):
            sources = rng.integers(max(0, k - recent), k, 2)
            items += [copy(pool[k], pool[source]) for source in sources]
        check_shared_bytes(items)


def check_shared_bytes(items: list[CopyItem]) -> None:
    deps = edges_of(items)
    check_offsets(items, closure(deps), *plan_arena(touched(items), deps, ()))
    # One after the other.
    before = [set(range(k)) for k in range(len(items))]
    check_offsets(items, before, *plan_arena(touched(items), None, ()))


def check_offsets(
    items: list[CopyItem],
    before: Sequence[Collection[int]],
    offsets: dict[Intermediate, int],
    size: int,
) -> None:
    """Intermediates that share bytes are used one after the other, by what runs `before`."""
    users: dict[Intermediate, set[int]] = {}
    for k, item in enumerate(items):
        users.setdefault(item.dst.arg, set()).add(k)
        users.setdefault(item.src.arg, set()).add(k)
    holders = list(offsets)
    assert all(offsets[h] + h.nbytes <= size for h in holders)
    for i, a in enumerate(holders):
        for b in holders[:i]:
            apart = offsets[a] + a.nbytes <= offsets[b] or offsets[b] + b.nbytes <= offsets[a]
            first, second = (a, b) if min(users[a]) < min(users[b]) else (b, a)
            ordered = users[first] <= set(before[min(users[second])])
            assert apart or ordered


def layers(depth: int) -> Schedule:
    mem = Memory(3)
    x = mem.random(16, 32)
    for _ in range(depth):
        x = relu(matmul(x, mem.random(32, 32)))
    return schedule([reduce(exp(x), Op.ADD, 0)])


def test_inference_needs_two_activations() -> None:
    plan = layers(8)
    assert plan.arena_size == 2 * 16 * 32 * 4
    assert plan.deps == ((), *((k,) for k in range(len(plan.items) - 1)))


def test_outputs_are_not_in_the_arena() -> None:
    mem = Memory(3)
    x = mem.random(64)
    h = matmul(mem.random(8, 64), mem.random(64, 8))
    plan = schedule([add(x, 1.0), h, matmul(h, h)])
    for output in plan.outputs:
        assert output.arg not in plan.arena_offsets


@pytest.mark.parametrize("arena", [True, False])
def test_every_intermediate_has_a_place(arena: bool) -> None:
    mem = Memory(3)
    x = mem.random(8, 32)
    plan = schedule([matmul(relu(matmul(x, mem.random(32, 32))), mem.random(32, 4))], arena=arena)
    kept = {b.arg for b in plan.outputs}
    for item in plan.items:
        for b in (*item.ins, *item.outs):
            if isinstance(b.arg, Intermediate):
                assert (b.arg in plan.arena_offsets) != (b.arg in kept)


def test_a_part_that_is_read_backwards_begins_at_its_least_index() -> None:
    memory = Memory()
    stored = contiguous(exp(memory.random(6)))
    check(memory, [flip(shrink(stored, (1, 3)), 0), add(stored, 1.0)])

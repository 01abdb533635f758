"""The verifier of schedules: real ones pass, and each kind of break is found."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.graphs import (
    Memory,
    add,
    base,
    bound,
    exp,
    flip,
    gather,
    iota,
    matmul,
    mul,
    reduce,
    relu,
    reshape,
    scatter_add,
    shrink,
    sub,
    transpose,
)  # fmt: skip
from support.kernel_reference import HostBuffer

from kernelrt import dtype as dt
from kernelrt.errors import SpecError
from kernelrt.ir import Op, UOp, const, toposort
from kernelrt.schedule import CopyItem, Intermediate, KernelItem, Part, Schedule, schedule
from kernelrt.schedule.memory import access_log
from kernelrt.schedule.memory.verify_schedule import verify_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BOTH_WAYS = pytest.mark.parametrize("limit", [8192, 0], ids=["closure", "search"])


@dataclass(frozen=True)
class Program:
    """A schedule and what it commits to."""

    made: Schedule
    targets: list[UOp]

    def broken(self, **changes: Any) -> Program:
        return Program(dataclasses.replace(self.made, **changes), self.targets)

    def with_item(self, k: int, item: Any) -> Program:
        items = list(self.made.items)
        items[k] = item
        return self.broken(items=tuple(items))

    def verify(self) -> None:
        verify_schedule(self.made, self.targets)

    def is_refused(self) -> bool:
        try:
            self.verify()
        except SpecError:
            return True
        return False


def program(outputs: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]] = ()) -> Program:
    return Program(schedule(outputs, commits), [t for t, _ in commits])


def training() -> Program:
    """Two layers, their gradients, in-place updates, and a checked look-up."""
    mem = Memory(5)
    w, v, x, rows = mem.random(16, 8), mem.random(8, 12), mem.random(20, 16), mem.indices(20, 6)
    picked = gather(x, reshape(bound(rows, 20), (6, 1)), reshape(iota(16), (1, 16)))
    hidden = relu(matmul(picked, w))
    out = matmul(hidden, v)
    loss = reduce(mul(out, out), Op.ADD, 0, 1)
    dv = matmul(transpose(hidden), out)
    dw = matmul(transpose(picked), matmul(out, transpose(v)))
    commits = [
        (base(w), reshape(sub(w, mul(dw, 0.1)), (128,))),
        (base(v), reshape(sub(v, mul(dv, 0.1)), (96,))),
    ]
    return program([loss, hidden], commits)


def chain() -> Program:
    """Layer after layer, so that the arena's bytes are used again."""
    mem = Memory(3)
    x = mem.random(16, 32)
    for _ in range(6):
        x = relu(matmul(x, mem.random(32, 32)))
    return program([reduce(exp(x), Op.ADD, 0)])


def swap() -> Program:
    """Copies through intermediates, and kernels that read what a commit has put there."""
    mem = Memory(4)
    a, b, w, x = mem.random(10), mem.random(10), mem.random(16, 8), mem.random(4, 16)
    new = mul(w, 0.9)
    commits = [(base(a), base(b)), (base(b), base(a)), (base(w), reshape(new, (128,)))]
    return program([matmul(x, new)], commits)


def views() -> Program:
    """Targets that overlap: the later commit wins where they do."""
    mem = Memory(6)
    whole = HostBuffer(np.arange(10, dtype=np.float32))
    left, right = mem.add(whole.view(0, 6), dt.float32), mem.add(whole.view(4, 6), dt.float32)
    y = mem.random(6)
    return program([flip(y, 0)], [(left, add(right, 1.0)), (right, exp(left))])


def table() -> Program:
    """A scatter that adds to state in place, and one that does not."""
    mem = Memory(7)
    t, rows, x, s = mem.random(20, 6), mem.indices(20, 7), mem.random(7, 6), mem.random(20, 6)
    index = reshape(rows, (7, 1)), reshape(iota(6), (1, 6))
    new = scatter_add(t, x, *index)
    other = add(scatter_add(flip(s, 0), x, *index), s)
    return program([reduce(new, Op.MAX, 0)], [(base(t), reshape(new, (120,))),
                                              (base(s), reshape(other, (120,)))])  # fmt: skip


def twice() -> Program:
    """One value in two places, and as an output; a part of a stored value."""
    mem = Memory(8)
    a, b, x = mem.random(12), mem.random(12), mem.random(12)
    value = exp(x)
    picked = exp(shrink(matmul(reshape(value, (3, 4)), mem.random(4, 8)), (1, 2), (0, 8)))
    return program([value, matmul(picked, mem.random(8, 3))], [(base(a), value), (base(b), value)])


PROGRAMS = [training, chain, swap, views, table, twice]
EACH = pytest.mark.parametrize("make", PROGRAMS)


def ancestors(deps: Sequence[Sequence[int]]) -> list[set[int]]:
    out: list[set[int]] = []
    for waits in deps:
        out.append(set(waits).union(*(out[d] for d in waits)))
    return out


@EACH
@BOTH_WAYS
def test_what_the_scheduler_makes_passes(
    make: Callable[[], Program], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "_CLOSURE_LIMIT", limit)
    make().verify()


# Order


def without_edges(p: Program) -> list[tuple[Program, bool]]:
    """`p` without each of its edges in turn, and whether the others still say the same."""
    out = []
    for k, waits in enumerate(p.made.deps):
        for d in waits:
            deps = list(p.made.deps)
            deps[k] = tuple(w for w in waits if w != d)
            out.append((p.broken(deps=tuple(deps)), d in ancestors(deps)[k]))
    return out


@EACH
@BOTH_WAYS
def test_an_edge_that_is_missing_is_found(
    make: Callable[[], Program], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "_CLOSURE_LIMIT", limit)
    found = without_edges(make())
    for broken, implied in found:
        assert broken.is_refused() is not implied
    if make is not twice:
        assert any(not implied for _, implied in found)


@EACH
def test_items_in_another_order_are_found(make: Callable[[], Program]) -> None:
    p = make()
    for k in range(len(p.made.items) - 1):
        items, deps = list(p.made.items), [set(waits) for waits in p.made.deps]
        needed = k in deps[k + 1]
        items[k : k + 2] = [items[k + 1], items[k]]
        deps[k], deps[k + 1] = deps[k + 1] - {k}, deps[k]
        names = {k: k + 1, k + 1: k}
        renamed = [tuple(sorted(names.get(d, d) for d in waits)) for waits in deps]
        renamed[k + 1] = tuple(sorted({*renamed[k + 1], k})) if needed else renamed[k + 1]
        assert p.broken(items=tuple(items), deps=tuple(renamed)).is_refused() is needed


@EACH
def test_every_item_is_needed_and_once(make: Callable[[], Program]) -> None:
    p = make()
    n = len(p.made.items)
    for k in range(n):
        names = [d - (d > k) for d in range(n)]
        left = [j for j in range(n) if j != k]
        deps = [tuple(names[d] for d in p.made.deps[j] if d != k) for j in left]
        missing = p.broken(items=tuple(p.made.items[j] for j in left), deps=tuple(deps))
        # What is added to an intermediate is not missed: it is written already.
        more = set(p.made.items[k].outs) & {b for item in p.made.items[:k] for b in item.outs}
        assert missing.is_refused() is not bool(more)
    again = p.broken(items=(*p.made.items, p.made.items[-1]), deps=(*p.made.deps, tuple(range(n))))
    written = p.made.items[-1].outs
    assert again.is_refused() is any(b in p.targets for b in written)


def test_dependencies_must_be_on_earlier_items() -> None:
    p = chain()
    for wrong in (len(p.made.items) - 1, -1, 99):
        with pytest.raises(SpecError, match="it may depend on earlier items only"):
            p.broken(deps=(*p.made.deps[:-1], (wrong,))).verify()
    with pytest.raises(SpecError, match="expected one list for each item"):
        p.broken(deps=p.made.deps[:-1]).verify()


# Memory


def users(p: Program) -> dict[Intermediate, list[int]]:
    out: dict[Intermediate, list[int]] = {}
    for k, item in enumerate(p.made.items):
        for b in (*item.ins, *item.outs):
            holder = b.arg.base.arg if isinstance(b.arg, Part) else b.arg
            if isinstance(holder, Intermediate):
                out.setdefault(holder, []).append(k)
    return out


@EACH
@BOTH_WAYS
def test_bytes_of_the_arena_that_are_given_out_too_early_are_found(
    make: Callable[[], Program], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "_CLOSURE_LIMIT", limit)
    p = make()
    before, uses, offsets = ancestors(p.made.deps), users(p), p.made.arena_offsets
    for holder in offsets:
        for start in (*offsets.values(), p.made.arena_size):
            moved = {**offsets, holder: start}
            end = max(p.made.arena_size, start + holder.nbytes)
            right = True
            for i, a in enumerate(moved):
                for b in list(moved)[:i]:
                    apart = moved[a] + a.nbytes <= moved[b] or moved[b] + b.nbytes <= moved[a]
                    first, second = (a, b) if min(uses[a]) < min(uses[b]) else (b, a)
                    right &= apart or set(uses[first]) <= before[min(uses[second])]
            assert p.broken(arena_offsets=moved, arena_size=end).is_refused() is not right


def test_the_arena_has_room_for_what_stands_in_it() -> None:
    p = chain()
    holder, offset = next(iter(p.made.arena_offsets.items()))
    for wrong in (offset + 4, -64, p.made.arena_size):
        with pytest.raises(SpecError, match="it must lie inside, aligned"):
            p.broken(arena_offsets={**p.made.arena_offsets, holder: wrong}).verify()
    with pytest.raises(SpecError, match="it must lie inside"):
        p.broken(arena_size=p.made.arena_size - 64).verify()


def test_outputs_have_memory_of_their_own_that_is_written() -> None:
    p = training()
    held = p.made.outputs[1].arg
    places = {**p.made.arena_offsets, held: p.made.arena_size}
    with pytest.raises(SpecError, match="lies in the arena"):
        p.broken(arena_offsets=places, arena_size=p.made.arena_size + 4096).verify()
    stray = UOp(Op.BUFFER, dt.float32, (), Intermediate(4, dt.float32))
    with pytest.raises(SpecError, match="no item writes all of the output"):
        p.broken(outputs=(*p.made.outputs, stray)).verify()
    with pytest.raises(SpecError, match="stored data that no item may change"):
        p.broken(outputs=(*p.made.outputs, p.targets[0])).verify()


@EACH
def test_a_slot_without_room_or_of_another_type_is_found(make: Callable[[], Program]) -> None:
    p = make()
    for k, item in enumerate(p.made.items):
        if isinstance(item, CopyItem):
            for nbytes in (item.nbytes + 1, item.nbytes - 4, -1):
                assert p.with_item(k, dataclasses.replace(item, nbytes=nbytes)).is_refused()
            continue
        for slot, buffer in enumerate(item.buffers):
            for other in (
                buffer.replace(arg=Part(buffer, 0, int(buffer.arg.size) - 1)),
                buffer.replace(arg=Part(buffer, 4, int(buffer.arg.size))),
                buffer.replace(dtype=dt.int32),
            ):
                buffers = list(item.buffers)
                buffers[slot] = other
                changed = dataclasses.replace(item, buffers=tuple(buffers))
                assert p.with_item(k, changed).is_refused()


@EACH
def test_a_slot_over_what_the_kernel_writes_is_found(make: Callable[[], Program]) -> None:
    p = make()
    for k, item in enumerate(p.made.items):
        if not isinstance(item, KernelItem):
            continue
        for written in item.outs:
            for slot, buffer in enumerate(item.buffers):
                if buffer is not written and buffer.arg.size == written.arg.size:
                    buffers = list(item.buffers)
                    buffers[slot] = written
                    changed = dataclasses.replace(item, buffers=tuple(buffers))
                    assert p.with_item(k, changed).is_refused()


@EACH
def test_what_an_item_says_of_itself_is_what_its_kernel_does(make: Callable[[], Program]) -> None:
    p = make()
    for k, item in enumerate(p.made.items):
        if isinstance(item, KernelItem):
            assert p.with_item(k, dataclasses.replace(item, writes=item.writes[1:])).is_refused()
            more = (*item.writes, len(item.writes))
            assert p.with_item(k, dataclasses.replace(item, writes=more)).is_refused()
            other = dataclasses.replace(item, may_fail=not item.may_fail)
            assert p.with_item(k, other).is_refused()


# State


def lasting_reads(p: Program) -> list[tuple[int, int]]:
    """Items and slots that read what a commit replaces."""
    return [
        (k, slot)
        for k, item in enumerate(p.made.items)
        if isinstance(item, KernelItem)
        for slot, b in enumerate(item.buffers)
        if b in p.targets and slot not in item.writes
    ]


def test_old_content_is_read_before_a_commit_and_new_content_after() -> None:
    changed = 0
    for make in PROGRAMS:
        p = make()
        for k, slot in lasting_reads(p):
            item = p.made.items[k]
            assert isinstance(item, KernelItem)
            renewed = tuple({slot} ^ set(item.renewed))
            assert p.with_item(k, dataclasses.replace(item, renewed=renewed)).is_refused()
            changed += 1
        for k, item in enumerate(p.made.items):
            if isinstance(item, CopyItem) and item.src in p.targets:
                other = dataclasses.replace(item, renewed=not item.renewed)
                assert p.with_item(k, other).is_refused()
                changed += 1
    assert changed > 4


def test_each_commit_writes_its_target_once() -> None:
    for make in PROGRAMS:
        p = make()
        for k in range(len(p.targets)):
            others = p.targets[:k] + p.targets[k + 1 :]
            with pytest.raises(SpecError, match="no commit changes"):
                verify_schedule(p.made, others)
            with pytest.raises(SpecError, match="commits, but items perform only"):
                verify_schedule(p.made, [*p.targets, p.targets[k]])


def test_overlapping_targets_are_written_in_the_caller_s_order() -> None:
    p = views()
    with pytest.raises(SpecError, match="whose commit of the same bytes must come last"):
        verify_schedule(p.made, p.targets[::-1])


def test_a_check_beside_a_commit_is_found() -> None:
    """Nothing but the promise that a failing run changes nothing puts one before the other."""
    mem = Memory(9)
    a, x, rows = mem.random(8), mem.random(8), mem.indices(8, 4)
    p = program([gather(x, bound(rows, 8))], [(base(a), add(a, 1.0))])
    assert p.made.deps == ((), (0,))
    with pytest.raises(SpecError, match="which may fail"):
        p.broken(deps=((), ())).verify()
    with pytest.raises(SpecError, match="which may fail"):
        p.broken(items=p.made.items[::-1]).verify()


# Kernels in place


def in_place(mem: Memory) -> tuple[Program, KernelItem]:
    w, g = mem.random(4, 6), mem.random(4, 6)
    p = program([], [(base(w), reshape(sub(w, mul(g, 0.1)), (24,)))])
    (item,) = p.made.items
    assert isinstance(item, KernelItem)
    return p, item


def rebuilt(ast: UOp, change: Callable[[UOp], UOp]) -> UOp:
    done: dict[UOp, UOp] = {}
    for node in toposort([ast]):
        src = tuple(done[s] for s in node.src)
        done[node] = change(node if src == node.src else node.replace(src=src))
    return done[ast]


def test_a_read_beside_what_is_written_is_found() -> None:
    p, item = in_place(Memory(1))

    def shifted(node: UOp) -> UOp:
        if node.op is Op.LOAD and node.src[0].arg[0] == 0:
            return node.replace(src=(node.src[0], node.src[1] * 0 + 1))
        return node

    p.verify()
    with pytest.raises(SpecError, match=r"slot 0: .* must not write another element than it reads"):
        p.with_item(0, dataclasses.replace(item, ast=rebuilt(item.ast, shifted))).verify()


def test_a_sum_into_what_is_read_is_found() -> None:
    p, item = in_place(Memory(1))

    def adding(node: UOp) -> UOp:
        if node.op is not Op.STORE:
            return node
        loops = [n for n in toposort([node]) if n.op is Op.RANGE]
        return node.replace(src=(*node.src, *loops), arg=Op.ADD)

    with pytest.raises(SpecError, match=r"slot 0: .* with a single store, without an update"):
        p.with_item(0, dataclasses.replace(item, ast=rebuilt(item.ast, adding))).verify()


def test_a_store_under_other_loops_than_what_it_reads_is_found() -> None:
    p, item = in_place(Memory(1))
    (store,) = item.ast.src
    first = store.replace(src=(
        UOp(Op.PARAM, dt.float32, (), (2, 1)), const(0, dt.int64), store.src[2]
    ))  # fmt: skip
    ast = item.ast.replace(src=(store, first))
    scratch = UOp(Op.BUFFER, dt.float32, (), Intermediate(1, dt.float32))
    changed = dataclasses.replace(
        item, ast=ast, buffers=(*item.buffers, scratch), writes=(0, 2)
    )
    with pytest.raises(SpecError, match=r"slot 0: .* must write it in the same loops"):
        p.with_item(0, changed).verify()


# At random


@st.composite
def copies(draw: st.DrawFn) -> Program:
    """Copies between intermediates, with the edges and places that the scheduler finds."""
    from kernelrt.schedule.memory.arena import plan_arena, touched
    from kernelrt.schedule.memory.hazards import Extents, accesses, dependencies

    def node(size: int) -> UOp:
        return UOp(Op.BUFFER, dt.float32, (), Intermediate(size, dt.float32))

    source = UOp(Op.BUFFER, dt.float32, (), HostBuffer(np.zeros(64, np.float32)))
    pool = [source]
    items = []
    steps = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 60)), max_size=16)
    for pick, size in draw(steps):
        read = pool[pick % len(pool)]
        pool.append(node(min(size, int(read.arg.size))))
        items.append(CopyItem(pool[-1], read, 4 * pool[-1].arg.size))
    deps = dependencies(accesses(items, Extents()))
    places, size = plan_arena(touched(items), deps, ())
    return Program(Schedule(tuple(items), (), deps, places, size, ()), [])


@given(copies())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_missing_edge_of_any_program_is_found(p: Program) -> None:
    p.verify()
    for limit in (8192, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(access_log, "_CLOSURE_LIMIT", limit)
            for broken, implied in without_edges(p):
                assert broken.is_refused() is not implied

"""Order of a plan's operations, and their dependencies."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kernelrt import dtype as dt
from kernelrt.device.byte_ranges import islands
from kernelrt.errors import PlanBuildError
from kernelrt.runtime.op_cost import largest
from kernelrt.runtime.plan_ops import (
    PreparedBufferView,
    PreparedCopy,
    PreparedKernel,
    PreparedOp,
    PreparedRegion,
    can_fail,
    read,
    read_slots,
    written,
)
from kernelrt.schedule.memory.access_log import Span, Storage
from kernelrt.schedule.memory.arena import plan_arena
from kernelrt.schedule.memory.hazards import Access, dependencies, reached
from kernelrt.schedule.memory.verify_plan import verify_steps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kernelrt.device.byte_ranges import Region
    from kernelrt.runtime.buffer_layout import Layout
    from kernelrt.schedule.types import Intermediate

__all__ = [
    "arena",
    "can_fail",
    "edges",
    "in_dependency_order",
    "lasting",
    "protect",
    "unwritten",
    "verify",
]


def in_dependency_order(ops: Sequence[PreparedOp]) -> list[PreparedOp]:
    """Sort by the dependencies that were given; otherwise the order stays as it is.

    Raises
    ------
    PlanBuildError
        An id comes twice, a dependency does not exist, is the op itself, or lies on a cycle.
    """
    index: dict[int, int] = {}
    for i, op in enumerate(ops):
        if op.id in index:
            raise PlanBuildError(
                f"{op.label}: the id {op.id} is taken by {ops[index[op.id]].label}"
            )
        index[op.id] = i
    waiting: list[int] = []
    behind: dict[int, list[int]] = {}
    for i, op in enumerate(ops):
        for dep in op.dependencies:
            if dep == op.id:
                raise PlanBuildError(f"{op.label} depends on itself")
            if dep not in index:
                raise PlanBuildError(f"{op.label} depends on op {dep}, which does not exist")
            behind.setdefault(index[dep], []).append(i)
        waiting.append(len(op.dependencies))
    ready = [i for i, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: list[PreparedOp] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(ops[i])
        for j in behind.get(i, ()):
            waiting[j] -= 1
            if not waiting[j]:
                heapq.heappush(ready, j)
    if len(order) != len(ops):
        stuck = ", ".join(op.label for i, op in enumerate(ops) if waiting[i])
        raise PlanBuildError(f"the dependencies form a cycle among: {stuck}")
    return order


def edges(ops: Sequence[PreparedOp], layout: Layout) -> list[tuple[int, ...]]:
    """For each op in execution order, the indices of those it waits for.

    They follow from the bytes that ops read and write, from which of them may fail, and from the
    dependencies given.
    """
    hazards = dependencies(_access(op, layout) for op in ops)
    index = {op.id: i for i, op in enumerate(ops)}
    return [
        tuple(sorted({*found, *(index[d] for d in op.dependencies)}))
        for op, found in zip(ops, hazards, strict=True)
    ]


def verify(
    ops: Sequence[PreparedOp],
    deps: Sequence[Sequence[int]],
    layout: Layout,
    places: Mapping[Intermediate, int],
) -> None:
    """Check what was decided here; SpecError where it does not hold."""
    steps = [
        replace(
            _access(op, layout),
            reads=[
                *(_reached(op, position, layout) for position, _ in read_slots(op)),
                *_read_by_bodies(op),
            ],
            writes=[_reached(op, position, layout) for position in op.output_indices],
        )
        for op in ops
    ]
    verify_steps(steps, deps, places, lambda k: ops[k].label)


def arena(
    ops: Sequence[PreparedOp],
    deps: Sequence[Sequence[int]],
    layout: Layout,
    keep: Collection[Intermediate],
    *,
    reuse: bool,
) -> tuple[dict[Intermediate, int], int]:
    """Place the plan's own buffers, other than `keep`, in one block."""
    uses = [
        [] if isinstance(op, PreparedBufferView)
        else [own for b in op.buffer_indices if (own := layout.root_of(b).own) is not None]
        for op in ops
    ]  # fmt: skip
    return plan_arena([dict.fromkeys(owns) for owns in uses], deps, keep, reuse=reuse)


def protect(
    ops: list[PreparedOp], deps: Sequence[tuple[int, ...]], layout: Layout, next_id: int
) -> tuple[list[PreparedOp], bool]:
    """Arrange that a run that fails leaves protected buffers as they were.

    Whatever may fail, and all that it needs, goes first. Where that includes a write to
    protected bytes, these ops work on a copy, which is copied back when nothing can fail any
    more.

    Returns
    -------
    list of PreparedOp
        In the new order.
    bool
        Whether anything changed.
    """
    fallible = [i for i, op in enumerate(ops) if can_fail(op)]
    if not any(lasting(op, layout) for op in ops[: max(fallible, default=-1) + 1]):
        return ops, False
    first = set(reached(fallible, deps))
    early = {b for i in first for b in lasting(ops[i], layout)}
    order = [ops[i] for i in sorted(first)]
    order += [op for i, op in enumerate(ops) if i not in first]
    if not early:
        return order, order != ops
    shadows = _shadow(early, ops, layout)
    out: list[PreparedOp] = []
    for b, shadow in shadows.items():
        out.append(PreparedCopy(next_id, (shadow, b), layout.entries[b].nbytes))
        next_id += 1
    out += [_moved(op, shadows) for op in order]
    dirty = {b for op in ops for b in written(op)}
    for b, shadow in shadows.items():
        if b in dirty:
            out.append(PreparedCopy(next_id, (b, shadow), layout.entries[b].nbytes))
            next_id += 1
    return out, True


def lasting(op: PreparedOp, layout: Layout) -> list[int]:
    """List the protected buffers that `op` writes."""
    entries = layout.entries
    return [b for b in written(op) if entries[b].protected and entries[b].nbytes]


def _access(op: PreparedOp, layout: Layout) -> Access:
    return Access(
        [*(_touched(op, b, layout) for b in read(op)), *_read_by_bodies(op)],
        [_touched(op, b, layout) for b in written(op)],
        can_fail(op),
        bool(lasting(op, layout)),
    )


def _read_by_bodies(op: PreparedOp) -> list[Region]:
    """The bytes of buffers that were given to bodies of a region: they are only read."""
    return op.given() if isinstance(op, PreparedRegion) else []


def _touched(op: PreparedOp, index: int, layout: Layout) -> Region:
    """The bytes of a buffer that `op` may touch."""
    whole = layout.region(index)
    return whole.part(0, largest(op.nbytes)) if isinstance(op, PreparedCopy) else whole


def _shadow(early: set[int], ops: Sequence[PreparedOp], layout: Layout) -> dict[int, int]:
    """For every buffer that shares bytes with one of `early`, its place in a copy of them."""
    used = {b for op in ops for b in op.buffer_indices}
    given = [(layout.region(b), b) for b in sorted(used) if layout.entries[b].buffer is not None]
    shadows: dict[int, int] = {}
    for whole, group in islands(given):
        if not early.isdisjoint(group):
            shadows |= _copy_of(group, whole, layout)
    return shadows


def _copy_of(group: list[int], bytes_of_all: Region, layout: Layout) -> dict[int, int]:
    # The copy begins at the same place in a cache line, so alignment carries over.
    begin = bytes_of_all.start
    pad = begin % 64
    whole = layout.add_own(pad + bytes_of_all.nbytes, dt.uint8)
    out = {}
    for b in group:
        entry = layout.entries[b]
        start = layout.region(b).start
        out[b] = layout.add_part(whole, pad + start - begin, entry.size, entry.dtype)
    return out


def _moved(op: PreparedOp, places: Mapping[int, int]) -> PreparedOp:
    """`op` on other buffers. A view only says what is where and stays."""
    indices = tuple(places.get(b, b) for b in op.buffer_indices)
    if indices == op.buffer_indices or isinstance(op, PreparedBufferView):
        return op
    if isinstance(op, PreparedCopy):
        return replace(op, buffer_indices=(indices[0], indices[1]))
    return replace(op, buffer_indices=indices)


class Unwritten(NamedTuple):
    """Bytes of the plan's own that somebody wants and nobody wrote before.

    Attributes
    ----------
    op : PreparedOp or None
        Who reads them; None: they are those of an output.
    position : int
        The slot of the op, or which output.
    buffer : int
        The plan's buffer there.
    wanted : int
        How many bytes of it are read.
    missing : list of (int, int)
        Which of these were not written: from which byte of the buffer to before which.
    """

    op: PreparedOp | None
    position: int
    buffer: int
    wanted: int
    missing: list[tuple[int, int]]

    @property
    def text(self) -> str:
        """What is wrong, and what to do about it."""
        nothing = self.missing == [(0, self.wanted)]
        parts = " and ".join(f"{start} to {stop}" for start, stop in self.missing[:3])
        parts += ", among others" * (len(self.missing) > 3)
        if self.op is None:
            if nothing:
                return f"output: no op writes intermediate {self.buffer}"
            return (
                f"output {self.position}: no op writes bytes {parts} of intermediate "
                f"{self.buffer}; let one write them, or make a view of the others the output"
            )
        if nothing:
            return (
                f"{self.op.label} reads intermediate {self.buffer} before any op has written it "
                f"(slot {self.position}, bytes {parts})"
            )
        return (
            f"{self.op.label}: slot {self.position} reads {self.wanted} bytes of intermediate "
            f"{self.buffer}, and no op before it writes bytes {parts}; let one write them, or "
            "pass a view of the others"
        )


def unwritten(
    ops: Sequence[PreparedOp], layout: Layout, outputs: Sequence[int]
) -> Unwritten | None:
    """Find who wants bytes of the plan's own that nothing has written before.

    Where sizes depend on Variables, what the largest ones write counts as written.
    """
    contents: dict[Intermediate, Storage] = {}

    def missing(index: int, region: Region) -> list[tuple[int, int]]:
        own = layout.root_of(index).own
        if own is None or region.nbytes <= 0:
            return []
        spans = contents.setdefault(own, Storage()).spans(region.start, region.stop)
        gaps = [span for span in spans if span.writer < 0]
        first = region.start
        return [(run.start - first, run.stop - first) for run in _joined(gaps)]

    for number, op in enumerate(ops):
        for position, b in read_slots(op):
            region = _reached(op, position, layout)
            if gaps := missing(b, region):
                return Unwritten(op, position, b, region.nbytes, gaps)
        for position in op.output_indices:
            b = op.buffer_indices[position]
            region = _reached(op, position, layout)
            own = layout.root_of(b).own
            if own is not None and region.nbytes > 0:
                contents.setdefault(own, Storage()).put(Span(region.start, region.stop, number))
    for position, b in enumerate(outputs):
        region = layout.region(b)
        if gaps := missing(b, region):
            return Unwritten(None, position, b, region.nbytes, gaps)
    return None


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, those that follow each other as one."""
    out: list[Span] = []
    for span in spans:
        if out and out[-1].stop == span.start:
            out[-1] = Span(out[-1].start, span.stop)
        else:
            out.append(Span(span.start, span.stop))
    return out


def _reached(op: PreparedOp, position: int, layout: Layout) -> Region:
    """The bytes of the buffer at `position` that `op` reads or writes; all that a slot takes."""
    whole = _touched(op, op.buffer_indices[position], layout)
    if isinstance(op, PreparedKernel):
        for slot, size, dtype in op.kernel.params:
            if slot == position:
                return whole.part(0, size * dtype.itemsize)
    return whole

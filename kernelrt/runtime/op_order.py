"""Execution order and dependencies of a plan's operations."""

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

    from kernelrt.device.byte_ranges import ByteRange
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
    """Sort ops topologically by their given dependencies, but keep their order where possible.

    Raises
    ------
    PlanBuildError
        Two ops have one id, a dependency does not exist, an op depends on itself, or dependencies
        form a cycle.
    """
    index: dict[int, int] = {}
    for i, op in enumerate(ops):
        if op.id in index:
            raise PlanBuildError(
                f"{op.label}: the id {op.id} is taken by {ops[index[op.id]].label}; use another id"
            )
        index[op.id] = i
    waiting: list[int] = []
    behind: dict[int, list[int]] = {}
    for i, op in enumerate(ops):
        for dep in op.dependencies:
            if dep == op.id:
                raise PlanBuildError(f"{op.label} depends on itself; remove this dependency")
            if dep not in index:
                raise PlanBuildError(
                    f"{op.label} depends on op {dep}, which does not exist; use the id of an op of "
                    "this plan"
                )
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
        raise PlanBuildError(
            f"the dependencies form a cycle among these ops: {stuck}; remove a dependency"
        )
    return order


def edges(ops: Sequence[PreparedOp], layout: Layout) -> list[tuple[int, ...]]:
    """Return for each op, in execution order, the indices of the ops it waits for.

    Dependencies follow from the bytes that ops read and write, from the ops that may fail, and
    from the given dependencies.
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
    arena_offsets: Mapping[Intermediate, int],
) -> None:
    """Verify dependencies and arena offsets. Raise SpecError if they are wrong."""
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
    verify_steps(steps, deps, arena_offsets, lambda k: ops[k].label)


def arena(
    ops: Sequence[PreparedOp],
    deps: Sequence[Sequence[int]],
    layout: Layout,
    keep: Collection[Intermediate],
    *,
    reuse: bool,
) -> tuple[dict[Intermediate, int], int]:
    """Assign offsets in one arena to the plan's own buffers, except those in `keep`."""
    uses = [
        [] if isinstance(op, PreparedBufferView)
        else [own for b in op.buffer_indices if (own := layout.root_of(b).own) is not None]
        for op in ops
    ]  # fmt: skip
    return plan_arena([dict.fromkeys(owns) for owns in uses], deps, keep, reuse=reuse)


def protect(
    ops: list[PreparedOp], deps: Sequence[tuple[int, ...]], layout: Layout, next_id: int
) -> tuple[list[PreparedOp], bool]:
    """Reorder ops so that a run that fails leaves protected buffers unchanged.

    The ops that may fail run first, together with all ops on which they depend. If one of these
    writes protected bytes, all ops use a copy of the bytes. After the last op that may fail, the
    copy is written back.

    Returns
    -------
    list of PreparedOp
        Ops in the new order.
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


def _read_by_bodies(op: PreparedOp) -> list[ByteRange]:
    """Return the bytes that bodies of a region read without a port: buffers given to the bodies."""
    return op.given() if isinstance(op, PreparedRegion) else []


def _touched(op: PreparedOp, index: int, layout: Layout) -> ByteRange:
    """Return the bytes of a buffer that `op` may access."""
    whole = layout.region(index)
    return whole.part(0, largest(op.nbytes)) if isinstance(op, PreparedCopy) else whole


def _shadow(early: set[int], ops: Sequence[PreparedOp], layout: Layout) -> dict[int, int]:
    """Add a copy of the given buffers that share bytes with a buffer in `early`.

    Return a mapping: index of each copied buffer -> index of its copy.
    """
    used = {b for op in ops for b in op.buffer_indices}
    given = [(layout.region(b), b) for b in sorted(used) if layout.entries[b].buffer is not None]
    shadows: dict[int, int] = {}
    for whole, group in islands(given):
        if not early.isdisjoint(group):
            shadows |= _copy_of(group, whole, layout)
    return shadows


def _copy_of(group: list[int], bytes_of_all: ByteRange, layout: Layout) -> dict[int, int]:
    # The copy starts at the same offset in a cache line, to keep the alignment.
    begin = bytes_of_all.start
    pad = begin % 64
    whole = layout.add_own(pad + bytes_of_all.nbytes, dt.uint8)
    out = {}
    for b in group:
        entry = layout.entries[b]
        start = layout.region(b).start
        out[b] = layout.add_part(whole, pad + start - begin, entry.size, entry.dtype)
    return out


def _moved(op: PreparedOp, replacements: Mapping[int, int]) -> PreparedOp:
    """Return `op` with its buffers replaced. Views do not change: they execute nothing."""
    indices = tuple(replacements.get(b, b) for b in op.buffer_indices)
    if indices == op.buffer_indices or isinstance(op, PreparedBufferView):
        return op
    if isinstance(op, PreparedCopy):
        return replace(op, buffer_indices=(indices[0], indices[1]))
    return replace(op, buffer_indices=indices)


class Unwritten(NamedTuple):
    """A read of bytes of an intermediate that no earlier op has written.

    Attributes
    ----------
    op : PreparedOp or None
        Op that reads the bytes. None if the bytes belong to an output of the plan.
    position : int
        Slot of the op, or number of the output.
    buffer : int
        Index of the plan's buffer.
    wanted : int
        Number of bytes that are read.
    missing : list of (int, int)
        Half-open byte ranges of the buffer that were not written.
    """

    op: PreparedOp | None
    position: int
    buffer: int
    wanted: int
    missing: list[tuple[int, int]]

    @property
    def text(self) -> str:
        """Error message: the problem and the way out."""
        nothing = self.missing == [(0, self.wanted)]
        parts = " and ".join(f"{start} to {stop}" for start, stop in self.missing[:3])
        parts += " and others" * (len(self.missing) > 3)
        if self.op is None:
            if nothing:
                return (
                    f"output: no op writes intermediate {self.buffer}; add an op that writes it, "
                    "or use another output"
                )
            return (
                f"output {self.position}: no op writes bytes {parts} of intermediate "
                f"{self.buffer}; write them, or use a view of the other bytes as the output"
            )
        if nothing:
            return (
                f"{self.op.label} reads intermediate {self.buffer} before any op has written it "
                f"(slot {self.position}, bytes {parts}); add an op that writes it first"
            )
        return (
            f"{self.op.label}: slot {self.position} reads {self.wanted} bytes of intermediate "
            f"{self.buffer}, and no op before it writes bytes {parts}; write them, or pass a view "
            "of the other bytes"
        )


def unwritten(
    ops: Sequence[PreparedOp], layout: Layout, outputs: Sequence[int]
) -> Unwritten | None:
    """Return the first read of bytes of an intermediate that no earlier op writes, if any.

    If sizes depend on Variables, all bytes that the largest sizes write count as written.
    """
    contents: dict[Intermediate, Storage] = {}

    def missing(index: int, region: ByteRange) -> list[tuple[int, int]]:
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
    """Return `spans`, which are in order, with adjacent ones merged."""
    out: list[Span] = []
    for span in spans:
        if out and out[-1].stop == span.start:
            out[-1] = Span(out[-1].start, span.stop)
        else:
            out.append(Span(span.start, span.stop))
    return out


def _reached(op: PreparedOp, position: int, layout: Layout) -> ByteRange:
    """Return the bytes that `op` reads or writes at `position`; for a kernel, the slot's size."""
    whole = _touched(op, op.buffer_indices[position], layout)
    if isinstance(op, PreparedKernel):
        for slot, size, dtype in op.kernel.params:
            if slot == position:
                return whole.part(0, size * dtype.itemsize)
    return whole

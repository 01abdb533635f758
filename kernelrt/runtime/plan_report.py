"""Human-readable reports on a plan: memory, operations and fusion decisions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from kernelrt.ir import UOp
from kernelrt.ir.terms import render
from kernelrt.runtime.op_cost import estimate_ns, launch_ns
from kernelrt.runtime.plan_ops import (
    PreparedBufferView,
    PreparedCopy,
    PreparedKernel,
    PreparedRegion,
)
from kernelrt.runtime.profiler import ClaimProfile, KernelProfile
from kernelrt.runtime.sizes import evaluate
from kernelrt.schedule.memory.arena import most_alive
from kernelrt.schedule.memory.hazards import waves

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kernelrt._dispatch import Sample
    from kernelrt.runtime.plan import ExecutionPlan, PlanParts
    from kernelrt.runtime.plan_ops import PreparedOp

__all__ = [
    "ArenaPart", "MemoryReport", "arena_parts", "estimates", "explain", "format_bytes",
    "memory", "profiles", "summary",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes that a plan allocates. Buffers that were given to the plan do not count.

    Attributes
    ----------
    arena : int
        Size of the arena, the block that intermediates share.
    peak : int
        All bytes that the plan allocates: the arena, separate buffers such as outputs, and the
        memory of bodies of regions.
    requested : int
        Total size of the intermediates in the arena, as if they shared no memory.
    reused : int
        Bytes that sharing saves.
    lower_bound : int
        Greatest number of bytes of values that have to exist at the same time, if ops run in
        execution order. No arena can be smaller.

    Examples
    --------
    >>> memory = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32)).memory
    >>> memory.arena, memory.peak
    (0, 12)
    """

    arena: int
    peak: int
    requested: int
    reused: int
    lower_bound: int

    def __str__(self) -> str:
        return (
            f"arena {format_bytes(self.arena)}, peak {format_bytes(self.peak)}, "
            f"reused {format_bytes(self.reused)}, lower bound {format_bytes(self.lower_bound)}"
        )


def memory(parts: PlanParts, ops: Sequence[PreparedOp]) -> MemoryReport:
    """Return the memory report of a plan."""
    layout = parts.layout
    own = {e.own: e.nbytes for e in layout.entries if e.own is not None}
    requested = sum(n for o, n in own.items() if o in parts.arena_offsets)
    separate = sum(n for o, n in own.items() if o not in parts.arena_offsets)
    regions = (op for op in ops if isinstance(op, PreparedRegion))
    separate += sum(b.memory.peak for op in regions for b in op.bodies)
    return MemoryReport(
        arena=parts.arena_size,
        peak=parts.arena_size + separate,
        requested=requested,
        reused=max(0, requested - parts.arena_size),
        lower_bound=most_alive((p.first, p.last, p.nbytes) for p in arena_parts(parts, ops)),
    )


@dataclass(frozen=True, slots=True)
class ArenaPart:
    """An intermediate in the arena of a plan.

    Attributes
    ----------
    buffer : int
        Index of the buffer.
    offset, nbytes : int
        Its bytes in the arena.
    first, last : int
        Positions of the first and the last op that use it, in execution order.
    """

    buffer: int
    offset: int
    nbytes: int
    first: int
    last: int


def arena_parts(parts: PlanParts, ops: Sequence[PreparedOp]) -> list[ArenaPart]:
    """Return the intermediates in the arena of a plan, in order of their first use."""
    layout = parts.layout
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, op in enumerate(ops):
        if isinstance(op, PreparedBufferView):
            continue
        for b in op.buffer_indices:
            root = layout.root(b)[0]
            if layout.entries[root].own in parts.arena_offsets:
                first.setdefault(root, number)
                last[root] = number
    found = []
    for root, begin in first.items():
        entry = layout.entries[root]
        assert entry.own is not None
        offset = parts.arena_offsets[entry.own]
        found.append(ArenaPart(root, offset, entry.nbytes, begin, last[root]))
    return found


def summary(plan: ExecutionPlan, parts: PlanParts) -> str:
    """Describe a plan in one line."""
    ops = plan.prepared_ops
    kernels = sum(isinstance(op, PreparedKernel) for op in ops)
    within = sum(_launches(body) for body in plan.bodies)
    kinds = f"{kernels} kernels" + (f", {within} in bodies" if within else "")
    text = f"<ExecutionPlan of {len(ops)} ops ({kinds}) on {parts.device}"
    text += f", {len(parts.layout.entries)} buffers, {format_bytes(plan.memory.peak)} of its own"
    if plan.variables:
        bounds = (f"{v.name}={v.min_val}..{v.max_val}" for v in plan.variables.values())
        text += f", {', '.join(bounds)}"
    return text + (", released>" if plan.released else ">")


def _launches(plan: ExecutionPlan) -> int:
    """Count the kernel launches of a plan and of the bodies of its regions."""
    return len(plan.prepared_kernels) + sum(_launches(body) for body in plan.bodies)


def explain(plan: ExecutionPlan, parts: PlanParts) -> str:
    """Describe all parts of a plan."""
    ops = plan.prepared_ops
    lines = [summary(plan, parts)[1:-1]]
    for name, value in plan.values.items():
        low, high = plan.variables[name][1:]
        lines.append(f"  variable {name}: {low} to {high}, now {value}")
    nbytes = [e.nbytes for e in parts.layout.entries]
    for depth, wave in enumerate(waves(parts.deps)):
        lines.append(f"wave {depth}")
        lines += [f"  {line}" for i in wave for line in _lines(ops[i], nbytes)]
    lines += _pipeline_lines(plan, "")
    lines.append("buffers")
    lines += [f"  {_entry(i, parts)}" for i in range(len(parts.layout.entries))]
    lines.append(f"outputs: {', '.join(map(str, parts.outputs)) or 'none'}")
    lines.append(f"memory: {plan.memory}")
    if parts.decisions:
        lines.append("fusion")
        lines += [f"  {decision}" for decision in parts.decisions]
    return "\n".join(lines)


def _lines(op: PreparedOp, nbytes: Sequence[int]) -> list[str]:
    """Describe an op and, indented, the ops of its bodies."""
    lines = [_line(op, nbytes)]
    if isinstance(op, PreparedRegion):
        for number, body in enumerate(op.bodies):
            if len(op.bodies) > 1:
                lines.append(f"  body {number}")
            sizes = [body.port(i).nbytes for i in range(len(body.buffers))]
            lines += [f"    {line}" for each in body.prepared_ops for line in _lines(each, sizes)]
            lines += _pipeline_lines(body, "    ")
    return lines


def _pipeline_lines(plan: ExecutionPlan, before: str) -> list[str]:
    """Describe the pipelines of kernels that run slice by slice."""
    ops = plan.prepared_ops
    return [
        f"{before}slice by slice, {pipeline.slices} slices per kernel: "
        f"{ops[pipeline.first].label} to {ops[pipeline.end - 1].label}"
        for pipeline in plan.chains
    ]


def _line(op: PreparedOp, nbytes: Sequence[int]) -> str:
    outs = [str(op.buffer_indices[i]) for i in op.output_indices]
    ins = [str(b) for i, b in enumerate(op.buffer_indices) if i not in op.output_indices]
    flow = f"{', '.join(outs) or '-'} <- {', '.join(ins) or '-'}"
    if isinstance(op, PreparedBufferView):
        part, base = op.buffer_indices
        flow = f"{part} is bytes {op.byte_offset} to {op.byte_offset + op.nbytes} of {base}"
    text = f"{op.label}: {flow}"
    if isinstance(op, PreparedKernel | PreparedRegion) and op.origins:
        text = f"{op.label}, {op.title}: {flow}"
    if isinstance(op, PreparedCopy):
        size = op.nbytes
        text += f", {render(size) if isinstance(size, UOp) else size} bytes"
    if isinstance(op, PreparedKernel) and op.kernel.is_split:
        chunks = op.kernel.global_size[0]
        text += f", chunks {render(chunks) if isinstance(chunks, UOp) else chunks}"
    cost = estimate_ns(op, nbytes)
    if cost:
        text += f", about {cost / 1000:.1f} us"
    if op.dependencies:
        text += f", after {', '.join(map(str, op.dependencies))}"
    return text


def _entry(index: int, parts: PlanParts) -> str:
    entry = parts.layout.entries[index]
    text = f"{index}: {entry.size} {entry.dtype.name}, {format_bytes(entry.nbytes)}"
    if entry.base is not None:
        text += f", part of {entry.base} at byte {entry.byte_offset}"
    elif entry.buffer is not None:
        text += ", given"
    elif entry.port:
        text += ", a port"
    elif entry.own in parts.arena_offsets:
        text += f", arena at byte {parts.arena_offsets[entry.own]}"
    else:
        text += ", memory of its own"
    return text + (", kept on failure" if entry.protected else "")


def format_bytes(n: float) -> str:
    """Format a number of bytes with its unit."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if n >= scale:
            return f"{n / scale:.1f} {unit}"
    return f"{n:.0f} B"


def profiles(
    ops: Sequence[PreparedOp],
    samples: Iterable[Sample],
    values: Mapping[str, int],
) -> list[KernelProfile]:
    """Return the profile of each kernel from samples of a run with the given Variable values.

    Kernels of bodies come after the kernels of the plan.
    """
    return _profiles(ops, iter(samples), values, None)


def estimates(op: PreparedKernel, values: Mapping[str, int]) -> tuple[int, int, float]:
    """Return operations, bytes and expected seconds of a launch for values of the Variables."""
    known = {**values, **op.fixedvars}
    flops, nbytes, cycles = (
        evaluate(count, known) for count in (op.kernel.flops, op.kernel.bytes, op.kernel.cycles)
    )
    return flops, nbytes, launch_ns(op.kernel, flops, nbytes, cycles) / 1e9


def _profiles(
    ops: Sequence[PreparedOp],
    samples: Iterator[Sample],
    values: Mapping[str, int],
    region: int | None,
) -> list[KernelProfile]:
    out = []
    own = islice(samples, len(ops))
    for op, (start, elapsed, worker, chunks, runs, claims) in zip(ops, own, strict=True):
        if not isinstance(op, PreparedKernel):
            continue
        flops, nbytes, expected = estimates(op, values)
        often = runs if region is not None else 1
        out.append(
            KernelProfile(
                kernel=op.kernel,
                device=op.device,
                num_buffers=len(op.buffer_indices),
                elapsed=elapsed / 1e9,
                start=start / 1e9,
                flops=flops * often,
                bytes=nbytes * often,
                expected=expected * often,
                chunks=chunks,
                op=op.id,
                worker=worker,
                origins=op.origins,
                runs=often,
                region=region,
                claims=tuple(
                    ClaimProfile(begin, end, by, since / 1e9, took / 1e9)
                    for begin, end, by, since, took in claims
                ),
            )
        )
    for op in ops:
        if isinstance(op, PreparedRegion):
            outer = op.id if region is None else region
            for body in op.bodies:
                out += _profiles(body.prepared_ops, samples, body.values, outer)
    return out

"""Measure a copy of a plan and collect everything that its page shows, as plain data."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Final

from kernelrt.device import registry
from kernelrt.errors import CompileError
from kernelrt.ir.routine import is_call
from kernelrt.runtime.plan_ops import (
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedRegion,
)
from kernelrt.runtime.plan_report import estimates
from kernelrt.schedule.memory.hazards import waves

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt._dispatch import Sample
    from kernelrt.ir.origin import Origin
    from kernelrt.runtime import BuildTimes, ExecutionPlan, PreparedOp

__all__ = ["ArenaRow", "OpRow", "PlanRecord", "SourceRow", "Span", "collect"]

#: Seconds to spend on runs, and on the text of kernels.
_RUNS_S: Final = 0.11
_TEXT_S: Final = 0.12
_MOST_RUNS: Final = 200
_LEAST_RUNS: Final = 2
#: Maximum characters of assembly, and of loop nests, of all kernels of a plan.
_ASSEMBLY_CHARS: Final = 40_000
_LOOPS_CHARS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Span:
    """Time that one worker spent on chunks of an op, in seconds from the start of the run."""

    worker: int
    start: float
    elapsed: float
    begin: int
    end: int


@dataclass(slots=True)
class OpRow:
    """An op of a plan, with its times.

    Attributes
    ----------
    id : int
        Id of the op.
    kind : str
        "kernel", "copy", "loop", "choice", "function" or "view".
    title : str
        Layers, operations and lines that the op computes.
    layer : str
        The part of the program that the op belongs to: a layer, an optimizer or an operation.
    wave : int
        Number of ops on the longest path of dependencies to this op.
    after : tuple of int
        Ids of the ops that it depends on.
    seconds : float
        Median time of the op in a run. For an op in a body, the time of all iterations together.
    minimum : float
        Minimum time of a run.
    expected : float
        Seconds that the cost model predicts for one core; 0 if unknown.
    flops, bytes : int
        Estimated operations and bytes of a run.
    runs, chunks : int
        Number of launches (0 in a body that did not run), and number of chunks of a launch.
    spans : tuple of Span
        Times of one typical run, for the timeline.
    lines : tuple of (str, int)
        File and number of each line of user code that the op computes.
    layers : tuple of str
        Dotted paths of the modules that the op computes.
    entry, loops, assembly : str
        Name of the function, loop nest and assembly; empty if not shown.
    body : list of OpRow
        Ops of the bodies of a loop or choice.
    """

    id: int
    kind: str
    title: str
    layer: str
    wave: int
    after: tuple[int, ...]
    seconds: float = 0.0
    minimum: float = 0.0
    expected: float = 0.0
    flops: int = 0
    bytes: int = 0
    runs: int = 1
    chunks: int = 1
    spans: tuple[Span, ...] = ()
    lines: tuple[tuple[str, int], ...] = ()
    layers: tuple[str, ...] = ()
    entry: str = ""
    loops: str = ""
    assembly: str = ""
    body: list[OpRow] = field(default_factory=list)

    def flat(self) -> Iterable[OpRow]:
        """Yield the op and all ops of its bodies."""
        yield self
        for row in self.body:
            yield from row.flat()


@dataclass(frozen=True, slots=True)
class ArenaRow:
    """An intermediate in the arena: its bytes, and the ops between which it is live."""

    text: str
    offset: int
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A line of user code and the seconds of the kernels made from it."""

    file: str
    line: int
    seconds: float
    ops: tuple[int, ...]


@dataclass(slots=True)
class PlanRecord:
    """Everything that a page shows of one plan.

    Attributes
    ----------
    name, text : str
        `name` is the name of the jitted function, or "plan". `text` describes the plan in one line.
    ops : list of OpRow
        Ops in execution order.
    total : float
        Sum of the median seconds of all ops of the plan. Shares on the page are shares of this sum.
    busy : float
        Median, over the runs, of the seconds in which at least one op ran. It is less than `total`
        if ops overlap.
    run : float
        Median seconds of a run without profiling.
    threads : int
        Number of workers that took part in the typical run.
    arena, arena_bytes
        Intermediates in the arena, and its size.
    memory : str
        Sizes of the memory that the plan allocates.
    decisions : list of str
        Fusion decisions.
    times : BuildTimes
        Seconds that it took to make the plan.
    sources : list of SourceRow
        Lines of user code, by file and number.
    """

    name: str
    text: str
    ops: list[OpRow]
    total: float
    busy: float
    run: float
    threads: int
    arena: list[ArenaRow]
    arena_bytes: int
    memory: str
    decisions: list[str]
    times: BuildTimes
    sources: list[SourceRow]


def collect(plan: ExecutionPlan, name: str = "plan", *, text: bool = True) -> PlanRecord:
    """Run a copy of `plan` several times and return its record.

    If `text` is true, the record contains loop nests and assembly of the slowest kernels. The copy
    has its own state, so the state of `plan` does not change. Functions of :func:`kernelrt.call` in
    the plan are called in each run.
    """
    copy = plan.replicate()
    copy.execute()
    took, runs = _measured(copy)
    outer = [run[: len(copy.prepared_ops)] for run in runs]
    totals = [sum(sample[1] for sample in run) for run in outer]
    typical = runs[totals.index(statistics.median_low(totals))]
    rows, _ = _rows(copy, runs, typical, 0)
    if text:
        _add_text(copy, rows)
    workers = {span.worker for row in rows for span in row.spans}
    return PlanRecord(
        name=name,
        text=repr(plan).strip("<>"),
        ops=rows,
        total=sum(row.seconds for row in rows),
        busy=statistics.median(map(_busy, outer)),
        run=statistics.median(took),
        threads=max(1, len(workers)),
        arena=_arena(plan),
        arena_bytes=plan.memory.arena,
        memory=str(plan.memory),
        decisions=[str(d) for d in plan.decisions],
        times=plan.build_times,
        sources=_sources(rows),
    )


def _measured(plan: ExecutionPlan) -> tuple[list[float], list[Sequence[Sample]]]:
    """Return the seconds of plain runs, and the samples of profiled ones.

    Plain and profiled runs alternate, because the speed of the machine may change meanwhile.
    """
    took: list[float] = []
    runs: list[Sequence[Sample]] = []
    end = perf_counter() + _RUNS_S
    while len(runs) < _LEAST_RUNS or (len(runs) < _MOST_RUNS and perf_counter() < end):
        began = perf_counter()
        plan.execute()
        took.append(perf_counter() - began)
        runs.append(plan.execute_profiled_raw())
    return took, runs


def _busy(samples: Iterable[Sample]) -> float:
    """Return the seconds in which at least one of the ops ran."""
    busy = end = 0
    for start, elapsed in sorted((sample[0], sample[1]) for sample in samples):
        busy += max(0, start + elapsed - max(start, end))
        end = max(end, start + elapsed)
    return busy / 1e9


def _rows(
    plan: ExecutionPlan, runs: Sequence[Sequence[Sample]], typical: Sequence[Sample], start: int
) -> tuple[list[OpRow], int]:
    """Return the rows of a plan's ops, whose samples begin at `start`, and where these end."""
    ops = plan.prepared_ops
    ids = [op.id for op in ops]
    number = {op_id: i for i, op_id in enumerate(ids)}
    wave_of = {
        i: depth
        for depth, wave in enumerate(waves([[number[d] for d in op.dependencies] for op in ops]))
        for i in wave
    }
    rows = []
    for i, op in enumerate(ops):
        row = _row(op, wave_of[i])
        times = sorted(run[start + i][1] / 1e9 for run in runs)
        row.seconds, row.minimum = statistics.median(times), times[0]
        begin, elapsed, worker, row.chunks, row.runs, claims = typical[start + i]
        row.spans = tuple(
            Span(by, since / 1e9, took / 1e9, first, last)
            for first, last, by, since, took in claims or ((0, row.chunks, worker, begin, elapsed),)
        )
        if isinstance(op, PreparedKernel):
            flops, nbytes, expected = estimates(op, plan.values)
            often = row.runs  # 0 in the branch that was not chosen
            row.flops, row.bytes, row.expected = flops * often, nbytes * often, expected * often
        rows.append(row)
    end = start + len(ops)
    for row, op in zip(rows, ops, strict=True):
        if isinstance(op, PreparedRegion):
            for body in op.bodies:
                inner, end = _rows(body, runs, typical, end)
                row.body += inner
            row.flops = sum(r.flops for r in row.body)
            row.bytes = sum(r.bytes for r in row.body)
            row.expected = sum(r.expected for r in row.body)
    return rows, end


def _row(op: PreparedOp, wave: int) -> OpRow:
    origins: tuple[Origin, ...] = getattr(op, "origins", ())
    lines = tuple(dict.fromkeys((o.file, o.line) for o in origins))
    layers = tuple(dict.fromkeys(o.layer for o in origins if o.layer))
    kind, title, layer = "kernel", getattr(op, "title", op.label), ""
    if origins:
        layer = origins[0].layer or origins[0].op
    if isinstance(op, PreparedCopy):
        kind = "copy"
    elif isinstance(op, PreparedBufferView):
        kind = "view"
    elif isinstance(op, PreparedCustomFunction):
        kind = "function"
    elif isinstance(op, PreparedRegion):
        kind = "choice" if len(op.bodies) > 1 else "loop"
    entry = op.kernel.entry_point if isinstance(op, PreparedKernel) else ""
    return OpRow(op.id, kind, title or op.label, layer or kind, wave, tuple(op.dependencies),
                 lines=lines, layers=layers, entry=entry)  # fmt: skip


# ---- text of kernels


def _add_text(plan: ExecutionPlan, rows: Sequence[OpRow]) -> None:
    """Add loop nests and assembly of the slowest kernels, within the limits of time and size."""
    kernels = {kernel.entry_point: kernel for kernel in plan.kernels}
    flat = [row for top in rows for row in top.flat() if row.entry]
    end = perf_counter() + _TEXT_S
    loops, assembly = _LOOPS_CHARS, _ASSEMBLY_CHARS
    seen: set[str] = set()
    for row in sorted(flat, key=lambda r: -r.seconds):
        kernel = kernels[row.entry]
        if row.entry in seen or perf_counter() > end:
            continue
        seen.add(row.entry)
        if is_call(kernel.ast) or not kernel.code:
            continue
        try:
            text = kernel.loops()
        except CompileError:  # the kernel was given as code
            continue
        if len(text) <= loops:
            row.loops, loops = text, loops - len(text)
        device = registry.opened(kernel.device)
        if assembly > 0 and hasattr(device.compiler, "assembly"):
            text = _stripped(device.compiler.assembly(kernel.entry_point, kernel.code))
            if len(text) <= assembly:
                row.assembly, assembly = text, assembly - len(text)


def _stripped(assembly: str) -> str:
    """Return the instructions and labels of assembly text, without directives for the linker."""
    lines = (line.expandtabs(8).rstrip() for line in assembly.splitlines())
    return "\n".join(
        line[4:] if line.startswith("        ") else line
        for line in lines
        if line.strip() and not (line.lstrip().startswith((".", "#")) and not line.endswith(":"))
    )


# ---- memory and source


def _arena(plan: ExecutionPlan) -> list[ArenaRow]:
    """Return the intermediates in the arena of a plan, in order of their first op."""
    buffers = plan.buffers
    return [
        ArenaRow(
            f"buffer {part.buffer}: {buffers[part.buffer].size} {buffers[part.buffer].dtype.name}",
            part.offset, part.nbytes, part.first, part.last,
        )
        for part in plan.arena_parts
    ]  # fmt: skip


def _sources(rows: Sequence[OpRow]) -> list[SourceRow]:
    """Divide the time of each op equally among its lines; a region has the lines of its bodies."""
    found: dict[tuple[str, int], tuple[float, dict[int, None]]] = {}
    for top in rows:
        inner = [row for row in top.flat() if row.lines and not row.body]
        whole = sum(row.seconds for row in inner)
        for row in inner:
            seconds = row.seconds if not top.body else top.seconds * row.seconds / (whole or 1)
            for line in row.lines:
                before, ops = found.get(line, (0.0, {}))
                found[line] = before + seconds / len(row.lines), ops | {top.id: None}
    return [
        SourceRow(file, line, seconds, tuple(ops))
        for (file, line), (seconds, ops) in sorted(found.items())
    ]

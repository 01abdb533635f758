"""Repeated profiled runs: typical time of each op, and a trace file."""

from __future__ import annotations

import itertools
import json
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelrt.util.atomic_file import write_text

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from kernelrt.runtime.profiler import KernelProfile

__all__ = ["OpTiming", "PlanProfile"]


@dataclass(frozen=True, slots=True)
class OpTiming:
    """Times of one op over several runs, in seconds.

    Attributes
    ----------
    op : int
        Id of the op.
    name : str
        Layers, operations and lines of the op; see :attr:`KernelProfile.title`.
    median, minimum : float
        Median and minimum of its times.
    spread : float
        Interquartile range of its times.
    flops, bytes : int
        Estimated operations and bytes of one run.
    chunks : int
        Number of calls into which the launch was split.

    Examples
    --------
    >>> plan = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32))
    >>> [timing] = plan.profile(3).ops
    >>> timing.minimum <= timing.median, timing.bytes
    (True, 24)
    """

    op: int
    name: str
    median: float
    minimum: float
    spread: float
    flops: int
    bytes: int
    chunks: int


@dataclass(frozen=True, slots=True)
class PlanProfile:
    """Several profiled runs of one plan.

    Attributes
    ----------
    runs : sequence of sequence of KernelProfile
        Kernel profiles of each run, in execution order.

    Examples
    --------
    >>> plan = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32))
    >>> found = plan.profile(3)
    >>> [op.flops for op in found.ops], len(list(found))
    ([3], 3)
    >>> print(found)
    kernel ...
    mul ...
    """

    runs: Sequence[Sequence[KernelProfile]]

    def __iter__(self) -> Iterator[KernelProfile]:
        """Iterate over the profiles of all runs, for :func:`kernelrt.runtime.profiler.table`."""
        return itertools.chain.from_iterable(self.runs)

    @property
    def ops(self) -> list[OpTiming]:
        """Timings of the kernel launches, in execution order."""
        return [_timing(samples) for samples in zip(*self.runs, strict=True)]

    def __str__(self) -> str:
        """Format the ops as a table, the slowest first."""
        ops = sorted(self.ops, key=lambda t: -t.median)
        width = max([len("kernel"), *(len(t.name) for t in ops)])
        times = f"{'median':>10}  {'min':>10}  {'spread':>10}"
        lines = [f"{'kernel':<{width}}  {'op':>4}  {times}  {'GFLOP/s':>7}  {'GB/s':>6}"]
        for t in ops:
            seconds = t.median or float("inf")
            times = "  ".join(f"{x * 1e6:>7.2f} us" for x in (t.median, t.minimum, t.spread))
            lines.append(
                f"{t.name:<{width}}  {t.op:>4}  {times}  {t.flops / seconds / 1e9:>7.1f}"
                f"  {t.bytes / seconds / 1e9:>6.1f}"
            )
        return "\n".join(lines)

    def trace(self) -> dict[str, object]:
        """Return the runs, one after the other, as Chrome trace events with one row per worker.

        A launch that several threads ran has an event for each range of chunks that one thread ran.

        Returns
        -------
        dict
            The "JSON Object Format" that chrome://tracing and ui.perfetto.dev open. Times are in
            microseconds.

        Examples
        --------
        >>> found = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32)).profile(3)
        >>> sum(event["ph"] == "X" for event in found.trace()["traceEvents"])
        3
        """
        events: list[dict[str, object]] = []
        workers: set[int] = set()
        offset = 0.0
        for number, run in enumerate(self.runs):
            for p in run:
                given = {
                    "op": p.op, "run": number, "chunks": p.chunks, "flops": p.flops,
                    "bytes": p.bytes, "kernel": p.kernel.entry_point,
                    "from": [str(o) for o in p.origins],
                }  # fmt: skip
                parts = [(c.worker, c.start, c.elapsed, [c.begin, c.end]) for c in p.claims]
                whole = [(p.worker, p.start, p.elapsed, [0, p.chunks])]
                for worker, start, elapsed, chunks in parts or whole:
                    workers.add(worker)
                    events.append({
                        "name": p.title, "cat": "kernel", "ph": "X", "pid": 0, "tid": worker,
                        "ts": (offset + start) * 1e6, "dur": elapsed * 1e6,
                        "args": {**given, "chunk range": chunks},
                    })  # fmt: skip
            offset += max((p.start + p.elapsed for p in run), default=0.0)
        names = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": w,
             "args": {"name": "caller" if w == 0 else f"worker {w}"}}
            for w in sorted(workers)
        ]  # fmt: skip
        return {"traceEvents": [*names, *events], "displayTimeUnit": "ns"}

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`trace` to a JSON file, atomically.

        Parameters
        ----------
        path : str or path-like
            File to write; an old file is replaced.
        """
        write_text(path, json.dumps(self.trace()))


def _timing(samples: Sequence[KernelProfile]) -> OpTiming:
    first = samples[0]
    times = sorted(p.elapsed for p in samples)
    spread = 0.0
    if len(times) > 1:
        low, _, high = statistics.quantiles(times, n=4, method="inclusive")
        spread = high - low
    return OpTiming(
        op=first.op,
        name=first.title,
        median=statistics.median(times),
        minimum=times[0],
        spread=spread,
        flops=first.flops,
        bytes=first.bytes,
        chunks=first.chunks,
    )

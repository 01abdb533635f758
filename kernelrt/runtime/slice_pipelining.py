"""Slice pipelining: runs producer and consumer kernels slice by slice.

A layer over a large batch, or over many members of a population, writes more than a cache holds
before the next layer starts. Consecutive kernels form a pipeline under two conditions. They are
about chunk `c` of a kernel, and about the bytes that earlier kernels of the pipeline access. First,
of the bytes that earlier kernels write, chunk `c` reads only those that their chunks `c` wrote.
Second, of the bytes that earlier kernels read, chunk `c` overwrites only those that their chunks
`c` have read. The pipeline runs one slice (some chunks) of all its kernels, then the next slice, so
that each kernel finds its inputs in the cache. The kernels do not change, and results are bitwise
equal.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt.device.costs import costs_of
from kernelrt.runtime.op_cost import largest
from kernelrt.runtime.plan_ops import PreparedKernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kernelrt.device.byte_ranges import ByteRange
    from kernelrt.device.costs import Costs
    from kernelrt.runtime.plan_ops import PreparedOp

__all__ = ["Pipeline", "find_pipelines", "still_pipelined"]

#: Minimum number of slices of a pipeline, so that a slice takes a small part of a cache.
FEWEST: Final = 16
#: Minimum number of slices per processor, if the kernels have that many chunks: no processor waits
#: long for the last slices of others.
FOR_EACH: Final = 8
#: Maximum number of ops in a pipeline, so that the search takes time linear in the number of ops.
LONGEST: Final = 32


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Consecutive ops that run slice by slice.

    Attributes
    ----------
    first, end : int
        Index of the first op, and of the op after the last.
    slices : int
        Number of slices into which the chunks of each op are divided.
    """

    first: int
    end: int
    slices: int

    @property
    def members(self) -> range:
        """Indices of the ops in the pipeline."""
        return range(self.first, self.end)


@dataclass(frozen=True, slots=True)
class _Access:
    """Access of an op to a buffer.

    The first `span` bytes are divided into equal parts, one for each chunk. If `span` is 0, each
    chunk may access the whole buffer.
    """

    region: ByteRange
    writes: bool
    span: int


@dataclass(frozen=True, slots=True)
class _Link:
    """A kernel launch that may join a pipeline.

    The chunks divide `shared` bytes among them. In addition, each chunk may access the same `whole`
    bytes.
    """

    chunks: int
    accesses: tuple[_Access, ...]
    shared: int
    whole: int
    costs: Costs

    @property
    def starts(self) -> list[int]:
        """Start offsets of the byte ranges that the chunks divide."""
        return [a.region.start for a in self.accesses if a.span]


def find_pipelines(
    ops: Sequence[PreparedOp],
    excluded: Callable[[PreparedOp], bool],
    region: Callable[[int], ByteRange],
    processors: int,
) -> list[Pipeline]:
    """Return the pipelines of a plan that are estimated to save time.

    Parameters
    ----------
    ops : sequence of PreparedOp
        Ops in execution order.
    excluded : callable
        Returns whether an op may not run in parallel with others, may fail, or writes bytes that a
        run that fails must leave unchanged.
    region : callable
        Returns the byte range of a buffer of the plan, by its index.
    processors : int
        Number of processors that may run the plan.

    Returns
    -------
    list of Pipeline
        Disjoint pipelines, in order.
    """
    links = [None if excluded(op) else _link(op, region) for op in ops]
    most = max((link.chunks for link in links if link is not None), default=0)
    fewest = max(FEWEST, min(FOR_EACH * processors, most))
    bounds = [_bound(links, i) for i in range(len(links))]
    found: list[Pipeline] = []
    at = 0
    while at < len(links):
        pipeline = _best_from(links, bounds, at, fewest)
        if pipeline is not None:
            found.append(pipeline)
        at = at + 1 if pipeline is None else pipeline.end
    return found


def still_pipelined(
    pipelines: Iterable[Pipeline], ops: Sequence[PreparedOp], region: Callable[[int], ByteRange]
) -> list[Pipeline]:
    """Return the pipelines that remain valid after kernels of their ops were replaced.

    A pipeline remains if its kernels still divide the same bytes among their chunks. It may get
    fewer slices.
    """
    found = []
    for pipeline in pipelines:
        links = [_link(ops[i], region) for i in pipeline.members]
        known = [link for link in links if link is not None]
        slices = math.gcd(pipeline.slices, *(link.chunks for link in known))
        pairs = itertools.combinations(known, 2)
        if len(known) == len(links) and slices > 1 and all(_can_pipeline(b, a) for a, b in pairs):
            found.append(Pipeline(pipeline.first, pipeline.end, slices))
    return found


def _link(op: PreparedOp, region: Callable[[int], ByteRange]) -> _Link | None:
    if not isinstance(op, PreparedKernel) or op.kernel.vars or op.kernel.target is None:
        return None
    chunks = op.kernel.global_size[0]
    if not isinstance(chunks, int) or not op.kernel.chunk_bytes:
        return None
    accesses = tuple(
        _Access(region(b), slot in op.output_indices, op.kernel.chunk_bytes.get(slot, 0) * chunks)
        for slot, b in enumerate(op.buffer_indices)
    )
    shared = sum(a.region.nbytes for a in accesses if a.span)
    most = sum(a.region.nbytes for a in accesses if not a.span)
    # A kernel may access only a few elements of a lookup table.
    whole = min(most, max(0, largest(op.kernel.bytes) - shared))
    return _Link(chunks, accesses, shared, whole, costs_of(op.kernel.target))


def _bound(links: Sequence[_Link | None], i: int) -> int:
    """Return the index of the last op before op `i` that cannot be in one pipeline with it.

    If op `i` shares no data with the ops between the two, return `i`.
    """
    link = links[i]
    if link is None:
        return i
    starts, shares = set(link.starts), False
    for j in range(i - 1, max(i - LONGEST, -1), -1):
        before = links[j]
        if before is None or not _can_pipeline(link, before):
            return j if shares else i
        shares = shares or not starts.isdisjoint(before.starts)
    return max(i - LONGEST, -1) if shares else i


def _can_pipeline(link: _Link, before: _Link) -> bool:
    """Return whether chunk `c` of `link` conflicts only with chunk `c` of `before`."""
    return all(
        not a.region.meets(b.region) or (0 < a.span == b.span and a.region.start == b.region.start)
        for a in link.accesses for b in before.accesses if a.writes or b.writes
    )  # fmt: skip


def _best_from(
    links: Sequence[_Link | None], bounds: Sequence[int], first: int, fewest: int
) -> Pipeline | None:
    """Return the pipeline starting at `first` that saves the most time; None if none saves any."""
    pipeline: list[_Link] = []
    slices, best, most = 0, None, 0.0
    for i in range(first, min(first + LONGEST, len(links))):
        link = links[i]
        if link is None or (pipeline and bounds[i] >= first):
            break
        slices = math.gcd(slices, link.chunks)
        if slices < fewest:
            break
        pipeline.append(link)
        saved = _saved(pipeline, slices) if len(pipeline) > 1 else 0.0
        if saved > most:
            best, most = Pipeline(first, first + len(pipeline), slices), saved
    return best


def _saved(pipeline: Sequence[_Link], slices: int) -> float:
    """Estimate the cycles that running `pipeline` slice by slice saves on one processor.

    All memory traffic counts, although the cost model says that computation hides most of it. A
    measurement is the reason: with pipelines, an update of 64 agents
    (``python -m bench.ppo --seeds 64``) takes a tenth less time on one thread and a sixth less on
    two, and its pipelines contain only matrix products. The estimate ignores that a pipeline starts
    only when the dependencies of all its ops are done.
    """
    costs = pipeline[0].costs
    unsliced = [0, *itertools.accumulate(link.shared + link.whole for link in pipeline)]
    sliced = [0, *itertools.accumulate(link.shared // slices + link.whole for link in pipeline)]
    saved = 0.0
    touched: dict[int, int] = {}
    for k, link in enumerate(pipeline):
        # Each slice calls the kernel again. It reads the bytes that all slices need again, and the
        # other kernels may have evicted them from the cache.
        again = costs.byte(sliced[-1]) - costs.byte(link.whole)
        saved -= slices * (costs.call + link.whole * max(0.0, again))
        for access in link.accesses:
            start = access.region.start
            if not access.span:
                continue
            if start in touched:
                j = touched[start]
                distance = unsliced[k + 1] - unsliced[j]
                faster = costs.byte(distance) - costs.byte(sliced[k + 1] - sliced[j])
                saved += access.region.nbytes * faster
            touched[start] = k
    return saved

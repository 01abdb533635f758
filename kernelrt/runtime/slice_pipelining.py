"""Slice pipelining: runs producer and consumer kernels slice by slice.

A layer of a large batch, or of many members of a population, writes more than a cache holds, and
the next one waits for it. Where chunk `c` of a kernel needs of others before it only what their
chunks `c` wrote, and overwrites only what these have read, those kernels are a chain: it runs some
chunks of all of them, and finds in the cache what it wrote there. Kernels stay as they are, and so
do bits.
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

    from kernelrt.device.byte_ranges import Region
    from kernelrt.device.costs import Costs
    from kernelrt.runtime.plan_ops import PreparedOp

__all__ = ["Chain", "find_chains", "rechained"]

#: A chain has so many slices at least, as its share of a cache is to be small,
FEWEST: Final = 16
#: and so many for each processor, where kernels have as many chunks: so none waits long for the
#: last slices of others.
FOR_EACH: Final = 8
#: A chain has so many ops at most, so that looking for chains takes no longer than there are ops.
LONGEST: Final = 32


@dataclass(frozen=True, slots=True)
class Chain:
    """Ops that go slice by slice.

    Attributes
    ----------
    first, end : int
        The first of them, and the one behind the last.
    slices : int
        Into how many their chunks fall.
    """

    first: int
    end: int
    slices: int

    @property
    def members(self) -> range:
        """The places of its ops."""
        return range(self.first, self.end)


@dataclass(frozen=True, slots=True)
class _Access:
    """What an op does with a buffer.

    Of the `span` bytes from its start each chunk touches an equal part that is its own; 0: each may
    touch all of the buffer.
    """

    region: Region
    writes: bool
    span: int


@dataclass(frozen=True, slots=True)
class _Link:
    """An op that may be in a chain: chunks share out `shared` bytes, and each touches `whole`."""

    chunks: int
    accesses: tuple[_Access, ...]
    shared: int
    whole: int
    costs: Costs

    @property
    def starts(self) -> list[int]:
        """Where what its chunks share out begins."""
        return [a.region.start for a in self.accesses if a.span]


def find_chains(
    ops: Sequence[PreparedOp],
    apart: Callable[[PreparedOp], bool],
    region: Callable[[int], Region],
    processors: int,
) -> list[Chain]:
    """Chains of a plan that are estimated to pay.

    Parameters
    ----------
    ops : sequence of PreparedOp
        In the order of their execution.
    apart : callable
        Whether an op may run beside no other, may fail, or writes what a run that fails must leave
        as it was.
    region : callable
        The bytes of a buffer of the plan, by its number, where they lie.
    processors : int
        How many may run the plan.

    Returns
    -------
    list of Chain
        Apart from each other, in order.
    """
    links = [None if apart(op) else _link(op, region) for op in ops]
    most = max((link.chunks for link in links if link is not None), default=0)
    fewest = max(FEWEST, min(FOR_EACH * processors, most))
    bounds = [_bound(links, i) for i in range(len(links))]
    found: list[Chain] = []
    at = 0
    while at < len(links):
        chain = _best_from(links, bounds, at, fewest)
        if chain is not None:
            found.append(chain)
        at = at + 1 if chain is None else chain.end
    return found


def rechained(
    chains: Iterable[Chain], ops: Sequence[PreparedOp], region: Callable[[int], Region]
) -> list[Chain]:
    """What becomes of `chains` where other kernels do the work of some of their ops.

    One is a chain still if their chunks share out the same, and then has as many slices or fewer.
    """
    found = []
    for chain in chains:
        links = [_link(ops[i], region) for i in chain.members]
        known = [link for link in links if link is not None]
        slices = math.gcd(chain.slices, *(link.chunks for link in known))
        pairs = itertools.combinations(known, 2)
        if len(known) == len(links) and slices > 1 and all(_may_go_along(b, a) for a, b in pairs):
            found.append(Chain(chain.first, chain.end, slices))
    return found


def _link(op: PreparedOp, region: Callable[[int], Region]) -> _Link | None:
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
    # Of a table few elements may be touched.
    whole = min(most, max(0, largest(op.kernel.bytes) - shared))
    return _Link(chunks, accesses, shared, whole, costs_of(op.kernel.target))


def _bound(links: Sequence[_Link | None], i: int) -> int:
    """The nearest op before `i` that no chain with it has; `i` where it shares bytes with none."""
    link = links[i]
    if link is None:
        return i
    starts, shares = set(link.starts), False
    for j in range(i - 1, max(i - LONGEST, -1), -1):
        before = links[j]
        if before is None or not _may_go_along(link, before):
            return j if shares else i
        shares = shares or not starts.isdisjoint(before.starts)
    return max(i - LONGEST, -1) if shares else i


def _may_go_along(link: _Link, before: _Link) -> bool:
    """Whether a chunk of `link` meets nothing of `before` but the part that is the chunk's own."""
    return all(
        not a.region.meets(b.region) or (0 < a.span == b.span and a.region.start == b.region.start)
        for a in link.accesses for b in before.accesses if a.writes or b.writes
    )  # fmt: skip


def _best_from(
    links: Sequence[_Link | None], bounds: Sequence[int], first: int, fewest: int
) -> Chain | None:
    """The chain from `first` on that saves most, if any does."""
    chain: list[_Link] = []
    slices, best, most = 0, None, 0.0
    for i in range(first, min(first + LONGEST, len(links))):
        link = links[i]
        if link is None or (chain and bounds[i] >= first):
            break
        slices = math.gcd(slices, link.chunks)
        if slices < fewest:
            break
        chain.append(link)
        saved = _saved(chain, slices) if len(chain) > 1 else 0.0
        if saved > most:
            best, most = Chain(first, first + len(chain), slices), saved
    return best


def _saved(chain: Sequence[_Link], slices: int) -> float:
    """Cycles that are estimated to be saved where `chain` goes slice by slice, on one processor.

    Traffic counts although computing hides most of it by the cost model: an update of 64 agents
    (``python -m bench.ppo --seeds 64``) takes a tenth less on one thread and a sixth on two, and
    all that its chains do is products. That all wait for what one of them waits for is not counted.
    """
    costs = chain[0].costs
    apart = [0, *itertools.accumulate(link.shared + link.whole for link in chain)]
    near = [0, *itertools.accumulate(link.shared // slices + link.whole for link in chain)]
    saved = 0.0
    touched: dict[int, int] = {}
    for k, link in enumerate(chain):
        # Where others have run in between a kernel is called anew for each slice, and reads again
        # what all slices need.
        again = costs.byte(near[-1]) - costs.byte(link.whole)
        saved -= slices * (costs.call + link.whole * max(0.0, again))
        for access in link.accesses:
            start = access.region.start
            if not access.span:
                continue
            if start in touched:
                j = touched[start]
                farther = costs.byte(apart[k + 1] - apart[j]) - costs.byte(near[k + 1] - near[j])
                saved += access.region.nbytes * farther
            touched[start] = k
    return saved

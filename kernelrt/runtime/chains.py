"""Which kernels of a plan go slice by slice: one slice of all, then the next.

A layer of a large batch, or of many members of a population, writes more than a cache holds, and
the next one waits for it. Where chunk `c` of a kernel needs of others before it only what their
chunks `c` wrote, and overwrites only what these have read, those kernels are a chain: it runs chunk
by chunk, and finds in the cache what it wrote there. Kernels stay as they are, and so do bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt.device.costs import costs_of
from kernelrt.runtime.cost import largest
from kernelrt.runtime.ops import PreparedKernel, can_fail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kernelrt.device.costs import Costs
    from kernelrt.device.region import Region
    from kernelrt.runtime.kernel import CachedKernel
    from kernelrt.runtime.ops import PreparedOp

__all__ = ["Chain", "find_chains", "kept"]

#: Fewer slices would hold more than a cache does.
FEWEST: Final = 16
#: And so many are for each processor at least: none waits long for others at the end of a chain.
FOR_EACH: Final = 8
#: A chain has so many ops at most, so that looking for them takes no longer than there are ops.
LONGEST: Final = 32


@dataclass(frozen=True, slots=True)
class Chain:
    """Ops that go slice by slice.

    Attributes
    ----------
    first, last : int
        The first of them, and the one behind the last.
    slices : int
        How many there are of each.
    """

    first: int
    last: int
    slices: int


@dataclass(frozen=True, slots=True)
class _Access:
    """What an op does with a buffer: all of it for each chunk where `slice_bytes` is 0."""

    region: Region
    writes: bool
    slice_bytes: int


@dataclass(frozen=True, slots=True)
class _Link:
    """An op that may be in a chain."""

    chunks: int
    accesses: tuple[_Access, ...]
    touched: int
    costs: Costs

    @property
    def shared(self) -> int:
        """Bytes that chunks share out."""
        return sum(a.region.nbytes for a in self.accesses if a.slice_bytes)

    @property
    def whole(self) -> int:
        """Bytes that each chunk touches, by estimate."""
        most = sum(a.region.nbytes for a in self.accesses if not a.slice_bytes)
        return min(most, max(0, self.touched - self.shared))


def find_chains(
    ops: Sequence[PreparedOp],
    lasting: Callable[[PreparedOp], object],
    region: Callable[[int], Region],
    processors: int,
) -> list[Chain]:
    """Chains of a plan that are estimated to pay.

    Parameters
    ----------
    ops : sequence of PreparedOp
        In the order of their execution.
    lasting : callable
        Whether an op writes what a run that fails must leave as it was.
    region : callable
        The bytes of a buffer of the plan, by its number, where they lie.
    processors : int
        How many may run the plan.

    Returns
    -------
    list of Chain
        Apart from each other, in order.
    """
    fewest = max(FEWEST, FOR_EACH * processors)
    links = [None if lasting(op) else _link(op, region, fewest) for op in ops]
    found: list[Chain] = []
    at = 0
    while at < len(links):
        chain = _best_from(links, at, fewest)
        if chain is not None:
            found.append(chain)
        at = at + 1 if chain is None else chain.last
    return found


def kept(
    chains: Iterable[Chain], changed: Mapping[int, tuple[CachedKernel, CachedKernel]]
) -> list[Chain]:
    """Those that stay chains where kernels, by the places of their ops, give way to others."""
    torn = {
        i for i, (old, new) in changed.items()
        if old.global_size != new.global_size or dict(old.slices) != dict(new.slices)
    }  # fmt: skip
    return [chain for chain in chains if torn.isdisjoint(range(chain.first, chain.last))]


def _link(op: PreparedOp, region: Callable[[int], Region], fewest: int) -> _Link | None:
    if not isinstance(op, PreparedKernel) or can_fail(op) or not op.kernel.host_parallel_safe:
        return None
    if op.kernel.vars or op.kernel.target is None:
        return None
    chunks = op.kernel.global_size[0]
    if not isinstance(chunks, int) or chunks < fewest or not op.kernel.slices:
        return None
    accesses = tuple(
        _Access(region(b), slot in op.output_indices, op.kernel.slices.get(slot, 0))
        for slot, b in enumerate(op.buffer_indices)
    )
    return _Link(chunks, accesses, largest(op.kernel.bytes), costs_of(op.kernel.target))


def _best_from(links: Sequence[_Link | None], first: int, fewest: int) -> Chain | None:
    """The chain from `first` on that saves most, if any does."""
    chain: list[_Link] = []
    slices, best, most = 0, None, 0.0
    for link in links[first : first + LONGEST]:
        if link is None:
            break
        slices = math.gcd(slices, link.chunks)
        if slices < fewest or not all(_may_go_along(link, other, slices) for other in chain):
            break
        chain.append(link)
        saved = _saved(chain, slices)
        if saved > most:
            best, most = Chain(first, first + len(chain), slices), saved
    return best


def _may_go_along(link: _Link, before: _Link, slices: int) -> bool:
    """Whether slice `s` of `link` meets nothing of `before` but what is in its slice `s`."""
    return all(
        not a.region.meets(b.region) or _alike(a, link, b, before, slices)
        for a in link.accesses for b in before.accesses if a.writes or b.writes
    )  # fmt: skip


def _alike(a: _Access, link: _Link, b: _Access, before: _Link, slices: int) -> bool:
    here, there = a.slice_bytes * (link.chunks // slices), b.slice_bytes * (before.chunks // slices)
    return 0 < here == there and a.region.start == b.region.start


def _saved(chain: Sequence[_Link], slices: int) -> float:
    """Cycles that are estimated to be saved where `chain` goes slice by slice."""
    costs, last = chain[-1].costs, len(chain) - 1
    saved = 0.0
    for k, link in enumerate(chain):
        # What other kernels have run in between is called anew for each slice, and reads again
        # what all slices need.
        round_trip = sum(each.shared // slices + each.whole for each in chain)
        again = costs.byte(round_trip) - costs.byte(link.whole)
        saved -= slices * (costs.call + link.whole * max(0.0, again)) if last else 0.0
        for access in link.accesses:
            before = next(
                (j for j in range(k - 1, -1, -1)
                 if any(_same(access, other) for other in chain[j].accesses)), None,
            )  # fmt: skip
            if before is None or not access.slice_bytes:
                continue
            between = chain[before : k + 1]
            apart = sum(each.shared + each.whole for each in between)
            near = sum(each.shared // slices + each.whole for each in between)
            saved += access.region.nbytes * (costs.byte(apart) - costs.byte(near))
    return saved


def _same(a: _Access, b: _Access) -> bool:
    return b.slice_bytes > 0 and a.region.start == b.region.start and a.region.meets(b.region)

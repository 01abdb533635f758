"""Hazards: the one source of dependencies between memory accesses.

An access is a region of memory. Two accesses conflict when their regions share bytes and one of
them writes. Views of a buffer share its storage; every intermediate is a storage of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelrt.device.buffer import Buffer
from kernelrt.device.byte_ranges import Region, RegionMap, region_of
from kernelrt.schedule.types import CopyItem, Part, is_lasting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from kernelrt.ir import UOp
    from kernelrt.schedule.types import Item

__all__ = ["Access", "Extents", "Touches", "accesses", "dependencies", "extent", "reached",
           "waves"]  # fmt: skip


def extent(buffer: UOp) -> Region:
    """The bytes that a BUFFER node stands for."""
    holder = buffer.arg
    if isinstance(holder, Buffer):
        return region_of(holder)
    nbytes = int(holder.size) * buffer.dtype.itemsize
    if isinstance(holder, Part):
        return extent(holder.base).part(holder.offset, nbytes)
    base = getattr(holder, "base", None)
    start = int(getattr(holder, "offset", 0))
    return Region(holder if base is None else base, start, start + nbytes)


class Extents(dict["UOp", Region]):
    """Regions of BUFFER nodes, each found once."""

    def __missing__(self, buffer: UOp) -> Region:
        found = self[buffer] = extent(buffer)
        return found


class Touches:
    """Who reads and who writes which bytes; numbers stand for the items."""

    def __init__(self) -> None:
        self._reads: RegionMap[int] = RegionMap()
        self._writes: RegionMap[int] = RegionMap()

    def add(self, item: int, reads: Iterable[Region], writes: Iterable[Region]) -> None:
        """Note what `item` touches."""
        for region in reads:
            self._reads.add(region, item)
        for region in writes:
            self._writes.add(region, item)

    def readers(self, region: Region) -> list[int]:
        """Items that read any byte of `region`."""
        return self._reads.meeting(region)

    def writers(self, region: Region) -> list[int]:
        """Items that write any byte of `region`."""
        return self._writes.meeting(region)

    def conflicts(self, reads: Iterable[Region], writes: Iterable[Region]) -> set[int]:
        """Items that must have run before one with these accesses may.

        Read after write, write after read and write after write.
        """
        out: set[int] = set()
        for region in reads:
            out.update(self.writers(region))
        for region in writes:
            out.update(self.writers(region))
            out.update(self.readers(region))
        return out

    def forget_covered(self, writes: Iterable[Region]) -> None:
        """Drop accesses to bytes that are all written later: waiting for the write is enough."""
        for region in writes:
            self._reads.drop_covered(region)
            self._writes.drop_covered(region)


@dataclass(frozen=True, slots=True)
class Access:
    """What one item, or one operation of a plan, does to memory.

    Attributes
    ----------
    reads, writes : sequence of Region
        What it may touch. What is written may be read too: a write conflicts with all that a
        read does.
    fails : bool
        Whether a run may end there.
    lasts : bool
        Whether it writes what a run that fails must leave as it was.
    """

    reads: Sequence[Region]
    writes: Sequence[Region]
    fails: bool = False
    lasts: bool = False


def accesses(items: Iterable[Item], where: Extents) -> list[Access]:
    """What `items` do to memory, of which some regions may be known."""
    return [
        Access(
            [where[b] for b in item.ins], [where[b] for b in item.outs],
            not isinstance(item, CopyItem) and item.may_fail, any(map(is_lasting, item.outs)),
        )
        for item in items
    ]  # fmt: skip


def dependencies(steps: Iterable[Access]) -> tuple[tuple[int, ...], ...]:
    """For each of `steps`, in execution order, the earlier ones that it must wait for.

    Besides conflicts, a write that lasts waits for all that may fail.
    """
    touches = Touches()
    failing: list[int] = []
    out: list[tuple[int, ...]] = []
    for number, step in enumerate(steps):
        before = touches.conflicts(step.reads, step.writes)
        if step.lasts:
            before.update(failing)
        if step.fails:
            failing.append(number)
        out.append(tuple(sorted(before)))
        touches.forget_covered(step.writes)
        touches.add(number, step.reads, step.writes)
    return tuple(out)


def reached(starts: Iterable[int], edges: Sequence[Collection[int]]) -> Iterator[int]:
    """`starts`, and all that `edges` lead to from there, each once."""
    stack = list(dict.fromkeys(starts))
    seen = set(stack)
    yield from stack
    while stack:
        for n in edges[stack.pop()]:
            if n not in seen:
                seen.add(n)
                stack.append(n)
                yield n


def waves(deps: Sequence[Sequence[int]]) -> list[list[int]]:
    """Items that may run together, wave after wave."""
    level: list[int] = []
    out: list[list[int]] = []
    for number, before in enumerate(deps):
        depth = 1 + max((level[d] for d in before), default=-1)
        level.append(depth)
        if depth == len(out):
            out.append([])
        out[depth].append(number)
    return out

"""Which accesses conflict: the one source of dependencies.

An access is a region of memory. Two accesses conflict when their regions share bytes and one of
them writes. Views of a buffer share its storage; every intermediate is a storage of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.device.buffer import Buffer
from kernelrt.device.region import Region, RegionMap, region_of
from kernelrt.schedule.types import Intermediate, KernelItem, Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.ir import UOp
    from kernelrt.schedule.types import Item

__all__ = ["Touches", "dependencies", "extent", "overlap", "waves"]


def extent(buffer: UOp) -> Region:
    """The bytes that a BUFFER node stands for."""
    holder = buffer.arg
    if isinstance(holder, Intermediate):
        return Region(holder, 0, holder.size * buffer.dtype.itemsize)
    if isinstance(holder, Buffer):
        return region_of(holder)
    known = getattr(holder, "region", None)
    if isinstance(known, Region):
        return known
    if isinstance(holder, Part):
        whole = extent(holder.base)
        storage, start = whole.storage, whole.start + holder.offset
    else:
        base = getattr(holder, "base", None)
        storage, start = holder if base is None else base, int(getattr(holder, "offset", 0))
    return Region(storage, start, start + int(holder.size) * buffer.dtype.itemsize)


def overlap(a: UOp, b: UOp) -> bool:
    """Whether two BUFFER nodes share bytes."""
    return a is b or extent(a).meets(extent(b))


class Touches:
    """Who reads and who writes which bytes; numbers stand for the items."""

    def __init__(self) -> None:
        self._reads: RegionMap[int] = RegionMap()
        self._writes: RegionMap[int] = RegionMap()
        self._extents: dict[UOp, Region] = {}

    def _extent(self, buffer: UOp) -> Region:
        found = self._extents.get(buffer)
        if found is None:
            found = self._extents[buffer] = extent(buffer)
        return found

    def add(self, item: int, reads: Iterable[UOp], writes: Iterable[UOp]) -> None:
        """Note what `item` touches."""
        for buffer in reads:
            self._reads.add(self._extent(buffer), item)
        for buffer in writes:
            self._writes.add(self._extent(buffer), item)

    def readers(self, buffer: UOp) -> list[int]:
        """Items that read any byte of `buffer`."""
        return self._reads.meeting(self._extent(buffer))

    def writers(self, buffer: UOp) -> list[int]:
        """Items that write any byte of `buffer`."""
        return self._writes.meeting(self._extent(buffer))

    def conflicts(self, reads: Iterable[UOp], writes: Iterable[UOp]) -> set[int]:
        """Items that must have run before one with these accesses may.

        Read after write, write after read and write after write.
        """
        out: set[int] = set()
        for buffer in reads:
            out.update(self.writers(buffer))
        for buffer in writes:
            out.update(self.writers(buffer))
            out.update(self.readers(buffer))
        return out

    def forget_covered(self, writes: Iterable[UOp]) -> None:
        """Drop accesses that a later item has overwritten whole: waiting for it is enough."""
        for buffer in writes:
            where = self._extent(buffer)
            self._reads.drop_covered(where)
            self._writes.drop_covered(where)


def dependencies(items: Sequence[Item]) -> tuple[tuple[int, ...], ...]:
    """For each of `items`, in execution order, the earlier ones that it must wait for.

    Besides conflicts, a write to state that outlives the plan waits for all that may fail.
    """
    touches = Touches()
    failing: list[int] = []
    out: list[tuple[int, ...]] = []
    for number, item in enumerate(items):
        reads, writes = item.ins, item.outs
        # A slot that is written may be read too; a write conflicts with all that a read does.
        before = touches.conflicts(reads, writes)
        if any(not isinstance(buffer.arg, Intermediate) for buffer in writes):
            before.update(failing)
        if isinstance(item, KernelItem) and item.may_fail:
            failing.append(number)
        out.append(tuple(sorted(before)))
        touches.forget_covered(writes)
        touches.add(number, reads, writes)
    return tuple(out)


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

"""Hazards: all dependencies between memory accesses are computed in this module.

An access is a byte range. Two accesses conflict if their ranges overlap and at least one of them
writes. Views of a buffer share its storage. Each intermediate is a storage of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelrt.device.buffer import Buffer
from kernelrt.device.byte_ranges import ByteRange, ByteRangeMap, byte_range_of
from kernelrt.schedule.types import CopyItem, Part, is_lasting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from kernelrt.ir import UOp
    from kernelrt.schedule.types import Item

__all__ = [
    "Access", "AccessMap", "Extents", "accesses", "dependencies", "extent", "reached", "waves",
]  # fmt: skip


def extent(buffer: UOp) -> ByteRange:
    """Return the byte range of a BUFFER node."""
    holder = buffer.arg
    if isinstance(holder, Buffer):
        return byte_range_of(holder)
    nbytes = int(holder.size) * buffer.dtype.itemsize
    if isinstance(holder, Part):
        return extent(holder.base).part(holder.offset, nbytes)
    base = getattr(holder, "base", None)
    start = int(getattr(holder, "offset", 0))
    return ByteRange(holder if base is None else base, start, start + nbytes)


class Extents(dict["UOp", ByteRange]):
    """Cache of the byte range of each BUFFER node."""

    def __missing__(self, buffer: UOp) -> ByteRange:
        found = self[buffer] = extent(buffer)
        return found


class AccessMap:
    """Readers and writers of byte ranges; items are identified by number."""

    def __init__(self) -> None:
        self._reads: ByteRangeMap[int] = ByteRangeMap()
        self._writes: ByteRangeMap[int] = ByteRangeMap()

    def add(self, item: int, reads: Iterable[ByteRange], writes: Iterable[ByteRange]) -> None:
        """Add the accesses of `item`."""
        for region in reads:
            self._reads.add(region, item)
        for region in writes:
            self._writes.add(region, item)

    def readers(self, region: ByteRange) -> list[int]:
        """Return the items that read any byte of `region`."""
        return self._reads.meeting(region)

    def writers(self, region: ByteRange) -> list[int]:
        """Return the items that write any byte of `region`."""
        return self._writes.meeting(region)

    def conflicts(self, reads: Iterable[ByteRange], writes: Iterable[ByteRange]) -> set[int]:
        """Return the items that must run before an item with these accesses.

        Conflicts are read after write, write after read and write after write.
        """
        out: set[int] = set()
        for region in reads:
            out.update(self.writers(region))
        for region in writes:
            out.update(self.writers(region))
            out.update(self.readers(region))
        return out

    def forget_covered(self, writes: Iterable[ByteRange]) -> None:
        """Drop accesses to bytes in `writes`: later items wait for the item that writes these."""
        for region in writes:
            self._reads.drop_covered(region)
            self._writes.drop_covered(region)


@dataclass(frozen=True, slots=True)
class Access:
    """Memory accesses of one item, or of one operation of a plan.

    Attributes
    ----------
    reads, writes : sequence of ByteRange
        Byte ranges that the item may read, and byte ranges that it may write. The item may read
        ranges in `writes`, too, because a write conflicts with everything that a read conflicts
        with.
    fails : bool
        Whether the item may fail. A failure ends the run with an error.
    lasts : bool
        Whether the item writes memory that a failing run must leave unchanged.
    """

    reads: Sequence[ByteRange]
    writes: Sequence[ByteRange]
    fails: bool = False
    lasts: bool = False


def accesses(items: Iterable[Item], where: Extents) -> list[Access]:
    """Return the memory accesses of each of `items`; `where` caches the buffers' byte ranges."""
    return [
        Access(
            [where[b] for b in item.ins], [where[b] for b in item.outs],
            not isinstance(item, CopyItem) and item.may_fail, any(map(is_lasting, item.outs)),
        )
        for item in items
    ]  # fmt: skip


def dependencies(steps: Iterable[Access]) -> tuple[tuple[int, ...], ...]:
    """Return, for each of `steps` (in execution order), the earlier steps that it must wait for.

    A step waits for the steps whose accesses conflict with its own. A step with a lasting write
    also waits for all earlier steps that may fail.
    """
    touches = AccessMap()
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
    """Yield `starts` and all numbers that can be reached from them by `edges`, each once."""
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
    """Group items into waves: the items of one wave may run together."""
    level: list[int] = []
    out: list[list[int]] = []
    for number, before in enumerate(deps):
        depth = 1 + max((level[d] for d in before), default=-1)
        level.append(depth)
        if depth == len(out):
            out.append([])
        out[depth].append(number)
    return out

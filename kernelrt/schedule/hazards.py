"""Which accesses conflict: the one source of dependencies.

An access is a half-open range of bytes in one storage. Two accesses conflict when their ranges
intersect and one of them writes. Views of a buffer share its storage; every intermediate is a
storage of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelrt.schedule.types import Intermediate, KernelItem, Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.ir import UOp
    from kernelrt.schedule.types import Item

__all__ = ["Extent", "Touches", "dependencies", "extent", "overlap", "waves"]


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes `start` to `stop` of `storage` (an object with identity)."""

    storage: Any
    start: int
    stop: int

    def intersects(self, other: Extent) -> bool:
        """Whether any byte belongs to both."""
        return (
            self.storage is other.storage
            and max(self.start, other.start) < min(self.stop, other.stop)
        )

    def covers(self, other: Extent) -> bool:
        """Whether every byte of `other` belongs to this extent."""
        return (
            self.storage is other.storage
            and self.start <= other.start
            and other.stop <= self.stop
        )


# Memory that was wrapped, by address: arrays wrapped one by one may share bytes.
_BORROWED = object()


def extent(buffer: UOp) -> Extent:
    """The bytes that a BUFFER node stands for."""
    holder = buffer.arg
    start = int(getattr(holder, "offset", 0))
    if isinstance(holder, Part):
        stop = start + holder.size * buffer.dtype.itemsize
        return Extent(holder.base.arg, start, stop)
    base = getattr(holder, "base", None)
    storage = getattr(holder, "storage", None)
    if storage is not None and not storage.owned:
        start, storage = int(holder.address), _BORROWED
    if storage is None:
        storage = holder if base is None else base
    return Extent(storage, start, start + int(holder.size) * buffer.dtype.itemsize)


def overlap(a: UOp, b: UOp) -> bool:
    """Whether two BUFFER nodes share bytes."""
    return a is b or extent(a).intersects(extent(b))


class Touches:
    """Who reads and who writes which bytes; numbers stand for the items."""

    def __init__(self) -> None:
        self._reads: dict[int, list[tuple[Extent, int]]] = {}
        self._writes: dict[int, list[tuple[Extent, int]]] = {}

    def add(self, item: int, reads: Iterable[UOp], writes: Iterable[UOp]) -> None:
        """Note what `item` touches."""
        for buffers, table in ((reads, self._reads), (writes, self._writes)):
            for buffer in buffers:
                where = extent(buffer)
                table.setdefault(id(where.storage), []).append((where, item))

    def readers(self, buffer: UOp) -> list[int]:
        """Items that read any byte of `buffer`."""
        return self._touching(self._reads, extent(buffer))

    def writers(self, buffer: UOp) -> list[int]:
        """Items that write any byte of `buffer`."""
        return self._touching(self._writes, extent(buffer))

    @staticmethod
    def _touching(table: dict[int, list[tuple[Extent, int]]], where: Extent) -> list[int]:
        found = table.get(id(where.storage), ())
        return [item for other, item in found if where.intersects(other)]

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
            where = extent(buffer)
            for table in (self._reads, self._writes):
                old = table.get(id(where.storage))
                if old:
                    table[id(where.storage)] = [(e, n) for e, n in old if not where.covers(e)]


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

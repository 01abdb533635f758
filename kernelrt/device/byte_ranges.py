"""Byte ranges: the one place that decides whether two things share memory.

What has an address is told apart by its address alone: an array that was wrapped, a view, memory
that came back through DLPack and kernelrt's own are one storage, by whichever road a buffer got
there. What has no address yet (an intermediate of a plan) is told apart by identity.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelrt.device.buffer import Buffer

__all__ = ["HOST", "Region", "RegionMap", "islands", "region_of", "taken_region"]

_T = TypeVar("_T")


class _Host:
    """Stands for all memory that has addresses."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "HOST"


#: The storage of everything that has an address; its offsets are addresses.
HOST: Final = _Host()


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes `start` to `stop` of `storage`: :data:`HOST`, or an object with identity.

    Where sizes depend on Variables these are all bytes that can be meant.
    """

    storage: Any
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Length."""
        return self.stop - self.start

    def meets(self, other: Region) -> bool:
        """Whether any byte belongs to both."""
        return (
            self.storage is other.storage
            and max(self.start, other.start) < min(self.stop, other.stop)
        )

    def part(self, offset: int, nbytes: int) -> Region:
        """The `nbytes` bytes from `offset` on; they may lie outside."""
        start = self.start + offset
        return Region(self.storage, start, start + nbytes)

    def covers(self, other: Region) -> bool:
        """Whether every byte of `other` belongs to this region."""
        return (
            self.storage is other.storage
            and self.start <= other.start
            and other.stop <= self.stop
        )


def region_of(buffer: Buffer) -> Region:
    """The bytes of `buffer`; memory is taken if it has none yet."""
    start = buffer.address if buffer.nbytes else 0
    return Region(HOST, start, start + buffer.nbytes)


def taken_region(buffer: Buffer) -> Region | None:
    """The bytes of `buffer`; None while it has no memory, which then shares none."""
    return region_of(buffer) if buffer.allocated else None


class RegionMap(Generic[_T]):
    """Values that stand at regions; finds those that share bytes with another region."""

    __slots__ = ("_count", "_lengths", "_rows")

    def __init__(self) -> None:
        # By storage: start, number, stop and value, sorted.
        self._rows: dict[int, list[tuple[int, int, int, _T]]] = {}
        # The lengths there, each as its number of bits.
        self._lengths: dict[int, set[int]] = {}
        self._count = itertools.count()

    def add(self, region: Region, value: _T) -> None:
        """Put `value` at `region`; one without bytes is never found."""
        if region.nbytes > 0:
            key = id(region.storage)
            self._lengths.setdefault(key, set()).add(region.nbytes.bit_length())
            row = self._rows.setdefault(key, [])
            insort(row, (region.start, next(self._count), region.stop, value))

    def meeting(self, region: Region) -> list[_T]:
        """Values at regions that share bytes with `region`, in the order they were added."""
        row = self._rows.get(id(region.storage))
        if row is None or region.nbytes <= 0:
            return []
        count, near = -1, row
        while count != len(row):  # a signal handler may add regions, which moves the others
            count = len(row)
            longest = 1 << max(self._lengths[id(region.storage)])
            first = bisect_left(row, (region.start - longest,))
            near = row[first : bisect_left(row, (region.stop,))]
        found = [(n, value) for _, n, stop, value in near if stop > region.start]
        return [value for _, value in sorted(found, key=lambda f: f[0])]

    def drop_covered(self, region: Region) -> None:
        """Forget what lies in `region` with all its bytes."""
        row = self._rows.get(id(region.storage))
        if row is not None:
            first, last = bisect_left(row, (region.start,)), bisect_left(row, (region.stop,))
            row[first:last] = [entry for entry in row[first:last] if entry[2] > region.stop]


def islands(
    places: Iterable[tuple[Region, _T]], *, joined: bool = False
) -> list[tuple[Region, list[_T]]]:
    """Values whose regions hang together, and the bytes they cover in all.

    Parameters
    ----------
    places : iterable of (Region, value)
        In any order; without bytes they are left out.
    joined : bool
        Whether regions hang together already where one begins at the end of another.
    """
    known: dict[int, int] = {}
    kept = [(region, value) for region, value in places if region.nbytes > 0]
    for region, _ in kept:
        known.setdefault(id(region.storage), len(known))
    kept.sort(key=lambda place: (known[id(place[0].storage)], place[0].start))
    out: list[tuple[Region, list[_T]]] = []
    for region, value in kept:
        if out:
            whole, members = out[-1]
            reach = whole.stop + joined
            if whole.storage is region.storage and region.start < reach:
                members.append(value)
                whole = Region(whole.storage, whole.start, max(whole.stop, region.stop))
                out[-1] = (whole, members)
                continue
        out.append((region, [value]))
    return out

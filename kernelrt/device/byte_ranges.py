"""Byte ranges: whether two buffers or values share memory is decided only in this module.

If memory has an address, only the address identifies it. So all such memory counts as one storage,
:data:`HOST`: wrapped arrays, views, memory that came back through DLPack, and memory of kernelrt.
Memory that has no address yet, such as an intermediate of a plan, is identified by its object.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelrt.device.buffer import Buffer

__all__ = ["HOST", "ByteRange", "ByteRangeMap", "byte_range_of", "islands", "taken_byte_range"]

_T = TypeVar("_T")


class _Host:
    """Stands for all memory with addresses."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "HOST"


#: The storage of all memory with addresses. Its offsets are addresses.
HOST: Final = _Host()


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A byte range: bytes `start` to `stop` (exclusive) of `storage`.

    `storage` is :data:`HOST`, or an object compared by identity. If sizes depend on Variables, the
    range covers the bytes of all possible sizes.
    """

    storage: Any
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.stop - self.start

    def meets(self, other: ByteRange) -> bool:
        """Return whether the ranges overlap."""
        return (
            self.storage is other.storage
            and max(self.start, other.start) < min(self.stop, other.stop)
        )

    def part(self, offset: int, nbytes: int) -> ByteRange:
        """Return the range of `nbytes` bytes from `offset` on. It may extend beyond this range."""
        start = self.start + offset
        return ByteRange(self.storage, start, start + nbytes)

    def covers(self, other: ByteRange) -> bool:
        """Return whether this range contains every byte of `other`."""
        return (
            self.storage is other.storage
            and self.start <= other.start
            and other.stop <= self.stop
        )


def byte_range_of(buffer: Buffer) -> ByteRange:
    """Return the byte range of `buffer`. If its memory is not allocated yet, allocate it."""
    start = buffer.address if buffer.nbytes else 0
    return ByteRange(HOST, start, start + buffer.nbytes)


def taken_byte_range(buffer: Buffer) -> ByteRange | None:
    """Return the byte range of `buffer`, or None if its memory is not allocated."""
    return byte_range_of(buffer) if buffer.allocated else None


class ByteRangeMap(Generic[_T]):
    """Map from byte ranges to values; finds the values whose ranges overlap a given range."""

    __slots__ = ("_count", "_lengths", "_rows")

    def __init__(self) -> None:
        # Storage -> sorted list of (start, number, stop, value).
        self._rows: dict[int, list[tuple[int, int, int, _T]]] = {}
        # Storage -> bit lengths of the lengths of its ranges.
        self._lengths: dict[int, set[int]] = {}
        self._count = itertools.count()

    def add(self, region: ByteRange, value: _T) -> None:
        """Add `value` at the range `region`. A value at an empty range is never found."""
        if region.nbytes > 0:
            key = id(region.storage)
            self._lengths.setdefault(key, set()).add(region.nbytes.bit_length())
            row = self._rows.setdefault(key, [])
            insort(row, (region.start, next(self._count), region.stop, value))

    def meeting(self, region: ByteRange) -> list[_T]:
        """Return the values whose ranges overlap `region`, in the order they were added."""
        row = self._rows.get(id(region.storage))
        if row is None or region.nbytes <= 0:
            return []
        count, near = -1, row
        while count != len(row):  # a signal handler may add ranges, which moves the others
            count = len(row)
            longest = 1 << max(self._lengths[id(region.storage)])
            first = bisect_left(row, (region.start - longest,))
            near = row[first : bisect_left(row, (region.stop,))]
        found = [(n, value) for _, n, stop, value in near if stop > region.start]
        return [value for _, value in sorted(found, key=lambda f: f[0])]

    def drop_covered(self, region: ByteRange) -> None:
        """Remove the values whose ranges are contained in `region`."""
        row = self._rows.get(id(region.storage))
        if row is not None:
            first, last = bisect_left(row, (region.start,)), bisect_left(row, (region.stop,))
            row[first:last] = [entry for entry in row[first:last] if entry[2] > region.stop]


def islands(
    ranges: Iterable[tuple[ByteRange, _T]], *, joined: bool = False
) -> list[tuple[ByteRange, list[_T]]]:
    """Group values by connected byte ranges; return each group's total range and values.

    Ranges are connected if they overlap, directly or through other ranges.

    Parameters
    ----------
    ranges : iterable of (ByteRange, value)
        Ranges with their values, in any order. Empty ranges are left out.
    joined : bool
        Whether adjacent ranges, where one ends at the start of the other, are connected too.
    """
    known: dict[int, int] = {}
    kept = [(region, value) for region, value in ranges if region.nbytes > 0]
    for region, _ in kept:
        known.setdefault(id(region.storage), len(known))
    kept.sort(key=lambda r: (known[id(r[0].storage)], r[0].start))
    out: list[tuple[ByteRange, list[_T]]] = []
    for region, value in kept:
        if out:
            whole, members = out[-1]
            reach = whole.stop + joined
            if whole.storage is region.storage and region.start < reach:
                members.append(value)
                whole = ByteRange(whole.storage, whole.start, max(whole.stop, region.stop))
                out[-1] = (whole, members)
                continue
        out.append((region, [value]))
    return out

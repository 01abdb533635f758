"""Buffers of a plan under construction: given, owned, ports, and parts of these."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.device.byte_ranges import Region, region_of
from kernelrt.errors import PlanBuildError
from kernelrt.schedule.types import Intermediate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrt.device.buffer import Buffer
    from kernelrt.dtype import DType

__all__ = ["Entry", "Layout"]


@dataclass(slots=True, eq=False)
class Entry:
    """One buffer of a plan.

    Attributes
    ----------
    size : int
        Elements.
    dtype : DType
        Their type.
    buffer : Buffer or None
        What was given; the plan makes its own where nothing was.
    base : int or None
        The entry that this one is part of.
    byte_offset : int
        Where in it.
    protected : bool
        Whether a run that fails must leave the bytes as they were.
    own : Intermediate or None
        Stands for the storage of a buffer that the plan makes.
    port : bool
        Whether it has no memory of its own: the region whose body the plan is says where it lies.
    """

    size: int
    dtype: DType
    buffer: Buffer | None
    base: int | None = None
    byte_offset: int = 0
    protected: bool = False
    own: Intermediate | None = None
    port: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return self.size * self.dtype.itemsize


class Layout:
    """The entries of a plan, and where each lies."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add_given(self, buffer: Buffer, *, protected: bool) -> int:
        """Add a buffer that lives outside the plan."""
        self.entries.append(Entry(buffer.size, buffer.dtype, buffer, protected=protected))
        return len(self.entries) - 1

    def add_own(self, size: int, dtype: DType, own: Intermediate | None = None) -> int:
        """Add a buffer that the plan makes, under the name `own` if it has one."""
        dtype = dt.parse(dtype)
        own = own or Intermediate(size, dtype)
        self.entries.append(Entry(size, dtype, None, own=own))
        return len(self.entries) - 1

    def add_port(self, size: int, dtype: DType) -> int:
        """Add a buffer that lies where the region says whose body the plan is."""
        self.entries.append(Entry(size, dt.parse(dtype), None, port=True))
        return len(self.entries) - 1

    def add_part(self, base: int, byte_offset: int, size: int, dtype: DType | None) -> int:
        """Add a part of an entry. Raises PlanBuildError where it leaves its base."""
        whole = self.entries[base]
        dtype = whole.dtype if dtype is None else dt.parse(dtype)
        stop = byte_offset + size * dtype.itemsize
        if byte_offset < 0 or size < 0 or stop > whole.nbytes:
            raise PlanBuildError(
                f"view: bytes {byte_offset} to {stop} leave buffer {base} of {whole.nbytes} bytes"
            )
        if byte_offset % dtype.itemsize:
            raise PlanBuildError(
                f"view: byte_offset {byte_offset} is not a multiple of the {dtype.itemsize} "
                f"bytes of {dtype.name}"
            )
        root, start = self.root(base)
        part = Entry(size, dtype, None, root, start + byte_offset, whole.protected)
        if whole.buffer is not None:
            part.buffer = whole.buffer.view(byte_offset, size, dtype)
        self.entries.append(part)
        return len(self.entries) - 1

    def root(self, index: int) -> tuple[int, int]:
        """Find the entry that `index` is part of in the end, and where in it it begins."""
        entry = self.entries[index]
        return (index, 0) if entry.base is None else (entry.base, entry.byte_offset)

    def root_of(self, index: int) -> Entry:
        """Give the entry that the one at `index` is part of in the end."""
        return self.entries[self.root(index)[0]]

    def copy(self) -> Layout:
        """Give a layout that can be added to without changing this one."""
        other = Layout()
        other.entries = list(self.entries)
        return other

    def moved(self, places: Mapping[int, Buffer]) -> Layout:
        """Give a layout with other given buffers, and the parts of them."""
        other = Layout()
        for i, entry in enumerate(self.entries):
            buffer = places.get(i, entry.buffer)
            base = None if entry.base is None else places.get(entry.base)
            if base is not None:
                buffer = base.view(entry.byte_offset, entry.size, entry.dtype)
            other.entries.append(replace(entry, buffer=buffer))
        return other

    def region(self, index: int) -> Region:
        """Give the bytes of an entry. Allocates a given buffer."""
        entry = self.entries[index]
        if entry.buffer is not None:
            return region_of(entry.buffer)
        root, start = self.root(index)
        whole = self.entries[root]
        return Region(whole.own or whole, 0, 0).part(start, entry.nbytes)

"""Buffer layout of a plan: given buffers, own buffers, ports, and views of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.device.byte_ranges import ByteRange, byte_range_of
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
        Number of elements.
    dtype : DType
        Type of the elements.
    buffer : Buffer or None
        Buffer that was given to the plan. None if the plan allocates the buffer, or if it is a
        port.
    base : int or None
        Entry that this one is a view of.
    byte_offset : int
        Offset in the base.
    protected : bool
        Whether the bytes must stay unchanged if a run fails.
    own : Intermediate or None
        Identity of the storage of a buffer that the plan allocates.
    port : bool
        Whether the buffer is a port: the region that runs the plan as a body binds its address.
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
        """Size of the buffer in bytes."""
        return self.size * self.dtype.itemsize


class Layout:
    """The buffer entries of a plan and the byte range of each."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add_given(self, buffer: Buffer, *, protected: bool) -> int:
        """Add a buffer that lives outside the plan; return its index."""
        self.entries.append(Entry(buffer.size, buffer.dtype, buffer, protected=protected))
        return len(self.entries) - 1

    def add_own(self, size: int, dtype: DType, own: Intermediate | None = None) -> int:
        """Add a buffer that the plan allocates, with storage identity `own`; return its index."""
        dtype = dt.parse(dtype)
        own = own or Intermediate(size, dtype)
        self.entries.append(Entry(size, dtype, None, own=own))
        return len(self.entries) - 1

    def add_port(self, size: int, dtype: DType) -> int:
        """Add a port: a buffer whose address the plan's region sets. Return its index."""
        self.entries.append(Entry(size, dt.parse(dtype), None, port=True))
        return len(self.entries) - 1

    def add_part(self, base: int, byte_offset: int, size: int, dtype: DType | None) -> int:
        """Add a view of an entry; return its index. Raise PlanBuildError if it exceeds its base."""
        whole = self.entries[base]
        dtype = whole.dtype if dtype is None else dt.parse(dtype)
        stop = byte_offset + size * dtype.itemsize
        if byte_offset < 0 or size < 0 or stop > whole.nbytes:
            raise PlanBuildError(
                f"view: expected a part of buffer {base}, which has {whole.nbytes} bytes, not "
                f"bytes {byte_offset} to {stop}"
            )
        if byte_offset % dtype.itemsize:
            raise PlanBuildError(
                f"view: byte_offset: expected a multiple of the {dtype.itemsize} bytes of "
                f"{dtype.name}, not {byte_offset}"
            )
        root, start = self.root(base)
        part = Entry(size, dtype, None, root, start + byte_offset, whole.protected)
        if whole.buffer is not None:
            part.buffer = whole.buffer.view(byte_offset, size, dtype)
        self.entries.append(part)
        return len(self.entries) - 1

    def root(self, index: int) -> tuple[int, int]:
        """Return the buffer under all nested views of `index`, and the offset of `index` in it."""
        entry = self.entries[index]
        return (index, 0) if entry.base is None else (entry.base, entry.byte_offset)

    def root_of(self, index: int) -> Entry:
        """Return the buffer under all nested views of `index`."""
        return self.entries[self.root(index)[0]]

    def copy(self) -> Layout:
        """Return a copy; adding entries to it does not change this layout."""
        other = Layout()
        other.entries = list(self.entries)
        return other

    def moved(self, replacements: Mapping[int, Buffer]) -> Layout:
        """Return a layout with some given buffers, and their views, replaced."""
        other = Layout()
        for i, entry in enumerate(self.entries):
            buffer = replacements.get(i, entry.buffer)
            base = None if entry.base is None else replacements.get(entry.base)
            if base is not None:
                buffer = base.view(entry.byte_offset, entry.size, entry.dtype)
            other.entries.append(replace(entry, buffer=buffer))
        return other

    def region(self, index: int) -> ByteRange:
        """Return the byte range of an entry. If its buffer was given, allocate its memory."""
        entry = self.entries[index]
        if entry.buffer is not None:
            return byte_range_of(entry.buffer)
        root, start = self.root(index)
        whole = self.entries[root]
        return ByteRange(whole.own or whole, 0, 0).part(start, entry.nbytes)

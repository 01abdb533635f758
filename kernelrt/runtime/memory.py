"""Memory of a finished plan: allocates, replaces, copies and releases its buffers."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.allocator import ALIGNMENT
from kernelrt.device.buffer import Buffer, whole
from kernelrt.device.byte_ranges import ByteRange, ByteRangeMap, byte_range_of, islands
from kernelrt.errors import DTypeError, PlanBuildError, PlanReleasedError, ShapeError
from kernelrt.runtime.ffi_kernels import PreparedForeignCall
from kernelrt.runtime.plan_ops import PreparedBufferView, PreparedCustomFunction, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kernelrt.dtype import DType
    from kernelrt.runtime.buffer_layout import Layout
    from kernelrt.runtime.plan import PlanParts
    from kernelrt.runtime.plan_ops import PreparedOp

__all__ = ["PlanMemory"]

# The C table holds this address for a port until a region binds the port.
_NOWHERE: Final = ALIGNMENT


class PlanMemory:
    """Memory of a plan. Callers that change it must hold the plan's lock.

    Attributes
    ----------
    buffers : list of Buffer or None
        Buffers by index; None once dropped.
    """

    def __init__(self, parts: PlanParts, ops: Sequence[PreparedOp]) -> None:
        # Set first, so that the holds on memory are freed first when the plan is freed.
        self._holds: list[memoryview] = []
        self._arrays: dict[int, list[Any]] = {}
        self._slots: dict[int, list[tuple[int, int]]] = {}
        self._layout = parts.layout
        self._ops = ops
        # Index of a buffer -> indices of its views, which stay the same when buffers are replaced.
        self._parts: dict[int, list[int]] = {}
        for i, entry in enumerate(parts.layout.entries):
            if entry.base is not None:
                self._parts.setdefault(entry.base, []).append(i)
        self._seen_by_functions = sorted(
            {i for op in ops if _receives_arrays(op) for i in op.buffer_indices}
        )
        self.buffers: list[Buffer | None] = []
        self._allocate(parts)
        # Byte ranges from which the dependencies were computed: buffers that overlapped then may
        # overlap again.
        self._analysed = [self.region(i) for i in range(len(self.buffers))]

    def live(self, index: int) -> Buffer:
        """Return a buffer. Raise PlanReleasedError if it was dropped."""
        return _alive(self.buffers[index], index)

    def region(self, index: int) -> ByteRange:
        """Return the byte range of a buffer."""
        if self._layout.root_of(index).port:
            return self._layout.region(index)
        return byte_range_of(self.live(index))

    def address(self, index: int) -> int:
        """Return the address of a buffer; for a port, a placeholder."""
        return _NOWHERE if self._layout.root_of(index).port else self.live(index).address

    def ranges(self) -> list[tuple[ByteRange, bool]]:
        """Return, for each buffer except ports, its byte range and whether it was given."""
        entries = enumerate(self._layout.entries)
        return [
            (self.region(i), entry.buffer is not None)
            for i, entry in entries if not self._layout.root_of(i).port
        ]  # fmt: skip

    def is_lasting(self) -> bool:
        """Return whether the plan writes memory that was given to it."""
        entries = self._layout.entries
        wholes = (entries[i] if (b := entries[i].base) is None else entries[b]
                  for i in self._written())  # fmt: skip
        return any(entry.buffer is not None for entry in wholes)

    def arrays(self, index: int, pointer_of: Callable[[int, int], tuple[int, object]]) -> list[Any]:
        """Return the arrays that the custom function at `index` gets. A rebind replaces them.

        The address of a port differs between calls, so its array is made in each call, at the
        address that `pointer_of` returns.
        """
        found = self._arrays.get(index)
        if found is None:
            found = self._arrays[index] = self._arrays_of(index, self.buffers)
        op = self._ops[index]
        ports = [(at, b) for at, b in enumerate(op.buffer_indices) if self._layout.root_of(b).port]
        if not ports:
            return found
        found = list(found)
        for at, b in ports:
            entry = self._layout.entries[b]
            pointer, owner = pointer_of(index, at)
            window = _Window(pointer, owner, entry.size, entry.dtype, at in op.output_indices)
            found[at] = np.asarray(window)
        return found

    def sites(self, index: int) -> tuple[tuple[int, int, int], ...]:
        """List (op, slot, offset) for each address of a buffer, or of its views, in the C table.

        Other buffers of the same memory are left out, because their addresses may change
        separately.
        """
        here = self.region(index)
        port = self._layout.root_of(index).port
        found = [
            (op, slot, self.region(i).start - here.start)
            for i in self._parts_of(index)
            for op, slot in self._uses_of(i)
        ]
        seen = any(here.meets(self.region(i)) for i in self._seen_by_functions)
        return () if seen and not port else tuple(sorted(found))

    # ---- Exchanging

    def plan_rebind(self, index: int, buffer: Buffer) -> tuple[Layout, dict[int, Buffer]]:
        """Check a replacement; return the new layout and the buffers that change."""
        self._check_rebind(index, buffer)
        return self.plan_move({index: buffer})

    def plan_move(self, replacements: Mapping[int, Buffer]) -> tuple[Layout, dict[int, Buffer]]:
        """Plan the replacement of several buffers whose sizes and dtypes are known to match."""
        layout = self._layout.moved(replacements)
        parts = (i for index in replacements for i in self._parts_of(index))
        new = {i: b for i in parts if (b := layout.entries[i].buffer) is not None}
        self._check_overlap(new)
        return layout, new

    def given(self) -> list[int]:
        """List the indices of the buffers that were given to the plan, without views."""
        entries = enumerate(self._layout.entries)
        return [i for i, entry in entries if entry.buffer is not None and entry.base is None]

    def writes(self, index: int) -> bool:
        """Return whether the plan writes a buffer or a view of it."""
        return not self._written().isdisjoint(self._parts_of(index))

    def following(self, other: PlanMemory, replacements: Mapping[int, Buffer]) -> dict[int, Buffer]:
        """Map given buffers to views of the buffers that replace those of another plan.

        `replacements` maps indices of the other plan's buffers to new buffers. A given buffer is in
        the result if it lies within one of the replaced buffers.
        """
        found = {}
        for i in self.given():
            here, old = self.region(i), self.live(i)
            for j, new in replacements.items():
                there = other.region(j)
                if there.covers(here) and here.nbytes:
                    found[i] = new.view(here.start - there.start, old.size, old.dtype)
        return found

    def rebind(
        self, layout: Layout, new: Mapping[int, Buffer]
    ) -> tuple[list[tuple[int, int, int]], list[tuple[object, str, object]]]:
        """Return the changes that replace buffers.

        Returns
        -------
        pointers : list
            New addresses (op, slot, address) for the C table.
        attributes : list
            Attributes (owner, name, value) to set after the table has changed.
        """
        buffers = [new.get(i, buffer) for i, buffer in enumerate(self.buffers)]
        arrays = {i: self._arrays_of(i, buffers) for i in self._arrays}
        attributes: list[tuple[object, str, object]] = [
            (self, "_layout", layout),
            (self, "buffers", buffers),
            (self, "_holds", self._holds_of(buffers)),
            (self, "_arrays", arrays),
        ]
        return [(op, slot, new[i].address) for op, slot, i in self._uses() if i in new], attributes

    def _check_rebind(self, index: int, buffer: Buffer) -> None:
        if not isinstance(buffer, Buffer):
            raise DTypeError(
                f"buffer: expected a Buffer, not {type(buffer).__name__}; see Buffer.wrap"
            )
        index = whole("index", index)
        entries = self._layout.entries
        if not 0 <= index < len(entries):
            raise PlanBuildError(
                f"index: there is no buffer {index}; the plan has {len(entries)} buffers"
            )
        entry = entries[index]
        if entry.buffer is None or entry.base is not None:
            raise PlanBuildError(
                f"index: cannot rebind buffer {index}, which is a view, a port, or memory that the "
                "plan allocated; rebind a buffer that was given to the plan"
            )
        if buffer.dtype is not entry.dtype:
            raise DTypeError(
                f"buffer: expected elements of {entry.dtype.name}, not {buffer.dtype.name}"
            )
        if buffer.size != entry.size:
            raise ShapeError(f"buffer: expected {entry.size} elements, not {buffer.size}")
        if buffer.readonly and self.writes(index):
            raise PlanBuildError(
                f"buffer: expected writable memory, because the plan writes buffer {index}, not "
                "read-only memory"
            )

    def _check_overlap(self, new: Mapping[int, Buffer]) -> None:
        dirty = self._written()
        for i, buffer in new.items():
            here, before = byte_range_of(buffer), self._analysed[i]
            for j in range(len(self.buffers)):
                if j in new or (i not in dirty and j not in dirty):
                    continue
                there, other = self.region(j), self._analysed[j]
                # If they overlapped in the same way before, dependencies and kernels allow for it.
                known = before.meets(other) and before.start - other.start == (
                    here.start - there.start
                )
                if here.meets(there) and not known:
                    raise PlanBuildError(
                        f"buffer: expected memory of its own, but it overlaps buffer {j}, and the "
                        "plan writes one of the two; bind a copy"
                    )

    # ---- Copying and dropping

    def copy_of_state(self) -> dict[int, Buffer]:
        """Copy the given buffers that the plan writes, and those that share bytes with them."""
        copies = {}
        for island, group in self._written_groups():
            # The copy starts at the same offset in a cache line, to keep the alignment.
            pad = island.start % ALIGNMENT
            copy = Buffer(pad + island.nbytes, dt.uint8, self.live(group[0]).device)
            for i in group:
                source = self.live(i)
                start = pad + self.region(i).start - island.start
                copies[i] = copy.view(start, source.size, source.dtype)
                copies[i].content()[...] = source.content()
        return copies

    def state(self) -> list[Buffer]:
        """List the given buffers that the plan writes, and those that share bytes with them."""
        return [self.live(i) for _, group in self._written_groups() for i in group]

    def drop(self, keep: Callable[[Buffer], bool]) -> list[int]:
        """Drop all buffers for which `keep` is false; return their ids."""
        dropped = []
        for i, buffer in enumerate(self.buffers):
            if buffer is not None and not keep(buffer):
                dropped.append(buffer.id)
                self.buffers[i] = None
        self._arrays.clear()
        self._renew_holds()
        return dropped

    def _written_groups(self) -> list[tuple[ByteRange, list[int]]]:
        """Return the groups of overlapping given buffers of which the plan writes at least one."""
        dirty: ByteRangeMap[int] = ByteRangeMap()
        for i in self._written():
            dirty.add(self.region(i), i)
        given = [(self.region(i), i) for i in self.given()]
        return [(whole, group) for whole, group in islands(given) if dirty.meeting(whole)]

    # ---- Taking and holding

    def discard_arena(self) -> None:
        """Return the memory of intermediates to the system; their values are lost."""
        storage = None if self._arena is None else self._arena()
        if storage is not None:
            storage.discard()

    def given_storages(self) -> dict[int, int]:
        """Return the size in bytes of each storage that was given to the plan, by its ``id()``."""
        buffers = (b for i in self.given() if (b := self.buffers[i]) is not None)
        return {id(b.storage): b.storage.nbytes for b in buffers}

    def _allocate(self, parts: PlanParts) -> None:
        arena = Buffer(parts.arena_size, dt.uint8, parts.device) if parts.arena_size else None
        self._arena = None if arena is None else weakref.ref(arena.storage)
        self.arena_nbytes = parts.arena_size
        made: list[Buffer] = []
        for entry in parts.layout.entries:
            if entry.buffer is not None:
                buffer = entry.buffer
            elif entry.base is not None:
                buffer = made[entry.base].view(entry.byte_offset, entry.size, entry.dtype)
            elif arena is not None and entry.own in parts.arena_offsets:
                buffer = arena.view(parts.arena_offsets[entry.own], entry.size, entry.dtype)
            else:
                buffer = Buffer(entry.size, entry.dtype, parts.device)
            made.append(buffer)
        self.buffers.extend(made)
        self._renew_holds()

    def _renew_holds(self) -> None:
        self._holds = self._holds_of(self.buffers)

    def _arrays_of(self, index: int, buffers: Sequence[Buffer | None]) -> list[Any]:
        op = self._ops[index]
        if not isinstance(op, PreparedCustomFunction):
            raise PlanBuildError(f"arrays are made only for custom functions, not for {op.label}")
        arrays: list[Any] = []
        for position, b in enumerate(op.buffer_indices):
            if self._layout.root_of(b).port:
                arrays.append(None)
                continue
            array = _alive(buffers[b], b).raw()
            if position not in op.output_indices:
                array = array.view()
                array.flags.writeable = False
            arrays.append(array)
        return arrays

    def _holds_of(self, buffers: Sequence[Buffer | None]) -> list[memoryview]:
        """Return holds on all memory. Ports are skipped, because they have no own memory."""
        storages = {
            id(b.storage): b.storage
            for i, b in enumerate(buffers)
            if b is not None and not self._layout.root_of(i).port
        }
        return [storage.hold() for storage in storages.values()]

    def _uses(self) -> Iterable[tuple[int, int, int]]:
        """Yield (op, slot, buffer index) of every address in the C table."""
        for i, op in enumerate(self._ops):
            if not isinstance(op, PreparedBufferView):
                for slot, b in enumerate(op.buffer_indices):
                    yield i, slot, b

    def _uses_of(self, index: int) -> list[tuple[int, int]]:
        """Return (op, slot) of every address of a buffer in the C table."""
        if not self._slots:
            for op, slot, i in self._uses():
                self._slots.setdefault(i, []).append((op, slot))
        return self._slots.get(index, [])

    def _parts_of(self, index: int) -> list[int]:
        """Return the indices of the buffer and its views."""
        return sorted([index, *self._parts.get(index, ())])

    def _written(self) -> set[int]:
        return {b for op in self._ops for b in written(op)}


def _receives_arrays(op: PreparedOp) -> bool:
    """Return whether an op receives arrays that are created before the run."""
    return isinstance(op, PreparedCustomFunction) and not isinstance(op, PreparedForeignCall)


class _Window:
    """NumPy array interface for memory at an address. It keeps the owner of the memory alive."""

    def __init__(
        self, address: int, owner: object, size: int, dtype: DType, writable: bool
    ) -> None:
        self.owner = owner
        numpy = np.dtype(np.uint16) if dtype is dt.bfloat16 else dt.to_numpy(dtype)
        self.__array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": numpy.str,
            "data": (address, not writable),
        }


def _alive(buffer: Buffer | None, index: int) -> Buffer:
    if buffer is None:
        raise PlanReleasedError(f"buffer {index} of the plan was released; prepare the plan again")
    return buffer

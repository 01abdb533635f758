"""Emits stores to results and to local arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.backend.llvm.instructions import alu
from kernelrt.backend.llvm.llvm_types import register_type, vector
from kernelrt.ir.local import most_elements
from kernelrt.loops.tiles import lanes_of, vector_range

if TYPE_CHECKING:
    from kernelrt.backend.llvm.addresses import Array
    from kernelrt.backend.llvm.emitter import Emitter
    from kernelrt.backend.llvm.llvm_types import Value
    from kernelrt.ir.ops import Op
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.tiles import Place

__all__ = ["Stores"]


class Stores:
    """Stores of the kernel that `emitter` emits, and accesses to arrays that hold sums."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.text = emitter.text
        self.memory = emitter.memory

    def store(self, u: UOp, value: Value, place: Place) -> None:
        """Emit a STORE at `place`; with a reducer it updates the element."""
        array = self.memory.array(u.src[0], place)
        self._write(array, u.src[1], value, place, reducer=u.arg)

    def fill(self, local: UOp, value: Value, place: Place) -> None:
        """Store to the element of the LOCAL `local` that its ranges select."""
        if most_elements(local.src[1:]) == 0:
            return
        array = self.memory.array(local, place)
        index = self.emitter.info.own_index[local]
        if array.width > 1:
            # Lanes past the end are stored, too, so that readers of the vector need no mask.
            self._put(array, value, self.memory.address(array, index, place), None, reducer=None)
            return
        self._write(array, index, value, self.emitter.restrict(place, frozenset(local.src[1:])))

    def element(self, local: UOp, place: Place) -> Value:
        """Load the element of the LOCAL `local` at `place`, over its own and the outer ranges."""
        array = self.memory.array(local, place)
        lanes = lanes_of(place)
        ty = vector(array.type, lanes)
        address = self.memory.address(array, self.emitter.info.own_index[local], place)
        raw = self.text.emit(f"load {ty}, ptr {address}, align {array.align}")
        return self.memory.read(array, raw, local.dtype, lanes)

    def _write(
        self, array: Array, index: UOp, value: Value, place: Place, *, reducer: Op | None = None
    ) -> None:
        """Store the elements at `place`, each to its element at `index`."""
        along = vector_range(place)
        mask = self.emitter.mask_of(place)
        lanes = lanes_of(place)
        if along is None or self.memory.stride(index, along) == 1:
            value = self.text.splat(value, lanes)
            mask = mask if lanes > 1 else None
            self._put(array, value, self.memory.address(array, index, place), mask, reducer=reducer)
            return
        offset = place[along][0]
        for i in range(lanes):
            single = {**place, along: (offset + i, 1)}
            lane = self.text.lane(value, i)
            if mask is None:
                address = self.memory.address(array, index, single)
                self._put(array, lane, address, None, reducer=reducer)
            else:
                self._put_if(array, index, lane, single, self.text.lane(mask, i), reducer=reducer)

    def _put_if(
        self, array: Array, index: UOp, value: Value, place: Place, exists: Value, *,
        reducer: Op | None,
    ) -> None:  # fmt: skip
        def put() -> None:
            self._put(array, value, self.memory.address(array, index, place), None, reducer=reducer)

        self.emitter.frames.branch_if(exists, put)

    def _put(
        self, array: Array, value: Value, address: str, mask: Value | None, *, reducer: Op | None
    ) -> None:
        lanes, dtype = value.lanes, value.dtype
        ty, align = vector(array.type, lanes), array.align
        if reducer is not None:
            if mask is None:
                raw = self.text.emit(f"load {ty}, ptr {address}, align {align}")
            else:
                raw = self.text.masked_load(array.type, address, align, mask)
            old = self.text.from_memory(raw, dtype, lanes)
            value = alu(self.text, reducer, dtype, [old, value])
        held = array.type == register_type(dtype)
        narrow = value.text if held else self.text.to_memory(value)
        if mask is None:
            self.text.lines.append(f"  store {ty} {narrow}, ptr {address}, align {align}")
        else:
            self.text.masked_store(array.type, narrow, address, align, mask)

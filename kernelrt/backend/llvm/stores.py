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
    from kernelrt.loops.tiles import Point

__all__ = ["Stores"]


class Stores:
    """Emits the STOREs of the kernel of `emitter`, and accesses to arrays that hold sums."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.text = emitter.text
        self.memory = emitter.memory

    def store(self, u: UOp, value: Value, point: Point) -> None:
        """Emit the STORE `u` at `point`. If `u` has a reducer, it updates the element in memory."""
        array = self.memory.array(u.src[0], point)
        self._write(array, u.src[1], value, point, reducer=u.arg)

    def fill(self, local: UOp, value: Value, point: Point) -> None:
        """Store `value` to the element of the LOCAL `local` at `point`."""
        if most_elements(local.src[1:]) == 0:
            return
        array = self.memory.array(local, point)
        index = self.emitter.info.own_index[local]
        if array.width > 1:
            # Lanes past the end are stored, too, so that readers of the vector need no mask.
            self._put(array, value, self.memory.address(array, index, point), None, reducer=None)
            return
        self._write(array, index, value, self.emitter.restrict(point, frozenset(local.src[1:])))

    def element(self, local: UOp, point: Point) -> Value:
        """Load the element of the LOCAL `local` at `point`.

        The point has the ranges of the array and of the loops around it.
        """
        array = self.memory.array(local, point)
        lanes = lanes_of(point)
        ty = vector(array.type, lanes)
        address = self.memory.address(array, self.emitter.info.own_index[local], point)
        raw = self.text.emit(f"load {ty}, ptr {address}, align {array.align}")
        return self.memory.read(array, raw, local.dtype, lanes)

    def _write(
        self, array: Array, index: UOp, value: Value, point: Point, *, reducer: Op | None = None
    ) -> None:
        """Store each lane of `value` to the element of `array` at the `index` of the lane."""
        along = vector_range(point)
        mask = self.emitter.mask_of(point)
        lanes = lanes_of(point)
        if along is None or self.memory.stride(index, along) == 1:
            value = self.text.splat(value, lanes)
            mask = mask if lanes > 1 else None
            self._put(array, value, self.memory.address(array, index, point), mask, reducer=reducer)
            return
        offset = point[along][0]
        for i in range(lanes):
            single = {**point, along: (offset + i, 1)}
            lane = self.text.lane(value, i)
            if mask is None:
                address = self.memory.address(array, index, single)
                self._put(array, lane, address, None, reducer=reducer)
            else:
                self._put_if(array, index, lane, single, self.text.lane(mask, i), reducer=reducer)

    def _put_if(
        self, array: Array, index: UOp, value: Value, point: Point, exists: Value, *,
        reducer: Op | None,
    ) -> None:  # fmt: skip
        def put() -> None:
            self._put(array, value, self.memory.address(array, index, point), None, reducer=reducer)

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

"""Emits loads: contiguous, strided, gathered and transposed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.backend.llvm.instructions import alu
from kernelrt.backend.llvm.llvm_types import vector
from kernelrt.backend.llvm.vector_shuffles import transpose
from kernelrt.ir.ops import Op
from kernelrt.loops.analysis import is_empty_load
from kernelrt.loops.tiles import WIDEST_STEP, lanes_of, vector_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kernelrt.backend.llvm.emitter import Emitter
    from kernelrt.backend.llvm.llvm_types import Value
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.tiles import Point

__all__ = ["Loads"]


class Loads:
    """Emits the LOADs of the kernel of `emitter`."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.text = emitter.text
        self.memory = emitter.memory
        #: Conditions that are known to be true at the current insertion point.
        self.known_true: set[UOp] = set()

    def _predicate(self, u: UOp) -> UOp | None:
        """Return the condition of a LOAD; None if it has none, or one known to be true here."""
        return u.src[2] if len(u.src) > 2 and u.src[2] not in self.known_true else None

    def load(self, u: UOp, point: Point) -> Value:
        """Emit a LOAD at `point`: one element, consecutive elements, or gathered ones."""
        predicate = self._predicate(u)
        if is_empty_load(u):
            return self.text.constant(0, u.dtype)
        along = vector_range(point)
        if along is None:
            return self._load_one(u, point)
        step = self.memory.step(u, along, point)
        if step == 1:
            return self._load_run(u, point)
        if predicate is None and step:
            block = self._load_block(u, point, along)
            if block is not None:
                return block
            if abs(step) <= WIDEST_STEP and self.emitter.mask_of(point) is None:
                return self._load_spaced(u, point, along, step)
        return self._load_lanes(u, point, along)

    def _load_one(self, u: UOp, point: Point) -> Value:
        given = self._predicate(u)
        predicate = None if given is None else self.emitter.value(given, point)
        array = self.memory.array(u.src[0], point)
        address = self.memory.address(array, u.src[1], point, predicate)
        raw = self.text.emit(f"load {array.type}, ptr {address}, align {array.align}")
        value = self.memory.read(array, raw, u.dtype, 1)
        if predicate is None:
            return value
        zero = self.text.constant(0, u.dtype)
        return alu(self.text, Op.WHERE, u.dtype, [predicate, value, zero])

    def _load_run(self, u: UOp, point: Point) -> Value:
        """Load consecutive elements, under a mask if some lanes must not be accessed."""
        lanes = lanes_of(point)
        mask = self.emitter.mask_of(point)
        given = self._predicate(u)
        if given is not None:
            predicate = self.text.splat(self.emitter.value(given, point), lanes)
            if mask is not None:
                predicate = alu(self.text, Op.AND, dt.bool_, [mask, predicate])
            mask = predicate
        array = self.memory.array(u.src[0], point)
        address = self.memory.address(array, u.src[1], point)
        if mask is None:
            self.emitter.prefetches.ask_ahead(u, array, address, point)
            ty = vector(array.type, lanes)
            raw = self.text.emit(f"load {ty}, ptr {address}, align {array.align}")
        else:
            raw = self.text.masked_load(array.type, address, array.align, mask)
        return self.memory.read(array, raw, u.dtype, lanes)

    def _load_spaced(self, u: UOp, point: Point, along: UOp, step: int) -> Value:
        """Load elements of a small stride: load the whole run of memory, then select lanes.

        The stride may be negative. The run begins and ends with elements that are needed, so it
        stays within the buffer.
        """
        offset, lanes = point[along]
        span = (lanes - 1) * abs(step) + 1
        first = offset if step > 0 else offset + lanes - 1
        array = self.memory.array(u.src[0], point)
        address = self.memory.address(array, u.src[1], {**point, along: (first, 1)})
        scalar, align = array.type, array.align
        # Two overlapping loads of a natural width cover the run.
        width = 1 << (span.bit_length() - 1)
        ty = vector(scalar, width)
        ends = [self.text.emit(f"load {ty}, ptr {address}, align {align}")]
        if span > width:
            late = self.text.emit(f"getelementptr {scalar}, ptr {address}, i64 {span - width}")
            ends.append(self.text.emit(f"load {ty}, ptr {late}, align {align}"))
        start = 0 if step > 0 else span - 1
        wanted = [start + i * step for i in range(lanes)]
        picks = [w if w < width else w - (span - width) + width for w in wanted]
        mask = ", ".join(f"i32 {p}" for p in picks)
        text = self.text.emit(
            f"shufflevector {ty} {ends[0]}, {ty} {ends[-1]}, <{lanes} x i32> <{mask}>"
        )
        return self.memory.read(array, text, u.dtype, lanes)

    def _load_lanes(self, u: UOp, point: Point, along: UOp) -> Value:
        """Load elements one by one."""
        offset, lanes = point[along]
        singles = [
            self.emitter.value(u, {**point, along: (offset + i, 1)}) for i in range(lanes)
        ]
        return self.text.pack(singles)

    def _load_block(self, u: UOp, point: Point, along: UOp) -> Value | None:
        """Load and transpose a block, if memory is contiguous along another, unrolled range.

        Return None if there is no such range.
        """
        emitter = self.emitter
        across = self._contiguous_tile(u, point, along)
        if across is None:
            return None
        frame = emitter.frames.frame_of(across)
        assert frame is not None
        width = len(frame.positions)
        offset, lanes = point[along]
        rows = []
        for i in range(lanes):
            row = {**point, along: (offset + i, 1), across: (0, 1)}
            array = self.memory.array(u.src[0], row)
            ty = vector(array.type, width)
            address = self.memory.address(array, u.src[1], row)
            raw = self.text.emit(f"load {ty}, ptr {address}, align {array.align}")
            rows.append(self.memory.read(array, raw, u.dtype, width))
        memo = emitter.frames.top.memo
        for i, column in enumerate(transpose(self.text, rows)):
            memo[emitter.key(u, {**point, across: (i, 1)})] = column
        return memo[emitter.key(u, point)]

    def _contiguous_tile(self, u: UOp, point: Point, along: UOp) -> UOp | None:
        """Return an unrolled range along which rows of a block can be loaded whole, or None."""
        if self.emitter.mask_of(point) is not None:
            return None
        for r in point:
            frame = self.emitter.frames.frame_of(r)
            if (
                r is not along
                and frame is not None
                and len(frame.positions) >= 4
                and len(frame.positions) & (len(frame.positions) - 1) == 0
                and all(lanes == 1 for _, lanes in frame.positions)
                and self.memory.step(u, r, {**point, r: (0, 1)}) == 1
            ):
                return r
        return None

    def row_bits(
        self, u: UOp, points: Iterable[Point], count: int
    ) -> Iterator[tuple[int, str, str]]:
        """Load the bits of elements of an array that the LOAD `u` reads in order.

        Parameters
        ----------
        u : UOp
            The LOAD.
        points : iterable of Point
            The first element of each row.
        count : int
            Number of elements to load of each row.

        Yields
        ------
        tuple of (int, str, str)
            Number of elements, type and name of a vector. If the elements of an array are vectors
            of several rows, it is read once for all these rows.
        """
        known = set()
        for point in points:
            array = replace(self.memory.array(u.src[0], point), lane=0)
            within = self.emitter.restrict(point, self.emitter.info.deps[u.src[1]])
            key = (array.pointer, frozenset(within.items()))
            if key not in known:
                known.add(key)
                n = count * array.width
                ty = vector(f"i{8 * array.align}", n)
                address = self.memory.address(array, u.src[1], point)
                yield n, ty, self.text.emit(f"load {ty}, ptr {address}, align {array.align}")

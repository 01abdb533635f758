"""Memory of a kernel: its arguments, its local arrays, and addresses in both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.backend.llvm.llvm_types import Value, memory_type, register_type
from kernelrt.errors import CompileError
from kernelrt.ir.local import local_bytes, local_itemsize
from kernelrt.ir.ops import Op
from kernelrt.ir.terms import linear
from kernelrt.loops.analysis import stride, word_step
from kernelrt.loops.passes.share_arrays import replaced
from kernelrt.loops.tiles import lane_within, lanes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrt.backend.llvm.emitter import Emitter
    from kernelrt.dtype import DType
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.tiles import Point, Position

__all__ = ["Array", "LocalArray", "Memory"]

#: Alignment of local arrays in bytes: a cache line, and the widest vector.
_ALIGN = 64


@dataclass(frozen=True, slots=True)
class Array:
    """Indexed memory.

    Attributes
    ----------
    pointer : str
        Address of the first element.
    type : str
        LLVM type of an element.
    align : int
        Alignment of every element in bytes.
    width : int
        Number of elements at each index. If an outer loop is vectorized, there is one for each of
        its lanes.
    lane : int
        Index of the first accessed element among these `width` elements.
    unit : str
        LLVM type of the unit that indices count, if an element is a word of several units.
    """

    pointer: str
    type: str
    align: int
    width: int = 1
    lane: int = 0
    unit: str = ""


@dataclass(frozen=True, slots=True)
class LocalArray:
    """A local array, and the point in the tiles of the outer loops to which its values belong."""

    point: Point
    array: Array


class Memory:
    """Arguments and local arrays of the kernel that `emitter` emits."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.text = emitter.text
        self._strides: dict[tuple[UOp, UOp], int | None] = {}
        self._linear: dict[UOp, tuple[dict[UOp, int], int]] = {}
        #: Name and bytes of each LOCAL's memory, for the first, second, ... position of a tile.
        self._allocated: dict[tuple[UOp, int], tuple[str, int]] = {}
        self._replaced = replaced(emitter.info)
        #: LOCALs that alias a PARAM, from an index on.
        self.scratch_outputs: Mapping[UOp, tuple[UOp, UOp]] = {}

    # Arguments ---------------------------------------------------------------------------

    def pointer(self, param: UOp) -> Value:
        """Return the buffer of a PARAM."""
        return self._argument("ptr", "%bufs", param.arg[0])

    def variable(self, number: int) -> Value:
        """Return the entry `number` of the kernel's argument ``vals``."""
        return self._argument("i64", "%vals", number)

    def _argument(self, ty: str, table: str, number: int) -> Value:
        memo = self.emitter.frames.stack[0].memo
        key = (table, number)
        if key not in memo:
            with self.emitter.frames.at(0):
                slot = self.text.emit(f"getelementptr {ty}, ptr {table}, i64 {number}")
                name = self.text.emit(f"load {ty}, ptr {slot}, !invariant.load !0")
            memo[key] = Value(name, 1, dt.int64)
        return memo[key]

    # Addresses ---------------------------------------------------------------------------

    def stride(self, index: UOp, r: UOp) -> int | None:
        """Return the stride of `index` along `r`: :func:`.analysis.stride`, with a cache."""
        key = (index, r)
        if key not in self._strides:
            self._strides[key] = stride(index, r)
        return self._strides[key]

    def index(self, index: UOp, point: Mapping[UOp, Position]) -> tuple[Value | None, int]:
        """Return a flat index as the sum of a run-time part and a constant.

        All positions of a tile share the run-time part.
        """
        if index not in self._linear:
            self._linear[index] = linear(index)
        terms, constant = self._linear[index]
        for term, factor in terms.items():
            if term.op is Op.RANGE:
                constant += factor * point[term][0]
        # For a sum of loops without a mask, positions only differ in the constant.
        memo, key = self.emitter.frames.top.memo, ("index", index)
        total = memo.get(key)
        if total is None:
            total = self._sum(terms, point)
            if total is not None and self._is_whole(terms):
                memo[key] = total
        return total, constant

    def _is_whole(self, terms: Mapping[UOp, int]) -> bool:
        """Return whether all `terms` are indices of loops whose current part has no mask."""
        frames = map(self.emitter.frames.frame_of, terms)
        return all(frame is not None and frame.mask is None for frame in frames)

    def _sum(self, terms: Mapping[UOp, int], point: Mapping[UOp, Position]) -> Value | None:
        """Return the sum of `terms`, each added in the innermost loop that it varies with."""
        emitter = self.emitter
        parts = [
            (emitter.frames.level(emitter.info.deps[term]), term, factor)
            for term, factor in terms.items()
        ]
        parts.sort(key=lambda p: (p[0], p[1].op, p[1].arg if p[1].op is Op.RANGE else 0))
        total: Value | None = None
        done: tuple[object, ...] = ()
        for depth, term, factor in parts:
            with emitter.frames.at(depth):
                total, done = self._plus(total, done, term, factor, point)
        return total

    def _plus(
        self,
        total: Value | None,
        done: tuple[object, ...],
        term: UOp,
        factor: int,
        point: Mapping[UOp, Position],
    ) -> tuple[Value | None, tuple[object, ...]]:
        """Return `total` + `term` * `factor`, computed in the innermost open loop."""
        emitter = self.emitter
        if term.op is Op.RANGE:
            frame = emitter.frames.frame_of(term)
            assert frame is not None
            assert frame.base is not None
            part, key = frame.base, (term, factor)
            if part.text == "0":
                return total, done
            clamp = frame.mask is not None and point[term][1] == 1
            if clamp:
                # Scalars past the end read the last element, so undo the constant added outside.
                offset = point[term][0]
                moved = emitter.value(term, {term: point[term]})
                part = Value(self.text.emit(f"sub i64 {moved.text}, {offset}"), 1, dt.int64)
                key = (term, factor, point[term])  # type: ignore[assignment]
        else:
            scalar = {r: (o, 1) for r, (o, _) in point.items()}
            part = emitter.value(term, scalar)
            key = (emitter.key(term, scalar), factor)  # type: ignore[assignment]
        done = (*done, key)
        memo = emitter.frames.top.memo
        found = memo.get(("sum", done))
        if found is None:
            text = part.text
            if factor != 1:
                text = self.text.emit(f"mul i64 {text}, {factor}")
            if total is not None:
                text = self.text.emit(f"add i64 {total.text}, {text}")
            found = memo[("sum", done)] = Value(text, 1, dt.int64)
        return found, done

    def address(
        self,
        array: Array,
        index: UOp,
        point: Mapping[UOp, Position],
        predicate: Value | None = None,
    ) -> str:
        """Return a pointer to element `index`, or to element 0 if a scalar predicate is false."""
        base = array.pointer
        total, constant = self.index(index, point)
        unit = array.unit or array.type
        row = unit if array.width == 1 else f"[{array.width} x {unit}]"
        if predicate is not None:
            text = str(constant) if total is None else total.text
            if total is not None and constant:
                text = self.text.emit(f"add i64 {text}, {constant}")
            text = self.text.emit(f"select i1 {predicate.text}, i64 {text}, i64 0")
            total, constant = Value(text, 1, dt.int64), 0
        if total is not None:
            # Other elements of the tile are addressed relative to the same pointer.
            memo, key = self.emitter.frames.top.memo, ("at", base, row, total.text)
            if key not in memo:
                text = self.text.emit(f"getelementptr {row}, ptr {base}, i64 {total.text}")
                memo[key] = Value(text, 1, dt.int64)
            base = memo[key].text
        offset = constant * array.width + array.lane
        if offset:
            base = self.text.emit(f"getelementptr {unit}, ptr {base}, i64 {offset}")
        return base

    # Arrays -----------------------------------------------------------------------------------

    def allocations(self) -> list[str]:
        """Return the start of the function's entry block: allocations of all local arrays.

        The text ends with a store to one array, so that LLVM sets up the stack frame there.
        Otherwise LLVM may set it up after the first branch. The loop with which LLVM touches each
        page of the frame overwrites r11, even if r11 holds a value (LLVM 20 to 22 for x86-64).
        """
        lines = [
            f"  {name} = alloca [{nbytes} x i8], align {_ALIGN}"
            for name, nbytes in self._allocated.values()
        ]
        first = next(iter(self._allocated.values()), None)
        if first is not None:
            lines.append(f"  store volatile i8 0, ptr {first[0]}, align {_ALIGN}")
        return lines

    def allocated_bytes(self) -> int:
        """Return the bytes of stack that :meth:`allocations` take."""
        return sum(-nbytes // _ALIGN * -_ALIGN for _, nbytes in self._allocated.values())

    def hold(self, local: UOp, points: list[Point]) -> None:
        """Allocate an array of `local` for each of `points`, for use in the innermost open loop."""
        kind = _local_type(local.dtype)
        if local in self.scratch_outputs:
            param, start = self.scratch_outputs[local]
            whole = self.array(param, {})
            self.emitter.frames.top.arrays[local] = [
                LocalArray(point, replace(whole, pointer=self.address(whole, start, point)))
                for point in points
            ]
            return
        where = local
        while where in self._replaced and not self._is_wide(local):
            where = self._replaced[where]
        held = []
        for number, point in enumerate(points):
            lanes = lanes_of(point)
            nbytes = lanes * local_bytes(local.dtype, local.src[1:])
            name, most = self._allocated.get((where, number), ("", 0))
            self._allocated[where, number] = name or self.text.name("local"), max(nbytes, most)
            pointer = self._allocated[where, number][0]
            held.append(LocalArray(point, Array(pointer, kind, local_itemsize(local.dtype), lanes)))
        self.emitter.frames.top.arrays[local] = held

    def _is_wide(self, local: UOp) -> bool:
        """Return whether a loop around `local` is vectorized, so that its arrays hold vectors."""
        frames = map(self.emitter.frames.frame_of, self.emitter.info.deps[local])
        return any(lanes > 1 for f in frames if f is not None for _, lanes in f.positions)

    def array(self, source: UOp, point: Mapping[UOp, Position]) -> Array:
        """Return the memory of a PARAM, or of a LOCAL at `point`."""
        if source.op in (Op.PARAM, Op.WORDS):
            param = source.src[0] if source.op is Op.WORDS else source
            pointer, unit = self.pointer(param).text, memory_type(param.dtype)
            return Array(pointer, memory_type(source.dtype), param.dtype.itemsize, unit=unit)
        deps = self.emitter.info.deps[source]
        frames = self.emitter.frames
        within = self.emitter.restrict(point, deps)
        for held in frames.stack[frames.level(deps)].arrays.get(source, ()):
            if held.point == within:
                return held.array
            if lanes_of(within) == 1:
                lane = lane_within(held.point, within)
                if lane is not None:
                    return replace(held.array, lane=lane)
        raise CompileError(
            f"an address in {source!r} is needed outside the tile for which the array was "
            "allocated; this is a bug in kernelrt, please report it"
        )

    def step(self, u: UOp, r: UOp, point: Mapping[UOp, Position]) -> int | None:
        """Return the stride of the LOAD `u` along `r`, in elements; None if not constant."""
        source = u.src[0]
        step = self.stride(u.src[1], r)
        if source.op is not Op.LOCAL or step is None:
            return word_step(step, source)
        if r in self.emitter.info.deps[source]:
            wide = point[r][1] > 1 and self._is_held(source, point)
            return 1 if step == 0 and wide else None
        return step * self.array(source, point).width

    def _is_held(self, local: UOp, point: Mapping[UOp, Position]) -> bool:
        """Return whether the elements of `local` are stored as vectors like that at `point`."""
        deps = self.emitter.info.deps[local]
        within = self.emitter.restrict(point, deps)
        frames = self.emitter.frames
        arrays = frames.stack[frames.level(deps)].arrays.get(local, ())
        return any(held.point == within for held in arrays)

    def read(self, array: Array, raw: str, dtype: DType, lanes: int) -> Value:
        """Convert a value loaded from `array` to its register type."""
        if array.type == register_type(dtype):
            return Value(raw, lanes, dtype)
        return self.text.from_memory(raw, dtype, lanes)




def _local_type(dtype: DType) -> str:
    """Return the type of an element of a local array: its register type, or a byte for bool."""
    return memory_type(dtype) if dtype.is_bool else register_type(dtype)

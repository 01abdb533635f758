"""How a kernel touches memory: addresses, contiguous, gathered and transposed loads, stores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.codegen.alu import alu
from kernelrt.codegen.analysis import is_empty_load, stride, word_step
from kernelrt.codegen.llvm import Value, memory_type, register_type, vector
from kernelrt.codegen.reuse import replaced
from kernelrt.codegen.streams import AHEAD, LINE
from kernelrt.codegen.tiles import lane_within, lanes_of
from kernelrt.codegen.transposed import transpose
from kernelrt.errors import CompileError
from kernelrt.ir.local import local_bytes, local_itemsize, most_elements
from kernelrt.ir.ops import Op
from kernelrt.ir.terms import linear

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.codegen.emitter import Emitter
    from kernelrt.codegen.tiles import Place, Position
    from kernelrt.dtype import DType
    from kernelrt.ir.uop import UOp

__all__ = ["Array", "Held", "Memory"]

#: Bytes that local arrays are aligned to: a line of the cache, and the widest vector.
_ALIGN = 64
#: Up to this distance between neighbours a whole run is loaded rather than single elements.
WIDEST_STEP = 4


@dataclass(frozen=True, slots=True)
class Array:
    """Memory that is indexed.

    Attributes
    ----------
    pointer : str
        Where it begins.
    type : str
        LLVM type of an element.
    align : int
        Bytes that every element is aligned to.
    width : int
        Elements side by side for each index, one for each lane of a loop outside.
    lane : int
        Which of these are meant, or the first.
    unit : str
        LLVM type of what indices count, where elements are words of several of these.
    """

    pointer: str
    type: str
    align: int
    width: int = 1
    lane: int = 0
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A local array, and the place of the tile around that its values are for."""

    place: Place
    array: Array


class Memory:
    """Loads, stores and arguments of the kernel that `emitter` writes."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.text = emitter.text
        #: LOADs whose rows are asked for ahead, and the loop that steps from row to row.
        self.ahead: dict[UOp, UOp] = {}
        self._strides: dict[tuple[UOp, UOp], int | None] = {}
        self._linear: dict[UOp, tuple[dict[UOp, int], int]] = {}
        #: Memory of each LOCAL for the first, second, ... place of a tile: its name and bytes.
        self._allocated: dict[tuple[UOp, int], tuple[str, int]] = {}
        self._replaced = replaced(emitter.info)
        #: LOCALs that lie in a PARAM, from an index on.
        self.lent: Mapping[UOp, tuple[UOp, UOp]] = {}

    # Arguments ---------------------------------------------------------------------------

    def pointer(self, param: UOp) -> Value:
        """The buffer of a PARAM."""
        return self._argument("ptr", "%bufs", param.arg[0])

    def variable(self, number: int) -> Value:
        """An entry of ``vals``."""
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
        """Elements between neighbours along `r`, as :func:`analysis.stride` finds them."""
        key = (index, r)
        if key not in self._strides:
            self._strides[key] = stride(index, r)
        return self._strides[key]

    def _index(self, index: UOp, place: Mapping[UOp, Position]) -> tuple[Value | None, int]:
        """A flat index as a run-time part, shared by the whole tile, and a constant."""
        if index not in self._linear:
            self._linear[index] = linear(index)
        terms, constant = self._linear[index]
        emitter = self.emitter
        parts: list[tuple[int, UOp, int]] = []
        for term, factor in terms.items():
            parts.append((emitter.frames.level(emitter.info.deps[term]), term, factor))
            if term.op is Op.RANGE:
                constant += factor * place[term][0]
        parts.sort(key=lambda p: (p[0], p[1].op, p[1].arg if p[1].op is Op.RANGE else 0))
        total: Value | None = None
        done: tuple[object, ...] = ()
        for depth, term, factor in parts:
            with emitter.frames.at(depth):
                total, done = self._plus(total, done, term, factor, place)
        return total, constant

    def _plus(
        self,
        total: Value | None,
        done: tuple[object, ...],
        term: UOp,
        factor: int,
        place: Mapping[UOp, Position],
    ) -> tuple[Value | None, tuple[object, ...]]:
        """`total` + `term` * `factor`, in the loop that is on top."""
        emitter = self.emitter
        if term.op is Op.RANGE:
            frame = emitter.frames.frame_of(term)
            assert frame is not None
            assert frame.base is not None
            part, key = frame.base, (term, factor)
            if part.text == "0":
                return total, done
            clamp = frame.mask is not None and place[term][1] == 1
            if clamp:
                # Scalars past the end read the last element; undo the constant added outside.
                offset = place[term][0]
                moved = emitter.value(term, {term: place[term]})
                part = Value(self.text.emit(f"sub i64 {moved.text}, {offset}"), 1, dt.int64)
                key = (term, factor, place[term])  # type: ignore[assignment]
        else:
            scalar = {r: (o, 1) for r, (o, _) in place.items()}
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

    def _address(
        self, array: Array, index: UOp, place: Mapping[UOp, Position], gate: Value | None = None
    ) -> str:
        """Pointer to the element at `index`; to the first element where a scalar gate is false."""
        base = array.pointer
        total, constant = self._index(index, place)
        unit = array.unit or array.type
        row = unit if array.width == 1 else f"[{array.width} x {unit}]"
        if gate is not None:
            text = str(constant) if total is None else total.text
            if total is not None and constant:
                text = self.text.emit(f"add i64 {text}, {constant}")
            text = self.text.emit(f"select i1 {gate.text}, i64 {text}, i64 0")
            total, constant = Value(text, 1, dt.int64), 0
        if total is not None:
            base = self.text.emit(f"getelementptr {row}, ptr {base}, i64 {total.text}")
        offset = constant * array.width + array.lane
        if offset:
            base = self.text.emit(f"getelementptr {unit}, ptr {base}, i64 {offset}")
        return base

    # Arrays -----------------------------------------------------------------------------------

    def allocations(self) -> list[str]:
        """What the function's entry has to begin with: the memory of local arrays."""
        return [
            f"  {name} = alloca [{nbytes} x i8], align {_ALIGN}"
            for name, nbytes in self._allocated.values()
        ]

    def allocated_bytes(self) -> int:
        """How much of the stack `allocations` take."""
        return sum(-nbytes // _ALIGN * -_ALIGN for _, nbytes in self._allocated.values())

    def hold(self, local: UOp, places: list[Place]) -> None:
        """Memory for the LOCAL `local` at each of `places`, which the loop on top is to fill."""
        kind = _local_type(local.dtype)
        if local in self.lent:
            param, start = self.lent[local]
            whole = self._array(param, {})
            self.emitter.frames.top.arrays[local] = [
                Held(place, replace(whole, pointer=self._address(whole, start, place)))
                for place in places
            ]
            return
        where = local
        while where in self._replaced and not self._is_wide(local):
            where = self._replaced[where]
        held = []
        for number, place in enumerate(places):
            lanes = lanes_of(place)
            nbytes = lanes * local_bytes(local.dtype, local.src[1:])
            name, most = self._allocated.get((where, number), ("", 0))
            self._allocated[where, number] = name or self.text.name("local"), max(nbytes, most)
            pointer = self._allocated[where, number][0]
            held.append(Held(place, Array(pointer, kind, local_itemsize(local.dtype), lanes)))
        self.emitter.frames.top.arrays[local] = held

    def _is_wide(self, local: UOp) -> bool:
        """Whether loops around carry vectors: arrays are then had lane by lane, or side by side."""
        frames = map(self.emitter.frames.frame_of, self.emitter.info.deps[local])
        return any(lanes > 1 for f in frames if f is not None for _, lanes in f.positions)

    def _array(self, source: UOp, place: Mapping[UOp, Position]) -> Array:
        """The memory of a PARAM, or of a LOCAL at `place`."""
        if source.op in (Op.PARAM, Op.WORDS):
            param = source.src[0] if source.op is Op.WORDS else source
            pointer, unit = self.pointer(param).text, memory_type(param.dtype)
            return Array(pointer, memory_type(source.dtype), param.dtype.itemsize, unit=unit)
        deps = self.emitter.info.deps[source]
        frames = self.emitter.frames
        within = self.emitter.restrict(place, deps)
        for held in frames.stack[frames.level(deps)].arrays.get(source, ()):
            if held.place == within:
                return held.array
            if lanes_of(within) == 1:
                lane = lane_within(held.place, within)
                if lane is not None:
                    return replace(held.array, lane=lane)
        raise CompileError(f"{source!r} was asked for outside its tile")

    def _step(self, u: UOp, r: UOp, place: Mapping[UOp, Position]) -> int | None:
        """Elements of memory between neighbours along `r` of a LOAD; None where not constant."""
        source = u.src[0]
        step = self.stride(u.src[1], r)
        if source.op is not Op.LOCAL or step is None:
            return word_step(step, source)
        if r in self.emitter.info.deps[source]:
            wide = place[r][1] > 1 and self._is_held(source, place)
            return 1 if step == 0 and wide else None
        return step * self._array(source, place).width

    def _is_held(self, local: UOp, place: Mapping[UOp, Position]) -> bool:
        """Whether each element of `local` is had as the vector at `place`."""
        deps = self.emitter.info.deps[local]
        within = self.emitter.restrict(place, deps)
        frames = self.emitter.frames
        arrays = frames.stack[frames.level(deps)].arrays.get(local, ())
        return any(held.place == within for held in arrays)

    def _read(self, array: Array, raw: str, dtype: DType, lanes: int) -> Value:
        """What was loaded from `array`, as it is in a register."""
        if array.type == register_type(dtype):
            return Value(raw, lanes, dtype)
        return self.text.from_memory(raw, dtype, lanes)

    def row_bits(self, u: UOp, place: Place, count: int) -> tuple[str, str]:
        """`count` elements from `place` on of an array that the LOAD `u` reads in order, as bits.

        The type of the vector, and its name.
        """
        array = self._array(u.src[0], place)
        ty = vector(f"i{8 * array.align}", count)
        address = self._address(array, u.src[1], place)
        return ty, self.text.emit(f"load {ty}, ptr {address}, align {array.align}")

    # Loads ------------------------------------------------------------------------------------

    def load(self, u: UOp, place: Place) -> Value:
        """A LOAD at `place`: one element, consecutive ones, or gathered ones."""
        gate = u.src[2] if len(u.src) > 2 else None
        if is_empty_load(u):
            return self.text.constant(0, u.dtype)
        along = self._vector_range(place)
        if along is None:
            return self._load_one(u, place)
        step = self._step(u, along, place)
        if step == 1:
            return self._load_run(u, place)
        if gate is None and step:
            block = self._load_block(u, place, along)
            if block is not None:
                return block
            if abs(step) <= WIDEST_STEP and self.emitter.mask_of(place) is None:
                return self._load_spaced(u, place, along, step)
        return self._load_lanes(u, place, along)

    def _vector_range(self, place: Mapping[UOp, Position]) -> UOp | None:
        return next((r for r, (_, lanes) in place.items() if lanes > 1), None)

    def _load_one(self, u: UOp, place: Place) -> Value:
        gate = self.emitter.value(u.src[2], place) if len(u.src) > 2 else None
        array = self._array(u.src[0], place)
        address = self._address(array, u.src[1], place, gate)
        raw = self.text.emit(f"load {array.type}, ptr {address}, align {array.align}")
        value = self._read(array, raw, u.dtype, 1)
        if gate is None:
            return value
        zero = self.text.constant(0, u.dtype)
        return alu(self.text, Op.WHERE, u.dtype, [gate, value, zero])

    def _load_run(self, u: UOp, place: Place) -> Value:
        """Consecutive elements, under a mask where some lanes must not be touched."""
        lanes = lanes_of(place)
        mask = self.emitter.mask_of(place)
        if len(u.src) > 2:
            gate = self.text.splat(self.emitter.value(u.src[2], place), lanes)
            mask = gate if mask is None else alu(self.text, Op.AND, dt.bool_, [mask, gate])
        array = self._array(u.src[0], place)
        ty = vector(array.type, lanes)
        address = self._address(array, u.src[1], place)
        if mask is None:
            if u in self.ahead:
                self._ask_ahead(u, array, address, place)
            raw = self.text.emit(f"load {ty}, ptr {address}, align {array.align}")
        else:
            suffix = f"v{lanes}{_suffix(array.type)}.p0"
            raw = self.text.masked_load(suffix, ty, address, array.align, mask)
        return self._read(array, raw, u.dtype, lanes)

    def _ask_ahead(self, u: UOp, array: Array, address: str, place: Place) -> None:
        """Have the lines fetched of a run that is read some iterations later."""
        along = self._vector_range(place)
        step = self.stride(u.src[1], self.ahead[u])
        assert along is not None
        assert step is not None
        offset, lanes = place[along]
        size = u.dtype.itemsize
        for first in range(-offset * size % LINE, lanes * size, LINE):
            self._prefetch(array, address, AHEAD * step + first // size)

    def fetch(self, u: UOp, places: Sequence[Place]) -> None:
        """Have the lines fetched that the LOAD or STORE `u` touches at `places`, each once."""
        lines: dict[str, tuple[Value | None, dict[int, None]]] = {}
        array = self._array(u.src[0], places[0])
        for place in places:
            along = self._vector_range(place)
            if along is not None and self.stride(u.src[1], along) != 1:
                return
            total, constant = self._index(u.src[1], place)
            _, found = lines.setdefault("" if total is None else total.text, (total, {}))
            end = (constant + lanes_of(place)) * array.align
            found.update(dict.fromkeys(range(constant * array.align // LINE, -(-end // LINE))))
        for total, found in lines.values():
            address = array.pointer
            if total is not None:
                address = self.text.emit(
                    f"getelementptr {array.type}, ptr {address}, i64 {total.text}"
                )
            for line in found:
                self._prefetch(array, address, line * LINE // array.align, u.op is Op.STORE)

    def _prefetch(self, array: Array, address: str, ahead: int, writes: bool = False) -> None:
        """Ask for the line of the element so far `ahead` of `address`.

        Nothing is touched: beyond the end of the buffer the processor does nothing.
        """
        if ahead:
            address = self.text.emit(f"getelementptr {array.type}, ptr {address}, i64 {ahead}")
        kind = "i32", str(int(writes))
        self.text.void_call(
            "llvm.prefetch.p0", ("ptr", address), kind, ("i32", "3"), ("i32", "1")
        )

    def _load_spaced(self, u: UOp, place: Place, along: UOp, step: int) -> Value:
        """Every second or third element, or backwards: the whole run is loaded, then picked from.

        The run ends with the last element wanted, so nothing beyond the buffer is touched.
        """
        offset, lanes = place[along]
        span = (lanes - 1) * abs(step) + 1
        first = offset if step > 0 else offset + lanes - 1
        array = self._array(u.src[0], place)
        address = self._address(array, u.src[1], {**place, along: (first, 1)})
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
        return self._read(array, text, u.dtype, lanes)

    def _load_lanes(self, u: UOp, place: Place, along: UOp) -> Value:
        """Elements that lie apart, one by one."""
        offset, lanes = place[along]
        singles = [
            self.emitter.value(u, {**place, along: (offset + i, 1)}) for i in range(lanes)
        ]
        return self.text.pack(singles)

    def _load_block(self, u: UOp, place: Place, along: UOp) -> Value | None:
        """A block that is contiguous along another unrolled range: loaded by rows, transposed."""
        emitter = self.emitter
        across = self._contiguous_tile(u, place, along)
        if across is None:
            return None
        frame = emitter.frames.frame_of(across)
        assert frame is not None
        width = len(frame.positions)
        offset, lanes = place[along]
        rows = []
        for i in range(lanes):
            row = {**place, along: (offset + i, 1), across: (0, 1)}
            array = self._array(u.src[0], row)
            ty = vector(array.type, width)
            address = self._address(array, u.src[1], row)
            raw = self.text.emit(f"load {ty}, ptr {address}, align {array.align}")
            rows.append(self._read(array, raw, u.dtype, width))
        memo = emitter.frames.top.memo
        for i, column in enumerate(transpose(self.text, rows)):
            memo[emitter.key(u, {**place, across: (i, 1)})] = column
        return memo[emitter.key(u, place)]

    def _contiguous_tile(self, u: UOp, place: Place, along: UOp) -> UOp | None:
        """An unrolled range with unit stride that is worth loading whole, if there is one."""
        if self.emitter.mask_of(place) is not None:
            return None
        for r in place:
            frame = self.emitter.frames.frame_of(r)
            if (
                r is not along
                and frame is not None
                and len(frame.positions) >= 4
                and len(frame.positions) & (len(frame.positions) - 1) == 0
                and all(lanes == 1 for _, lanes in frame.positions)
                and self._step(u, r, {**place, r: (0, 1)}) == 1
            ):
                return r
        return None

    # Stores -------------------------------------------------------------------------------------

    def store(self, u: UOp, value: Value, place: Place) -> None:
        """A STORE at `place`; with Op.ADD what is there is read and added to first."""
        array = self._array(u.src[0], place)
        self._write(array, u.src[1], value, place, adds=u.arg is Op.ADD)

    def fill(self, local: UOp, value: Value, place: Place) -> None:
        """The element of the LOCAL `local` that its own ranges are at."""
        if most_elements(local.src[1:]) == 0:
            return
        array = self._array(local, place)
        index = self.emitter.info.own_index[local]
        if array.width > 1:
            # Lanes past the end are filled as well: no one who reads the vector has to leave any.
            self._put(array, value, self._address(array, index, place), None, adds=False)
            return
        self._write(array, index, value, self.emitter.restrict(place, frozenset(local.src[1:])))

    def element(self, local: UOp, place: Place) -> Value:
        """What the LOCAL `local` holds at `place`, of its own ranges and those around."""
        array = self._array(local, place)
        lanes = lanes_of(place)
        ty = vector(array.type, lanes)
        address = self._address(array, self.emitter.info.own_index[local], place)
        raw = self.text.emit(f"load {ty}, ptr {address}, align {array.align}")
        return self._read(array, raw, local.dtype, lanes)

    def _write(
        self, array: Array, index: UOp, value: Value, place: Place, *, adds: bool = False
    ) -> None:
        """Elements at `place`, each into the element at `index` there."""
        along = self._vector_range(place)
        mask = self.emitter.mask_of(place)
        lanes = lanes_of(place)
        if along is None or self.stride(index, along) == 1:
            value = self.text.splat(value, lanes)
            mask = mask if lanes > 1 else None
            self._put(array, value, self._address(array, index, place), mask, adds=adds)
            return
        offset = place[along][0]
        for i in range(lanes):
            single = {**place, along: (offset + i, 1)}
            lane = self.text.lane(value, i)
            if mask is None:
                self._put(array, lane, self._address(array, index, single), None, adds=adds)
            else:
                self._put_if(array, index, lane, single, self.text.lane(mask, i), adds=adds)

    def _put_if(
        self, array: Array, index: UOp, value: Value, place: Place, exists: Value, *, adds: bool
    ) -> None:
        def put() -> None:
            self._put(array, value, self._address(array, index, place), None, adds=adds)

        self.emitter.frames.branch_if(exists, put)

    def _put(
        self, array: Array, value: Value, address: str, mask: Value | None, *, adds: bool
    ) -> None:
        lanes, dtype = value.lanes, value.dtype
        ty, align = vector(array.type, lanes), array.align
        suffix = f"v{lanes}{_suffix(array.type)}.p0"
        if adds:
            if mask is None:
                raw = self.text.emit(f"load {ty}, ptr {address}, align {align}")
            else:
                raw = self.text.masked_load(suffix, ty, address, align, mask)
            old = self.text.from_memory(raw, dtype, lanes)
            value = alu(self.text, Op.ADD, dtype, [old, value])
        held = array.type == register_type(dtype)
        narrow = value.text if held else self.text.to_memory(value)
        if mask is None:
            self.text.lines.append(f"  store {ty} {narrow}, ptr {address}, align {align}")
        else:
            self.text.masked_store(suffix, ty, narrow, address, align, mask)


def _local_type(dtype: DType) -> str:
    """LLVM type of an element of a local array: that of a register, but a byte for bool."""
    return memory_type(dtype) if dtype.is_bool else register_type(dtype)


def _suffix(ty: str) -> str:
    return {"float": "f32", "double": "f64"}.get(ty, ty)

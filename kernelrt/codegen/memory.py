"""How a kernel touches memory: addresses, contiguous, gathered and transposed loads, stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.codegen.alu import alu
from kernelrt.codegen.analysis import stride
from kernelrt.codegen.llvm import Value, memory_type, vector
from kernelrt.ir.ops import Op
from kernelrt.ir.status import LARGEST, LEAST, MOST_CHECKS, NUMBER_BITS
from kernelrt.ir.terms import linear

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrt.codegen.emitter import Emitter, Place
    from kernelrt.codegen.frames import Position
    from kernelrt.ir.uop import UOp

__all__ = ["Memory"]

#: Up to this distance between neighbours a whole run is loaded rather than single elements.
WIDEST_STEP = 4

#: A vector, and which (row, column) of a block each of its lanes holds.
_Labelled = tuple[Value, list[tuple[int, int]]]


class Memory:
    """Loads, stores and arguments of the kernel that `emitter` writes."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.text = emitter.text
        self._strides: dict[tuple[UOp, UOp], int | None] = {}
        self._linear: dict[UOp, tuple[dict[UOp, int], int]] = {}

    # Arguments ---------------------------------------------------------------------------

    def pointer(self, param: UOp) -> Value:
        """The buffer of a PARAM."""
        return self._argument("ptr", "%bufs", param.arg[0])

    def variable(self, number: int) -> Value:
        """An entry of ``vals``."""
        return self._argument("i64", "%vals", number)

    def _argument(self, ty: str, table: str, number: int) -> Value:
        memo = self.emitter.loops.stack[0].memo
        key = (table, number)
        if key not in memo:
            with self.emitter.loops.at(0):
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
            parts.append((emitter.loops.level(emitter.info.deps[term]), term, factor))
            if term.op is Op.RANGE:
                constant += factor * place[term][0]
        parts.sort(key=lambda p: (p[0], p[1].op, p[1].arg if p[1].op is Op.RANGE else 0))
        total: Value | None = None
        done: tuple[object, ...] = ()
        for depth, term, factor in parts:
            with emitter.loops.at(depth):
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
            frame = emitter.loops.frame_of(term)
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
        memo = emitter.loops.top.memo
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
        self, param: UOp, index: UOp, place: Mapping[UOp, Position], gate: Value | None = None
    ) -> str:
        """Pointer to the element at `index`; to the first element where a scalar gate is false."""
        base = self.pointer(param).text
        ty = memory_type(param.dtype)
        total, constant = self._index(index, place)
        if gate is not None:
            text = str(constant) if total is None else total.text
            if total is not None and constant:
                text = self.text.emit(f"add i64 {text}, {constant}")
            text = self.text.emit(f"select i1 {gate.text}, i64 {text}, i64 0")
            return self.text.emit(f"getelementptr {ty}, ptr {base}, i64 {text}")
        if total is not None:
            base = self.text.emit(f"getelementptr {ty}, ptr {base}, i64 {total.text}")
        if constant:
            base = self.text.emit(f"getelementptr {ty}, ptr {base}, i64 {constant}")
        return base

    # Loads ------------------------------------------------------------------------------------

    def load(self, u: UOp, place: Place) -> Value:
        """A LOAD at `place`: one element, consecutive ones, or gathered ones."""
        param, index = u.src[0], u.src[1]
        gate = u.src[2] if len(u.src) > 2 else None
        if param.arg[1] == 0:
            return self.text.constant(0, u.dtype)
        along = self._vector_range(place)
        if along is None:
            return self._load_one(u, place)
        _, lanes = place[along]
        step = self.stride(index, along)
        if step == 1:
            return self._load_run(u, place, lanes)
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
        ty = memory_type(u.dtype)
        if len(u.src) < 3:
            address = self._address(u.src[0], u.src[1], place)
            return self.text.from_memory(self.text.emit(f"load {ty}, ptr {address}"), u.dtype, 1)
        gate = self.emitter.value(u.src[2], place)
        address = self._address(u.src[0], u.src[1], place, gate)
        raw = self.text.emit(f"load {ty}, ptr {address}")
        value = self.text.from_memory(raw, u.dtype, 1)
        zero = self.text.constant(0, u.dtype)
        return alu(self.text, Op.WHERE, u.dtype, [gate, value, zero])

    def _load_run(self, u: UOp, place: Place, lanes: int) -> Value:
        """Consecutive elements, under a mask where some lanes must not be touched."""
        ty = vector(memory_type(u.dtype), lanes)
        align = u.dtype.itemsize
        mask = self.emitter.mask_of(place)
        if len(u.src) > 2:
            gate = self.text.splat(self.emitter.value(u.src[2], place), lanes)
            mask = gate if mask is None else alu(self.text, Op.AND, dt.bool_, [mask, gate])
        address = self._address(u.src[0], u.src[1], place)
        if mask is None:
            raw = self.text.emit(f"load {ty}, ptr {address}, align {align}")
        else:
            raw = self.text.masked_load(f"v{lanes}{_suffix(u)}.p0", ty, address, align, mask)
        return self.text.from_memory(raw, u.dtype, lanes)

    def _load_spaced(self, u: UOp, place: Place, along: UOp, step: int) -> Value:
        """Every second or third element, or backwards: the whole run is loaded, then picked from.

        The run ends with the last element wanted, so nothing beyond the buffer is touched.
        """
        offset, lanes = place[along]
        span = (lanes - 1) * abs(step) + 1
        first = offset if step > 0 else offset + lanes - 1
        address = self._address(u.src[0], u.src[1], {**place, along: (first, 1)})
        scalar, align = memory_type(u.dtype), u.dtype.itemsize
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
        return self.text.from_memory(text, u.dtype, lanes)

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
        across = self._contiguous_tile(u.src[1], place, along)
        if across is None:
            return None
        frame = emitter.loops.frame_of(across)
        assert frame is not None
        width = len(frame.positions)
        offset, lanes = place[along]
        ty = vector(memory_type(u.dtype), width)
        rows = []
        for i in range(lanes):
            row = {**place, along: (offset + i, 1), across: (0, 1)}
            address = self._address(u.src[0], u.src[1], row)
            raw = self.text.emit(f"load {ty}, ptr {address}, align {u.dtype.itemsize}")
            rows.append(self.text.from_memory(raw, u.dtype, width))
        memo = emitter.loops.top.memo
        for i, column in enumerate(self._transpose(rows)):
            memo[emitter.key(u, {**place, across: (i, 1)})] = column
        return memo[emitter.key(u, place)]

    def _contiguous_tile(self, index: UOp, place: Place, along: UOp) -> UOp | None:
        """An unrolled range with unit stride that is worth loading whole, if there is one."""
        if self.emitter.mask_of(place) is not None:
            return None
        for r in place:
            frame = self.emitter.loops.frame_of(r)
            if (
                r is not along
                and frame is not None
                and frame is self.emitter.loops.top
                and len(frame.positions) >= 4
                and len(frame.positions) & (len(frame.positions) - 1) == 0
                and all(lanes == 1 for _, lanes in frame.positions)
                and self.stride(index, r) == 1
            ):
                return r
        return None

    def _transpose(self, rows: list[Value]) -> list[Value]:
        """Columns of a block given by rows; the number of columns is a power of two.

        Each round puts the even lanes of two neighbouring rows into one vector and the odd lanes
        into another. That moves the lowest bit of the column number from the lanes to the
        vectors, and the lowest bit of the row number to the top of the lanes.
        """
        height, width = len(rows), rows[0].lanes
        full = 1 << (height - 1).bit_length()
        block = [(row, [(r, c) for c in range(width)]) for r, row in enumerate(rows)]
        block += [(rows[-1], [(r, c) for c in range(width)]) for r in range(height, full)]
        for _ in range(min(full, width).bit_length() - 1):
            block = self._round(block, 0) + self._round(block, 1)
        return [self._column(block, c, height) for c in range(width)]

    def _round(self, block: list[_Labelled], parity: int) -> list[_Labelled]:
        out = []
        for (a, names_a), (b, names_b) in zip(block[0::2], block[1::2], strict=True):
            lanes = range(parity, a.lanes, 2)
            picked = self.text.shuffle(a, b, [*lanes, *(a.lanes + i for i in lanes)])
            out.append((picked, [names_a[i] for i in lanes] + [names_b[i] for i in lanes]))
        return out

    def _column(self, block: list[_Labelled], column: int, height: int) -> Value:
        """One column, from the few vectors that hold its parts."""
        parts = []
        for value, names in block:
            lanes = [i for i, (r, c) in enumerate(names) if c == column and r < height]
            if lanes:
                whole = lanes == list(range(value.lanes))
                part = value if whole else self.text.shuffle(value, None, lanes)
                parts.append((names[lanes[0]][0], part))
        vectors = [part for _, part in sorted(parts, key=lambda p: p[0])]
        while len(vectors) > 1:
            vectors = [
                self._join(*vectors[i : i + 2]) if i + 1 < len(vectors) else vectors[i]
                for i in range(0, len(vectors), 2)
            ]
        return vectors[0]

    def _join(self, a: Value, b: Value) -> Value:
        """Two vectors end to end."""
        lanes = max(a.lanes, b.lanes)
        if lanes == 1:
            return self.text.pack([a, b])
        first, second = self._extend(a, lanes), self._extend(b, lanes)
        picks = [*range(a.lanes), *(lanes + i for i in range(b.lanes))]
        return self.text.shuffle(first, second, picks)

    def _extend(self, value: Value, lanes: int) -> Value:
        if value.lanes == lanes:
            return value
        if value.lanes == 1:
            return self.text.splat(value, lanes)
        open_lanes = [-1] * (lanes - value.lanes)
        return self.text.shuffle(value, None, [*range(value.lanes), *open_lanes])

    # Stores -------------------------------------------------------------------------------------

    def store(self, u: UOp, value: Value, place: Place) -> None:
        """A STORE at `place`; with Op.ADD what is there is read and added to first."""
        along = self._vector_range(place)
        lanes = 1 if along is None else place[along][1]
        contiguous = along is None or self.stride(u.src[1], along) == 1
        if contiguous:
            self._store_run(u, self.text.splat(value, lanes), place)
            return
        assert along is not None
        offset = place[along][0]
        mask = self.emitter.mask_of(place)
        for i in range(lanes):
            single = {**place, along: (offset + i, 1)}
            lane = self.text.lane(value, i)
            if mask is None:
                self._store_run(u, lane, single)
            else:
                self._store_lane(u, lane, single, self.text.lane(mask, i))

    def _store_lane(self, u: UOp, value: Value, place: Place, exists: Value) -> None:
        self.emitter.loops.branch_if(exists, lambda: self._store_run(u, value, place))

    def _store_run(self, u: UOp, value: Value, place: Place) -> None:
        param, index = u.src[0], u.src[1]
        lanes = value.lanes
        ty = vector(memory_type(param.dtype), lanes)
        align = param.dtype.itemsize
        mask = self.emitter.mask_of(place) if lanes > 1 else None
        address = self._address(param, index, place)
        self._put(u, value, address, ty, align, mask)

    def _put(
        self, u: UOp, value: Value, address: str, ty: str, align: int, mask: Value | None
    ) -> None:
        lanes = value.lanes
        dtype = u.src[0].dtype
        suffix = f"v{lanes}{_suffix(u.src[0])}.p0"
        if u.arg is Op.ADD:
            if mask is None:
                raw = self.text.emit(f"load {ty}, ptr {address}, align {align}")
            else:
                raw = self.text.masked_load(suffix, ty, address, align, mask)
            old = self.text.from_memory(raw, dtype, lanes)
            value = alu(self.text, Op.ADD, dtype, [old, value])
        narrow = self.text.to_memory(value)
        if mask is None:
            self.text.lines.append(f"  store {ty} {narrow}, ptr {address}, align {align}")
        else:
            self.text.masked_store(suffix, ty, narrow, address, align, mask)

    # Checked indices ------------------------------------------------------------------------------

    def bound(self, u: UOp, index: Value, value: Value, place: Place) -> Value:
        """`value` where `index` is in range, else 0 and a mark in the status word."""
        text, emitter = self.text, self.emitter
        size = alu(text, Op.CAST, index.dtype, [emitter.value(u.src[1], place)])
        index, size = text.align([index, size])[0]
        inside = Value(
            text.emit(f"icmp ult {text.type_of(index)} {index.text}, {size.text}"),
            index.lanes,
            dt.bool_,
        )
        outside = alu(text, Op.NOT, dt.bool_, [inside])
        mask = emitter.mask_of(place)
        if mask is not None and outside.lanes > 1:
            outside = alu(text, Op.AND, dt.bool_, [outside, mask])
        failed = outside
        if outside.lanes > 1:
            any_lane = text.call(
                f"llvm.vector.reduce.or.v{outside.lanes}i1",
                "i1",
                (f"<{outside.lanes} x i1>", outside.text),
            )
            failed = Value(any_lane, 1, dt.bool_)
        emitter.loops.branch_if(failed, lambda: self._report(u, index, outside))
        zero = text.constant(0, value.dtype, value.lanes)
        return alu(text, Op.WHERE, value.dtype, text.align([inside, value, zero])[0])

    def _report(self, u: UOp, index: Value, outside: Value) -> None:
        """Say in the status word which check failed, and for which index."""
        text = self.text
        status = self.pointer(u.src[2]).text
        number = index
        if index.lanes > 1:
            lane = self._first(outside)
            at = text.emit(f"extractelement {text.type_of(index)} {index.text}, i64 {lane}")
            number = Value(at, 1, index.dtype)
        least, largest = (text.constant(v, dt.int64) for v in (LEAST, LARGEST))
        number = alu(text, Op.MAX, dt.int64, [number, least])
        number = alu(text, Op.MIN, dt.int64, [number, largest])
        shifted = text.emit(f"shl i64 {number.text}, {NUMBER_BITS}")
        code = text.emit(f"or i64 {shifted}, {min(u.arg[0] + 1, MOST_CHECKS)}")
        # Atomic, for chunks that run at the same time; which of them is heard does not matter.
        text.lines.append(f"  store atomic i64 {code}, ptr {status} monotonic, align 8")

    def _first(self, mask: Value) -> str:
        """The number of the first lane that holds."""
        text, lanes = self.text, mask.lanes
        bits = text.emit(f"bitcast <{lanes} x i1> {mask.text} to i{lanes}")
        count = text.call(
            f"llvm.cttz.i{lanes}", f"i{lanes}", (f"i{lanes}", bits), ("i1", "true")
        )
        return text.emit(f"zext i{lanes} {count} to i64") if lanes < 64 else count


def _suffix(u: UOp) -> str:
    names = {"float": "f32", "double": "f64"}
    ty = memory_type(u.dtype)
    return names.get(ty, ty)

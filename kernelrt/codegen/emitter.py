"""A kernel AST with a tiling, written out as one LLVM function.

Every value is emitted for a place: for each range it varies with, an offset into the current
tile and a number of lanes. Register tiles, unrolling and vectors are all the same thing here,
the choice of places (see tiling.py), and what is shared between places is shared because the
value does not vary with the range in question.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.codegen.alu import alu
from kernelrt.codegen.counting import Tile
from kernelrt.codegen.frames import Loops, Position, Segment
from kernelrt.codegen.horizontal import across, identity, merge, widen
from kernelrt.codegen.llvm import Text, Value
from kernelrt.codegen.memory import Memory
from kernelrt.errors import CompileError
from kernelrt.ir.ops import ALU, Op
from kernelrt.ir.uop import UOp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.codegen.analysis import Analysis
    from kernelrt.codegen.tiling import Tiling
    from kernelrt.device.spec import DeviceSpec

__all__ = ["Emitter", "Place"]

#: Where in the tile a value is computed: range -> (offset, lanes).
Place = dict[UOp, Position]
#: One iteration: carried values at its start to those at its end.
Body = Callable[[list[Value]], list[Value]]


class Emitter:
    """Writes one kernel.

    Parameters
    ----------
    info : Analysis
        The kernel.
    tiling : Tiling
        Tiles, loop order and chunking.
    target : DeviceSpec
        Decides whether a fused multiply-add is worth asking for.
    variables : sequence of UOp
        The VARs whose values ``vals`` holds, in this order; a chunk's number follows them.
    """

    def __init__(
        self, info: Analysis, tiling: Tiling, target: DeviceSpec, variables: Sequence[UOp]
    ) -> None:
        self.info = info
        self.target = target
        self.tiling = tiling
        self.text = Text(target.has_half)
        self.loops = Loops(self.text)
        self.memory = Memory(self)
        self.variables = variables
        self._orders: dict[UOp, list[UOp]] = {}
        self._groups: dict[tuple[UOp, ...], list[UOp]] = {}
        for u in info.reduces:
            self._groups.setdefault(u.src[1:], []).append(u)

    # The loop nest over the stores -----------------------------------------------------------

    def write(self, name: str) -> str:
        """The function's text, with the declarations that it needs."""
        self._nest(list(self.info.sink.src), [])
        lines = self.loops.stack[0].lines
        declarations = "\n".join(sorted(self.text.declarations.values()))
        body = "\n".join(lines)
        return (
            f"define void @{name}(ptr %bufs, ptr %vals) #0 {{\nentry:\n{body}\n  ret void\n}}\n"
            f"{declarations}\n"
        )

    def _ranges_of(self, store: UOp) -> frozenset[UOp]:
        return self.info.deps_of(store.src)

    def _nest(self, stores: list[UOp], opened: list[UOp]) -> None:
        """Stores under the loops `opened`: first those that need no more loops."""
        here = [s for s in stores if self._ranges_of(s) <= set(opened)]
        if here:
            self._leaf(here, opened)
        rest = [s for s in stores if s not in here]
        if not rest:
            return
        pending = {r for s in rest for r in self._ranges_of(s)} - set(opened)
        r = next(r for r in self.tiling.order if r in pending)
        inside = [s for s in rest if r in self._ranges_of(s)]
        outside = [s for s in rest if s not in inside]
        if outside:
            self._nest(outside, opened)

        def body(_: list[Value]) -> list[Value]:
            self._nest(inside, [*opened, r])
            return []

        self.each(r, [], body)

    def _leaf(self, stores: list[UOp], opened: Sequence[UOp]) -> None:
        """Place by place: all values, then all stores, so that a kernel may update in place."""
        ranges = [r for r in opened if any(r in self._ranges_of(s) for s in stores)]
        for place in self.places(ranges):
            values = [self.value(s.src[2], place) for s in stores]
            for store, value in zip(stores, values, strict=True):
                self.memory.store(store, value, self.restrict(place, self._ranges_of(store)))

    def places(self, ranges: Sequence[UOp]) -> list[Place]:
        """All places of the current tile over `ranges`, in loop order."""
        frames = [self.loops.frame_of(r) for r in ranges]
        options = [f.positions for f in frames if f is not None]
        return [dict(zip(ranges, combo, strict=True)) for combo in itertools.product(*options)]

    def each(self, r: UOp, carried: list[Value], body: Body) -> list[Value]:
        """The whole loop over `r`, as one segment or several."""
        for segment in self._segments(r):
            carried = self.loops.run(r, segment, carried, body)
        return carried

    def _segments(self, r: UOp) -> list[Segment]:
        tile = self.tiling.tile(r)
        size = r.src[0]
        if r is self.tiling.chunked:
            return self._chunk_segments(r, tile)
        if size.op is not Op.CONST:
            return self._open_segments(self._int(0), self.value(size, {}), tile)
        return self._fixed_segments(int(size.arg), tile)

    def _int(self, number: int) -> Value:
        return self.text.constant(number, dt.int64)

    def _fixed_segments(self, size: int, tile: Tile) -> list[Segment]:
        """Whole tiles, then one smaller tile with what is left."""
        trips, rest = divmod(size, tile.factor)
        stop = self._int(size - rest)
        out = []
        if trips:
            out.append(Segment(self._int(0), stop, tile.factor, tile.positions(), trips))
        if rest:
            small = Tile(rest, tile.lanes).positions()
            out.append(Segment(stop, self._int(size), rest, small, 1))
        return out

    def _open_segments(self, start: Value, stop: Value, tile: Tile) -> list[Segment]:
        """Whole tiles as far as they go, then single vectors or elements, then a masked vector."""
        out, at = [], start
        steps = [tile.factor]
        while steps[-1] > tile.lanes:
            following = max(tile.lanes, steps[-1] // 2 // tile.lanes * tile.lanes)
            steps.append(following)
        for step in steps:
            until = stop
            if step > 1:
                length = self.text.emit(f"sub i64 {stop.text}, {at.text}")
                whole = self.text.emit(f"sdiv i64 {length}, {step}")
                span = self.text.emit(f"mul i64 {whole}, {step}")
                until = Value(self.text.emit(f"add i64 {at.text}, {span}"), 1, dt.int64)
            positions = Tile(step, tile.lanes).positions()
            out.append(Segment(at, until, step, positions, None))
            at = until
        if tile.lanes > 1:
            last = ((0, tile.lanes),)
            out.append(Segment(at, stop, tile.lanes, last, None, masked=stop))
        return out

    def _chunk_segments(self, r: UOp, tile: Tile) -> list[Segment]:
        """This chunk's share of the range: whole tiles, and in the last chunk what is left."""
        share, text = self.tiling.share, self.text
        core = self.memory.variable(len(self.variables))
        low = Value(text.emit(f"mul i64 {core.text}, {share}"), 1, dt.int64)
        high = text.emit(f"add i64 {low.text}, {share}")
        size = r.src[0]
        if size.op is not Op.CONST:
            limit = self._least(high, self.value(size, {}).text)
            return self._open_segments(low, limit, tile)
        extent = int(size.arg)
        rest = extent % tile.factor
        out = []
        if extent > rest:
            until = self._least(high, str(extent - rest))
            out.append(Segment(low, until, tile.factor, tile.positions(), None))
        if rest:
            small = Tile(rest, tile.lanes).positions()
            last = self._least(high, str(extent))
            out.append(Segment(self._int(extent - rest), last, rest, small, None))
        return out

    def _least(self, a: str, b: str) -> Value:
        text = self.text.call("llvm.smin.i64", "i64", ("i64", a), ("i64", b))
        return Value(text, 1, dt.int64)

    # Values ---------------------------------------------------------------------------------

    def restrict(self, place: Mapping[UOp, Position], ranges: frozenset[UOp]) -> Place:
        """The part of `place` that concerns `ranges`."""
        return {r: p for r, p in place.items() if r in ranges}

    def key(self, u: UOp, place: Mapping[UOp, Position]) -> object:
        """What the value of `u` at `place` is remembered by."""
        return (u, tuple(sorted((r.arg, p) for r, p in place.items() if r in self.info.deps[u])))

    def value(self, root: UOp, place: Place) -> Value:
        """The value of `root` at `place`, computed where its ranges are innermost."""
        order = self._orders.get(root)
        if order is None:
            order = self._orders[root] = self.info.order([root])
        out: Value | None = None
        for u in order:
            out = self._at_place(u, place)
        assert out is not None
        return out

    def _at_place(self, u: UOp, place: Place) -> Value:
        if u.op is Op.CONST:
            return self.text.constant(u.arg, u.dtype)
        depth = self.loops.level(self.info.deps[u])
        memo = self.loops.stack[depth].memo
        key = self.key(u, place)
        found = memo.get(key)
        if found is None:
            with self.loops.at(depth):
                found = self._compute(u, self.restrict(place, self.info.deps[u]))
            memo[key] = found
        return found

    def _compute(self, u: UOp, place: Place) -> Value:
        if u.op in ALU:
            return alu(self.text, u.op, u.dtype, [self._at_place(s, place) for s in u.src])
        if u.op is Op.RANGE:
            return self._range(u, place)
        if u.op is Op.LOAD:
            return self.memory.load(u, place)
        if u.op is Op.REDUCE:
            return self._reduced(u, place)
        if u.op is Op.BOUND:
            index, *rest = (self._at_place(s, place) for s in (u.src[0], *u.src[3:]))
            return self.memory.bound(u, index, rest[0] if rest else index, place)
        if u.op is Op.VAR:
            return self.memory.variable(self.variables.index(u))
        if u.op is Op.PARAM:
            return self.memory.pointer(u)
        raise CompileError(f"{u.op.name} has no place in a kernel; lower it before")

    def _range(self, u: UOp, place: Place) -> Value:
        """The loop variable as a value: a number, or consecutive numbers in lanes."""
        frame = self.loops.frame_of(u)
        assert frame is not None
        assert frame.base is not None
        offset, lanes = place[u]
        text = frame.base.text
        if offset:
            text = self.text.emit(f"add i64 {text}, {offset}")
        if lanes == 1:
            if frame.mask is not None:
                text = self._clamped(u, text)
            return Value(text, 1, dt.int64)
        wide = self.text.splat(Value(text, 1, dt.int64), lanes)
        numbers = ", ".join(f"i64 {i}" for i in range(lanes))
        return Value(
            self.text.emit(f"add <{lanes} x i64> {wide.text}, <{numbers}>"), lanes, dt.int64
        )

    def _clamped(self, u: UOp, text: str) -> str:
        """Lanes past the end read the last element instead; their results are masked out."""
        size = self.value(u.src[0], {})
        last = self.text.emit(f"sub i64 {size.text}, 1")
        return self.text.call("llvm.smin.i64", "i64", ("i64", text), ("i64", last))

    def mask_of(self, place: Mapping[UOp, Position]) -> Value | None:
        """Which lanes exist, where the vector's range ends inside this vector."""
        for r, (_, lanes) in place.items():
            frame = self.loops.frame_of(r)
            if lanes > 1 and frame is not None and frame.mask is not None:
                return frame.mask
        return None

    # Reductions ---------------------------------------------------------------------------------

    def _reduced(self, u: UOp, place: Place) -> Value:
        """The result of a REDUCE; its whole tile is computed on first demand."""
        memo = self.loops.top.memo
        if ("tile", u) not in memo:
            self._reduce_group(self._groups[u.src[1:]])
            memo[("tile", u)] = Value("", 1, u.dtype)
        found = memo.get(self.key(u, place))
        return found if found is not None else self._lane_of(u, place)

    def _lane_of(self, u: UOp, place: Place) -> Value:
        """A single lane of a result that the tile holds as a vector."""
        for native in self._native(sorted(self.info.deps[u], key=lambda r: r.arg)):
            lane = 0
            for r, (offset, _) in place.items():
                start, lanes = native[r]
                if not start <= offset < start + lanes:
                    break
                if lanes > 1:
                    lane = offset - start
            else:
                return self.text.lane(self.loops.top.memo[self.key(u, native)], lane)
        raise CompileError(f"{u!r} was asked for outside its tile")

    def _native(self, ranges: Sequence[UOp]) -> list[Place]:
        """Places at which results over `ranges` are held: vectors along the innermost alone.

        Inside a reduction that carries vectors itself, the store's vector range goes lane by lane.
        """
        open_frames = [(self.loops.level(frozenset({r})), r) for r in ranges]
        wide = [r for _, r in sorted(open_frames, key=lambda f: f[0]) if self._is_wide(r)]
        options = []
        for r in ranges:
            frame = self.loops.frame_of(r)
            assert frame is not None
            positions = frame.positions
            if r in wide[:-1]:
                positions = tuple((o + i, 1) for o, lanes in positions for i in range(lanes))
            options.append(positions)
        return [dict(zip(ranges, combo, strict=True)) for combo in itertools.product(*options)]

    def _is_wide(self, r: UOp) -> bool:
        frame = self.loops.frame_of(r)
        return frame is not None and any(lanes > 1 for _, lanes in frame.positions)

    def _reduce_group(self, group: list[UOp]) -> None:
        """All REDUCEs that close over the same ranges, in one loop nest."""
        closed = group[0].src[1:]
        outer = sorted(self.info.deps[group[0]], key=lambda r: r.arg)
        native = self._native(outer)
        along = next((r for r in closed if self.tiling.tile(r).lanes > 1), None)
        places = [self._spread(p) for p in native] if along else [[p] for p in native]
        flat = [p for spread in places for p in spread]
        copies = self._copies(closed, len(flat) * len(group))
        lanes = [self.tiling.tile(along).lanes if along else self._lanes(p) for p in flat]
        start = [
            identity(self.text, u, width)
            for u in group
            for width in lanes
            for _ in range(copies)
        ]

        def innermost(carried: list[Value]) -> list[Value]:
            return self._accumulate(group, closed, flat, copies, carried)

        totals = iter(self._reduce_nest(closed, 0, start, innermost))
        memo = self.loops.top.memo
        for u in group:
            for place, spread in zip(native, places, strict=True):
                parts = [
                    merge(self.text, u, [next(totals) for _ in range(copies)]) for _ in spread
                ]
                result = across(self.text, u, parts) if along else parts[0]
                memo[self.key(u, place)] = result

    def _reduce_nest(
        self, closed: tuple[UOp, ...], depth: int, carried: list[Value], innermost: Body
    ) -> list[Value]:
        if depth == len(closed):
            return innermost(carried)

        def body(values: list[Value]) -> list[Value]:
            return self._reduce_nest(closed, depth + 1, values, innermost)

        return self.each(closed[depth], carried, body)

    def _lanes(self, place: Place) -> int:
        return max((lanes for _, lanes in place.values()), default=1)

    def _spread(self, place: Place) -> list[Place]:
        """A vector place as its single lanes."""
        options = [[(o + i, 1) for i in range(lanes)] for o, lanes in place.values()]
        return [dict(zip(place, combo, strict=True)) for combo in itertools.product(*options)]

    def _copies(self, closed: tuple[UOp, ...], accumulators: int) -> int:
        """How many separate accumulators hide the latency of one chain of additions."""
        unrolled = 1
        for r in closed:
            unrolled *= len(self.tiling.tile(r).positions())
        return max(1, min(unrolled, 8 // max(1, accumulators)))

    def _accumulate(
        self,
        group: list[UOp],
        closed: tuple[UOp, ...],
        places: list[Place],
        copies: int,
        carried: list[Value],
    ) -> list[Value]:
        """One tile's worth of elements added to the accumulators."""
        out = list(carried)
        for turn, inner in enumerate(self.places(closed)):
            for i, place in enumerate(places):
                for g, u in enumerate(group):
                    slot = (g * len(places) + i) * copies + turn % copies
                    out[slot] = self._combine(u, out[slot], place, inner)
        return out

    def _combine(self, u: UOp, total: Value, outer: Place, inner: Place) -> Value:
        x = u.src[0]
        place = {**outer, **inner}
        mask = self.mask_of(inner)
        fused = u.arg is Op.ADD and x.op is Op.MUL and x.dtype.is_float
        if fused and mask is None and self.target.has_fma:
            a, b = (self.value(s, place) for s in x.src)
            if max(a.lanes, b.lanes) == total.lanes:
                return alu(self.text, Op.FMA, u.dtype, [a, b, total])
        element = self.value(x, place)
        if total.lanes > 1 and element.lanes == 1:
            element = self.text.splat(element, self._lanes(place))
        if mask is not None and element.lanes > 1:
            neutral = identity(self.text, u, element.lanes)
            element = alu(self.text, Op.WHERE, u.dtype, [mask, element, neutral])
        if element.lanes < total.lanes:
            element = widen(self.text, u, element, total.lanes)
        return alu(self.text, u.arg, u.dtype, [total, element])

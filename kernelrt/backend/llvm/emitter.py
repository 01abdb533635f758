"""Emits a loop nest as one LLVM function.

Every value is emitted for points of the current tile. For each range that the value varies with, a
point has an offset in the tile and a number of lanes. So register tiles, unrolling and vectors
differ only in their points (see tile_heuristic.py). If two points differ only in ranges that a
value does not vary with, they share the value. The nest (loop_ir.py) defines the loops and their
contents.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.backend.llvm.addresses import Memory
from kernelrt.backend.llvm.bounds_checks import bound
from kernelrt.backend.llvm.cold_paths import rare
from kernelrt.backend.llvm.dot_products import dot
from kernelrt.backend.llvm.emit_reductions import Accumulators
from kernelrt.backend.llvm.guarded_compares import folds_compares
from kernelrt.backend.llvm.instructions import alu
from kernelrt.backend.llvm.llvm_types import Text, Value
from kernelrt.backend.llvm.loads import Loads
from kernelrt.backend.llvm.loop_scopes import Frames, Segment
from kernelrt.backend.llvm.prefetch_instructions import Prefetches
from kernelrt.backend.llvm.stores import Stores
from kernelrt.backend.llvm.wide_multiply import halves, interleave, lower_half
from kernelrt.errors import CompileError
from kernelrt.ir.ops import ALU, COMPARE, Op
from kernelrt.loops.loop_ir import Axis, Fetch, Loop, Pass, Step
from kernelrt.loops.passes.interleave import abreast
from kernelrt.loops.tiles import Point, Position, Tile, is_fixed, lanes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.backend.llvm.emit_reductions import Sums
    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis
    from kernelrt.loops.loop_ir import Item, LoopNest
    from kernelrt.loops.tiles import Part

__all__ = ["Body", "Choice", "Emitter"]

#: Emits one iteration of a loop: takes the carried values at its start, returns those at its end.
Body = Callable[[list[Value]], list[Value]]
#: Emits the body of a loop, perhaps in a branch. It takes the items of the body without the last
#: one, and a function that emits the last one.
Choice = Callable[["Sequence[Item]", Callable[[], None]], None]


class Emitter:
    """Emits one kernel.

    Parameters
    ----------
    info : Analysis
        Analysis of the kernel.
    target : DeviceSpec
        Target; it decides whether to use fused multiply-adds.
    variables : sequence of UOp
        VARs whose values ``vals`` holds, in this order. The number of the chunk follows.
    """

    def __init__(self, info: Analysis, target: DeviceSpec, variables: Sequence[UOp]) -> None:
        self.info = info
        self.target = target
        self.text = Text(
            target.has_half, folds_compares(target), target.has_rounding, target.has_fma
        )
        self.frames = Frames(self.text)
        self.memory = Memory(self)
        self.loads, self.stores = Loads(self), Stores(self)
        self.prefetches = Prefetches(self)
        self.accumulators = Accumulators(self)
        self.variables = variables
        self._orders: dict[tuple[UOp, ...], list[UOp]] = {}
        self._ranges: dict[UOp, list[UOp]] = {}

    def write(self, name: str, nest: LoopNest) -> str:
        """Return the text of the function and the declarations that it needs."""
        self.memory.scratch_outputs = nest.scratch_outputs
        self.run(nest.body)
        lines = [*self.memory.allocations(), *self.frames.stack[0].lines]
        declarations = "\n".join(sorted(self.text.declarations.values()))
        body = "\n".join(lines)
        return (
            f"define void @{name}(ptr %bufs, ptr %vals) #0 {{\nentry:\n{body}\n  ret void\n}}\n"
            f"{declarations}\n"
        )

    # Loops ------------------------------------------------------------------------------------

    def run(self, items: Sequence[Item]) -> None:
        """Emit the items of a body."""
        for item in items:
            if isinstance(item, Loop):
                self._loop(item)
            elif isinstance(item, Pass):
                self.accumulators.run(item)
            elif isinstance(item, Fetch):
                self._fetch(item)
            else:
                self._store(item)

    def _loop(self, loop: Loop) -> None:
        self.repeat(loop, lambda: self.run(loop.body))

    def carry(
        self, loop: Loop, carried: list[Value], innermost: Body, sums: Sums
    ) -> list[Value]:
        """Emit the loops of a pass from `loop` inward, with accumulators as carried values.

        `innermost` emits one iteration of the innermost loop.
        """
        self.prefetches.ahead.update(dict.fromkeys(loop.ahead, loop.range))

        def body(values: list[Value]) -> list[Value]:
            *before, last = loop.body
            self.run(before)
            if isinstance(last, Loop):
                return self.carry(last, values, innermost, sums)
            return innermost(values)

        for segment in self._segments(loop):
            if loop.block and segment.tile == loop.tile and segment.masked is None:
                carried = self._in_blocks(loop, segment, carried, body, sums)
            else:
                carried = self.frames.run(loop.range, segment, carried, body)
        return carried

    def _in_blocks(
        self, loop: Loop, segment: Segment, carried: list[Value], body: Body, sums: Sums
    ) -> list[Value]:
        """Emit `segment` in blocks. Each block starts new sums, which are added to the totals."""
        span, factor = loop.block, segment.tile.factor
        whole = segment.trips is not None and segment.trips * factor % span == 0

        def block(totals: list[Value]) -> list[Value]:
            base = self.frames.top.base
            assert base is not None
            end = self.text.emit(f"add i64 {base.text}, {span}")
            stop = Value(end, 1, dt.int64) if whole else self._least(end, segment.stop.text)
            inner = Segment(base, stop, segment.tile, span // factor if whole else None)
            found = self.frames.run(loop.range, inner, sums.start, body)
            return sums.join(totals, found)

        trips = None if segment.trips is None else -(-segment.trips * factor // span)
        around = Segment(segment.start, segment.stop, Tile(span), trips)
        return self.frames.run(loop.range, around, carried, block)

    def walk(
        self,
        loop: Loop,
        last: UOp,
        innermost: Callable[[Loop | None], None],
        choices: Mapping[UOp, Choice],
    ) -> None:
        """Emit the loops of a pass from `loop` to the one over `last`; `innermost` emits the rest.

        `choices` has functions that emit the bodies of certain loops, in place of the usual way.
        """
        self.prefetches.ahead.update(dict.fromkeys(loop.ahead, loop.range))

        def plainly(before: Sequence[Item], rest: Callable[[], None]) -> None:
            self.run(before)
            rest()

        def body() -> None:
            *before, then = loop.body
            inner = then if isinstance(then, Loop) else None

            def rest() -> None:
                if loop.range is last or inner is None:
                    innermost(inner)
                else:
                    self.walk(inner, last, innermost, choices)

            choices.get(loop.range, plainly)(before, rest)

        self.repeat(loop, body)

    def repeat(self, loop: Loop, body: Callable[[], None]) -> None:
        """Emit `body` in each iteration of `loop`."""

        def iteration(_: list[Value]) -> list[Value]:
            body()
            return []

        self._each(loop, [], iteration)

    def _store(self, step: Step) -> None:
        """Emit, for each point, all values and then all stores, so that updates may be in place."""
        roots = tuple([s.src[2] for s in step.nodes])
        points = self.points(step.ranges)
        together = abreast(self.info, roots, self.target)
        for first in range(0, len(points), together):
            group = points[first : first + together]
            if len(group) > 1:
                self.side_by_side(roots, group)
            for point in group:
                values = self._values(roots, point)
                for store, value in zip(step.nodes, values, strict=True):
                    self.stores.store(store, value, self.restrict(point, self.info.deps[store]))

    def side_by_side(self, roots: Sequence[UOp], points: Sequence[Point]) -> None:
        """Emit the values of `roots` at all `points`, node by node, to interleave them."""
        for u in self.info.order(roots):
            if u.op is Op.COLD:
                self._rare(u, points)
            for point in points:
                self._at_point(u, point)

    def _rare(self, u: UOp, points: Sequence[Point]) -> None:
        """Emit the COLD node `u` with one branch for all `points`, unless an outer loop has it."""
        frame = self.frames.top
        if self.frames.level(self.info.deps[u]) + 1 < len(self.frames.stack):
            return
        asked = {self.key(u, p): p for p in points if self.key(u, p) not in frame.memo}
        if not asked:  # an earlier part of the kernel has emitted all of them
            return
        operands = [[self._at_point(s, p) for s in u.src] for p in asked.values()]
        frame.memo.update(zip(asked, rare(self, u, operands), strict=True))

    def _fetch(self, item: Fetch) -> None:
        points = self.points(item.ranges)
        if item.later:
            points = [{r: (offset, 1) for r, (offset, _) in points[0].items()}]
        for access in item.accesses:
            ranges = item.varying(access)
            at = [self.restrict(point, ranges) for point in points]
            self.prefetches.fetch(access, at, later=item.later)

    def points(self, ranges: Sequence[UOp]) -> list[Point]:
        """Return all points of the current tile over `ranges`, in loop order."""
        frames = [self.frames.frame_of(r) for r in ranges]
        options = [f.positions for f in frames if f is not None]
        return [dict(zip(ranges, combo, strict=True)) for combo in itertools.product(*options)]

    def _each(self, loop: Loop, carried: list[Value], body: Body) -> list[Value]:
        """Emit all segments of `loop`, with `carried` values."""
        for segment in self._segments(loop):
            carried = self.frames.run(loop.range, segment, carried, body)
        return carried

    def _segments(self, loop: Loop) -> list[Segment]:
        size = loop.range.src[0]
        if loop.axis is Axis.CHUNK:
            return self._chunk_segments(loop)
        if is_fixed(loop.range):
            return self._fixed_segments(loop.parts)
        return self._open_segments(self._int(0), self.value(size, {}), loop.parts)

    def _int(self, number: int) -> Value:
        return self.text.constant(number, dt.int64)

    def _fixed_segments(self, parts: Sequence[Part]) -> list[Segment]:
        out, at = [], 0
        for part in parts:
            assert part.trips is not None
            until = at + part.trips * part.tile.factor
            out.append(Segment(self._int(at), self._int(until), part.tile, part.trips))
            at = until
        return out

    def _open_segments(self, start: Value, stop: Value, parts: Sequence[Part]) -> list[Segment]:
        """Return a segment for each part of a loop whose bounds are known at run time only."""
        out, at = [], start
        for part in parts:
            if part.masked:
                out.append(Segment(at, stop, part.tile, None, masked=stop))
                break
            until, step = stop, part.tile.factor
            if step > 1:
                length = self.text.emit(f"sub i64 {stop.text}, {at.text}")
                whole = self.text.emit(f"sdiv i64 {length}, {step}")
                span = self.text.emit(f"mul i64 {whole}, {step}")
                until = Value(self.text.emit(f"add i64 {at.text}, {span}"), 1, dt.int64)
            out.append(Segment(at, until, part.tile, None))
            at = until
        return out

    def _chunk_segments(self, loop: Loop) -> list[Segment]:
        """Return the segments of this chunk's share of the range.

        The last chunk also has the remainder.
        """
        share, text, size = loop.share, self.text, loop.range.src[0]
        core = self.memory.variable(len(self.variables))
        low = Value(text.emit(f"mul i64 {core.text}, {share}"), 1, dt.int64)
        high = text.emit(f"add i64 {low.text}, {share}")
        if not is_fixed(loop.range):
            limit = self._least(high, self.value(size, {}).text)
            return self._open_segments(low, limit, loop.parts)
        extent = int(size.arg)
        rest = extent % loop.tile.factor
        out = []
        for part in loop.parts:
            first, until = (
                (low, extent - rest)
                if part.tile == loop.tile
                else (self._int(extent - rest), extent)
            )
            out.append(Segment(first, self._least(high, str(until)), part.tile, None))
        return out

    def _least(self, a: str, b: str) -> Value:
        text = self.text.call("llvm.smin.i64", "i64", ("i64", a), ("i64", b))
        return Value(text, 1, dt.int64)

    # Values ---------------------------------------------------------------------------------

    def restrict(self, point: Mapping[UOp, Position], ranges: frozenset[UOp]) -> Point:
        """Return `point` without the ranges that are not in `ranges`."""
        return {r: p for r, p in point.items() if r in ranges}

    def key(self, u: UOp, point: Mapping[UOp, Position]) -> object:
        """Return the key that memoizes the value of `u` at `point`."""
        ranges = self._ranges.get(u)
        if ranges is None:
            ranges = self._ranges[u] = sorted(self.info.deps[u], key=lambda r: int(r.arg))
        return (u, *map(point.get, ranges))

    def value(self, root: UOp, point: Point) -> Value:
        """Return the value of `root` at `point`, emitted in the innermost loop it varies with."""
        (found,) = self._values((root,), point)
        return found

    def _values(self, roots: tuple[UOp, ...], point: Point) -> list[Value]:
        """Return the values of `roots` at `point`; each node below them is visited once."""
        if all(self.key(root, point) in self._memo(root) for root in roots):
            return [self._memo(root)[self.key(root, point)] for root in roots]
        order = self._orders.get(roots)
        if order is None:
            order = self._orders[roots] = self.info.order(roots)
        found = {u: self._at_point(u, point) for u in order}
        return [found[root] for root in roots]

    def _memo(self, u: UOp) -> dict[object, Value]:
        """Return the values known in the innermost loop that `u` varies with."""
        return self.frames.stack[self.frames.level(self.info.deps[u])].memo

    def know(self, u: UOp, point: Point, value: Value) -> None:
        """Use `value` for `u` at `point` from now on, or, in a branch, up to the branch's end."""
        self._memo(u)[self.key(u, point)] = value

    def _at_point(self, u: UOp, point: Point) -> Value:
        if u.op is Op.CONST:
            return self.text.constant(u.arg, u.dtype)
        depth = self.frames.level(self.info.deps[u])
        memo = self.frames.stack[depth].memo
        key = self.key(u, point)
        found = memo.get(key)
        if found is None:
            within = self.restrict(point, self.info.deps[u])
            if depth + 1 == len(self.frames.stack):
                found = self._compute(u, within)
            else:
                with self.frames.at(depth):
                    found = self._compute(u, within)
            memo[key] = found
        return found

    def _compute(self, u: UOp, point: Point) -> Value:
        if u.op in ALU:
            parts = halves(u) if lanes_of(point) > 1 else None
            if parts is not None:
                low = lower_half(self, parts[0], point)
                return interleave(self.text, low, self._at_point(parts[1], point))
            operands = [self._at_point(s, point) for s in u.src]
            if u.op in COMPARE and max(x.lanes for x in operands) > 1 and _fit_int32(u.src):
                operands = [alu(self.text, Op.CAST, dt.int32, [x]) for x in operands]
            return alu(self.text, u.op, u.dtype, operands)
        if u.op is Op.RANGE:
            return self._range(u, point)
        if u.op is Op.COLD:
            return rare(self, u, [[self._at_point(s, point) for s in u.src]])[0]
        if u.op is Op.LOAD:
            return self.loads.load(u, point)
        if u.op is Op.DOT:
            return dot(self.text, self.target, u, [self._at_point(s, point) for s in u.src])
        if u.op is Op.REDUCE:
            return self.accumulators.result(u, point)
        if u.op is Op.BOUND:
            index, *rest = (self._at_point(s, point) for s in (u.src[0], *u.src[3:]))
            return bound(self, u, index, rest[0] if rest else index, point)
        if u.op is Op.VAR:
            return self.memory.variable(self.variables.index(u))
        if u.op is Op.PARAM:
            return self.memory.pointer(u)
        raise CompileError(
            f"{u.op.name} is not allowed in a kernel; lower it before code generation"
        )

    def _range(self, u: UOp, point: Point) -> Value:
        """Return the loop index at `point`: a number, or consecutive numbers in lanes."""
        frame = self.frames.frame_of(u)
        assert frame is not None
        assert frame.base is not None
        offset, lanes = point[u]
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
        """Clamp a loop index to the last element, for lanes past the end, which are masked."""
        size = self.value(u.src[0], {})
        last = self.text.emit(f"sub i64 {size.text}, 1")
        return self.text.call("llvm.smin.i64", "i64", ("i64", text), ("i64", last))

    def mask_of(self, point: Mapping[UOp, Position]) -> Value | None:
        """Return the mask of the lanes before the end of the range; None if all lanes are."""
        for r, (_, lanes) in point.items():
            frame = self.frames.frame_of(r)
            if lanes > 1 and frame is not None and frame.mask is not None:
                return frame.mask
        return None

    def exists(self, point: Mapping[UOp, Position]) -> Value | None:
        """Emit the test that the scalar at `point` lies in its range; None if no test is needed."""
        for r, (offset, lanes) in point.items():
            frame = self.frames.frame_of(r)
            if lanes == 1 and frame is not None and frame.mask is not None:
                assert frame.base is not None
                at = self.text.emit(f"add i64 {frame.base.text}, {offset}")
                size = self.value(r.src[0], {})
                return Value(self.text.emit(f"icmp slt i64 {at}, {size.text}"), 1, dt.bool_)
        return None


def _fit_int32(indices: Sequence[UOp]) -> bool:
    """Return whether int64 indices fit int32, so that their vectors take half as many registers."""
    return all(
        u.dtype is dt.int64 and u.exact and dt.int32.min <= u.vmin and u.vmax <= dt.int32.max
        for u in indices
    )

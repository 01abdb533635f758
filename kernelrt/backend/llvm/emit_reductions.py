"""Emits the passes of a loop nest: sums in accumulators, and elements of local arrays."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.backend.llvm.dot_products import dot
from kernelrt.backend.llvm.horizontal_reductions import across, any_lane, identity, merge, widen
from kernelrt.backend.llvm.instructions import alu
from kernelrt.backend.llvm.llvm_types import Value
from kernelrt.errors import CompileError
from kernelrt.ir.ops import Op
from kernelrt.loops.loop_ir import Pass
from kernelrt.loops.passes.interleave import abreast
from kernelrt.loops.passes.predication import LEAST_AT_ONCE
from kernelrt.loops.tiles import lane_within, lanes_of, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.backend.llvm.emitter import Choice, Emitter
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.loop_ir import Item, Loop
    from kernelrt.loops.passes.predication import Predicate
    from kernelrt.loops.tiles import Point

__all__ = ["Accumulators", "Sums"]

#: Independent sums of one vector that hide the latency of an addition (two units, four cycles).
#: The other vectors of the tile have their own sums.
_PARALLEL_SUMS = 4


@dataclass(frozen=True, slots=True)
class Sums:
    """Initial values of accumulators, and a function that combines two sets of them."""

    start: list[Value]
    join: Callable[[list[Value], list[Value]], list[Value]]


class Accumulators:
    """Emits the passes of the kernel of `emitter`, and keeps their results."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.text = emitter.text

    def run(self, each: Pass) -> None:
        """Compute all REDUCEs and LOCALs of `each`, for the whole tile."""
        if each.kept:
            self._run_kept(each)
            return
        native = self._native(each.outer)
        points = [spread(p) for p in native] if each.vector else [[p] for p in native]
        flat = [p for lone in points for p in lone]
        for local in each.fills:
            self.emitter.memory.hold(local, flat)
        keys = [self.emitter.key(u, point) for u in each.folds for point in native]
        memo = self.emitter.frames.top.memo
        if each.predicate is None:
            results = self._fold(each, points)
        else:
            results = self._fold_if(each.predicate, each, native, points)
        memo.update(zip(keys, results, strict=True))

    def _fold(self, each: Pass, points: list[list[Point]]) -> list[Value]:
        """Return the results of `each`: of its first REDUCE at all `points`, then of the next."""
        flat = [p for lone in points for p in lone]
        copies = each.copies(len(flat) * len(each.folds))
        lanes = [each.lanes if each.vector else lanes_of(p) for p in flat]
        start = [
            identity(self.text, u, width)
            for u in each.folds
            for width in lanes
            for _ in range(copies)
        ]

        def innermost(carried: list[Value]) -> list[Value]:
            return self._tile(each, flat, copies, carried)

        of_slot = [u for u in each.folds for _ in range(len(flat) * copies)]

        sums = self._sums(of_slot, start)
        totals = iter(self.emitter.carry(each.loop, start, innermost, sums))
        results = []
        for u in each.folds:
            for lone in points:
                parts = [
                    merge(self.text, u, [next(totals) for _ in range(copies)]) for _ in lone
                ]
                results.append(across(self.text, u, parts) if each.vector else parts[0])
        return results

    def _fold_if(
        self, predicate: Predicate, each: Pass, native: list[Point], points: list[list[Point]]
    ) -> list[Value]:
        """Emit :meth:`_fold` in a branch that is skipped if the predicate holds nowhere."""
        emitter = self.emitter
        masks = [
            emitter.value(
                predicate.condition, emitter.restrict(p, emitter.info.deps[predicate.condition])
            )
            for p in native
        ]
        if not predicate.holds:
            masks = [alu(self.text, Op.NOT, dt.bool_, [mask]) for mask in masks]
        results: list[Value] = []

        def body() -> None:
            results.extend(self._fold(each, points))

        before, after = emitter.frames.branch_if(any_lane(self.text, masks), body)
        nothing = [identity(self.text, u, 1) for u in each.folds for _ in native]
        return [
            self._phi((self.text.splat(first, last.lanes), before), (last, after))
            for first, last in zip(nothing, results, strict=True)
        ]

    def _phi(self, *arms: tuple[Value, str]) -> Value:
        value = arms[0][0]
        given = ", ".join(f"[ {v.text}, %{block} ]" for v, block in arms)
        text = self.text.emit(f"phi {self.text.type_of(value)} {given}")
        return Value(text, value.lanes, value.dtype)

    def _sums(self, folds: Sequence[UOp], start: list[Value]) -> Sums:
        """Return accumulators with the initial values `start`, one for each REDUCE of `folds`."""

        def join(a: list[Value], b: list[Value]) -> list[Value]:
            return [
                alu(self.text, u.arg, u.dtype, [x, y])
                for u, x, y in zip(folds, a, b, strict=True)
            ]

        return Sums(start, join)

    def _run_kept(self, each: Pass) -> None:
        """Emit a pass that accumulates in an array: clear the array, then add tile by tile."""
        [array], [fold] = each.fills, each.folds
        own = array.src[1:]
        around = self._native(each.outer)
        self.emitter.memory.hold(array, around)
        loops = {loop.range: loop for loop in each.loops()}
        self._empty(array, fold, around, [loops[r] for r in own])
        choices: dict[UOp, Choice] = {}
        if each.zeros is not None:
            outer = each.closed[each.closed.index(own[0]) - 1]
            choices[outer] = functools.partial(self._iteration, each, around[0])
        self.emitter.walk(
            each.loop, own[-1], lambda inner: self._add_kept(array, fold, around, inner), choices
        )

    def _elements(self, array: UOp, around: list[Point]) -> list[Point]:
        """Return the elements of `array` that the tiles of the open loops cover."""
        inside = self.emitter.points(array.src[1:])
        return [{**outer, **inner} for outer in around for inner in inside]

    def _empty(
        self, array: UOp, fold: UOp, around: list[Point], loops: Sequence[Loop]
    ) -> None:
        """Emit loops over `array` that set all its elements to the identity of `fold`."""
        if loops:
            first, *rest = loops
            self.emitter.repeat(first, lambda: self._empty(array, fold, around, rest))
            return
        for point in self._elements(array, around):
            value = identity(self.text, fold, lanes_of(point))
            self.emitter.stores.fill(array, value, point)

    def _add_kept(self, array: UOp, fold: UOp, around: list[Point], inner: Loop | None) -> None:
        """Add the terms of the open loops' tile, for all iterations of `inner`, to the array."""
        emitter, stores = self.emitter, self.emitter.stores
        points = self._elements(array, around)

        def innermost(carried: list[Value]) -> list[Value]:
            out = list(carried)
            for depth in emitter.points(fold.src[1:]):
                for i, point in enumerate(points):
                    out[i] = self._combine(fold, out[i], point, depth)
            return out

        def before() -> list[Value]:
            return [stores.element(array, point) for point in points]

        zeros = [identity(self.text, fold, lanes_of(point)) for point in points]
        sums = self._sums([fold] * len(points), zeros)
        if inner is None:
            out = innermost(before())
        elif inner.block:
            part = emitter.carry(replace(inner, block=0), zeros, innermost, sums)
            out = sums.join(before(), part)
        else:
            out = emitter.carry(inner, before(), innermost, sums)
        for value, point in zip(out, points, strict=True):
            stores.fill(array, value, point)

    def _iteration(
        self, each: Pass, around: Point, before: Sequence[Item], rest: Callable[[], None]
    ) -> None:
        """Emit one iteration of the loop around the array, with a branch on the factor's predicate.

        If the predicate is false, only one row of products is computed, and the array of the factor
        is not filled.
        """
        emitter = self.emitter
        assert each.zeros is not None
        predicate = each.zeros.src[2]
        asked = emitter.info.closing([predicate])
        first = [x for x in before if isinstance(x, Pass) and not set(x.folds).isdisjoint(asked)]
        emitter.run(first)

        def whole() -> None:
            emitter.loads.known_true.add(predicate)
            emitter.run([x for x in before if x not in first])
            rest()
            emitter.loads.known_true.remove(predicate)

        [point] = emitter.points(sorted(emitter.info.deps[predicate], key=lambda r: int(r.arg)))
        emitter.frames.either(
            emitter.value(predicate, point), whole, lambda: self._one_row_of_iteration(each, around)
        )

    def _one_row_of_iteration(self, each: Pass, around: Point) -> None:
        """Emit the sums of an iteration in which one factor is zero throughout.

        All rows then have the same products. These are summed once, and added to each row.
        """
        [array], [fold], load = each.fills, each.folds, each.zeros
        assert load is not None
        emitter, stores = self.emitter, self.emitter.stores
        other = next(s for s in fold.src[0].src if s is not load)
        varying = emitter.info.deps[other]
        loops = {loop.range: loop for loop in each.loops()}
        columns = [r for r in array.src[1:] if r in varying]
        rows = [r for r in array.src[1:] if r not in varying]
        inside = each.closed[each.closed.index(array.src[-1]) + 1 :]

        def add() -> None:
            points = [{**around, **p} for p in emitter.points(columns)]
            zero = self.text.constant(0.0, fold.dtype)

            def innermost(carried: list[Value]) -> list[Value]:
                out = list(carried)
                for depth in emitter.points(fold.src[1:]):
                    for i, point in enumerate(points):
                        at = emitter.restrict({**point, **depth}, varying)
                        term = [emitter.value(other, at), zero]
                        product = alu(self.text, Op.MUL, fold.dtype, term)
                        out[i] = alu(self.text, Op.ADD, fold.dtype, [product, out[i]])
                return out

            zeros = [identity(self.text, fold, lanes_of(point)) for point in points]
            sums = self._sums([fold] * len(points), zeros)
            found = emitter.carry(replace(loops[inside[0]], block=0), zeros, innermost, sums)
            nested(rows, lambda: share(dict(zip(map(_key, points), found, strict=True))))

        def share(found: dict[object, Value]) -> None:
            for point in ({**around, **p} for p in emitter.points(array.src[1:])):
                part = found[_key(emitter.restrict(point, frozenset((*around, *columns))))]
                total = alu(self.text, fold.arg, fold.dtype, [stores.element(array, point), part])
                stores.fill(array, total, point)

        def nested(ranges: Sequence[UOp], body: Callable[[], None]) -> None:
            if ranges:
                emitter.repeat(loops[ranges[0]], lambda: nested(ranges[1:], body))
            else:
                body()

        nested(columns, add)

    def result(self, u: UOp, point: Point) -> Value:
        """Return the result of the REDUCE `u` at `point`, in the innermost open loop."""
        memo = self.emitter.frames.top.memo
        found = memo.get(self.emitter.key(u, point))
        return found if found is not None else self._lane_of(u, point)

    def _lane_of(self, u: UOp, point: Point) -> Value:
        """Return the result of `u` at `point` as a lane of a vector that the tile holds."""
        memo = self.emitter.frames.top.memo
        for native in self._native(sorted(self.emitter.info.deps[u], key=lambda r: int(r.arg))):
            found = memo.get(self.emitter.key(u, native))
            lane = lane_within(native, point)
            if found is not None and lane is not None:
                return self.text.lane(found, lane)
        raise CompileError(
            f"the result of {u!r} is needed outside the tile that computes it; this is a bug in "
            "kernelrt, please report it"
        )

    def _native(self, ranges: Sequence[UOp]) -> list[Point]:
        """Return the points at which results over `ranges` are computed.

        If several of the ranges are vectorized, only the innermost of these is computed in vectors.
        The others are computed lane by lane.
        """
        frames = self.emitter.frames
        depths = [(frames.level(frozenset({r})), r) for r in ranges]
        wide = [r for _, r in sorted(depths, key=lambda f: f[0]) if self._is_wide(r)]
        options = []
        for r in ranges:
            frame = frames.frame_of(r)
            assert frame is not None
            positions = frame.positions
            if r in wide[:-1]:
                positions = tuple((o + i, 1) for o, lanes in positions for i in range(lanes))
            options.append(positions)
        return [dict(zip(ranges, combo, strict=True)) for combo in itertools.product(*options)]

    def _is_wide(self, r: UOp) -> bool:
        frame = self.emitter.frames.frame_of(r)
        return frame is not None and any(lanes > 1 for _, lanes in frame.positions)

    def _tile(
        self, each: Pass, points: list[Point], copies: int, carried: list[Value]
    ) -> list[Value]:
        """Emit the terms of one tile: fill the arrays, and add to the accumulators."""
        inside = self.emitter.points(each.closed)
        load, value = each.masked or (each.zeros, None)
        count = sum(map(lanes_of, inside))
        partial = any(self.emitter.mask_of(inner) is not None for inner in inside)
        if load is None or partial or count < LEAST_AT_ONCE:
            return self._terms(each, points, copies, carried)
        one: list[Value] = []
        every: list[Value] = []

        def yes() -> None:
            every.extend(self._terms(each, points, copies, carried))

        def no() -> None:
            if each.masked is None:
                one.extend(self._one_row(each, points, copies, carried))
            else:
                self._know_masked(each, points)
                one.extend(self._terms(each, points, copies, carried))

        some = self._any_other(load, value, points, inside, count)
        then, otherwise = self.emitter.frames.either(some, yes, no)
        return [
            self._phi((a, then), (b, otherwise)) for a, b in zip(every, one, strict=True)
        ]

    def _know_masked(self, each: Pass, points: list[Point]) -> None:
        """Use one value for all masked elements of a row. It is emitted before the loop."""
        assert each.masked is not None
        emitter, inside = self.emitter, self.emitter.points(each.closed)
        for root in self._elements_of(each):
            alike = emitter.info.replaced(root, *each.masked)
            for point in points:
                found = emitter.value(alike, point)
                for inner in inside:
                    at = {**point, **inner}
                    emitter.know(root, at, self.text.splat(found, lanes_of(at)))

    def _terms(
        self, each: Pass, points: list[Point], copies: int, carried: list[Value]
    ) -> list[Value]:
        """Emit the terms of one tile for each of `points`, without a test for zeros."""
        out = list(carried)
        inside = list(enumerate(self.emitter.points(each.closed)))
        around = list(enumerate(points))
        pairs = [(inner, point) for inner in inside for point in around]
        if each.in_rows:
            pairs = [(inner, point) for point in around for inner in inside]
        roots = self._elements_of(each)
        together = abreast(self.emitter.info, roots, self.emitter.target) if roots else 1
        for at, ((n, inner), (i, point)) in enumerate(pairs):
            if together > 1 and at % together == 0:
                group = [{**p, **q} for (_, q), (_, p) in pairs[at : at + together]]
                self.emitter.side_by_side(roots, group)
            for local in each.fills:
                self._fill(local, {**point, **inner})
            for g, u in enumerate(each.folds):
                slot = (g * len(points) + i) * copies + n % copies
                out[slot] = self._combine(u, out[slot], point, inner)
        return out

    def _elements_of(self, each: Pass) -> tuple[UOp, ...]:
        """Return the values that a pass computes for an element: those that it stores and adds."""
        added = (u.src[0].src if self._fuses(u) else u.src[:1] for u in each.folds)
        return (*(local.src[0] for local in each.fills), *itertools.chain(*added))

    def _one_row(
        self, each: Pass, points: list[Point], copies: int, carried: list[Value]
    ) -> list[Value]:
        """Emit a tile in which one factor is zero everywhere: one row of products for all rows.

        The products are zeros or NaN, whose sum does not depend on the order. So several
        independent sums are used.
        """
        (u,), out = each.folds, list(carried)
        assert each.zeros is not None
        other = next(s for s in u.src[0].src if s is not each.zeros)
        varying = self.emitter.info.deps[other]
        alike: dict[object, list[int]] = {}
        for i, point in enumerate(points):
            alike.setdefault(frozenset(self.emitter.restrict(point, varying).items()), []).append(i)
        for rows in alike.values():
            first = points[rows[0]]
            sums = [identity(self.text, u, carried[rows[0] * copies].lanes)] * _PARALLEL_SUMS
            for n, inner in enumerate(self.emitter.points(each.closed)):
                at = n % _PARALLEL_SUMS
                sums[at] = self._combine(u, sums[at], first, inner)
            total = merge(self.text, u, sums)
            for i in rows:
                slot = i * copies
                out[slot] = alu(self.text, u.arg, u.dtype, [out[slot], total])
        return out

    def _any_other(
        self, load: UOp, value: UOp | None, points: list[Point], inside: list[Point], count: int
    ) -> Value:
        """Return whether any element that `load` reads in a tile has other bits than a constant.

        The constant is `value`, or a zero of positive sign. The tile reads `count` elements of each
        row.
        """
        deps = self.emitter.info.deps[load]
        rows = {
            frozenset(row.items()): row
            for row in (self.emitter.restrict({**p, **inside[0]}, deps) for p in points)
        }
        found: dict[tuple[int, str], str] = {}
        for n, ty, loaded in self.emitter.loads.row_bits(load, rows.values(), count):
            bits = loaded
            if value is not None:
                plain = self.text.constant(value.arg, load.dtype, n)
                wanted = self.text.emit(f"bitcast {self.text.type_of(plain)} {plain.text} to {ty}")
                bits = self.text.emit(f"xor {ty} {bits}, {wanted}")
            before = found.get((n, ty))
            found[n, ty] = bits if before is None else self.text.emit(f"or {ty} {before}, {bits}")
        masks = [
            Value(self.text.emit(f"icmp ne {ty} {bits}, zeroinitializer"), n, dt.bool_)
            for (n, ty), bits in found.items()
        ]
        return any_lane(self.text, masks)

    def _fill(self, local: UOp, point: Point) -> None:
        value = self.emitter.value(local.src[0], point)
        self.emitter.stores.fill(local, self.text.splat(value, lanes_of(point)), point)

    def _fuses(self, u: UOp) -> bool:
        """Return whether one instruction multiplies and adds the elements of the REDUCE `u`."""
        x = u.src[0]
        return u.arg is Op.ADD and self.emitter.target.adds_products(x.op, x.dtype)

    def _combine(self, u: UOp, total: Value, outer: Point, inner: Point) -> Value:
        x = u.src[0]
        point = {**outer, **inner}
        mask = self.emitter.mask_of(inner)
        if mask is None and self._fuses(u):
            a, b = (self.emitter.value(s, point) for s in x.src)
            if max(a.lanes, b.lanes) == total.lanes:
                if x.op is Op.DOT:
                    return dot(self.text, self.emitter.target, x, [a, b], total)
                return alu(self.text, Op.FMA, u.dtype, [a, b, total])
        element = self.emitter.value(x, point)
        if total.lanes > 1 and element.lanes == 1:
            element = self.text.splat(element, lanes_of(point))
        if mask is not None and element.lanes > 1:
            neutral = identity(self.text, u, element.lanes)
            element = alu(self.text, Op.WHERE, u.dtype, [mask, element, neutral])
        if element.lanes < total.lanes:
            element = widen(self.text, u, element, total.lanes)
        # The first operand is tested for NaN; the element does not depend on other elements.
        return alu(self.text, u.arg, u.dtype, [element, total])


def _key(point: Point) -> object:
    return frozenset(point.items())

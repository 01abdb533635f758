"""Passes: accumulators of reductions and elements of local arrays, computed in one loop nest."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from kernelrt.codegen.alu import alu
from kernelrt.codegen.horizontal import across, identity, merge, widen
from kernelrt.codegen.tiles import lane_within, lanes_of, spread
from kernelrt.errors import CompileError
from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.codegen.emitter import Emitter
    from kernelrt.codegen.llvm import Value
    from kernelrt.codegen.loops import Pass
    from kernelrt.codegen.tiles import Place
    from kernelrt.ir.uop import UOp

__all__ = ["Accumulators"]


class Accumulators:
    """The passes of the kernel that `emitter` writes, and their results."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.text = emitter.text

    def run(self, each: Pass) -> None:
        """Compute the whole tile of all that `each` folds and fills."""
        native = self._native(each.outer)
        places = [spread(p) for p in native] if each.vector else [[p] for p in native]
        flat = [p for lone in places for p in lone]
        for local in each.fills:
            self.emitter.memory.hold(local, flat)
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

        totals = iter(self.emitter.carry(each.loop, start, innermost))
        memo = self.emitter.frames.top.memo
        for u in each.folds:
            for place, lone in zip(native, places, strict=True):
                parts = [
                    merge(self.text, u, [next(totals) for _ in range(copies)]) for _ in lone
                ]
                result = across(self.text, u, parts) if each.vector else parts[0]
                memo[self.emitter.key(u, place)] = result

    def result(self, u: UOp, place: Place) -> Value:
        """What the REDUCE `u` came to at `place`, in the loop that is on top."""
        memo = self.emitter.frames.top.memo
        found = memo.get(self.emitter.key(u, place))
        return found if found is not None else self._lane_of(u, place)

    def _lane_of(self, u: UOp, place: Place) -> Value:
        """A single lane of a result that the tile holds as a vector."""
        memo = self.emitter.frames.top.memo
        for native in self._native(sorted(self.emitter.info.deps[u], key=lambda r: int(r.arg))):
            found = memo.get(self.emitter.key(u, native))
            lane = lane_within(native, place)
            if found is not None and lane is not None:
                return self.text.lane(found, lane)
        raise CompileError(f"{u!r} was asked for outside its tile")

    def _native(self, ranges: Sequence[UOp]) -> list[Place]:
        """Places at which results over `ranges` are held: vectors along the innermost alone.

        Inside a reduction that carries vectors itself, the store's vector range goes lane by lane.
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
        self, each: Pass, places: list[Place], copies: int, carried: list[Value]
    ) -> list[Value]:
        """One tile's worth of elements, put into the arrays and added to the accumulators."""
        out = list(carried)
        for turn, inner in enumerate(self.emitter.places(each.closed)):
            for i, place in enumerate(places):
                for local in each.fills:
                    self._fill(local, {**place, **inner})
                for g, u in enumerate(each.folds):
                    slot = (g * len(places) + i) * copies + turn % copies
                    out[slot] = self._combine(u, out[slot], place, inner)
        return out

    def _fill(self, local: UOp, place: Place) -> None:
        value = self.emitter.value(local.src[0], place)
        self.emitter.memory.fill(local, self.text.splat(value, lanes_of(place)), place)

    def _combine(self, u: UOp, total: Value, outer: Place, inner: Place) -> Value:
        x = u.src[0]
        place = {**outer, **inner}
        mask = self.emitter.mask_of(inner)
        fused = u.arg is Op.ADD and x.op is Op.MUL and x.dtype.is_float
        if fused and mask is None and self.emitter.target.has_fma:
            a, b = (self.emitter.value(s, place) for s in x.src)
            if max(a.lanes, b.lanes) == total.lanes:
                return alu(self.text, Op.FMA, u.dtype, [a, b, total])
        element = self.emitter.value(x, place)
        if total.lanes > 1 and element.lanes == 1:
            element = self.text.splat(element, lanes_of(place))
        if mask is not None and element.lanes > 1:
            neutral = identity(self.text, u, element.lanes)
            element = alu(self.text, Op.WHERE, u.dtype, [mask, element, neutral])
        if element.lanes < total.lanes:
            element = widen(self.text, u, element, total.lanes)
        return alu(self.text, u.arg, u.dtype, [total, element])

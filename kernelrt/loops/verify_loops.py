"""Verifier of loop nests, run after a nest is built and before it is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from kernelrt.errors import CompileError
from kernelrt.ir.ops import Op
from kernelrt.loops.loop_ir import Axis, Fetch, Loop, Pass, Step
from kernelrt.loops.passes.prefetch_streams import is_plain
from kernelrt.loops.tiles import is_fixed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis
    from kernelrt.loops.loop_ir import Item, LoopNest

__all__ = ["verify_loops"]


def verify_loops(nest: LoopNest, info: Analysis) -> None:
    """Check that `nest` computes the kernel `info`.

    - A RANGE is bound once on the way to any place where it is used, and bound where it is used.
    - What a step uses of REDUCEs and LOCALs was computed before, under the loops around.
    - A pass stands in the innermost loop that its results vary with: nothing is computed again
      that does not change.
    - What a pass is left out by is known where it stands, and what is compared with zero is a
      factor of its terms.
    - A place has lanes along one range at most.
    - An array that keeps sums is filled by the one REDUCE that is its value, in loops of both.
    - Parts of a loop come to its extent; a loop that is split occurs once, and nothing under it
      adds to memory.
    - What is asked for ahead lies in an argument, at an index that loops and Variables alone
      make, and that is known there.
    - Every STORE is done, once, and in the order of the kernel where loops are the same.

    Raises
    ------
    CompileError
        Naming the loop, pass or store and what is wrong with it.
    """
    _Check(info).run(nest)


class _Check:
    def __init__(self, info: Analysis) -> None:
        self.info = info
        self.stored: list[UOp] = []
        self.split: list[UOp] = []

    def run(self, nest: LoopNest) -> None:
        self._body(nest.body, (), frozenset())
        for store in self.info.sink.src:
            if self.stored.count(store) != 1:
                _fault(store, f"is done {self.stored.count(store)} times; it must be once")
        # One RANGE may have a loop for some stores and another, within other loops, for the rest.
        if len(set(self.split)) > 1:
            _fault(self.split[0], "is split into chunks, and so is another loop")
        for store in self.stored if self.split else ():
            if store.arg is not None or self.split[0] not in self.info.deps[store]:
                _fault(store, "is done by every chunk")

    def _body(
        self, items: Sequence[Item], opened: tuple[Loop, ...], known: frozenset[UOp]
    ) -> None:
        for item in items:
            if isinstance(item, Loop):
                self._loop(item, opened, known)
            elif isinstance(item, Pass):
                self._pass(item, opened, known)
                known |= {*item.folds, *item.fills}
            elif isinstance(item, Fetch):
                self._fetch(item, opened)
            else:
                self._stores(item, opened, known)

    def _open(self, loop: Loop, opened: tuple[Loop, ...]) -> tuple[Loop, ...]:
        r, tile = loop.range, loop.tile
        if any(outer.range is r for outer in opened):
            _fault(r, "is bound within itself")
        if tile.factor < 1 or not 1 <= tile.lanes <= tile.factor:
            _fault(r, f"has no such tile: {tile}")
        known = [p.trips * p.tile.factor for p in loop.parts if p.trips is not None]
        if r.src[0].op is Op.CONST and loop.axis is not Axis.CHUNK and sum(known) != r.src[0].arg:
            _fault(r, f"has {r.src[0].arg} iterations, its parts cover {sum(known)}")
        if loop.block and (loop.axis is not Axis.REDUCE or loop.block % tile.factor):
            _fault(r, f"cannot be added up in blocks of {loop.block} by tiles of {tile.factor}")
        if loop.axis is Axis.CHUNK:
            self.split.append(r)
            if loop.share < 1 or loop.share % tile.factor:
                _fault(r, f"cannot be split into chunks of {loop.share} by tiles of {tile.factor}")
        return (*opened, loop)

    def _loop(self, loop: Loop, opened: tuple[Loop, ...], known: frozenset[UOp]) -> None:
        if loop.axis is Axis.REDUCE:
            _fault(loop.range, "belongs to a REDUCE and stands outside its pass")
        self._body(loop.body, self._open(loop, opened), known)

    def _pass(self, each: Pass, opened: tuple[Loop, ...], known: frozenset[UOp]) -> None:
        nodes = (*each.fills, *each.folds)
        around = {loop.range for loop in opened}
        if each.kept:
            self._kept(each, opened)
            nodes = each.fills
        for u in nodes:
            alike = each.kept or u.src[1:] == each.closed
            if not alike or self.info.deps[u] != frozenset(each.outer):
                _fault(u, "shares a pass with what has other loops")
            if u in known:
                _fault(u, "is computed twice")
        if not set(each.outer) <= around:
            _fault(nodes[0], "is computed outside a loop that it varies with")
        if opened and opened[-1].range not in each.outer:
            _fault(nodes[0], f"is computed again in the loop over RANGE {opened[-1].range.arg}")
        gate = each.gate and each.gate.condition
        if gate is not None and (each.fills or not self.info.deps[gate] <= around):
            _fault(nodes[0], "is left out by what is not known before it")
        if each.zeros is not None and each.zeros not in each.folds[0].src[0].src:
            _fault(nodes[0], "is compared with zero by what is no factor of it")
        if each.kept and each.zeros is not None:
            inside = {*each.fills[0].src[1:]}
            if len(each.zeros.src) < 3 or inside & self.info.deps[each.zeros.src[2]]:
                _fault(nodes[0], "is left out, turn by turn, by what its own loops decide")
        self._one_vector(nodes[0], each.closed, self._walk(each, opened, known))

    def _kept(self, each: Pass, opened: Sequence[Loop]) -> None:
        if len(each.fills) != 1 or each.folds != each.fills[0].src[:1]:
            _fault(each.fills[0], "keeps the sums of what does not fill it")
        [array], [fold] = each.fills, each.folds
        own = [r for r in each.closed if r not in fold.src[1:]]
        reduced = [r for r in each.closed if r in fold.src[1:]]
        if own != list(array.src[1:]) or reduced != list(fold.src[1:]):
            _fault(array, "keeps sums over other loops than its own and those of its value")
        for r in own:
            if not is_fixed(r):
                _fault(r, "is the extent of an array that keeps sums, and is not known")
        wide = [r for r in (*reduced, *each.outer) if self._lanes(r, (*opened, *each.loops())) > 1]
        if wide:
            _fault(array, f"keeps sums of vectors along RANGE {wide[0].arg}, not along its own")

    def _lanes(self, r: UOp, loops: Iterable[Loop]) -> int:
        return next((loop.tile.lanes for loop in loops if loop.range is r), 1)

    def _walk(
        self, each: Pass, opened: tuple[Loop, ...], known: frozenset[UOp]
    ) -> tuple[Loop, ...]:
        """The loops open in the step of `each`, after a look at what they do before it."""
        last: Item = each.loop
        for r in each.closed:
            if not isinstance(last, Loop) or last.range is not r:
                _fault(each.closed[0], "does not open the loops of its pass in their order")
            opened = self._open(last, opened)
            *before, last = last.body
            self._body(before, opened, known)
            known |= {u for item in before if isinstance(item, Pass)
                      for u in (*item.folds, *item.fills)}  # fmt: skip
        if not isinstance(last, Step) or set(last.nodes) != {*each.fills, *each.folds}:
            _fault(each.closed[0], "does not end in the step of its pass")
        computed = each.folds if each.kept else last.nodes
        self._uses((u.src[0] for u in computed), opened, known)
        return opened

    def _stores(self, step: Step, opened: tuple[Loop, ...], known: frozenset[UOp]) -> None:
        for store in step.nodes:
            if store.op is not Op.STORE:
                _fault(store, "is computed outside a pass")
            self._uses([store], opened, known)
        self._one_vector(step.nodes[0], step.ranges, opened)
        if not self.info.deps_of(step.nodes) <= set(step.ranges):
            _fault(step.nodes[0], "varies with loops whose places its step leaves out")
        self.stored += step.nodes

    def _fetch(self, item: Fetch, opened: tuple[Loop, ...]) -> None:
        around = {loop.range for loop in opened}
        for access in item.accesses:
            if access.op not in (Op.LOAD, Op.STORE) or access.src[0].op is not Op.PARAM:
                _fault(access, "is asked for and lies in no memory of the kernel's arguments")
            if not is_plain(access.src[1]):
                _fault(access, "is asked for at an index that is not known before its turn")
            if not item.varying(access) <= around & set(item.ranges):
                _fault(access, "is asked for outside a loop that its address varies with")

    def _uses(
        self, roots: Iterable[UOp], opened: tuple[Loop, ...], known: frozenset[UOp]
    ) -> None:
        around = {loop.range for loop in opened}
        for root in roots:
            for r in self.info.deps[root]:
                if r not in around:
                    _fault(root, f"is computed outside the loop over RANGE {r.arg}")
            for u in self.info.closing([root]):
                if u not in known:
                    _fault(u, f"is not there yet where {root!r} uses it")

    def _one_vector(
        self, node: UOp, ranges: Iterable[UOp], opened: tuple[Loop, ...]
    ) -> None:
        wide = [loop for loop in opened if loop.range in set(ranges) and loop.tile.lanes > 1]
        if len(wide) > 1:
            numbers = " and ".join(str(loop.range.arg) for loop in wide)
            _fault(node, f"has vectors along RANGEs {numbers} at one place")


def _fault(node: UOp, what: str) -> NoReturn:
    name = f"RANGE {node.arg}" if node.op is Op.RANGE else repr(node)
    raise CompileError(f"loop nest: {name} {what}")

"""Verifier of loop nests. It runs on each nest that is built, before code is emitted from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from kernelrt.errors import CompileError
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import toposort
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

    - Each use of a RANGE is inside exactly one loop over it.
    - A step uses only REDUCEs and LOCALs that were computed before it, under the enclosing loops.
    - A pass is in the innermost loop that its results vary with, so no result is recomputed
      unchanged.
    - The predicate of a pass is known where the pass begins. The LOAD that a pass compares with
      zero is a factor of its terms. If a pass tests for masked elements, nothing else varies in its
      loop.
    - A value is a vector along at most one RANGE.
    - An array that accumulates is filled by the one REDUCE that is its value, in loops over the
      RANGEs of both.
    - The parts of a loop cover its extent. At most one RANGE is split into chunks, and no store
      of such a kernel adds to memory.
    - A prefetched address is in an argument. Its index contains only Variables and the indices of
      loops that are open at the prefetch.
    - Every STORE is in the nest exactly once.

    Raises
    ------
    CompileError
        The nest breaks a rule. The message names the loop, pass or store.
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
                _fault(store, f"is done {self.stored.count(store)} times; expected once")
        # One RANGE may have two loops: one for some stores, another in other loops for the rest.
        if len(set(self.split)) > 1:
            _fault(self.split[0], "is split into chunks, and so is another RANGE; expected one")
        for store in self.stored if self.split else ():
            if store.arg is not None or self.split[0] not in self.info.deps[store]:
                _fault(store, "is repeated by every chunk, or adds to memory in a chunked kernel")

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
            _fault(r, "has a loop inside its own loop")
        if tile.factor < 1 or not 1 <= tile.lanes <= tile.factor:
            _fault(r, f"has an invalid tile, {tile}; expected 1 <= lanes <= factor")
        known = [p.trips * p.tile.factor for p in loop.parts if p.trips is not None]
        if r.src[0].op is Op.CONST and loop.axis is not Axis.CHUNK and sum(known) != r.src[0].arg:
            _fault(r, f"has {r.src[0].arg} iterations, but its parts cover {sum(known)}")
        if loop.block and (loop.axis is not Axis.REDUCE or loop.block % tile.factor):
            _fault(
                r,
                f"sums in blocks of {loop.block} elements by tiles of {tile.factor}; expected a "
                "REDUCE loop and a multiple of the tile",
            )
        if loop.axis is Axis.CHUNK:
            self.split.append(r)
            if loop.share < 1 or loop.share % tile.factor:
                _fault(
                    r,
                    f"is split into chunks of {loop.share} elements by tiles of {tile.factor}; "
                    "expected a multiple of the tile",
                )
        return (*opened, loop)

    def _loop(self, loop: Loop, opened: tuple[Loop, ...], known: frozenset[UOp]) -> None:
        if loop.axis is Axis.REDUCE:
            _fault(loop.range, "belongs to a REDUCE, but its loop is outside the pass")
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
                _fault(u, "shares a pass with a node over other loops")
            if u in known:
                _fault(u, "is computed twice")
        if not set(each.outer) <= around:
            _fault(nodes[0], "is computed outside a loop that it varies with")
        if opened and opened[-1].range not in each.outer:
            _fault(nodes[0], f"is computed again in the loop over RANGE {opened[-1].range.arg}")
        predicate = each.predicate and each.predicate.condition
        if predicate is not None and (each.fills or not self.info.deps[predicate] <= around):
            _fault(
                nodes[0],
                "has a predicate that its pass cannot use: it is not known before the pass, or the "
                "pass fills an array",
            )
        if each.zeros is not None and each.zeros not in each.folds[0].src[0].src:
            _fault(nodes[0], "has a zero test of a LOAD that is not a factor of its terms")
        if each.masked is not None and not self._varies_only_with(each, each.masked.load):
            _fault(nodes[0], "has a test of a LOAD that is not all that varies in its loop")
        if each.kept and each.zeros is not None:
            inside = {*each.fills[0].src[1:]}
            if len(each.zeros.src) < 3 or inside & self.info.deps[each.zeros.src[2]]:
                _fault(nodes[0], "has a zero test whose predicate varies with its own loops")
        self._one_vector(nodes[0], each.closed, self._walk(each, opened, known))

    def _varies_only_with(self, each: Pass, load: UOp) -> bool:
        """Return whether the values of a pass vary along its loop with `load` alone."""
        leaves, inside = (Op.LOAD, Op.REDUCE, Op.RANGE, Op.BOUND), frozenset(each.closed)
        values = [u.src[0] for u in (*each.folds, *each.fills)]
        used = toposort(values, stop=lambda u: u.op in leaves)
        return not any(u.op in leaves and inside & self.info.deps[u] for u in used if u is not load)

    def _kept(self, each: Pass, opened: Sequence[Loop]) -> None:
        if len(each.fills) != 1 or each.folds != each.fills[0].src[:1]:
            _fault(each.fills[0], "accumulates a REDUCE that does not fill it")
        [array], [fold] = each.fills, each.folds
        own = [r for r in each.closed if r not in fold.src[1:]]
        reduced = [r for r in each.closed if r in fold.src[1:]]
        if own != list(array.src[1:]) or reduced != list(fold.src[1:]):
            _fault(array, "accumulates over other loops than its own and those of its value")
        for r in own:
            if not is_fixed(r):
                _fault(r, "is an axis of an array that accumulates; expected a constant extent")
        wide = [r for r in (*reduced, *each.outer) if self._lanes(r, (*opened, *each.loops())) > 1]
        if wide:
            _fault(array, f"accumulates vectors along RANGE {wide[0].arg}; expected its own RANGEs")

    def _lanes(self, r: UOp, loops: Iterable[Loop]) -> int:
        return next((loop.tile.lanes for loop in loops if loop.range is r), 1)

    def _walk(
        self, each: Pass, opened: tuple[Loop, ...], known: frozenset[UOp]
    ) -> tuple[Loop, ...]:
        """Check the bodies of the loops of `each`; return the loops that are open in its step."""
        last: Item = each.loop
        for r in each.closed:
            if not isinstance(last, Loop) or last.range is not r:
                _fault(each.closed[0], "has a pass whose loops are not in the order of its RANGEs")
            opened = self._open(last, opened)
            *before, last = last.body
            self._body(before, opened, known)
            known |= {u for item in before if isinstance(item, Pass)
                      for u in (*item.folds, *item.fills)}  # fmt: skip
        if not isinstance(last, Step) or set(last.nodes) != {*each.fills, *each.folds}:
            _fault(each.closed[0], "has a pass whose loops do not end in the step of its pass")
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
            _fault(step.nodes[0], "varies with loops whose RANGEs its step leaves out")
        self.stored += step.nodes

    def _fetch(self, item: Fetch, opened: tuple[Loop, ...]) -> None:
        around = {loop.range for loop in opened}
        for access in item.accesses:
            if access.op not in (Op.LOAD, Op.STORE) or access.src[0].op is not Op.PARAM:
                _fault(access, "is prefetched, but is not in an argument of the kernel")
            if not is_plain(access.src[1]):
                _fault(access, "is prefetched at an index that is not known before its iteration")
            if not item.varying(access) <= around & set(item.ranges):
                _fault(access, "is prefetched outside a loop that its address varies with")

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
                    _fault(u, f"is not computed yet where {root!r} uses it")

    def _one_vector(
        self, node: UOp, ranges: Iterable[UOp], opened: tuple[Loop, ...]
    ) -> None:
        wide = [loop for loop in opened if loop.range in set(ranges) and loop.tile.lanes > 1]
        if len(wide) > 1:
            numbers = " and ".join(str(loop.range.arg) for loop in wide)
            _fault(node, f"has vectors along RANGEs {numbers} at one point; expected one at most")


def _fault(node: UOp, what: str) -> NoReturn:
    name = f"RANGE {node.arg}" if node.op is Op.RANGE else repr(node)
    raise CompileError(f"loop nest: {name} {what}")

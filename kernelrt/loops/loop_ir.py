"""The loop IR: the loop nest of a kernel as plain data.

:func:`build` makes a nest from a kernel AST and a tiling. The nest holds all decisions about loops,
and the emitter (backend/llvm/emitter.py) only translates it to text. `verify_loops.py` checks a
nest, and `print_loops.py` prints one.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kernelrt.device.costs import ADD_LATENCY, FLOAT_UNITS, MEMORY_LATENCY_NS, costs_of
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import toposort
from kernelrt.loops.passes.predication import (
    masked_in,
    predicate_of,
    zeros_in,
    zeros_of_iterations,
)
from kernelrt.loops.passes.prefetch import next_parts, read_after, read_next, touched_late
from kernelrt.loops.passes.prefetch_next import blocks_after, operands_after
from kernelrt.loops.passes.prefetch_streams import (
    Walk,
    next_rows,
    reads_in_rows,
    rows_ahead,
    streams,
)
from kernelrt.loops.passes.share_arrays import scratch_outputs
from kernelrt.loops.tiles import ONE, Part, Tile, extent, is_fixed, parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis
    from kernelrt.loops.passes.predication import Masked, Predicate
    from kernelrt.loops.tiling import Tiling

__all__ = ["Axis", "Fetch", "Item", "Loop", "LoopNest", "Pass", "Step", "build"]

#: Number of accumulators that hide the latency of an addition.
ACCUMULATORS = int(FLOAT_UNITS * ADD_LATENCY)
#: The most additions to one accumulator in a row. If all terms round the same way, as equal terms
#: do, each addition adds an error of half a unit in the last place.
LONGEST = 128
#: The least and most iterations of a block of a blocked sum. Fewer would cost time; more would make
#: the addition chain of a block too long again.
BLOCKS = (64, 1024)


class Axis(enum.StrEnum):
    """Category of a loop."""

    #: Runs one tile after the other.
    SEQUENTIAL = enum.auto()
    #: Split into chunks, which may run in parallel.
    CHUNK = enum.auto()
    #: Vectorized.
    VECTOR = enum.auto()
    #: Fully unrolled: its tile covers all of it.
    UNROLLED = enum.auto()
    #: Reduced by REDUCEs.
    REDUCE = enum.auto()


@dataclass(frozen=True, slots=True)
class Loop:
    """The loop over one RANGE.

    Attributes
    ----------
    range : UOp
        The RANGE.
    axis : Axis
        Category of the loop.
    tile : Tile
        Elements that one iteration covers.
    parts : tuple of Part
        Whole tiles first, then the remainder in smaller tiles.
    body : tuple of Item
        Items of the body, in order.
    share : int
        Elements of a chunk if the loop is split into chunks, else 0.
    ahead : tuple of UOp
        LOADs whose rows are prefetched some iterations ahead.
    block : int
        Block size in elements if the loop sums in blocks, else 0. After each block, its
        accumulators are added to those of the pass, and then reset. So rounding errors of a long
        loop stay small.
    """

    range: UOp
    axis: Axis
    tile: Tile
    parts: tuple[Part, ...]
    body: tuple[Item, ...]
    share: int = 0
    ahead: tuple[UOp, ...] = ()
    block: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The innermost computation of a body, done at each point of the tiles of some open loops.

    Attributes
    ----------
    nodes : tuple of UOp
        STOREs to do, or REDUCEs to add a term to and LOCALs to fill. All values of a point are
        computed before any of them is stored, so a kernel may update memory in place.
    ranges : tuple of UOp
        RANGEs over whose points the step iterates, outermost first.
    """

    nodes: tuple[UOp, ...]
    ranges: tuple[UOp, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """REDUCEs and LOCALs over the same RANGEs. One loop nest computes them all.

    A pass computes its results for the whole tile of the enclosing loops.

    Attributes
    ----------
    folds : tuple of UOp
        The REDUCEs.
    fills : tuple of UOp
        The LOCALs.
    outer : tuple of UOp
        RANGEs that the results vary with.
    closed : tuple of UOp
        RANGEs that the pass loops over, outermost first.
    vector : UOp or None
        The vectorized RANGE of `closed`, if any. The lanes of an accumulator are combined at the
        end. If an enclosing loop is vectorized as well, the pass computes the lanes of this loop
        one by one.
    lanes : int
        Lanes of the vectors.
    unrolled : int
        Number of points of one tile of the reduced RANGEs.
    kept : bool
        Whether the pass accumulates in a local array (output-stationary). If so, it has one REDUCE
        and one LOCAL, and the REDUCE adds to the elements of the LOCAL. `closed` holds the RANGEs
        of both, and some RANGEs of the REDUCE are outside of those of the array.
    sequential : bool
        Whether each result is a sequential sum, which adds one term after the other under any
        tiling.
    in_rows : bool
        True if the tile finishes each result before it begins the next. False if it adds one
        element to each of its results in turn.
    loop : Loop
        The outermost loop of the pass. The last item of each body is the next loop; the last item
        of the innermost body is a :class:`Step`.
    predicate : Predicate or None
        Predicate of the results. If it is false at every point of a tile, the pass is skipped.
    zeros : UOp or None
        LOAD of a factor that is tested for zeros. If all its elements in a tile are zero, all rows
        have the same products. Then only one row of products is computed, and is added to all
        accumulators. If `kept` is true, the predicate of the LOAD is tested instead, once for each
        iteration of the loops around those of the array.
    masked : Masked or None
        Array that is tested for masked elements. If all its elements in a tile are masked, the
        values of the tile are computed once for each row.
    """

    folds: tuple[UOp, ...]
    fills: tuple[UOp, ...]
    outer: tuple[UOp, ...]
    closed: tuple[UOp, ...]
    vector: UOp | None
    lanes: int
    unrolled: int
    loop: Loop
    predicate: Predicate | None = None
    zeros: UOp | None = None
    masked: Masked | None = None
    kept: bool = False
    sequential: bool = False
    in_rows: bool = False

    def loops(self) -> Iterator[Loop]:
        """Yield the loops of the pass, outermost first."""
        loop: Item = self.loop
        while isinstance(loop, Loop):
            yield loop
            loop = loop.body[-1]

    def copies(self, results: int) -> int:
        """Return how many accumulators each result has, if a tile has `results` results.

        Several accumulators hide the latency of additions.
        """
        if self.kept or self.sequential:
            return 1
        return max(1, min(self.unrolled, ACCUMULATORS // max(1, results)))


@dataclass(frozen=True, slots=True)
class Fetch:
    """Software prefetch of memory that is needed after a pass, or in the next iteration of a loop.

    Attributes
    ----------
    accesses : tuple of UOp
        LOADs and STOREs of arguments.
    ranges : tuple of UOp
        RANGEs over whose points the fetch iterates. All of them are open here.
    later : bool
        Whether other tiles are computed before the memory is needed. If so, it is prefetched to the
        L2 cache, and `accesses` names all lines at the first element of the tile.
    """

    accesses: tuple[UOp, ...]
    ranges: tuple[UOp, ...]
    later: bool = False

    @classmethod
    def within(
        cls, wanted: tuple[UOp, ...], opened: Iterable[UOp], *, later: bool = False
    ) -> Fetch:
        """Make a fetch of `wanted` that iterates over the RANGEs of `opened` in its addresses."""
        used = {r for x in wanted for r in cls.varying(x)}
        return cls(wanted, tuple(r for r in opened if r in used), later)

    @staticmethod
    def varying(access: UOp) -> frozenset[UOp]:
        """Return the RANGEs in the address of `access`."""
        return frozenset(u for u in toposort([access.src[1]]) if u.op is Op.RANGE)


#: An item of a body.
Item = Loop | Pass | Step | Fetch


@dataclass(frozen=True, slots=True)
class LoopNest:
    """All loops of a kernel.

    Attributes
    ----------
    body : tuple of Item
        Items of the kernel, in order.
    scratch_outputs : mapping
        Maps each LOCAL that lies in an output buffer to the PARAM of this buffer, and to the index
        in it of the array's first element.
    """

    body: tuple[Item, ...]
    scratch_outputs: Mapping[UOp, tuple[UOp, UOp]] = field(default_factory=dict)


def build(info: Analysis, tiling: Tiling, device: DeviceSpec) -> LoopNest:
    """Return the loop nest of the kernel `info` under `tiling`."""
    return _Builder(info, tiling, device).build()


@dataclass(slots=True)
class _Open:
    """A body under construction."""

    range: UOp | None
    items: list[Item] = field(default_factory=list)
    #: The RANGEs of the passes in `items`.
    passes: set[tuple[UOp, ...]] = field(default_factory=set)


class _Builder:
    def __init__(self, info: Analysis, tiling: Tiling, device: DeviceSpec) -> None:
        self.info = info
        self.tiling = tiling
        self.device = device
        self.stack = [_Open(None)]
        ordered = {
            u.src[1:] for u in info.sequential if not any(r in tiling.outside for r in u.src[1:])
        }
        #: Reduced RANGEs of sequential sums. The innermost RANGE of each sum (`whole`) may be
        #: unrolled, the others (`single`) not.
        self.whole = {closed[-1] for closed in ordered}
        self.single = {r for closed in ordered for r in closed[:-1]}

    def build(self) -> LoopNest:
        self._stores(list(self.info.sink.src))
        return LoopNest(tuple(self.stack[0].items), scratch_outputs(self.info, self.tiling))

    def _stores(self, stores: list[UOp]) -> None:
        """Add `stores` to the innermost open body. Those that need no further loop come first."""
        deps = self.info.deps
        opened = [each.range for each in self.stack[1:] if each.range is not None]
        block = blocks_after(self.info, stores, opened, self.tiling.tiles, self.device)
        if block:
            self.stack[-1].items.append(Fetch.within(block, opened, later=True))
        here = [s for s in stores if deps[s] <= set(opened)]
        if here:
            items = self.stack[-1].items
            before = len(items)
            self._need([s.src[2] for s in here])
            self._need([s.src[1] for s in here])
            step = Step(tuple(here), tuple(r for r in opened if any(r in deps[s] for s in here)))
            passes = [each for each in items[before:] if isinstance(each, Pass)]
            if opened and any(self._is_long(each) for each in passes):
                wanted = touched_late(self.info, step.nodes, opened[-1], self.device)
                items[before:before] = [Fetch(wanted, step.ranges)] if wanted else []
            items.append(step)
        rest = [s for s in stores if s not in here]
        if not rest:
            return
        pending = self.info.deps_of(rest) - set(opened)
        r = next(r for r in self.tiling.order if r in pending)
        outside = [s for s in rest if r not in deps[s]]
        if outside:
            self._stores(outside)
        self.stack.append(_Open(r))
        self._stores([s for s in rest if r in deps[s]])
        items = self.stack.pop().items
        self._ask_for_next_rows(r, items)
        self.stack[-1].items.append(self._loop(r, items, reduces=False))

    def _tile(self, r: UOp) -> Tile:
        """Return the tile of `r`, made smaller if it would change the order of a sequential sum."""
        tile = self.tiling.tile(r)
        if r in self.whole:
            return Tile(tile.factor)
        return ONE if r in self.single else tile

    def _loop(self, r: UOp, body: list[Item], *, reduces: bool) -> Loop:
        tile = self._tile(r)
        runs = parts(r, tile)
        if r is self.tiling.chunked:
            if is_fixed(r):
                # The last chunk has the remainder, so the iterations of a chunk are not constant.
                runs = tuple(Part(part.tile, None) for part in runs)
            return Loop(r, Axis.CHUNK, tile, runs, tuple(body), self.tiling.share)
        axis = Axis.SEQUENTIAL
        if reduces:
            axis = Axis.REDUCE
        elif tile.lanes > 1:
            axis = Axis.VECTOR
        elif all(part.trips == 1 for part in runs):
            axis = Axis.UNROLLED
        return Loop(r, axis, tile, runs, tuple(body))

    def _need(self, roots: Iterable[UOp]) -> None:
        """Add the passes that `roots` use, each in the innermost open loop that it varies with."""
        for u in self.info.closing(roots):
            depth = self._level(self.info.deps[u])
            outer = self.stack[depth]
            if u.src[1:] not in outer.passes:
                full, self.stack = self.stack, self.stack[: depth + 1]
                outer.items.append(self._pass(u.src[1:]))
                outer.passes.add(u.src[1:])
                self.stack = full

    def _level(self, deps: frozenset[UOp]) -> int:
        for depth in range(len(self.stack) - 1, 0, -1):
            if self.stack[depth].range in deps:
                return depth
        return 0

    def _is_long(self, each: Pass) -> bool:
        """Return whether `each` takes at least as long as a cache line takes to arrive from memory.

        If so, memory that is prefetched before the pass has arrived at its end.
        """
        tiles = [self.tiling.tile(r) for r in each.outer]
        points = math.prod(len(tile.positions()) for tile in tiles)
        iterations = math.prod(extent(r) for r in each.closed)
        vectors = points * iterations * len(each.folds) / (each.lanes if each.vector else 1)
        return costs_of(self.device).ns(vectors / FLOAT_UNITS) >= MEMORY_LATENCY_NS

    def _blocks(self, folds: Sequence[UOp]) -> dict[UOp, int]:
        """Return RANGE -> block size, for the RANGEs along which `folds` sum in blocks."""
        found: dict[UOp, int] = {}
        rounding = [u for u in folds if _rounds(u)]
        if not rounding:
            return found
        closed = rounding[0].src[1:]
        chain = max(_additions(u) for u in rounding)
        for r in reversed(closed):
            factor = self.tiling.tile(r).factor
            iterations = -(-extent(r) // factor)
            if chain * iterations > LONGEST:
                # Square root split: as many blocks as additions in a block keeps both sums short.
                least, most = (max(1, n // chain) for n in BLOCKS)
                even = 1 << ((-(-iterations // chain) - 1).bit_length() + 1) // 2
                of_block = min(max(even, least), most)
                if of_block < iterations:
                    found[r] = of_block * factor
                    iterations, chain = -(-iterations // of_block), 1
            chain *= iterations
        return found

    def _pass(self, closed: tuple[UOp, ...]) -> Pass:
        nodes = self.info.passes[closed]
        kept = next((u for u in nodes if self.tiling.keeps(u)), None)
        if kept is not None:
            return self._kept(kept)
        folds = tuple(u for u in nodes if u.op is Op.REDUCE)
        fills = tuple(u for u in nodes if u.op is Op.LOCAL)
        ahead = rows_ahead(self.info, nodes, closed[-1], self.tiling.tiles, self.device)
        sequential = not self.info.sequential.isdisjoint(folds)
        blocks = {} if sequential else self._blocks(folds)
        loop = self._walk(
            closed, nodes, closed if folds else (), {closed[-1]: ahead}, blocks=blocks
        )
        if folds and not fills:
            loop = self._asking(loop, [u.src[0] for u in folds], closed)
        tiles = [self._tile(r) for r in closed]
        made = Pass(
            folds,
            fills,
            tuple(sorted(self.info.deps[nodes[0]], key=lambda r: int(r.arg))),
            closed,
            next((r for r in closed if self._tile(r).lanes > 1), None),
            max(tile.lanes for tile in tiles),
            math.prod(len(tile.positions()) for tile in tiles),
            loop,
            predicate_of(self.info, nodes),
            zeros_in(self.info, nodes, self.tiling.tiles),
            masked_in(self.info, nodes, self.tiling.tiles, costs_of(self.device)),
            sequential=sequential,
        )
        reduces = made.vector is not None and not fills and made.zeros is None
        in_rows = reduces and reads_in_rows(self.info, folds, made.loops(), self.device)
        return replace(made, in_rows=in_rows)

    def _asking(self, loop: Loop, values: list[UOp], closed: tuple[UOp, ...]) -> Loop:
        """Return `loop`, the outermost of a pass, with a prefetch of the next tile's operands."""
        opened = tuple(each.range for each in self.stack[1:] if each.range is not None)
        wanted = read_next(self.info, values, opened, closed, self.tiling.tiles, self.device)
        if not wanted:
            # The tile after a chunk may belong to another core.
            chunked, share = self.tiling.chunked, self.tiling.share
            own = [r for r in opened if r is not chunked or share > self._tile(r).factor]
            rows = read_after(self.info, values, own, closed, self.tiling.tiles, self.device)
            if rows:
                return self._asking_within(loop, closed[-2], rows)
            again = operands_after(
                self.info, values, opened, closed, self.tiling.tiles, self.device
            )
            return self._asking_within(loop, closed[-1], again) if again else loop
        return replace(loop, body=(Fetch.within(wanted, (*opened, closed[0])), *loop.body))

    def _asking_within(
        self, loop: Loop, r: UOp, wanted: tuple[UOp, ...], opened: frozenset[UOp] | None = None
    ) -> Loop:
        """Return `loop` with a prefetch of `wanted` in its loop over `r`, for a later tile."""
        if opened is None:
            opened = frozenset(each.range for each in self.stack[1:] if each.range is not None)
        opened |= {loop.range}
        if loop.range is not r:
            *before, inner = loop.body
            assert isinstance(inner, Loop)
            inner = self._asking_within(inner, r, wanted, opened)
            return replace(loop, body=(*before, inner))
        # Dropping an access whose RANGEs are not open here costs time only.
        wanted = tuple(x for x in wanted if Fetch.varying(x) <= opened)
        fetch = Fetch.within(wanted, sorted(opened, key=lambda q: int(q.arg)), later=True)
        return replace(loop, body=(fetch, *loop.body)) if wanted else loop

    def _ask_for_next_rows(self, r: UOp, items: list[Item]) -> None:
        """Add a prefetch of the next iteration's rows to `items`, the body of the loop over `r`."""
        numbers = [n for n, item in enumerate(items) if _walk_of(item)]
        walks = [walk for walk in map(_walk_of, items) if walk]
        tile = self._tile(r)
        if len(walks) < 2 or tile.lanes > 1:
            return
        slowest, wanted = next_rows(self.info, walks, r, tile.factor, self.device)
        if not wanted:
            return
        around = [each.range for each in self.stack[1:] if each.range is not None]
        fetch = Fetch.within(wanted, (*around, r, walks[slowest].range))
        item = items[numbers[slowest]]
        loop = item.loop if isinstance(item, Pass) else item
        assert isinstance(loop, Loop)
        loop = replace(loop, body=(fetch, *loop.body))
        items[numbers[slowest]] = replace(item, loop=loop) if isinstance(item, Pass) else loop

    def _kept(self, array: UOp) -> Pass:
        """Return the pass that accumulates sums in `array`; loops of `outside` go around it."""
        fold = array.src[0]
        around = tuple(r for r in fold.src[1:] if r in self.tiling.outside)
        inside = tuple(r for r in fold.src[1:] if r not in self.tiling.outside)
        closed = (*around, *array.src[1:], *inside)
        ahead = tuple(
            x
            for x in self.info.loads(fold.src[0])
            if not inside and streams(x, array.src[-1], around, self.device)
        )
        blocks = {}
        if inside and self._blocks([fold]):
            # The partial sum of one outer iteration is a block of the sum.
            factor = self.tiling.tile(inside[0]).factor
            blocks = {inside[0]: extent(inside[0]) // factor * factor}
        loop = self._walk(closed, [fold], fold.src[1:], {around[-1]: ahead}, (array, fold), blocks)
        own = array.src[1:]
        wanted = (
            next_parts(self.info, fold, around, own, self.tiling.tiles, self.device)
            if inside
            else ()
        )
        return Pass(
            (fold,),
            (array,),
            tuple(sorted(self.info.deps[array], key=lambda r: int(r.arg))),
            closed,
            None,
            max(self.tiling.tile(r).lanes for r in closed),
            math.prod(len(self.tiling.tile(r).positions()) for r in fold.src[1:]),
            self._asking_within(loop, own[-1], wanted) if wanted else loop,
            zeros=zeros_of_iterations(self.info, array, around, self.tiling.tiles),
            kept=True,
        )

    def _walk(
        self,
        closed: tuple[UOp, ...],
        nodes: list[UOp],
        reduced: tuple[UOp, ...],
        ahead: Mapping[UOp, tuple[UOp, ...]],
        done: tuple[UOp, ...] = (),
        blocks: Mapping[UOp, int] | None = None,
    ) -> Loop:
        """Return the loops over `closed` around the step that computes `nodes`."""
        self.stack += (_Open(r) for r in closed)
        # The conditions of predicated LOADs come before the values that they may skip.
        self._need(x.src[2] for u in nodes for x in self.info.loads(u.src[0]) if len(x.src) > 2)
        self._need(u.src[0] for u in nodes)
        fills = tuple(u for u in nodes if u.op is Op.LOCAL)
        folds = tuple(u for u in nodes if u.op is Op.REDUCE)
        last: Item = Step(done or (*fills, *folds), closed)
        for r in reversed(closed):
            body = self.stack.pop()
            last = loop = self._loop(r, [*body.items, last], reduces=r in reduced)
            if blocks and r in blocks:
                last = loop = replace(loop, block=blocks[r])
            if r in ahead:
                last = loop = replace(loop, ahead=ahead[r])
        return loop


def _walk_of(item: Item) -> Walk | None:
    """Return the row traversal that `item` is; None if its body contains other items than steps."""
    loop = item.loop if isinstance(item, Pass) else item
    if not isinstance(loop, Loop) or not all(isinstance(i, Step) for i in loop.body):
        return None
    if isinstance(item, Pass):
        return Walk(loop.range, tuple(u.src[0] for u in (*item.fills, *item.folds)))
    stores = tuple(s for step in loop.body if isinstance(step, Step) for s in step.nodes)
    return Walk(loop.range, tuple(s.src[2] for s in stores), stores)


def _additions(fold: UOp) -> int:
    """Return how many additions `fold` makes for each of its elements: several for a DOT."""
    value = fold.src[0]
    return int(value.arg.number) if value.op is Op.DOT else 1


def _rounds(fold: UOp) -> bool:
    """Return whether the result of `fold` depends on the order of additions."""
    return fold.arg is Op.ADD and fold.dtype.is_float

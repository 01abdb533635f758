"""Tile-size heuristic: chooses the unroll factor of each RANGE, and the RANGE that is vectorized.

Candidates are compared by estimated cycles (cost_model.py) and bytes of IR text (code_size.py). All
reductions over the same RANGEs form one nest, and each RANGE of a nest has one tile. The cost of a
candidate is the cycles of all nests that share RANGEs with it. Of the candidates whose IR text is
short enough, the cheapest wins. A candidate that does not fit the register file costs more than all
others. Values outside of nests are vectorized along the RANGE along which the stores are
contiguous, or along another RANGE if this costs less (store_tiles.py).
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import TYPE_CHECKING

from kernelrt.device.costs import costs_of
from kernelrt.errors import CompileError
from kernelrt.ir.local import LOCAL_BYTES, ROWS_BYTES
from kernelrt.ir.ops import Op
from kernelrt.loops.access_patterns import Accesses
from kernelrt.loops.code_size import Length
from kernelrt.loops.cost_model import Cycles
from kernelrt.loops.memory_traffic import streamed
from kernelrt.loops.nests import Nest, other_ranges
from kernelrt.loops.partition import split
from kernelrt.loops.passes.cache_blocking import around_rows, outside
from kernelrt.loops.passes.interleave import abreast
from kernelrt.loops.passes.predication import LEAST_AT_ONCE, may_be_zero
from kernelrt.loops.passes.prefetch_streams import are_runs, goes_by_rows
from kernelrt.loops.store_tiles import (
    cross_range,
    shuffle_cycles,
    tile_transposes,
    value_cycles,
    vectorize_invariant,
)
from kernelrt.loops.tiles import ONE, Tile, extent, is_fixed
from kernelrt.loops.tiling import Tiling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis, Cost

__all__ = ["MOST_BYTES", "SHORT", "Chooser", "choose"]

#: Loops over reduced RANGEs of at most this many elements may be fully unrolled.
SHORT = 4
#: The most bytes of IR text that tiles may cause. Compile time grows more than linearly with the
#: text, and long loops leave the instruction cache.
LONGEST = 100_000
#: The same limit for the estimate of code_size.py.
MOST_BYTES = 95_000
#: Up to this estimate the text is not generated to measure it: the estimate is at least 0.4 times
#: the real length.
SURE_BYTES = 40_000
#: An iteration has four vectors if an element costs at most `_CHEAP` plain instructions, two if it
#: costs at most `_DEAR`, else one.
_CHEAP, _DEAR = 12, 40
#: The most rows that are reduced together: more rows hide no more latency.
_ROWS_TOGETHER = 8
#: If the text of the fastest tiles is too long, so many searches give each byte of text a price in
#: cycles, to find the lowest price with which the text is short enough.
_PRICES = 6
#: Coordinate-descent rounds over the nests of a kernel: nests that share RANGEs share tiles.
ROUNDS = 2


def choose(
    info: Analysis, target: DeviceSpec, cost: Cost, length: Callable[[Tiling], int] | None = None
) -> Tiling:
    """Return the tiling of the kernel `info` for `target`.

    Parameters
    ----------
    info : Analysis
        The kernel.
    target : DeviceSpec
        Device to generate code for.
    cost : Cost
        Arithmetic and traffic of the kernel.
    length : callable, optional
        Returns the bytes of IR text under a tiling. It is called if the estimate is near the limit.
    """
    costs = costs_of(target)
    cycles = costs.launch(cost.cycles.vmax, cost.bytes.vmax)
    most = MOST_BYTES
    while True:
        chooser = Chooser(info, target, most)
        tiling = split(info, chooser.choose(), cycles, costs.chunk)
        written = chooser.written(chooser.tiles)
        # If `written` is above `most`, the search found no shorter tiling: another round is no use.
        if length is None or written > most or (written <= SURE_BYTES and most == MOST_BYTES):
            return tiling
        real = length(tiling)
        if real <= LONGEST:
            return tiling
        most = min(written * LONGEST // real, written * 9 // 10)


def _sizes(most: int, size: int) -> list[int]:
    """Return tile sizes up to `most` to try for a RANGE: 2, 4, 8, and 3 if `size` is 3."""
    return [n for n in (2, 3, 4, 8) if n <= most and (n != 3 or n == size)]


class Chooser:
    """Chooses the tiles of the kernel `info` for `target`: see :meth:`choose`."""

    def __init__(self, info: Analysis, target: DeviceSpec, most: int = MOST_BYTES) -> None:
        self.info, self.most = info, most
        self.lanes = max(1, target.vector_bits // (8 * self._itemsize()))
        self.near, self.cache = target.l1_bytes, target.l2_bytes
        self.target, self.costs = target, costs_of(target)
        self.accesses = Accesses(info)
        self.length = Length(self.accesses)
        self.nests = [Nest(info, nodes, self.costs) for nodes in info.passes.values()]
        self.cycles = Cycles(self.accesses, self.nests, target, self.lanes)
        # Whole rows of row-tiled kernels may exceed LOCAL_BYTES, but only untiled.
        self.room = max(LOCAL_BYTES, min(ROWS_BYTES, self.accesses.local_bytes({})))
        self.tiles: dict[UOp, Tile] = {}
        self.order: list[UOp] = []
        self.outside = outside(info, target)
        # Row tiling already is a tile: the nests inside must not share tiles of these RANGEs.
        self._blocked = around_rows(info, self.outside)
        self._by_rows = False

    def _itemsize(self) -> int:
        """Return the bytes of the widest float in a lane; integers only count without floats.

        If a value does not vary along a vectorized loop, it is in no lane. Examples are the
        learning rate of an optimizer, or one number for each member of a population.
        """
        info = self.info
        touching = [u for u in info.nodes if u.op in (Op.LOAD, Op.STORE, Op.REDUCE)]
        closed = {r for u in touching if u.op is Op.REDUCE for r in u.src[1:]}
        along = {
            r
            for u in touching if u.op is not Op.REDUCE
            for r in info.deps[u] if u.op is Op.STORE or r in closed
            if info.stride(u, r) == 1
        }  # fmt: skip
        touched = [u.dtype for u in touching if info.deps[u] & along]
        touched = touched or [u.dtype for u in touching if info.deps[u]]
        floats = [max(4, d.itemsize) for d in touched if d.is_float]
        return max(floats or [d.itemsize for d in touched] or [4])

    def choose(self) -> Tiling:
        """Choose tiles and the order of loops; the tiling has no chunks yet."""
        stores = self.info.sink.src
        ranges = sorted(
            {r for s in stores for r in self.info.deps_of(s.src)}, key=lambda r: r.arg
        )
        self.order = self._order(ranges)
        along = self.store_vector(stores)
        if all(along in nest.deps for nest in self.nests):
            self._by_rows = goes_by_rows(self.info, self.nests, _ROWS_TOGETHER, self.target)
        along = None if self._by_rows else along
        self._tile(stores, along)
        other = None if self._by_rows else cross_range(self, stores, along)
        if other is not None:
            usual, before = self.tiles, self._cycles_along(stores, along)
            self._tile(stores, other)
            if self._cycles_along(stores, other) + shuffle_cycles(self, stores, other) < before:
                if along is not None:
                    self._write_out(along)
                along = other
            else:
                self.tiles = usual
        vectorize_invariant(self, stores, along)
        if not self.nests:
            tile_transposes(self, stores, along)
        elif along is not None:
            self._outermost(along)
        self._shrink()
        return Tiling(self.tiles, tuple(self.order), outside=self.outside)

    def _cycles_along(self, stores: Sequence[UOp], along: UOp | None) -> float:
        """Return the cycles of all nests and stored values, vectorized along the RANGE `along`."""
        return self.cycles.of(self.nests, self.tiles) + value_cycles(self, stores, along)

    def _tile(self, stores: Iterable[UOp], along: UOp | None) -> None:
        """Choose tiles of all nests, with the stores vectorized along the RANGE `along`."""
        for tile in self.store_tiles(stores, along):
            self.tiles = {} if along is None else {along: tile}
            self._settle(along)
            if self.is_short(self.tiles):
                break

    def _shrink(self) -> None:
        """Halve tiles around the local arrays until the arrays fit the stack."""
        tiles = self.tiles
        around = sorted(self.info.deps_of(self.info.locals), key=lambda r: r.arg)
        while not self.fits(tiles):
            tiled = [r for r in around if self.tiles.get(r, ONE).factor > 1]
            if not tiled:
                raise CompileError(
                    f"local arrays take {self.accesses.local_bytes(tiles)} bytes even without "
                    f"tiles; expected at most {self.room}; this is a bug in kernelrt, please "
                    "report it"
                )
            r = max(tiled, key=lambda r: tiles[r].factor)
            half = tiles[r].factor // 2
            lanes = min(tiles[r].lanes, half)
            tiles[r] = Tile(half // lanes * lanes, lanes)

    def is_short(self, tiles: Mapping[UOp, Tile]) -> bool:
        """Return whether local arrays and IR text stay within their limits under `tiles`."""
        return self.fits(tiles) and self.written(tiles) <= self.most

    def fits(self, tiles: Mapping[UOp, Tile]) -> bool:
        """Return whether the local arrays fit the stack under `tiles`."""
        return self.accesses.local_bytes(tiles) <= self.room

    def written(self, tiles: Mapping[UOp, Tile]) -> int:
        """Return the estimated bytes of IR text under `tiles`."""
        return self.length.of(self.nests, self.order, tiles, self.outside)

    def _order(self, ranges: list[UOp]) -> list[UOp]:
        """Return `ranges`, outermost first: those that most REDUCEs and LOCALs vary with first."""

        def constant_under(r: UOp) -> int:
            closing = (*self.info.reduces, *self.info.locals)
            return sum(r not in self.info.deps[u] for u in closing)

        return sorted(ranges, key=lambda r: (constant_under(r), r.arg))

    # Stores -------------------------------------------------------------------------------------

    def store_vector(self, stores: Iterable[UOp]) -> UOp | None:
        """Return the RANGE along which the stores of most elements are contiguous."""
        most: dict[UOp, int] = {}
        for s in stores:
            walked = self.info.deps[s.src[1]]
            for r in walked:
                if self.accesses.stride(s, r) == 1:
                    most[r] = max(most.get(r, 0), math.prod(extent(q) for q in walked))
        return max(most, key=lambda r: (most[r], extent(r), -int(r.arg)), default=None)

    def store_tiles(self, stores: Iterable[UOp], r: UOp | None) -> Iterator[Tile]:
        """Yield tiles for the vectorized RANGE `r` of the stores, in order of falling text size."""
        if r is None:
            yield Tile()
            return
        values = [s.src[2] for s in stores]
        vectors = self._vectors(self._weight(values))
        if not self.nests:
            vectors = max(vectors, abreast(self.info, values, self.target))
        size = extent(r)
        lanes = min(self.lanes, size)
        factor = lanes * max(1, min(vectors, size // lanes))
        if size <= 2 * lanes and is_fixed(r):
            factor = size
        yield Tile(factor, lanes)
        while factor > lanes:
            factor = max(lanes, factor // 2 // lanes * lanes)
            yield Tile(factor, lanes)
        while lanes > 1:
            lanes //= 2
            yield Tile(lanes, lanes)

    def _weight(self, values: Iterable[UOp]) -> float:
        """Return the summed cost of one element of each of `values`; stops above `_DEAR`."""
        weight = 0.0
        for value in values:
            weight += self.info.weight([value], self.costs)
            if weight > _DEAR:
                break
        return weight

    def _vectors(self, weight: float) -> int:
        """Return the vectors of an iteration: more if an element is cheap."""
        return 4 if weight <= _CHEAP else 2 if weight <= _DEAR else 1

    # Reductions ---------------------------------------------------------------------------------

    def _settle(self, along: UOp | None) -> None:
        """Choose tiles for all nests."""
        start = self.tiles
        self._descend(along, 0.0)
        if self.written(self.tiles) > self.most:
            self._shorten(along, start)
        self._taller()
        # Unroll short reductions fully (the taps of a filter), unless inside an unrolled loop.
        taps = [
            r
            for nest in self.nests
            for k, r in enumerate(nest.closed)
            if r not in self.outside and not any(q in self.tiles for q in nest.closed[:k])
        ]
        for r in taps:
            if r not in self.tiles and is_fixed(r) and 1 < extent(r) <= SHORT:
                unrolled = {**self.tiles, r: Tile(extent(r), 1)}
                cheaper = self.cycles.of(self.nests, unrolled) <= self.cycles.of(
                    self.nests, self.tiles
                )
                if cheaper and self.is_short(unrolled):
                    self.tiles = unrolled

    def _shorten(self, along: UOp | None, start: dict[UOp, Tile]) -> None:
        """Choose tiles again, with the lowest price of text that makes the text short enough.

        The search begins with the tiles `start`, which may be shorter than all candidates.
        """
        best: dict[UOp, Tile] | None = None
        least = math.inf
        too_low, price = 0.0, self.cycles.of(self.nests, self.tiles) / self.most
        for _ in range(_PRICES):
            self.tiles = start
            self._descend(along, price)
            cycles = self.cycles.of(self.nests, self.tiles)
            if self.written(self.tiles) > self.most:
                too_low = price
            else:
                enough = price
                if cycles < least:
                    least, best = cycles, self.tiles
            price = 8 * price if best is None else (too_low + enough) / 2
        # If no price is high enough, keep the tiles of the highest one.
        self.tiles = self.tiles if best is None else best

    def _descend(self, along: UOp | None, price: float) -> None:
        """Choose tiles by coordinate descent: one nest after the other."""
        for _ in range(ROUNDS if len(self.nests) > 1 else 1):
            before = dict(self.tiles)
            for nest in self.nests:
                self._improve(nest, along, price)
            if self.tiles == before:
                break

    def _write_out(self, r: UOp) -> None:
        """Unroll the loop over `r` fully if it is short."""
        unrolled = {**self.tiles, r: Tile(extent(r), 1)}
        if r not in self.tiles and is_fixed(r) and extent(r) <= SHORT and self.is_short(unrolled):
            self.tiles = unrolled

    def _taller(self) -> None:
        """Try tiles twice as high and half as wide, where several nests share the rows.

        Coordinate descent does not find such tiles, because no nest can change the shared rows
        alone.
        """
        for r in self.order:
            tile = self.tiles.get(r, ONE)
            sharing = [
                n for n in self.nests if n.reduces and r in n.deps and self._keeps(n) is None
            ]
            if len(sharing) < 2 or tile.lanes > 1 or 2 * tile.factor > extent(r):
                continue
            if any(2 * tile.factor > self._rows_kept(n, r) for n in sharing):
                continue
            narrow = {
                q: Tile(t.factor // 2 // t.lanes * t.lanes, t.lanes)
                for q, t in self.tiles.items()
                if 2 * t.lanes <= t.factor and t.lanes > 1
            }
            taller = {**self.tiles, **narrow, r: Tile(2 * tile.factor, 1)}
            cheaper = self.cycles.of(self.nests, taller) < self.cycles.of(self.nests, self.tiles)
            if cheaper and self.is_short(taller):
                self.tiles = taller

    def _improve(self, nest: Nest, along: UOp | None, price: float) -> None:
        """Set the tiles of `nest` that are cheapest for all nests that share its RANGEs.

        A byte of text costs `price` cycles.
        """
        concerned = [other for other in self.nests if other.ranges & nest.ranges]
        now = self.tiles
        around = {r: t for r, t in now.items() if r not in nest.closed}
        bare = {r: t for r, t in around.items() if r is along or r not in nest.deps}
        bases = [around] if bare == around else [bare, around]
        tried = [t for t in self.nest_tiles(nest, along) if self._blocked.isdisjoint(t)]
        candidates = [{**base, **tiles} for base in bases for tiles in tried]
        candidates.append(now)

        def taken(tiles: Mapping[UOp, Tile]) -> float:
            """Return the cycles of the nests concerned, plus the cost of copies of the body."""
            return self.cycles.of(concerned, tiles) + self.cycles.copies(nest, tiles)

        least = math.inf
        ranked = sorted(((taken(t), t) for t in candidates), key=operator.itemgetter(0))
        for cycles, tiles in ranked:
            if cycles >= least:
                break
            total = cycles + price * self.written(tiles) if price else cycles
            if total < least and self.fits(tiles):
                least, self.tiles = total, tiles

    def nest_tiles(self, nest: Nest, along: UOp | None) -> Iterator[dict[UOp, Tile]]:
        """Yield the candidate tiles of `nest`: vectors along a store RANGE or a reduced RANGE."""
        if not nest.reduces:
            yield from self._to_fill(nest, along)
            return
        # Inner RANGEs first: of tiles of equal cost, the first wins, with its elements close by.
        outer = [r for r in self.order[::-1] if r in nest.deps and r is not along]
        stored = along if along in nest.deps else self._filled(nest)
        # A nest that fills blocks of rows is tiled over the other RANGEs of the array.
        outer = other_ranges(nest, self.nests) or outer
        array = self._keeps(nest)
        if array is not None:
            own = array.src[1:]
            # Inner RANGEs first: panels far apart would each be a memory stream of their own.
            yield from self._with_vector(nest, own[-1], list(own[-2::-1]))
            yield {}
            return
        if stored is not None:
            yield from self._with_vector(nest, stored, outer)
        if nest.sequential:
            yield {}
            return
        # A pass that fills an array can only be vectorized along its innermost RANGE.
        for k in nest.closed[-1:] if nest.fills else nest.closed:
            if nest.fills or any(self.accesses.stride(x, k) == 1 for x in nest.loads):
                yield from self._with_reduce_vector(nest, k, outer, stored)
        yield {}

    def _keeps(self, nest: Nest) -> UOp | None:
        """Return the array that accumulates the sums of `nest` over RANGEs of `outside`, if any."""
        if not any(r in self.outside for r in nest.closed):
            return None
        return next(u for u in self.info.locals if u.src[0] in nest.reduces)

    def _filled(self, nest: Nest) -> UOp | None:
        """Return the innermost RANGE of the array that `nest` computes an element of, if any."""
        inner = (other.closed[-1] for other in self.nests if other.fills)
        return next((r for r in inner if r in nest.deps), None)

    def _to_fill(self, nest: Nest, along: UOp | None) -> Iterator[dict[UOp, Tile]]:
        """Yield tiles for a nest that only fills arrays: vectors, unless loops around have them."""
        k = nest.closed[-1]
        around = any(self.tiles.get(r, ONE).lanes > 1 for r in nest.deps)
        lanes = min(self.lanes, extent(k))
        if along not in nest.deps and not around:
            for vectors in (1, 2, 4):
                if vectors * lanes <= extent(k) and vectors <= self._vectors(nest.filling):
                    yield {k: Tile(vectors * lanes, lanes)}
            for q in nest.closed[:-2]:
                # Tile across panels: adjacent memory is then read at once, not panel by panel.
                if all(self.accesses.stride(x, k) == 1 for x in nest.loads):
                    yield {k: Tile(lanes, lanes), q: Tile(min(extent(q), 8), 1)}
            for q in nest.closed[-2:-1]:
                if any(self.accesses.stride(x, q) == 1 for x in nest.loads):
                    depth = min(16, 1 << (extent(q).bit_length() - 1))
                    yield {k: Tile(lanes, lanes), q: Tile(depth, 1)}
        yield {}

    def _with_vector(self, nest: Nest, along: UOp, free: list[UOp]) -> Iterator[dict[UOp, Tile]]:
        size = extent(along)
        lanes = min(self.lanes, size)
        most = max(1, -(-size // lanes))
        k = nest.closed[-1]
        # Unroll the depth more than four times only for transposed blocks, loaded along the depth.
        strided = any(
            self.accesses.stride(x, along) not in (0, 1) and self.accesses.stride(x, k) == 1
            for x in nest.loads
        )
        depths: tuple[int, ...] = (4, 8, 16) if strided else (4,)
        if not strided and may_be_zero(self.info, nest.nodes[0]):
            depths = (2 * LEAST_AT_ONCE, LEAST_AT_ONCE)
        if strided and self._are_runs(k):
            return
        # Alternatively, unroll a RANGE that is contiguous in the operand without vectors.
        varying = [x for x in nest.loads if along in self.info.deps[x]]
        rows = [
            q
            for q in nest.closed[:-1]
            if extent(k) < depths[0] <= extent(q)
            and any(self.accesses.stride(x, q) == 1 for x in nest.loads if x not in varying)
        ]
        # Transposing two blocks at a time leaves too few registers for a tile.
        # Without reuse, wide strips read the rows in long runs.
        reused = any(r not in self.info.deps[x] for r in free for x in nest.loads)
        widths = (1,) if strided else (1, 2, 3, 4) if reused else (1, 2, 4, 8, 16)
        for vectors in (w for w in widths if w <= most):
            factor = min(vectors * lanes, size) if is_fixed(along) else vectors * lanes
            base = {along: Tile(factor, lanes)}
            for unrolled in self._unrolls(nest, free, along if size == self.lanes else None):
                for depth in depths:
                    if depth <= extent(k):
                        yield {**base, **unrolled, k: Tile(depth, 1)}
                if extent(k) < depths[-1]:
                    yield {**base, **unrolled, k: Tile(extent(k), 1)}
                for q in rows:
                    yield {**base, **unrolled, q: Tile(depths[0], 1)}

    def _with_reduce_vector(
        self, nest: Nest, k: UOp, outer: list[UOp], along: UOp | None
    ) -> Iterator[dict[UOp, Tile]]:
        size = extent(k)
        lanes = min(self.lanes, size)
        alone = bool(nest.fills) or self._by_rows or self._are_runs(k)
        for vectors in (1, 2, 4, 8):
            if vectors * lanes > max(size, lanes):
                break
            inner = {k: Tile(vectors * lanes, lanes)}
            for rows in () if self._by_rows else self._rows_together(nest, outer):
                yield {**inner, **rows}
            for unrolled in self._unrolls(nest, outer):
                if along is None:
                    yield {**inner, **unrolled}
                    continue
                for width in (1,) if alone else (1, 2, 4, 8, 16):
                    if width <= extent(along):
                        yield {**inner, **unrolled, along: Tile(width, width)}

    def _are_runs(self, k: UOp) -> bool:
        """Return whether the only nest reads runs along `k`; False for several nests."""
        return len(self.nests) == 1 and are_runs(self.info, self.nests[0], k, self.target)

    def _unrolls(
        self, nest: Nest, free: list[UOp], lane: UOp | None = None
    ) -> Iterator[dict[UOp, Tile]]:
        """Yield register tiles over RANGEs of `free` that some load does not vary with (reuse).

        A tile covers one RANGE, two RANGEs, or two short RANGEs entirely (the taps of a filter) and
        a third. With packed columns, whose elements within a panel are `lane`, it also tries
        heights of five rows and more that divide the rows evenly. With 16 registers it also tries
        the shapes that use most of them: 6 rows of 2 vectors, and 4 rows of 3 vectors.
        """
        deps = self.info.deps
        reuse = [r for r in free if any(r not in deps[x] for x in nest.loads)]
        # Prefer RANGEs that no array read here varies with: a tile over them needs one array each.
        held = self.info.deps_of(x.src[0] for x in nest.loads if x.src[0].op is Op.LOCAL)
        shared = [r for r in reuse if r not in held]
        if all(any(r not in deps[x] for r in shared) for x in nest.loads):
            reuse = shared
        few = self.target.few_registers
        # More than 8 rows of one vector spill: LLVM loads the vectors of an unrolled depth first.
        tall = 8 if few else 16
        most = {r: min(tall, extent(r), self._rows_kept(nest, r)) for r in reuse}
        yield {}
        for r in reuse:
            for n in range(2, most[r] + 1):
                yield {r: Tile(n, 1)}
        sizes = {r: _sizes(most[r], extent(r)) for r in reuse}
        if lane is not None:
            panels = {q for x in nest.loads if lane in deps[x] for q in deps[x]}
            for r in reuse:
                more = {3} if few else set()
                if r not in panels:
                    more = {n for n in range(5, most[r] + 1) if extent(r) % n == 0}
                    more |= {6} if few else set()
                sizes[r] = sorted({*sizes[r], *(n for n in more if n <= most[r])})
        for r, s in itertools.combinations(reuse, 2):
            for n, m in itertools.product(sizes[r], sizes[s]):
                yield {r: Tile(n, 1), s: Tile(m, 1)}
        taps = [r for r in reuse if 1 < extent(r) <= min(SHORT, most[r])]
        for r, s in itertools.combinations(taps, 2):
            whole = {q: Tile(extent(q), 1) for q in (r, s)}
            for q in (q for q in reuse if q not in whole):
                yield from ({**whole, q: Tile(n, 1)} for n in sizes[q] if n <= SHORT)

    def _rows_together(self, nest: Nest, outer: list[UOp]) -> Iterator[dict[UOp, Tile]]:
        """Yield tiles of several rows that share no loads, to overlap the latency of their sums."""
        for r in outer[:1]:
            if all(r in self.info.deps[x] for x in nest.loads):
                most = min(_ROWS_TOGETHER, extent(r), self.cycles.abreast(nest))
                yield from ({r: Tile(n, 1)} for n in (2, 4, 8) if n <= most)

    def _rows_kept(self, nest: Nest, r: UOp) -> int:
        """Return how many rows along `r` fit the L1 cache until the kernel reads them again.

        Half of the cache is left for data that is written meanwhile.
        """
        others = [x for other in self.nests if other is not nest for x in other.loads]
        # A REDUCE that is stored directly reads nothing again.
        stored = [s.src[2] for s in self.info.sink.src if s.src[2] not in self.info.reduces]
        others += (x for value in stored for x in self.info.loads(value))
        again = {x.src[0] for x in others if x.src[0].op is Op.PARAM and r in self.info.deps[x]}
        row = 0
        for param in again & {x.src[0] for x in nest.loads if r in self.info.deps[x]}:
            walked = {q for x in nest.loads if x.src[0] is param for q in self.info.deps[x]}
            extents = (extent(q) for q in nest.closed if q in walked)
            row += param.dtype.itemsize * math.prod(extents)
        return max(1, self.near // (2 * row)) if row else extent(r)

    # Cache ----------------------------------------------------------------------------------------

    def _outermost(self, along: UOp) -> None:
        """Move the RANGE outermost that minimizes the bytes read from beyond the L2 cache.

        With rows outermost, an operand that only varies with columns is read again for each tile of
        rows. With columns outermost, an operand that only varies with rows is read again for each
        tile of columns.
        """
        for nest in self.nests:
            if along not in nest.deps or nest.deps != set(self.order):
                return
        loads = [x for n in self.nests for x in n.loads if x.src[0].op is Op.PARAM]
        closed = [r for n in self.nests for r in n.closed]

        def nbytes(order: list[UOp]) -> float:
            return streamed(self.info, loads, closed, order, self.tiles, self.cache)

        inner = sorted(self.order[1:], key=lambda r: r is not along)
        moved = [[r, *(q for q in self.order if q is not r)] for r in inner]
        self.order = min([self.order, *moved], key=nbytes)

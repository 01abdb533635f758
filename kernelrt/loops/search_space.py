"""The schedule search space: enumerates and checks alternative tilings of a kernel."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kernelrt.errors import CompileError, SpecError
from kernelrt.ir.ops import Op
from kernelrt.loops.access_patterns import vector_of
from kernelrt.loops.loop_ir import Loop, Pass, Step, build
from kernelrt.loops.partition import MOST_CHUNKS
from kernelrt.loops.tile_heuristic import SHORT, Chooser, choose
from kernelrt.loops.tiles import Tile, extent, is_fixed
from kernelrt.loops.tiling import Tiling
from kernelrt.loops.verify_loops import verify_loops

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis, Cost
    from kernelrt.loops.loop_ir import Item, LoopNest
    from kernelrt.loops.nests import Nest

__all__ = ["Candidate", "candidates", "verify"]

#: Numbers of vectors, or of elements without vectors, of a loop that one iteration may cover.
_WIDTHS = (1, 2, 4, 8, 16)
#: Numbers of chunks to try for a kernel.
_CHUNKS = (2, 4, 8, 16, 32, MOST_CHUNKS)
#: Overhead instructions of one loop iteration.
_LOOP = 2.0
#: A candidate may compute each node at most this many times as often as the base tiling. A local
#: array is recomputed in each iteration of a loop that a candidate puts around it. The cycles of a
#: candidate do not count that, and for a product with packed operands it takes seconds.
_MOST_OFTEN = 4.0


class Candidate(NamedTuple):
    """A tiling and its estimated cycles on one core.

    The cycles serve only to compare candidates of one kernel. They depend neither on the order of
    loops nor on chunks.
    """

    tiling: Tiling
    cycles: float


# Checking ---------------------------------------------------------------------------------------


def verify(info: Analysis, target: DeviceSpec, tiling: Tiling) -> None:
    """Check that code for the kernel `info` can be generated with `tiling`.

    Raises
    ------
    SpecError
        `tiling` is invalid for the kernel, or its IR text would be too long.
    """
    _verify(Chooser(info, target), target, tiling)


def _verify(chooser: Chooser, target: DeviceSpec, tiling: Tiling) -> LoopNest:
    info = chooser.info
    stored = {r for s in info.sink.src for r in info.deps_of(s.src)}
    if len(tiling.order) != len(stored) or set(tiling.order) != stored:
        raise SpecError(
            f"order: expected each RANGE that the stores vary with once ({stored}), not "
            f"{tiling.order}"
        )
    for r, tile in tiling.tiles.items():
        _verify_tile(r, tile, target)
    _verify_outside(info, tiling)
    _verify_chunks(info, tiling)
    try:
        nest = build(info, tiling, target)
        verify_loops(nest, info)
    except CompileError as error:
        raise SpecError(str(error)) from None
    if not chooser.fits(tiling.tiles):
        raise SpecError(
            f"tiles: local arrays take {chooser.accesses.local_bytes(tiling.tiles)} bytes; "
            f"expected at most {chooser.room}; use smaller tiles of the loops around the arrays"
        )
    written = chooser.length.of(
        chooser.nests, tiling.order, tiling.tiles, tiling.outside
    )
    if written > chooser.most:
        raise SpecError(
            f"tiles: the kernel's LLVM IR would have about {written} bytes; expected at most "
            f"{chooser.most}; use smaller tiles"
        )
    return nest


def _elements(nest: LoopNest) -> dict[UOp, float]:
    """Return how many elements are computed for each REDUCE, LOCAL and STORE, with repetitions."""
    found: dict[UOp, float] = {}

    def count(items: Iterable[Item], iterations: float, tiles: Mapping[UOp, Tile]) -> None:
        for item in items:
            if isinstance(item, Loop | Pass):
                loop = item if isinstance(item, Loop) else item.loop
                trips = -(-extent(loop.range) // loop.tile.factor)
                count(loop.body, iterations * trips, {**tiles, loop.range: loop.tile})
            elif isinstance(item, Step):
                points = math.prod(tiles[r].factor for r in item.ranges if r in tiles)
                for node in item.nodes:
                    found[node] = found.get(node, 0.0) + iterations * points

    count(nest.body, 1.0, {})
    return found


def _verify_outside(info: Analysis, tiling: Tiling) -> None:
    known: list[UOp] = []
    for fold in _folds(info):
        inside = [r for r in fold.src[1:] if r in tiling.outside]
        if inside != list(fold.src[1 : 1 + len(inside)]):
            raise SpecError(
                f"outside: of the RANGEs {list(fold.src[1:])} of a REDUCE, expected the first ones "
                f"without a gap, not {inside}"
            )
        known += inside
    if known != list(tiling.outside):
        raise SpecError(
            "outside: expected RANGEs of REDUCEs that fill local arrays, in the kernel's order, "
            f"not {tiling.outside}"
        )


def _folds(info: Analysis) -> list[UOp]:
    """Return the REDUCEs whose results fill local arrays."""
    return [u.src[0] for u in info.locals if u.src[0].op is Op.REDUCE]


def _verify_tile(r: UOp, tile: Tile, target: DeviceSpec) -> None:
    size = extent(r)
    if not is_fixed(r):
        size = -(-size // max(1, tile.lanes)) * tile.lanes
    whole = tile.factor == size and is_fixed(r)
    widest = max(1, target.vector_bits // 8)
    fits = 1 <= tile.lanes <= min(tile.factor, widest) and tile.factor <= size
    if not fits or (tile.factor % tile.lanes and not whole):
        raise SpecError(
            f"tiles: {tile} is not a tile of RANGE {r.arg}, which has {extent(r)} elements; "
            f"expected a factor of at most {size}, at most {widest} lanes, and a factor that is a "
            "multiple of the lanes or covers the whole RANGE"
        )


def _verify_chunks(info: Analysis, tiling: Tiling) -> None:
    if tiling.chunked is None:
        if tiling.share:
            raise SpecError(
                f"share: expected 0, since `chunked` is None (one chunk), not {tiling.share}"
            )
        return
    if tiling.chunked not in _splittable(info, tiling.order):
        raise SpecError(
            f"chunked: {tiling.chunked} cannot be split into chunks; expected a RANGE on which the "
            "index of every store depends, in a kernel without stores that add to memory"
        )
    tile, size = tiling.tile(tiling.chunked), extent(tiling.chunked)
    if not 0 < tiling.share < size or tiling.share % tile.factor:
        raise SpecError(
            f"share: expected a multiple of the tile's {tile.factor} elements, above 0 and below "
            f"{size}, not {tiling.share}"
        )
    if -(-size // tiling.share) > MOST_CHUNKS:
        raise SpecError(
            f"share: chunks of {tiling.share} of {size} elements are "
            f"{-(-size // tiling.share)} chunks; expected at most {MOST_CHUNKS}"
        )


def _splittable(info: Analysis, order: Iterable[UOp]) -> list[UOp]:
    """Return the RANGEs that may be split into chunks: each iteration writes its own elements."""
    stores = info.sink.src
    if any(s.arg is not None for s in stores):
        return []
    return [r for r in order if all(r in info.deps[s.src[1]] for s in stores)]


# Listing ----------------------------------------------------------------------------------------


def candidates(
    info: Analysis, target: DeviceSpec, cost: Cost, around: Tiling | None = None
) -> Iterator[Candidate]:
    """Yield tilings of the kernel `info` that are worth timing, without duplicates.

    Parameters
    ----------
    info : Analysis
        The kernel.
    target : DeviceSpec
        Device to generate code for.
    cost : Cost
        Arithmetic and traffic of the kernel.
    around : Tiling, optional
        Base tiling. Each other candidate differs from it in one respect. By default, the base is
        the choice of the tile-size heuristic.

    Yields
    ------
    Candidate
        The base first. Each other candidate changes one of these: the tiles of a reduction, an
        unroll depth, the tiles or vectors of the stores, the chunks, the loop order, or the RANGEs
        outside the arrays that accumulate. These six kinds take turns; the next candidate of a kind
        is the one with the fewest estimated cycles.
    """
    first = choose(info, target, cost) if around is None else around
    moves = _Moves(info, target, first)
    yield Candidate(first, moves.cycles(first))
    seen = {first}
    kinds = [
        iter(sorted((Candidate(t, moves.cycles(t)) for t in kind), key=lambda c: c.cycles))
        for kind in (moves.nests(), moves.depths(), moves.stores(), moves.chunks(), moves.orders(),
                     moves.outsides())
    ]
    while kinds:
        for kind in list(kinds):
            found = next(
                (c for c in kind if c.tiling not in seen and moves.is_valid(c.tiling)), None
            )
            if found is None:
                kinds.remove(kind)
            else:
                seen.add(found.tiling)
                yield found


class _Moves:
    """The tilings that differ from `base` in one respect."""

    def __init__(self, info: Analysis, target: DeviceSpec, base: Tiling) -> None:
        self.info = info
        self.target = target
        self.base = base
        self.chooser = Chooser(info, target)
        self.chooser.order = list(base.order)
        stores = info.sink.src
        stored = [r for r in base.order if all(r in info.deps_of(s.src) for s in stores)]
        self.along = vector_of(stored, base.tiles) or self.chooser.store_vector(stores)
        self.elements = _elements(build(info, base, target))

    def is_valid(self, tiling: Tiling) -> bool:
        """Return whether `tiling` is valid, and computes no node far more often than the base."""
        try:
            nest = _verify(self.chooser, self.target, tiling)
        except SpecError:
            return False
        return all(
            count <= _MOST_OFTEN * self.elements.get(node, count)
            for node, count in _elements(nest).items()
        )

    def cycles(self, tiling: Tiling) -> float:
        """Return the estimated cycles of the reductions and stores under `tiling`."""
        tiles = tiling.tiles
        total = 0.0
        for nest in self.chooser.nests:
            total += self.chooser.cycles.of([nest], tiles) + self.chooser.cycles.copies(nest, tiles)
        for store in self.info.sink.src:
            trips, points = 1.0, 1
            for r in self.info.deps_of(store.src):
                trips *= -(-extent(r) // tiling.tile(r).factor)
                points *= len(tiling.tile(r).positions())
            value = store.src[2]
            weight = self.info.weight([value], self.chooser.costs)
            weight += len(self.info.loads(value)) + 1
            total += trips * (points * weight / 2 + _LOOP)
        return total

    def _with(self, tiles: Mapping[UOp, Tile]) -> Tiling:
        """Return the base with other `tiles`; its chunks are rounded up to whole tiles."""
        tiling = Tiling(tiles, self.base.order, outside=self.base.outside)
        r = self.base.chunked
        if r is None:
            return tiling
        factor = tiling.tile(r).factor
        share = -(-self.base.share // factor) * factor
        if share >= extent(r):
            return tiling
        return replace(tiling, chunked=r, share=share)

    # Categories of alternatives ---------------------------------------------------------------

    def nests(self) -> Iterator[Tiling]:
        """Yield other register tiles and vectors for one reduction; the others keep theirs."""
        now = self.base.tiles
        for nest in self.chooser.nests:
            around = {r: t for r, t in now.items() if r not in nest.closed}
            bare = {r: t for r, t in around.items() if r is self.along or r not in nest.deps}
            for start in [around] if bare == around else [bare, around]:
                for tiles in self.chooser.nest_tiles(nest, self.along):
                    yield self._with({**self._short(nest), **start, **tiles})

    def _short(self, nest: Nest) -> dict[UOp, Tile]:
        """Return tiles that fully unroll the loops of `nest` with at most SHORT iterations."""
        return {
            r: Tile(extent(r), 1) for r in nest.closed if is_fixed(r) and 1 < extent(r) <= SHORT
        }

    def depths(self) -> Iterator[Tiling]:
        """Yield other unroll factors for the loops of a reduction."""
        for nest in self.chooser.nests:
            for r in nest.closed:
                yield from self._widths(r)

    def _widths(self, r: UOp) -> Iterator[Tiling]:
        lanes = self.base.tile(r).lanes
        for width in _WIDTHS:
            yield self._with({**self.base.tiles, r: Tile(width * lanes, lanes)})
        if is_fixed(r) and extent(r) <= _WIDTHS[-1]:
            yield self._with({**self.base.tiles, r: Tile(extent(r), lanes)})

    def stores(self) -> Iterator[Tiling]:
        """Yield other tiles for the RANGEs of the stores, and narrower vectors."""
        for r in self.base.order:
            yield from self._widths(r)
            factor, lanes = self.base.tile(r).factor, self.base.tile(r).lanes
            while lanes > 1:
                lanes //= 2
                for width in (factor, lanes, 2 * lanes, 4 * lanes):
                    yield self._with({**self.base.tiles, r: Tile(width, lanes)})
        for r, s in itertools.permutations(self.base.order, 2):
            # The two axes of a transposed block, and rows that share a load.
            if self.base.tile(r).lanes == 1 < self.base.tile(s).lanes:
                for rows, width in itertools.product((4, 8, 16), (1, 2)):
                    lanes = self.base.tile(s).lanes
                    block = {r: Tile(rows, 1), s: Tile(width * lanes, lanes)}
                    yield self._with({**self.base.tiles, **block})

    def orders(self) -> Iterator[Tiling]:
        """Yield other orders of the store loops: each loop moved outermost, or innermost."""
        order, base = self.base.order, self.base
        for r in order:
            others = tuple(q for q in order if q is not r)
            for moved in ((r, *others), (*others, r)):
                yield replace(base, order=moved)

    def chunks(self) -> Iterator[Tiling]:
        """Yield tilings with more or fewer chunks, chunks of another RANGE, or none."""
        base = self.base
        yield replace(base, chunked=None, share=0)
        for r in _splittable(self.info, base.order):
            for share in self._shares(r):
                yield replace(base, chunked=r, share=share)

    def outsides(self) -> Iterator[Tiling]:
        """Yield tilings with more or fewer RANGEs of a sum around the array that accumulates it."""
        folds = _folds(self.info)
        for fold in folds:
            for count in range(len(fold.src)):
                outside = [
                    r
                    for f in folds
                    for i, r in enumerate(f.src[1:])
                    if (i < count if f is fold else r in self.base.outside)
                ]
                yield replace(self.base, outside=tuple(outside))

    def _shares(self, r: UOp) -> Sequence[int]:
        """Return the chunk sizes to try, in elements of `r`: one for each number of chunks."""
        factor = self.base.tile(r).factor
        tiles = -(-extent(r) // factor)
        return list(dict.fromkeys(-(-tiles // n) * factor for n in _CHUNKS if n <= tiles))

"""Code-size model: estimates the bytes of IR text of a kernel under a tiling."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, NamedTuple

from kernelrt.device.costs import instructions
from kernelrt.ir.ops import ALU, Op
from kernelrt.ir.reducers import IN_ORDER
from kernelrt.ir.uop import toposort
from kernelrt.loops.access_patterns import is_spaced, vector_of
from kernelrt.loops.analysis import CLOSING
from kernelrt.loops.loop_ir import ACCUMULATORS
from kernelrt.loops.memoized_sums import Total
from kernelrt.loops.nests import Nest
from kernelrt.loops.tiles import ONE, extent, parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kernelrt.ir.uop import UOp
    from kernelrt.loops.access_patterns import Accesses
    from kernelrt.loops.tiles import Tile

__all__ = ["Length"]

#: Bytes of a vector instruction, of an instruction that names four types, and of a select.
_PLAIN, _LONG, _CHOICE = 52, 136, 92
#: Bytes of a fused product and sum.
_FUSED = 112
#: Bytes of ops that differ from ``instructions(op) * _PLAIN``.
_BYTES = {Op.FMA: _LONG, Op.WHERE: _CHOICE, Op.DOT: _LONG, Op.LOAD: 95, Op.STORE: 95}
#: Bytes to load one element and insert it into its lane, without its index.
_LANE = 190
#: Transposed blocks: bytes of a row, of a shuffle without lane numbers, and of two lane numbers.
_ROW, _MIXED, _TWO_LANES = 172, 76, 15
#: Bytes of loop control, and of an accumulator that is carried through a loop, or past one.
_LOOP, _CARRIED = 340, 84
#: Bytes of a shuffle, and of a broadcast of a scalar to a vector.
_SHUFFLE, _SPLAT = 116, 160
#: Bytes of a branch to a cold path, without the function that it calls.
_BRANCH = 420
#: Calls that share the text of one cold-path function, about.
_CALLS = 2
#: Bytes of a bounds check and of the code that reports a violation.
_CHECK = 560
#: Bytes of a conversion from or to a float of 16 bits.
_NARROW = 300


class _Spread(NamedTuple):
    """Replication of a loop's text.

    `copies` is the number of copies of the loop's body. `points` and `elements` are the numbers of
    points and of elements in the tiles of all copies. A loop of dynamic extent ends with a masked
    vector; `masked` is the number of elements of such vectors.
    """

    copies: int
    points: int
    elements: int
    masked: int


class _By(enum.Enum):
    """How often a value's text is repeated: for each vector, element, or masked element."""

    VECTOR = enum.auto()
    ELEMENT = enum.auto()
    MASKED = enum.auto()


class _Part(NamedTuple):
    """A part of a kernel whose text is counted separately.

    `content` is a nest, or the STOREs under the same loops. `opened` are the enclosing loops,
    outermost first. The length of the text depends on the tiles of `ranges`.
    """

    content: tuple[UOp, ...] | Nest
    opened: tuple[UOp, ...]
    ranges: tuple[UOp, ...]


class Length:
    """Estimates the bytes of IR text of the kernel of `accesses`."""

    def __init__(self, accesses: Accesses) -> None:
        self.accesses = accesses
        self.info = accesses.info
        self._texts: dict[object, Total[_Part]] = {}
        self._bodies: dict[object, list[tuple[UOp, int, _By]]] = {}

    def of(
        self,
        nests: Sequence[Nest],
        order: Sequence[UOp],
        tiles: Mapping[UOp, Tile],
        outside: Sequence[UOp],
    ) -> int:
        """Return the estimated bytes of the kernel's IR text.

        Each part of a loop is unrolled: the text contains the body once for each point of the
        part's tile. So the numbers of copies of nested loops multiply. If a value does not vary
        with a loop, the text contains it once for the loop. If a nest accumulates in an array, only
        its loops in `outside` enclose other nests.
        """
        key = (*nests, *order, None, *outside)
        text = self._texts.get(key)
        if text is None:
            parts = self._parts(nests, order, outside)
            text = self._texts[key] = Total({part: part.ranges for part in parts}, self._written)
        return int(text.under(tiles))

    def _parts(
        self, nests: Sequence[Nest], order: Sequence[UOp], outside: Sequence[UOp]
    ) -> Iterator[_Part]:
        together: dict[frozenset[UOp], list[UOp]] = {}
        for store in self.info.sink.src:
            together.setdefault(self.info.deps_of(store.src), []).append(store)
        for deps, stores in together.items():
            opened = tuple([r for r in order if r in deps])
            yield _Part(tuple(stores), opened, opened)
        closers = {r: nest for nest in nests for r in nest.closed}
        for nest in nests:
            opened = tuple(self._around(nest, order, closers, outside))
            yield _Part(nest, opened, (*opened, *nest.closed))

    def _written(self, part: _Part, tiles: Mapping[UOp, Tile]) -> int:
        content, opened, _ = part
        if isinstance(content, Nest):
            return self._written_nest(content, opened, tiles)
        return self._written_stores(content, opened, tiles)

    def _written_stores(
        self, stores: Sequence[UOp], opened: Sequence[UOp], tiles: Mapping[UOp, Tile]
    ) -> int:
        """Return the bytes of STOREs under the same loops, without the REDUCEs that they use."""
        spread = {r: _spread(r, tiles.get(r, ONE)) for r in opened}
        vector = vector_of(opened, tiles)
        total = self._text([s.src[2] for s in stores], opened, vector, spread, tiles)
        for store in stores:
            lone = vector is not None and self.accesses.stride(store, vector) != 1
            by = _By.ELEMENT if lone else _By.VECTOR
            points = self._repeats(frozenset(opened), opened, spread, vector, by)
            total += _bytes(store) * points
            if lone:  # scattered: each element has its own address computation
                below = toposort([store.src[1]], stop=lambda u: u.op in CLOSING)
                for u in (u for u in below if u.op in ALU or u.op in (Op.LOAD, Op.BOUND)):
                    often = self._repeats(self.info.deps[u], opened, spread, vector, by)
                    total += (_CHECK if u.op is Op.BOUND else _bytes(u)) * often
        return total

    def _written_nest(
        self, nest: Nest, opened: Sequence[UOp], tiles: Mapping[UOp, Tile]
    ) -> int:
        """Return the bytes of `nest` inside the loops `opened`, without the nests that it uses."""
        inside = [*opened, *nest.closed]
        spread = {r: _spread(r, tiles.get(r, ONE)) for r in inside}
        along = vector_of(nest.closed, tiles)
        vector = along or vector_of(opened[::-1], tiles)
        values = [u.src[0] for u in nest.nodes]
        # Folding of values into accumulators, and at the end of the lanes with each other.
        once = self._repeats(nest.ranges, inside, spread, vector, _By.VECTOR)
        results = self._repeats(nest.deps, opened, spread, vector, _By.VECTOR)
        total = self._text(values, inside, vector, spread, tiles)
        filling = _bytes_of(Op.STORE) * len(nest.fills)
        total += once * (sum(map(_combining, nest.reduces)) + filling)
        if along is not None:
            # Pairs of vectors are folded into one, then its halves. Each lane is a result.
            across = vector_of(opened[::-1], tiles)
            ends = self._repeats(nest.deps, opened, spread, across, _By.VECTOR)
            rounds = results + ends * ((tiles[along].lanes - 1).bit_length() - 1)
            folding = sum(2 * _SHUFFLE + _combining(u) for u in nest.reduces)
            total += rounds * folding + results * _PLAIN * len(nest.reduces)
        loops = self._repeats(nest.ranges, inside, spread, None, _By.ELEMENT, loops=True)
        carried = results * self._carries(nest, tiles) * len(nest.reduces)
        return total + _LOOP * loops + _CARRIED * carried

    def _carries(self, nest: Nest, tiles: Mapping[UOp, Tile]) -> int:
        """Return how often the text names an accumulator of one result where loops start or end."""
        total, written, iterations = 0, 1, 1
        for r in nest.closed:
            tile = tiles.get(r, ONE)
            runs = parts(r, tile)
            total += written * sum(2 if run.trips is None else run.trips > 1 for run in runs)
            written *= max(1, len(runs))
            iterations *= -(-extent(r) // tile.factor)
        # Long loops sum in blocks, with a loop of their own.
        total *= 1 if iterations <= IN_ORDER else 2
        unrolled = math.prod(tiles.get(r, ONE).points for r in nest.closed)
        held = math.prod(tiles.get(r, ONE).points for r in nest.deps) * len(nest.reduces)
        if nest.sequential:
            return total
        return total * max(1, min(unrolled, ACCUMULATORS // max(1, held)))

    def _around(
        self,
        nest: Nest,
        order: Sequence[UOp],
        closers: Mapping[UOp, Nest],
        outside: Sequence[UOp],
    ) -> list[UOp]:
        """Return the loops that enclose `nest`, outermost first."""
        deps = set(nest.deps)
        inner: list[UOp] = []
        pending = sorted((r for r in deps if r in closers), key=lambda r: int(r.arg))
        while pending:
            outer = closers[pending.pop()]
            if not set(outer.closed) & set(inner):
                kept = [r for r in outer.closed if r in outside]
                inner = [*(kept or outer.closed), *inner]
                deps |= outer.deps
                around = (r for r in outer.deps if r in closers)
                pending += sorted(around, key=lambda r: int(r.arg))
        last = max((i for i, r in enumerate(order) if r in deps), default=-1)
        return [*order[: last + 1], *inner]

    def _text(
        self,
        roots: Sequence[UOp],
        opened: Sequence[UOp],
        vector: UOp | None,
        spread: Mapping[UOp, _Spread],
        tiles: Mapping[UOp, Tile],
    ) -> int:
        """Return the bytes of the values of `roots`, without the REDUCEs that they use."""
        rows = self._rows(vector, opened, tiles)
        cross_reads = frozenset(
            x for u in self.info.locals for x in self.info.users[u]
            if self.accesses.is_wide(x, vector, tiles)
        )  # fmt: skip
        key = (tuple(roots), vector, rows, cross_reads)
        body = self._bodies.get(key)
        if body is None:
            body = self._bodies[key] = self._body(roots, vector, rows, cross_reads)
        total = 0
        known: dict[tuple[frozenset[UOp], _By], int] = {}
        for u, weight, by in body:
            at = (self.info.deps[u], by)
            if at not in known:
                known[at] = self._repeats(at[0], opened, spread, vector, by)
            total += weight * known[at]
        return total

    def _rows(
        self, vector: UOp | None, opened: Sequence[UOp], tiles: Mapping[UOp, Tile]
    ) -> tuple[tuple[UOp, int], ...]:
        """Return the unrolled loops along whose tiles a block can be loaded and transposed.

        Each comes with the bytes of text for an element of the block.
        """
        height = ONE.lanes if vector is None else tiles[vector].lanes
        tiled = ((r, tiles.get(r, ONE)) for r in opened if r is not vector)
        return tuple(
            (r, _of_block(r, tile, height))
            for r, tile in tiled
            if tile.lanes == 1 and _is_row(tile.factor)
        )

    def _body(
        self,
        roots: Sequence[UOp],
        vector: UOp | None,
        rows: tuple[tuple[UOp, int], ...],
        cross_reads: frozenset[UOp],
    ) -> list[tuple[UOp, int, _By]]:
        """Return the nodes to write for `roots`, each with its bytes and the unit to repeat it for.

        LOADs in `cross_reads` read lane by lane, even if their lanes are contiguous.
        """
        values = list(toposort(roots, stop=lambda u: u.op in (Op.LOAD, Op.REDUCE)))
        out = [(u, _bytes(u), _By.VECTOR) for u in values if u.op is not Op.LOAD]
        if vector is not None:
            out += [(s, _SPLAT, _By.VECTOR) for s in self._spread_out(values, vector)]
        indices: dict[_By, list[UOp]] = {by: [] for by in _By}
        for x in values:
            if x.op is not Op.LOAD:
                continue
            step = None
            if vector is not None and x not in cross_reads:
                step = self.accesses.stride(x, vector)
            if vector not in self.info.deps[x] or step == 1:
                out.append((x, _bytes(x), _By.VECTOR))
                indices[_By.VECTOR] += x.src[1:]
                continue
            # In a masked vector, lanes are loaded one by one.
            lone = _By.MASKED
            block = next((cost for r, cost in rows if self.accesses.stride(x, r) == 1), None)
            if step and len(x.src) == 2 and block is not None:
                out.append((x, block, _By.ELEMENT))
            elif is_spaced(x, step):
                out.append((x, _bytes(x) + 2 * _SHUFFLE, _By.VECTOR))
            else:
                lone = _By.ELEMENT
            out.append((x, _LANE, lone))
            indices[lone] += x.src[1:]
        for by, read in indices.items():
            below = toposort(read, stop=lambda u: u.op in CLOSING)
            nodes = (u for u in below if u.op in ALU or u.op in (Op.LOAD, Op.BOUND))
            out += [(u, _bytes(u), by) for u in nodes]
        return out

    def _spread_out(self, values: Sequence[UOp], vector: UOp) -> Iterator[UOp]:
        """Yield the scalars that are broadcast to vectors along `vector`."""
        deps = self.info.deps
        wide = (u for u in values if vector in deps[u] and u.op in ALU)
        numbers = dict.fromkeys(s for u in wide for s in u.src if vector not in deps[s])
        return (s for s in numbers if s.op is not Op.CONST)

    def _repeats(
        self,
        deps: frozenset[UOp],
        opened: Sequence[UOp],
        spread: Mapping[UOp, _Spread],
        vector: UOp | None,
        by: _By,
        *,
        loops: bool = False,
    ) -> int:
        """Return how often the text contains a value that varies with `deps`.

        The text is vectorized along `vector`. With `loops`, return how often it contains the
        innermost loop of `deps`.
        """
        last = max((i for i, r in enumerate(opened) if r in deps), default=-1)
        total = 1
        for r in opened[: last + 1]:
            if loops or r not in deps:
                total *= spread[r].copies
            elif by is _By.VECTOR and (vector is None or r is vector):
                total *= spread[r].points
            elif by is _By.MASKED and r is vector:
                total *= spread[r].masked
            else:
                total *= spread[r].elements
        return total


def _spread(r: UOp, tile: Tile) -> _Spread:
    written = parts(r, tile)
    tiles = [part.tile for part in written]
    points = sum(len(t.positions()) for t in tiles)
    masked = sum(part.tile.factor for part in written if part.masked)
    return _Spread(max(1, len(tiles)), max(1, points), max(1, sum(t.factor for t in tiles)), masked)


def _is_row(size: int) -> bool:
    return size >= 4 and size & (size - 1) == 0


def _of_block(r: UOp, tile: Tile, height: int) -> int:
    """Return the bytes of text for each element of a block that is loaded and transposed.

    Parts of the loop whose size is no power of two load lane by lane.
    """
    sizes = [run.tile.factor for run in parts(r, tile)]
    total = sum(_transposed(height, n) if _is_row(n) else _LANE * height * n for n in sizes)
    return total // max(1, height * sum(sizes))


def _transposed(height: int, width: int) -> int:
    """Return the bytes to load and transpose a block of `height` rows (vector_shuffles.py)."""
    full = 1 << (height - 1).bit_length()
    rounds = min(full, width).bit_length() - 1
    total = height * _ROW + rounds * full * _mixing(width)
    # A column is a part of a vector, or a concatenation of several vectors.
    lanes = width
    if full < width:
        return total + width * _mixing(full)
    while lanes < full:
        lanes *= 2
        total += width * (full // lanes) * _mixing(lanes)
    return total


def _mixing(lanes: int) -> int:
    """Return the bytes of a shuffle of two vectors."""
    return _MIXED + _TWO_LANES * lanes // 2


def _bytes_of(op: Op) -> int:
    found = _BYTES.get(op)
    return instructions(op) * _PLAIN if found is None else found


def _bytes(u: UOp) -> int:
    """Return the bytes of one evaluation of `u`."""
    if u.op is Op.COLD:
        return _BRANCH + sum(_bytes_of(n.op) for n in toposort([u.arg])) // _CALLS
    extra = 0
    if u.op in (Op.MAX, Op.MIN) and u.dtype.is_float:
        extra = _CHOICE
    if u.op in (Op.LOAD, Op.STORE, Op.CAST) and u.dtype.itemsize == 2 and u.dtype.is_float:
        extra = _NARROW
    return _bytes_of(u.op) + extra


def _combining(u: UOp) -> int:
    """Return the bytes of folding one value into an accumulator of the REDUCE `u`."""
    if u.arg is Op.ADD:
        return _FUSED - _PLAIN if u.src[0].op is Op.MUL else _PLAIN
    return _bytes_of(u.arg) + _CHOICE

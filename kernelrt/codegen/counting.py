"""What a choice of tiles costs: cycles of the loops that reduce, instructions of the whole text.

REDUCEs and LOCALs over the same RANGEs run in one loop nest, a :class:`Nest`, and are counted
together.
"""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, NamedTuple

from kernelrt.codegen.analysis import CLOSING
from kernelrt.codegen.memory import WIDEST_STEP
from kernelrt.codegen.reuse import replaced
from kernelrt.codegen.streams import LINE, WAY
from kernelrt.codegen.tiles import ONE, extent, parts
from kernelrt.codegen.totals import Total
from kernelrt.device.costs import costs_of, instructions
from kernelrt.ir.local import local_bytes
from kernelrt.ir.ops import ALU, Op
from kernelrt.ir.uop import toposort

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kernelrt.codegen.analysis import Analysis
    from kernelrt.codegen.tiles import Tile
    from kernelrt.device.costs import Costs
    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp

__all__ = ["PAGE", "Counter", "Nest"]

#: Instructions beside the index for an element that is loaded alone and put into its lane.
_LANE = 4
#: Instructions around a loop.
_LOOP = 6
#: Elements by which a tile that is not full takes longer than its share of a full one.
_REST = 1
#: Runs of lines that a processor fetches ahead side by side, about.
_FOLLOWED = 8
#: Of lines that it does follow, the part that is waited for all the same. Of 0, 0.2, 0.35 and 1 the
#: best for products and convolutions (`python -m bench.report products models`).
_LATE = 0.2
#: Of the latency of a sum, what is not hidden where there is one accumulator; found so, too.
_EXPOSED = 1.0
#: Bytes that lie side by side in memory, whatever their addresses say.
PAGE = 4096
#: Cycles of a round that folds the lanes of a vector: a shuffle, then what waits for it.
_ROUND = 6.0
#: What does not fit the registers costs so many cycles, and no tile is that slow.
_SPILL = 1e30


class Nest:
    """REDUCEs and LOCALs that close over the same RANGEs; one loop nest computes them.

    Attributes
    ----------
    nodes : list of UOp
        All of them.
    reduces, fills : list of UOp
        The REDUCE nodes, and the LOCAL nodes.
    closed : tuple of UOp
        The RANGEs they close over, outermost first.
    deps : frozenset of UOp
        The RANGEs their results vary with.
    ranges : frozenset of UOp
        Both.
    walked : tuple of UOp
        Both, in an order that stays.
    loads : list of UOp
        LOADs in the loop, those of what is nested in it left out.
    work : float
        Cost of one element of each REDUCE, in plain instructions.
    filling : float
        The same for one element of all LOCALs, beside what the REDUCEs compute as well.
    in_order : bool
        Whether each result is added up one term after the other.
    awaited : bool
        Whether what is computed under more loops than its results needs them first.
    """

    def __init__(self, info: Analysis, nodes: list[UOp], costs: Costs) -> None:
        self.nodes = nodes
        self.reduces = [u for u in nodes if u.op is Op.REDUCE]
        self.fills = [u for u in nodes if u.op is Op.LOCAL]
        self.closed = nodes[0].src[1:]
        self.deps = info.deps[nodes[0]]
        self.ranges = self.deps | set(self.closed)
        self.walked = (*sorted(self.deps, key=lambda r: int(r.arg)), *self.closed)
        self.loads = list(dict.fromkeys(x for u in nodes for x in info.loads(u.src[0])))
        # Sums of products take a multiply-add, beside what is computed for each product alone.
        products = [
            u.src[0] for u in self.reduces
            if u.arg is Op.ADD and u.src[0].op in (Op.MUL, Op.DOT)
        ]
        values = [u.src[0] for u in self.reduces if u.src[0] not in products]
        values += [s for x in products for s in x.src if info.deps[s] == info.deps[x]]
        folding = info.weight(values, costs)
        self.work = 1.0 + folding / max(1, len(self.reduces))
        filled = [u.src[0] for u in self.fills]
        self.filling = info.weight([*values, *filled], costs) - folding
        self.in_order = not info.in_order.isdisjoint(self.reduces)
        self.awaited = not info.awaited.isdisjoint(self.reduces)


class _Spread(NamedTuple):
    """How often a loop's text is written, and for how many places and elements of its tile.

    `masked` of the elements are lanes of vectors that the loop may end in.
    """

    copies: int
    places: int
    elements: int
    masked: int


class _By(enum.Enum):
    """What a value is written once for: a vector, each of its elements, or each masked one."""

    VECTOR = enum.auto()
    ELEMENT = enum.auto()
    MASKED = enum.auto()


class _Part(NamedTuple):
    """STOREs under the same loops, or a nest: what a kernel's text is counted by.

    `opened` loops stand around it, outermost first; its text varies with the tiles of `ranges`.
    """

    content: tuple[UOp, ...] | Nest
    opened: tuple[UOp, ...]
    ranges: tuple[UOp, ...]


class Counter:
    """Counts for the kernel `info` on `target`.

    Parameters
    ----------
    info : Analysis
        The kernel.
    target : DeviceSpec
        Vectors and registers.
    lanes : int
        Elements that a register holds.
    """

    def __init__(self, info: Analysis, target: DeviceSpec, lanes: int) -> None:
        self.info = info
        self.lanes = lanes
        self.registers = target.vector_registers
        # Registers for what comes and goes; without memory operands scalars take some too.
        self.reserved = 2 if target.triple.startswith("x86_64") else 6
        # Plain instructions a cycle.
        self.costs = costs_of(target)
        self.rate = 1 / self.costs.plain
        # Whether sums are added up row by row for those of other passes.
        sums = sum(any(u.op is Op.REDUCE for u in nodes) for nodes in info.passes.values())
        self._in_rows = bool(info.locals) and sums > 1
        self._replaced = replaced(info)
        self.extents = {r: extent(r) for r in info.ranges}
        self._strides: dict[tuple[UOp, UOp], int | None] = {}
        self._inner: dict[UOp, list[UOp]] = {}
        arrays = {u: tuple(info.deps[u]) for u in info.locals}
        self._arrays = Total(arrays, self._local_bytes)
        self._texts: dict[object, Total[_Part]] = {}
        self._bodies: dict[object, list[tuple[UOp, int, _By]]] = {}

    def stride(self, access: UOp, r: UOp) -> int | None:
        """Stride along `r` of a LOAD or STORE."""
        key = (access, r)
        if key not in self._strides:
            self._strides[key] = self.info.stride(access, r)
        return self._strides[key]

    # Cycles ---------------------------------------------------------------------------------

    def cycles(self, nest: Nest, tiles: Mapping[UOp, Tile]) -> float:
        """Estimated cycles of all iterations of `nest`."""
        members = len(nest.reduces)
        along = self.vector_of(nest.closed, tiles)
        results = self._count(nest.deps, tiles, along)
        accumulators = members * results
        depth = 1
        for r in nest.closed:
            depth *= tiles.get(r, ONE).places
        loads, shuffles, held = self._loads(nest, tiles, along)
        spilled = accumulators + held + self.reserved >= self.registers
        arithmetic = accumulators * depth * nest.work / self.rate
        arithmetic *= 1 + _EXPOSED / max(1, accumulators)
        arithmetic += results * depth * nest.filling / self.rate
        stores = results * depth * len(nest.fills)
        chains = 1 if nest.in_order else min(depth, 8 // max(1, accumulators))
        latency = 4.0 * depth / max(1, chains) if members else 0.0
        # The units work side by side; what is not the bottleneck still costs slots.
        streamed = self._streamed(nest, tiles, along) if self._in_rows else 0.0
        units = (arithmetic, loads / 2, stores, shuffles, latency, streamed)
        step = max(units) + 0.1 * sum(units) + 1.0
        if not self._in_rows:
            step += self._waited(nest, tiles)
        iterations = 1.0
        for r in nest.walked:
            iterations *= self._turns(r, tiles)
        cost = step * iterations
        if along is not None:
            singles = math.prod([self.extents[r] for r in nest.deps]) * members
            packed = max((tiles.get(r, ONE).lanes for r in nest.deps), default=1)
            # Folding pairs costs three instructions a result; a lone vector, two a round.
            folding = 3.0 if packed > 1 else 2.0 * max(1, self.lanes.bit_length() - 1) + 3.0
            cost += singles * folding
        if self.abreast(nest) > 1:
            # Rows side by side wait together.
            tiled = [-(-self.extents[r] // tiles.get(r, ONE).factor) for r in nest.deps]
            cost += math.prod(tiled) * _ROUND * (self.lanes.bit_length() - 1)
        # One accumulator each has to be had, come what may.
        return cost + (_SPILL if spilled and accumulators > members else 0.0)

    def _turns(self, r: UOp, tiles: Mapping[UOp, Tile]) -> float:
        """Iterations over `r`, the last as a part of one where it covers fewer elements."""
        tile = tiles.get(r, ONE)
        whole, rest = divmod(self.extents[r], tile.factor)
        if not rest or tile.lanes > 1:
            return whole + bool(rest)
        return whole + min(1.0, (rest + _REST) / tile.factor)

    def _waited(self, nest: Nest, tiles: Mapping[UOp, Tile]) -> float:
        """Cycles of one iteration in which lines are waited for that the second cache has.

        So it is where they lie apart in more places than a processor follows, and are driven out
        of the first cache before the tile beside reads them again.
        """
        if not nest.reduces:
            return 0.0
        near = self.costs.levels[0].nbytes
        lines = [(x, *self._lines(x, nest, tiles)) for x in nest.loads]
        full = LINE * sum(count for _, count, _ in lines) > near
        waited = sum(
            count * (1.0 if self._streams(x, nest, tiles) > _FOLLOWED else _LATE)
            for x, count, places in lines
            if full or count > places * near // WAY
        )
        turns = math.prod(self._turns(r, tiles) for r in nest.closed)
        return LINE * waited * self.costs.levels[1].cycles / turns

    def _streams(self, x: UOp, nest: Nest, tiles: Mapping[UOp, Tile]) -> int:
        """Runs of lines that `x` reads side by side for a tile of the results of `nest`."""
        steps = (
            (abs(self.stride(x, r) or 0) * x.dtype.itemsize, tiles.get(r, ONE).factor)
            for r in self.info.deps[x]
            if r in nest.deps
        )
        return math.prod(size for step, size in steps if step > LINE)

    def _lines(self, x: UOp, nest: Nest, tiles: Mapping[UOp, Tile]) -> tuple[int, int]:
        """Lines that `x` reads for one tile of the results of `nest`, and their places in a way."""
        if x.src[0].op is not Op.PARAM:
            return 0, 1
        itemsize = x.dtype.itemsize
        sizes = {r: tiles.get(r, ONE).factor for r in nest.deps}
        sizes |= {r: self.extents[r] for r in nest.closed}
        steps = sorted(
            (abs(self.stride(x, r) or 0) * itemsize, sizes[r])
            for r in self.info.deps[x]
            if r in sizes
        )
        runs, places, run = 1, 1, itemsize
        for step, size in steps:
            if step <= max(run, LINE):
                run += step * (size - 1)
            else:
                runs *= size
                places *= min(size, WAY // math.gcd(step, WAY))
        of_run = -(-run // LINE)
        return runs * of_run, min(places * of_run, WAY // LINE)

    def abreast(self, nest: Nest) -> int:
        """Rows of `nest` that are better waited for together than fetched one after the other."""
        size = max((x.dtype.itemsize for x in nest.loads), default=1)
        row = size * math.prod([self.extents[r] for r in nest.closed])
        return (2 * PAGE - 1) // max(1, row) if nest.awaited else 0

    def _streamed(
        self, nest: Nest, tiles: Mapping[UOp, Tile], along: UOp | None
    ) -> float:
        """Cycles of one iteration for what comes from beyond the first cache.

        Each tile of rows walks such an operand again, from its beginning to its end.
        """
        closed = {r for nodes in self.info.passes.values() for r in nodes[0].src[1:]}
        total = 0.0
        for x in nest.loads:
            deps = self.info.deps[x]
            rows = [int(r.arg) for r in nest.deps - deps - closed]
            if x.src[0].op is not Op.PARAM or not rows:
                continue
            inside = [r for r in deps if r in closed or int(r.arg) > max(rows)]
            itemsize = x.dtype.itemsize
            walked = itemsize * math.prod(extent(r) for r in inside)
            if walked > self.costs.levels[0].nbytes:
                lanes = math.prod(tiles.get(r, ONE).lanes for r in deps)
                nbytes = self._count(deps, tiles, along) * lanes * itemsize
                total += nbytes * self.costs.byte(walked)
        return total

    def vector_of(self, ranges: Iterable[UOp], tiles: Mapping[UOp, Tile]) -> UOp | None:
        """The one of `ranges` that carries vectors."""
        return next((r for r in ranges if tiles.get(r, ONE).lanes > 1), None)

    def _count(
        self, ranges: Iterable[UOp], tiles: Mapping[UOp, Tile], along: UOp | None
    ) -> int:
        """Registers that one value over `ranges` takes."""
        total = 1
        for r in ranges:
            tile = tiles.get(r, ONE)
            lone = along is not None and r is not along
            total *= tile.factor if lone else tile.places
        return total

    def _loads(
        self, nest: Nest, tiles: Mapping[UOp, Tile], along: UOp | None
    ) -> tuple[float, float, int]:
        """Loads and shuffles of one iteration, and the vectors that stay live in between."""
        loads, shuffles, held = 0.0, 0.0, 1
        closed = set(nest.closed)
        for x in nest.loads:
            deps = self.info.deps[x]
            count = self._count(deps, tiles, along)
            vector = along if along in deps else None
            if along is None:
                # Of several the innermost; what a set gives first differs from run to run.
                vector = self.vector_of(self._innermost_first(x), tiles)
            if vector is None:
                loads += count
                continue
            step = None if self._is_wide(x, vector, tiles) else self.stride(x, vector)
            lanes = tiles[vector].lanes
            if step == 1:
                loads += count
                held = max(held, min(count, self._count(deps - closed, tiles, along)))
            elif (rows := self._block(x, nest, vector, tiles)) is not None:
                depth = tiles[rows].factor
                loads += count * lanes / depth
                shuffles += count * (depth.bit_length() - 1)
                # Rows of four floats are gathered straight into the lanes of a full register;
                # longer ones are all live at once.
                held = max(held, count + (lanes if depth > 4 else 0))
            elif self._is_spaced(x, step):
                assert step is not None
                loads += count * abs(step)
                shuffles += count * abs(step)
            else:
                loads += count * lanes
                shuffles += 2 * count * lanes
        return loads, shuffles, held

    def _is_wide(self, x: UOp, vector: UOp | None, tiles: Mapping[UOp, Tile]) -> bool:
        """Whether `x` reads a LOCAL whose elements are vectors along another range."""
        array = x.src[0]
        return (
            x.op is Op.LOAD
            and array.op is Op.LOCAL
            and vector is not None
            and any(r is not vector and tiles.get(r, ONE).lanes > 1 for r in self.info.deps[array])
        )

    def _innermost_first(self, x: UOp) -> list[UOp]:
        """The RANGEs that a LOAD varies with."""
        found = self._inner.get(x)
        if found is None:
            found = self._inner[x] = sorted(self.info.deps[x], key=lambda r: -int(r.arg))
        return found

    def _is_spaced(self, x: UOp, step: int | None) -> bool:
        """Whether a run is loaded whole and picked from."""
        return bool(step) and abs(step or 0) <= WIDEST_STEP and len(x.src) == 2

    def _block(
        self, x: UOp, nest: Nest, vector: UOp, tiles: Mapping[UOp, Tile]
    ) -> UOp | None:
        """The range along whose tile a strided load is had by transposing a block, if one is."""
        candidates = nest.closed[-1:] if nest.reduces else nest.closed
        return next((k for k in candidates if self._is_block(x, k, vector, tiles)), None)

    def _is_block(self, x: UOp, k: UOp, vector: UOp, tiles: Mapping[UOp, Tile]) -> bool:
        """Whether a strided load can be had by transposing a block along `k`."""
        tile = tiles.get(k, ONE)
        return (
            len(x.src) == 2
            and self.stride(x, k) == 1
            and tile.lanes == 1
            and tile.factor >= 4
            and tile.factor & (tile.factor - 1) == 0
            and self.stride(x, vector) is not None
        )

    def local_bytes(self, tiles: Mapping[UOp, Tile]) -> int:
        """Memory of the local arrays: one for each element of the tile around."""
        return int(self._arrays.under(tiles))

    def _local_bytes(self, array: UOp, tiles: Mapping[UOp, Tile]) -> int:
        around = [tiles.get(r, ONE) for r in self.info.deps[array]]
        if array in self._replaced and not any(tile.lanes > 1 for tile in around):
            return 0
        places = math.prod(tile.factor for tile in around)
        return places * local_bytes(array.dtype, array.src[1:])

    # Text -----------------------------------------------------------------------------------

    def instructions(
        self,
        nests: Sequence[Nest],
        order: Sequence[UOp],
        tiles: Mapping[UOp, Tile],
        outside: Sequence[UOp],
    ) -> int:
        """Estimated instructions of the kernel's text.

        Of a nest that keeps its sums in an array, the loops `outside` alone go around others. Every
        place of every segment of a loop is written out, so the counts of nested loops multiply;
        what does not vary with a loop is written once for it.
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
        """Instructions of STOREs under the same loops, without the REDUCEs they use."""
        spread = {r: _spread(r, tiles.get(r, ONE)) for r in opened}
        vector = self.vector_of(opened, tiles)
        total = self._text([s.src[2] for s in stores], opened, vector, spread, tiles)
        for store in stores:
            lone = vector is not None and self.stride(store, vector) != 1
            by = _By.ELEMENT if lone else _By.VECTOR
            places = self._repeats(frozenset(opened), opened, spread, vector, by)
            total += instructions(Op.STORE) * places
        return total

    def _written_nest(
        self, nest: Nest, opened: Sequence[UOp], tiles: Mapping[UOp, Tile]
    ) -> int:
        """Instructions of `nest` inside the loops `opened`, without the REDUCEs nested in it."""
        inside = [*opened, *nest.closed]
        spread = {r: _spread(r, tiles.get(r, ONE)) for r in inside}
        along = self.vector_of(nest.closed, tiles)
        vector = along or self.vector_of(opened[::-1], tiles)
        values = [u.src[0] for u in nest.nodes]
        # The combination, beside what is combined, and at the end the lanes' with each other.
        once = self._repeats(nest.ranges, inside, spread, vector, _By.VECTOR)
        if along is not None:
            lanes = self._repeats(nest.deps, opened, spread, along, _By.VECTOR)
            once += lanes * 3 * (tiles[along].lanes - 1).bit_length()
        loops = self._repeats(nest.ranges, inside, spread, None, _By.ELEMENT, loops=True)
        text = self._text(values, inside, vector, spread, tiles)
        return text + len(values) * once + _LOOP * loops

    def _around(
        self,
        nest: Nest,
        order: Sequence[UOp],
        closers: Mapping[UOp, Nest],
        outside: Sequence[UOp],
    ) -> list[UOp]:
        """Loops that stand open around `nest`, outermost first."""
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
        """Instructions for the values of `roots`, REDUCEs below left out."""
        rows = self._rows(vector, opened, tiles)
        apart = frozenset(
            x for u in self.info.locals for x in self.info.users[u]
            if self._is_wide(x, vector, tiles)
        )  # fmt: skip
        key = (tuple(roots), vector, rows, apart)
        body = self._bodies.get(key)
        if body is None:
            body = self._bodies[key] = self._body(roots, vector, rows, apart)
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
    ) -> frozenset[UOp]:
        """Unrolled loops along which whole rows of a block can be loaded."""
        return frozenset(
            r
            for r in opened
            if r is not vector and tiles.get(r, ONE).lanes == 1 and tiles.get(r, ONE).factor >= 4
        )

    def _body(
        self,
        roots: Sequence[UOp],
        vector: UOp | None,
        rows: frozenset[UOp],
        apart: frozenset[UOp],
    ) -> list[tuple[UOp, int, _By]]:
        """Nodes to write for `roots`: instructions of each, and what they are written once for.

        LOADs `apart` read lane by lane, whatever their indices are.
        """
        values = list(toposort(roots, stop=lambda u: u.op in (Op.LOAD, Op.REDUCE)))
        out = [(u, instructions(u.op), _By.VECTOR) for u in values if u.op is not Op.LOAD]
        indices: dict[_By, list[UOp]] = {by: [] for by in _By}
        for x in values:
            if x.op is not Op.LOAD:
                continue
            step = self.stride(x, vector) if vector is not None and x not in apart else None
            if vector not in self.info.deps[x] or step == 1:
                out.append((x, instructions(Op.LOAD), _By.VECTOR))
                indices[_By.VECTOR] += x.src[1:]
                continue
            # Where a mask says which lanes there are, each is loaded by itself.
            lone = _By.MASKED
            if self._is_spaced(x, step):
                out.append((x, instructions(Op.LOAD) + 4, _By.VECTOR))
            elif step and len(x.src) == 2 and any(self.stride(x, r) == 1 for r in rows):
                out.append((x, instructions(Op.LOAD), _By.ELEMENT))
            else:
                lone = _By.ELEMENT
            out.append((x, _LANE, lone))
            indices[lone] += x.src[1:]
        for by, read in indices.items():
            below = toposort(read, stop=lambda u: u.op in CLOSING)
            nodes = (u for u in below if u.op in ALU or u.op in (Op.LOAD, Op.BOUND))
            out += [(u, instructions(u.op), by) for u in nodes]
        return out

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
        """How often a value over `deps` is written, where `vector` carries vectors.

        With `loops`, how often the innermost loop is.
        """
        last = max((i for i, r in enumerate(opened) if r in deps), default=-1)
        total = 1
        for r in opened[: last + 1]:
            if loops or r not in deps:
                total *= spread[r].copies
            elif by is _By.VECTOR and (vector is None or r is vector):
                total *= spread[r].places
            elif by is _By.MASKED and r is vector:
                total *= spread[r].masked
            else:
                total *= spread[r].elements
        return total


def _spread(r: UOp, tile: Tile) -> _Spread:
    written = parts(r, tile)
    tiles = [part.tile for part in written]
    places = sum(len(t.positions()) for t in tiles)
    masked = sum(part.tile.factor for part in written if part.masked)
    return _Spread(max(1, len(tiles)), max(1, places), max(1, sum(t.factor for t in tiles)), masked)

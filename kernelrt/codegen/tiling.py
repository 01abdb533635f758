"""Choice of tiles: how far each range of a kernel is unrolled, and which carries vectors.

The choice is made by counting. For a reduction over products, each candidate tile is charged for
its multiply-adds, its loads and the shuffles that its layout needs, and the cheapest that fits
the register file wins; everything else takes vectors along the unit stride of what it stores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelrt.codegen.analysis import Analysis, Cost, stride
from kernelrt.codegen.memory import WIDEST_STEP
from kernelrt.ir.ops import Op
from kernelrt.ir.shape import as_dim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import Dim, UOp

__all__ = ["Tile", "Tiling", "choose"]


@dataclass(frozen=True, slots=True)
class Tile:
    """How many elements of a range one iteration covers, in vectors of how many lanes."""

    factor: int = 1
    lanes: int = 1

    def positions(self) -> tuple[tuple[int, int], ...]:
        """Offset and lanes of each place along the tile."""
        return tuple(
            (o, min(self.lanes, self.factor - o)) for o in range(0, self.factor, self.lanes)
        )


@dataclass(slots=True)
class Tiling:
    """Tiles of the ranges that have one, the order of store loops, and the split into chunks."""

    tiles: dict[UOp, Tile] = field(default_factory=dict)
    order: list[UOp] = field(default_factory=list)
    chunked: UOp | None = None
    share: int = 0

    @property
    def chunks(self) -> Dim:
        """How many chunks the kernel has; follows the Variables in its shape."""
        if self.chunked is None:
            return 1
        return as_dim((self.chunked.src[0] + (self.share - 1)) // self.share)

    def tile(self, r: UOp) -> Tile:
        """The tile of `r`; one element where none was chosen."""
        return self.tiles.get(r, Tile())


#: Reductions of so few elements are written out in full.
SHORT = 4
#: Cycles that a chunk should be worth: far above what handing it to a thread costs.
CHUNK_CYCLES = 30_000
#: Chunks that a kernel has at most; shapes alone decide how many, never the machine's cores.
MOST_CHUNKS = 64


def choose(info: Analysis, target: DeviceSpec, cost: Cost) -> Tiling:
    """Tiles and chunks for the kernel `info` on `target`."""
    tiling = _Chooser(info, target).choose()
    _split(info, tiling, cost)
    return tiling


def _split(info: Analysis, tiling: Tiling, cost: Cost) -> None:
    """Divide a large kernel along the store range with the most tiles."""
    if any(s.arg is not None for s in info.sink.src) or not tiling.order:
        return
    # Two multiply-adds of sixteen lanes, or sixteen bytes, a cycle: orders of magnitude count.
    cycles = cost.flops.vmax / 32 + cost.bytes.vmax / 16
    wanted = min(MOST_CHUNKS, int(cycles / CHUNK_CYCLES))
    common = [r for r in tiling.order if all(_varies(info, s, r) for s in info.sink.src)]
    if wanted < 2 or not common:
        return

    def tiles(r: UOp) -> int:
        return -(-_extent(r) // tiling.tile(r).factor)

    # Splitting the outermost loop keeps what the inner ones share in cache.
    outermost = tiling.order[0]
    enough = outermost in common and tiles(outermost) >= min(wanted, 16)
    r = outermost if enough else max(common, key=tiles)
    if tiles(r) >= 2:
        tiling.chunked = r
        tiling.share = -(-tiles(r) // wanted) * tiling.tile(r).factor


def _varies(info: Analysis, store: UOp, r: UOp) -> bool:
    return r in info.deps[store.src[1]]


class _Chooser:
    def __init__(self, info: Analysis, target: DeviceSpec) -> None:
        self.info = info
        self.lanes = max(1, target.vector_bits // (8 * self._itemsize()))
        self.registers = target.vector_registers
        # Registers for what comes and goes; without memory operands scalars take some too.
        self.reserved = 2 if target.triple.startswith("x86_64") else 6
        # Multiply-adds a cycle: the widest vectors take both pipes of many processors.
        self.rate = 1 if target.vector_bits >= 512 else 2
        self.cache = target.l2_bytes
        self.tiling = Tiling()
        self._strides: dict[tuple[UOp, UOp], int | None] = {}
        self._reads: dict[UOp, list[UOp]] = {}
        self._weights: dict[UOp, int] = {}

    def stride(self, access: UOp, r: UOp) -> int | None:
        """Stride along `r` of a LOAD or STORE."""
        key = (access.src[1], r)
        if key not in self._strides:
            self._strides[key] = stride(*key)
        return self._strides[key]

    def loads(self, u: UOp) -> list[UOp]:
        """LOADs below a REDUCE, nested REDUCEs left out."""
        if u not in self._reads:
            self._reads[u] = self.info.loads(u.src[0])
            self._weights[u] = self.info.weight(u.src[0])
        return self._reads[u]

    def _itemsize(self) -> int:
        """Bytes of the widest float a lane has to hold; integers do not count if floats occur."""
        touched = [u.dtype for u in self.info.nodes if u.op in (Op.LOAD, Op.STORE, Op.REDUCE)]
        floats = [max(4, d.itemsize) for d in touched if d.is_float]
        return max(floats or [d.itemsize for d in touched] or [4])

    def choose(self) -> Tiling:
        stores = self.info.sink.src
        ranges = sorted(
            {r for s in stores for x in s.src for r in self.info.deps[x]}, key=lambda r: r.arg
        )
        self.tiling.order = self._order(ranges)
        along = self._store_vector(stores)
        if along is not None:
            self._set_vector(along, self._unroll(stores))
        for u in self.info.reduces:
            self._reduction(u, along)
        if not self.info.reduces:
            self._transposing(stores, along)
        elif along is not None:
            self._outermost(along)
        return self.tiling

    def _order(self, ranges: list[UOp]) -> list[UOp]:
        """Ranges that a REDUCE varies with go outside those it is constant under."""

        def constant_under(r: UOp) -> int:
            return sum(r not in self.info.deps[u] for u in self.info.reduces)

        return sorted(ranges, key=lambda r: (constant_under(r), r.arg))

    def _store_vector(self, stores: Iterable[UOp]) -> UOp | None:
        """The range along which stores are contiguous."""
        for s in stores:
            units = [r for r in self.info.deps[s.src[1]] if self.stride(s, r) == 1]
            if units:
                return max(units, key=lambda r: (_extent(r), -r.arg))
        return None

    def _unroll(self, stores: Iterable[UOp]) -> int:
        """Vectors per iteration of an elementwise loop: more where an element is cheap."""
        weight = sum(self.info.weight(s.src[2]) for s in stores)
        return 4 if weight <= 12 else 2 if weight <= 40 else 1

    def _set_vector(self, r: UOp, vectors: int) -> None:
        extent = _extent(r)
        lanes = min(self.lanes, extent)
        factor = lanes * max(1, min(vectors, extent // lanes))
        if extent <= 2 * lanes and _is_fixed(r):
            factor = extent
        self.tiling.tiles[r] = Tile(factor, lanes)

    # Reductions ---------------------------------------------------------------------------------

    def _reduction(self, u: UOp, along: UOp | None) -> None:
        best: tuple[float, dict[UOp, Tile]] | None = None
        for candidate in self._candidates(u, along):
            cost = self._cost(u, candidate)
            if cost is not None and (best is None or cost < best[0]):
                best = cost, candidate
        if best is not None:
            self.tiling.tiles.update(best[1])
        # A handful of taps needs no loop.
        for r in u.src[1:]:
            if r not in self.tiling.tiles and _is_fixed(r) and _extent(r) <= SHORT:
                self.tiling.tiles[r] = Tile(_extent(r), 1)

    def _candidates(self, u: UOp, along: UOp | None) -> Iterable[dict[UOp, Tile]]:
        """Tiles worth counting: vectors along the store or along the reduction."""
        outer = [r for r in self.tiling.order if r in self.info.deps[u]]
        # A tile that an earlier reduction settled stays; the two share it.
        settled = {r: self.tiling.tiles[r] for r in outer if r in self.tiling.tiles}
        free = [r for r in outer if r not in settled]
        if along in outer and along is not None:
            yield from self._with_vector(u, along, [r for r in free if r is not along])
        inner = [r for r in u.src[1:] if self._unit_loads(u, r)]
        for k in inner[-1:]:
            yield from self._with_reduce_vector(u, k, outer, along)
        yield {}

    def _unit_loads(self, u: UOp, r: UOp) -> int:
        return sum(self.stride(x, r) == 1 for x in self.loads(u))

    def _with_vector(self, u: UOp, along: UOp, free: list[UOp]) -> Iterable[dict[UOp, Tile]]:
        extent = _extent(along)
        lanes = min(self.lanes, extent)
        most = max(1, -(-extent // lanes))
        k = u.src[-1]
        # Deeper than four only where whole blocks are loaded along the reduction.
        strided = any(
            self.stride(x, along) not in (0, 1) and self.stride(x, k) == 1 for x in self.loads(u)
        )
        depths = (4, 8, 16) if strided else (4,)
        # Transposing two blocks at a time leaves too few registers for a tile.
        # Without reuse a wide strip walks the rows in long runs.
        reused = any(along not in self.info.deps[x] for x in self.loads(u))
        widths = (1,) if strided else (1, 2, 3, 4) if reused else (1, 2, 4, 8, 16)
        for vectors in (w for w in widths if w <= most):
            factor = min(vectors * lanes, extent) if _is_fixed(along) else vectors * lanes
            base = {along: Tile(factor, lanes)}
            for unrolled in self._unrolls(u, free):
                for depth in depths:
                    if depth <= _extent(k):
                        yield {**base, **unrolled, k: Tile(depth, 1)}
                if _extent(k) < depths[-1]:
                    yield {**base, **unrolled, k: Tile(_extent(k), 1)}

    def _with_reduce_vector(
        self, u: UOp, k: UOp, outer: list[UOp], along: UOp | None
    ) -> Iterable[dict[UOp, Tile]]:
        extent = _extent(k)
        lanes = min(self.lanes, extent)
        for vectors in (1, 2, 4, 8):
            if vectors * lanes > max(extent, lanes):
                break
            inner = {k: Tile(vectors * lanes, lanes)}
            for unrolled in self._unrolls(u, [r for r in outer if r is not along]):
                if along is None or along not in outer:
                    yield {**inner, **unrolled}
                    continue
                for width in (1, 2, 4, 8, 16):
                    if width <= _extent(along):
                        yield {**inner, **unrolled, along: Tile(width, width)}

    def _unrolls(self, u: UOp, free: list[UOp]) -> Iterable[dict[UOp, Tile]]:
        """Register tiles over one or two further ranges that some load does not vary with."""
        reuse = [
            r
            for r in free
            if any(r not in self.info.deps[x] for x in self.loads(u))
        ]
        yield {}
        for r in reuse:
            for n in range(2, min(16, _extent(r)) + 1):
                yield {r: Tile(n, 1)}
        for i, r in enumerate(reuse):
            for s in reuse[i + 1 :]:
                for n in (2, 4, 8):
                    for m in (2, 4, 8):
                        if n <= _extent(r) and m <= _extent(s):
                            yield {r: Tile(n, 1), s: Tile(m, 1)}

    def _cost(self, u: UOp, tiles: dict[UOp, Tile]) -> float | None:
        """Estimated cycles of all iterations; None when the tile does not fit the registers."""
        deps = self.info.deps[u]
        closed = u.src[1:]
        full = {**self.tiling.tiles, **tiles}
        along_k = next((r for r in closed if full.get(r, Tile()).lanes > 1), None)
        accumulators = self._count(deps, full, along_k)
        depth = 1
        for r in closed:
            depth *= len(full.get(r, Tile()).positions())
        loads, shuffles, held = self._loads(u, full, along_k)
        if accumulators + held + self.reserved >= self.registers and accumulators > 1:
            return None
        work = self._weights[u]
        element = 1.0 if u.arg is Op.ADD and u.src[0].op is Op.MUL else 1.0 + work
        arithmetic = accumulators * depth * element / self.rate
        latency = 4.0 * depth / max(1, min(depth, 8 // max(1, accumulators)))
        # The units work side by side; what is not the bottleneck still costs slots.
        units = (arithmetic, loads / 2, shuffles, latency)
        step = max(units) + 0.1 * sum(units) + 1.0
        iterations = 1.0
        for r in (*deps, *closed):
            iterations *= -(-_extent(r) // full.get(r, Tile()).factor)
        cost = step * iterations
        if along_k is not None:
            results = 1.0
            for r in deps:
                results *= _extent(r)
            packed = max((full.get(r, Tile()).lanes for r in deps), default=1)
            # Folding pairs costs three instructions a result; a lone vector, two a round.
            folding = 3.0 if packed > 1 else 2.0 * max(1, self.lanes.bit_length() - 1) + 3.0
            cost += results * folding
        return cost * self._remainder_penalty(tiles)

    def _remainder_penalty(self, tiles: dict[UOp, Tile]) -> float:
        """Each remainder is another copy of the body to compile and to keep in the cache."""
        penalty = 1.0
        for r, tile in tiles.items():
            if _is_fixed(r) and _extent(r) % tile.factor:
                penalty *= 1.05
        return penalty

    def _count(
        self, ranges: Iterable[UOp], tiles: dict[UOp, Tile], along_k: UOp | None
    ) -> int:
        """Registers that one value over `ranges` takes."""
        total = 1
        for r in ranges:
            tile = tiles.get(r, Tile())
            lone = along_k is not None and r is not along_k
            total *= tile.factor if lone else len(tile.positions())
        return total

    def _loads(
        self, u: UOp, tiles: dict[UOp, Tile], along_k: UOp | None
    ) -> tuple[float, float, int]:
        """Loads and shuffles of one iteration, and the vectors that stay live in between."""
        loads, shuffles, held = 0.0, 0.0, 1
        for x in self.loads(u):
            deps = self.info.deps[x]
            count = self._count(deps, tiles, along_k)
            vector = along_k if along_k in deps else None
            if along_k is None:
                vector = next((r for r in deps if tiles.get(r, Tile()).lanes > 1), None)
            if vector is None:
                loads += count
                continue
            step = self.stride(x, vector)
            lanes = tiles[vector].lanes
            if step == 1:
                loads += count
                held = max(held, min(count, self._count(deps - set(u.src[1:]), tiles, along_k)))
            elif self._block(x, u, tiles, vector):
                depth = tiles[u.src[-1]].factor
                loads += count * lanes / depth
                shuffles += count * (depth.bit_length() - 1)
                # Rows of four floats are gathered straight into the lanes of a full register;
                # longer ones are all live at once.
                held = max(held, count + (lanes if depth > 4 else 0))
            elif step is not None and abs(step) <= WIDEST_STEP and len(x.src) == 2:
                loads += count * abs(step)
                shuffles += count * abs(step)
            else:
                loads += count * lanes
                shuffles += 2 * count * lanes
        return loads, shuffles, held

    def _block(self, x: UOp, u: UOp, tiles: dict[UOp, Tile], vector: UOp) -> bool:
        """Whether a strided load can be had by transposing a block along the reduction."""
        k = u.src[-1]
        tile = tiles.get(k, Tile())
        return (
            len(x.src) == 2
            and self.stride(x, k) == 1
            and tile.lanes == 1
            and tile.factor >= 4
            and tile.factor & (tile.factor - 1) == 0
            and self.stride(x, vector) is not None
        )

    # Cache ----------------------------------------------------------------------------------------

    def _outermost(self, along: UOp) -> None:
        """Move the vector range outside where that streams fewer bytes past the cache.

        With rows outside, the operand that varies with `along` is read again for every tile of
        rows; with `along` outside, the other one is read again for every tile of columns.
        """
        if along not in self.tiling.order[1:]:
            return
        for u in self.info.reduces:
            if along not in self.info.deps[u] or self.info.deps[u] != set(self.tiling.order):
                return
        inner = self._streamed(lambda deps: along in deps)
        outer = self._streamed(lambda deps: along not in deps)
        rows = math.prod(self._tiles(r) for r in self.tiling.order if r is not along)
        if inner * (rows if inner > self.cache else 1) > outer * (
            self._tiles(along) if outer > self.cache else 1
        ) and inner > self.cache:
            self.tiling.order = [along, *(r for r in self.tiling.order if r is not along)]

    def _streamed(self, wanted: Callable[[frozenset[UOp]], bool]) -> int:
        """Bytes behind the reductions' LOADs whose ranges are `wanted`."""
        params = {
            x.src[0] for u in self.info.reduces for x in self.loads(u) if wanted(self.info.deps[x])
        }
        return sum(p.arg[1] * p.dtype.itemsize for p in params)

    def _tiles(self, r: UOp) -> int:
        return -(-_extent(r) // self.tiling.tile(r).factor)

    # Copies that change the layout ----------------------------------------------------------------

    def _transposing(self, stores: Iterable[UOp], along: UOp | None) -> None:
        """A strided load beside a contiguous store: unroll the range it is contiguous along."""
        if along is None:
            return
        for s in stores:
            for x in self.info.loads(s.src[2]):
                step = self.stride(x, along)
                if step in (0, 1, None) or len(x.src) > 2:
                    continue
                for r in self.info.deps[x]:
                    if r is not along and self.stride(x, r) == 1 and _extent(r) >= 4:
                        size = min(self.lanes, 1 << (_extent(r).bit_length() - 1))
                        self.tiling.tiles[r] = Tile(size, 1)
                        self.tiling.tiles[along] = Tile(
                            min(self.lanes, _extent(along)), min(self.lanes, _extent(along))
                        )
                        order = [q for q in self.tiling.order if q is not r]
                        self.tiling.order = [*order, r]
                        return


def _extent(r: UOp) -> int:
    return max(1, r.src[0].vmax)


def _is_fixed(r: UOp) -> bool:
    return r.src[0].op is Op.CONST

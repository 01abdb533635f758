"""Cycles that the loops of a nest take under tiles."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt.codegen.accesses import is_spaced, vector_of
from kernelrt.codegen.tiles import ONE, extent
from kernelrt.codegen.waits import Waits
from kernelrt.device.costs import costs_of
from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kernelrt.codegen.accesses import Accesses
    from kernelrt.codegen.nests import Nest
    from kernelrt.codegen.tiles import Tile
    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp

__all__ = ["PAGE", "Cycles"]

#: Elements by which a tile that is not full takes longer than its share of a full one.
_REST = 1
#: Of the latency of a sum, what is not hidden where there is one accumulator. Of 0, 1 and 1.5 the
#: best for products and convolutions (`python -m bench.report products models`).
_EXPOSED = 1.0
#: Bytes that lie side by side in memory, whatever their addresses say.
PAGE = 4096
#: Cycles of a round that folds the lanes of a vector: a shuffle, then what waits for it.
_ROUND = 6.0
#: What does not fit the registers costs so many cycles, and no tile is that slow.
_SPILL = 1e30


class Cycles:
    """Cycles of nests on `target`.

    Parameters
    ----------
    accesses : Accesses
        Those of the kernel.
    target : DeviceSpec
        Vectors and registers.
    lanes : int
        Elements that a register holds.
    """

    def __init__(self, accesses: Accesses, target: DeviceSpec, lanes: int) -> None:
        self.accesses = accesses
        self.info = info = accesses.info
        self.lanes = lanes
        self.registers = target.vector_registers
        # Registers for what comes and goes, one more where every factor needs one of few; without
        # memory operands scalars take some too.
        self.reserved = 6
        if target.triple.startswith("x86_64"):
            self.reserved = 2 if self.registers > 16 else 3
        # Plain instructions a cycle.
        self.costs = costs_of(target)
        self.rate = 1 / self.costs.plain
        # Whether sums are added up row by row for those of other passes.
        sums = sum(any(u.op is Op.REDUCE for u in nodes) for nodes in info.passes.values())
        self._in_rows = bool(info.locals) and sums > 1
        self.extents = {r: extent(r) for r in info.ranges}
        self._inner: dict[UOp, list[UOp]] = {}
        self._waits = Waits(accesses, self.costs)

    def of(self, nest: Nest, tiles: Mapping[UOp, Tile]) -> float:
        """Estimated cycles of all iterations of `nest`."""
        members = len(nest.reduces)
        along = vector_of(nest.closed, tiles)
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
            turns = math.prod(self._turns(r, tiles) for r in nest.closed)
            step += self._waits.of(nest, tiles) / turns
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
                vector = vector_of(self._innermost_first(x), tiles)
            if vector is None:
                loads += count
                continue
            apart = self.accesses.is_wide(x, vector, tiles)
            step = None if apart else self.accesses.stride(x, vector)
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
            elif is_spaced(x, step):
                assert step is not None
                loads += count * abs(step)
                shuffles += count * abs(step)
            else:
                loads += count * lanes
                shuffles += 2 * count * lanes
        return loads, shuffles, held

    def _innermost_first(self, x: UOp) -> list[UOp]:
        """The RANGEs that a LOAD varies with."""
        found = self._inner.get(x)
        if found is None:
            found = self._inner[x] = sorted(self.info.deps[x], key=lambda r: -int(r.arg))
        return found

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
            and self.accesses.stride(x, k) == 1
            and tile.lanes == 1
            and tile.factor >= 4
            and tile.factor & (tile.factor - 1) == 0
            and self.accesses.stride(x, vector) is not None
        )

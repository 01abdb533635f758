"""Cost model: estimates the cycles of a loop nest under a tiling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt.device.costs import (
    ADD_LATENCY,
    FLOAT_UNITS,
    LOAD_PORTS,
    TRACKED_STREAMS,
    costs_of,
)
from kernelrt.device.spec import LINE, PAGE, WAY
from kernelrt.ir.ops import Op
from kernelrt.loops.memory_stalls import LATE, reads_of
from kernelrt.loops.passes.predication import computed, predicate_of
from kernelrt.loops.tiles import ONE, WIDEST_STEP, extent, is_fixed
from kernelrt.native.tile_cost import Load, MachineModel, NestCost, Tiles, charge, cycles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.access_patterns import Accesses
    from kernelrt.loops.nests import Nest
    from kernelrt.loops.tiles import Tile

__all__ = ["Cycles"]

# Out-of-order overlap of x86 cores of the last ten years. Values that no manual gives were chosen
# with `python -m bench.report products models`.

#: Fraction of the latency of a sum that is exposed with one accumulator. Of 0, 1 and 1.5 the best
#: for products and convolutions.
_EXPOSED = 1.0
#: Fraction of the cycles of execution units other than the bottleneck that still costs issue slots.
_CONTENTION = 0.1
#: Independent sums that hide the whole latency of additions.
_PARALLEL_SUMS = FLOAT_UNITS * ADD_LATENCY
#: Fraction of the time of an L2 line that is not hidden behind products. Of 0.25, 0.5 and 1 the
#: best for products of 50 to 1000 rows and columns (Zen 5) and the MLPs of `bench/models.py`.
_SEEN = 0.5
#: Factor on cycles for a remainder: one more copy of the body, to compile and to keep in the cache.
_REMAINDER = 1.05
#: Of the cycles beyond `_LONG`, only the fraction `_LESS` is charged for a remainder. Products of
#: 64 to 128 rows and columns take 2 to 3 % longer with a remainder; transposed products of 512 take
#: 9 % less. With a fraction of one half, products of 2048 take 4 to 5 % longer (Zen 5, variants of
#: a plan timed alternately).
_LONG, _LESS = 1e6, 0.7
#: Fraction of all cycles that each doubling of a body beyond `_BODY_LIMIT` adds.
_DOUBLING = 0.05
#: Cycles of one round of folding the lanes of a vector: a shuffle, then the dependent op.
_ROUND = 6.0
#: Cycles charged for a tile that does not fit the registers: more than any other tile takes.
_SPILL = 1e30
#: Instructions of a loop body beyond which more of the same hide no more latency.
_BODY_LIMIT = 128


class Cycles:
    """Estimated cycles of loop nests on `target`.

    :mod:`kernelrt.native.tile_cost` computes the sums in C.

    Parameters
    ----------
    accesses : Accesses
        Accesses of the kernel.
    nests : sequence of Nest
        All nests of the kernel.
    target : DeviceSpec
        Device: its vectors, registers and costs.
    lanes : int
        Elements of a vector register.
    """

    def __init__(
        self, accesses: Accesses, nests: Sequence[Nest], target: DeviceSpec, lanes: int
    ) -> None:
        self.accesses = accesses
        self.info = info = accesses.info
        self.target = target
        self.costs = costs_of(target)
        ranges = info.ranges
        self._indices = {r: at for at, r in enumerate(ranges)}
        self._tiles = Tiles(self._indices, map(extent, ranges), map(is_fixed, ranges))
        self._model = self._machine_model(target, lanes)
        self._closed = {r for closed in info.passes for r in closed}
        # Whether several passes sum, with local arrays: one sums row by row for the others.
        sums = sum(any(u.op is Op.REDUCE for u in nodes) for nodes in info.passes.values())
        self._in_rows = bool(info.locals) and sums > 1
        self._nest_costs = {nest: self._nest_cost(nest) for nest in nests}
        predicates = {nest: predicate_of(info, nest.nodes) for nest in nests}
        self._predicates = {
            nest: predicate for nest, predicate in predicates.items() if predicate is not None
        }
        self._parts: dict[object, float] = {}

    def of(self, nests: Iterable[Nest], tiles: Mapping[UOp, Tile]) -> float:
        """Return the estimated cycles of all iterations of `nests` under `tiles`."""
        if not self._predicates:
            return cycles([self._nest_costs[nest] for nest in nests], tiles)
        return sum(
            cycles([self._nest_costs[nest]], tiles) * self._computed(nest, tiles) for nest in nests
        )

    def _computed(self, nest: Nest, tiles: Mapping[UOp, Tile]) -> float:
        """Return the fraction of the tiles of `nest` that its predicate does not skip."""
        predicate = self._predicates.get(nest)
        if predicate is None:
            return 1.0
        key = (nest, *(tiles.get(r, ONE).factor for r in self.info.ranges if r in nest.deps))
        if key not in self._parts:
            self._parts[key] = computed(predicate, tiles)
        return self._parts[key]

    def copies(self, nest: Nest, tiles: Mapping[UOp, Tile]) -> float:
        """Return the cycles charged for further copies of the body of `nest`.

        The remainder of a loop needs another copy of the body, which has to be compiled and takes
        room in the cache. In kernels that run long, such a copy costs less, except in nests that
        fill arrays.
        """
        extra = charge(self._nest_costs[nest], tiles) - 1
        if not extra:
            return 0.0
        taken = self.of([nest], tiles)
        long = 0.0 if nest.fills else max(0.0, taken - _LONG)
        return extra * (taken - (1 - _LESS) * long)

    def abreast(self, nest: Nest) -> int:
        """Return how many rows of `nest` to reduce together, to overlap the latency of their sums.

        The result is at most the number of rows that fit two pages. It is 0 if no value under
        further loops uses the sums.
        """
        size = max((x.dtype.itemsize for x in nest.loads), default=1)
        row = size * math.prod(extent(r) for r in nest.closed)
        return (2 * PAGE - 1) // max(1, row) if nest.awaited else 0

    def _machine_model(self, target: DeviceSpec, lanes: int) -> MachineModel:
        near, beyond = self.costs.levels[:2]
        return MachineModel(
            ops_per_cycle=1 / self.costs.plain, exposed_latency=_EXPOSED, spill_cycles=_SPILL,
            fold_cycles=_ROUND, registers=target.vector_registers, lanes=lanes,
            widest_step=WIDEST_STEP, late_fraction=LATE, tracked_streams=TRACKED_STREAMS, line=LINE,
            cache_sets=WAY // LINE, l1_bytes=near.nbytes,
            wait_cycles=LINE * beyond.cycles * _SEEN, body_limit=_BODY_LIMIT,
            contention=_CONTENTION, parallel_sums=_PARALLEL_SUMS, latency=ADD_LATENCY,
            ports=LOAD_PORTS, remainder_factor=_REMAINDER, doubling_cost=_DOUBLING,
        )  # fmt: skip

    def _nest_cost(self, nest: Nest) -> NestCost:
        around = sorted(nest.deps, key=lambda r: int(r.arg))
        near = self.costs.levels[0].nbytes
        reads = [] if self._in_rows else reads_of(self.accesses, nest, near, self._indices)
        return NestCost(
            self._tiles, self._model,
            [self._indices[r] for r in around], [self._indices[r] for r in nest.closed],
            [self._load(nest, x) for x in nest.loads], reads,
            sums=len(nest.reduces), fills=len(nest.fills), work=nest.work, filling=nest.filling,
            singles=math.prod(extent(r) for r in nest.deps) * len(nest.reduces),
            reserved=_reserved(self.target, nest), sequential=nest.sequential,
            is_row=self._in_rows, is_interleaved=self.abreast(nest) > 1,
        )  # fmt: skip

    def _load(self, nest: Nest, x: UOp) -> Load:
        array = x.src[0]
        # Innermost first: of several vectorized loops the innermost counts.
        loops = sorted(self.info.deps[x] & nest.ranges, key=lambda r: -int(r.arg))
        around = self.info.deps[array] if array.op is Op.LOCAL else ()
        return Load(
            [self._indices[r] for r in loops],
            [self.accesses.stride(x, r) for r in loops],
            [r in nest.closed for r in loops],
            [self._indices[r] for r in around],
            len(x.src) == 2,
            x.dtype.itemsize,
            self._streamed(nest, x) if self._in_rows else 0.0,
        )

    def _streamed(self, nest: Nest, x: UOp) -> float:
        """Return the cycles per byte if `x` reads from beyond the L1 cache, else 0.

        Each tile of rows reads such an operand again, from start to end.
        """
        deps = self.info.deps[x]
        rows = [int(r.arg) for r in nest.deps - deps - self._closed]
        if x.src[0].op is not Op.PARAM or not rows:
            return 0.0
        inside = [r for r in deps if r in self._closed or int(r.arg) > max(rows)]
        walked = x.dtype.itemsize * math.prod(extent(r) for r in inside)
        return self.costs.byte(walked) if walked > self.costs.levels[0].nbytes else 0.0


def _reserved(target: DeviceSpec, nest: Nest) -> int:
    """Return the registers for temporaries of a tile."""
    if not target.triple.startswith("x86_64"):
        return 6  # without memory operands, scalars need some, too
    if not target.few_registers:
        return 2
    # Each factor needs a register, as no memory operand is broadcast. Factors of fused products
    # take turns in those of the accumulators: LLVM allocates 6 rows of two vectors, and 4 of three,
    # without a spill. Matrix products of 128 to 512 reach 97% of the peak with 6 rows of two
    # vectors, 90% with 2 rows of four (AVX2, Zen 4).
    return 0 if nest.adds_products else 3

"""Lines of memory that a tile of sums waits for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from kernelrt.codegen.streams import LINE, WAY
from kernelrt.codegen.tiles import ONE, extent
from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrt.codegen.accesses import Accesses
    from kernelrt.codegen.nests import Nest
    from kernelrt.codegen.tiles import Tile
    from kernelrt.device.costs import Costs
    from kernelrt.ir.uop import UOp

__all__ = ["Waits"]

#: Runs of lines that a processor fetches ahead side by side, about.
_FOLLOWED = 8
#: Of lines that it does follow, the part that is waited for all the same. Of 0, 0.2, 0.35 and 1 the
#: best for products and convolutions (`python -m bench.report products models`).
_LATE = 0.2


class _Step(NamedTuple):
    """Bytes from one element of a RANGE to the next, and in how many places of a way they end.

    Its elements are those of a tile, or all `closed` of them where a sum closes over it.
    """

    nbytes: int
    places: int
    range: UOp
    closed: int


class _Read(NamedTuple):
    """What one LOAD of a nest reads, the smallest step first."""

    itemsize: int
    steps: tuple[_Step, ...]


class Waits:
    """Lines that the nests of a kernel have from its second cache.

    Parameters
    ----------
    accesses : Accesses
        Those of the kernel.
    costs : Costs
        What bytes cost.
    """

    def __init__(self, accesses: Accesses, costs: Costs) -> None:
        self._accesses = accesses
        self._near = costs.levels[0].nbytes
        self._cycles = LINE * costs.levels[1].cycles
        self._reads: dict[Nest, tuple[_Read, ...]] = {}

    def of(self, nest: Nest, tiles: Mapping[UOp, Tile]) -> float:
        """Cycles in which one tile of results of `nest` waits for lines.

        So it is where they lie apart in more places than a processor follows, and are driven out of
        the first cache before the tile beside reads them again.
        """
        reads = self._reads.get(nest)
        if reads is None:
            reads = self._reads[nest] = self._read(nest)
        lines = [_lines(read, tiles) for read in reads]
        full = LINE * sum(count for count, _, _ in lines) > self._near
        waited = sum(
            count * (1.0 if streams > _FOLLOWED else _LATE)
            for count, places, streams in lines
            if full or count > places * self._near // WAY
        )
        return waited * self._cycles

    def _read(self, nest: Nest) -> tuple[_Read, ...]:
        """The LOADs of `nest`; none where the first cache holds all that they can reach."""
        params = {x.src[0] for x in nest.loads if x.src[0].op is Op.PARAM}
        held = sum(param.arg[1] * param.dtype.itemsize for param in params) <= self._near
        if held or not nest.reduces:
            return ()
        found = []
        for x in nest.loads:
            if x.src[0] not in params:
                continue
            steps = []
            for r in self._accesses.info.deps[x] & nest.ranges:
                nbytes = abs(self._accesses.stride(x, r) or 0) * x.dtype.itemsize
                closed = extent(r) if r in nest.closed else 0
                steps.append(_Step(nbytes, WAY // math.gcd(nbytes, WAY), r, closed))
            steps.sort(key=lambda step: (step.nbytes, int(step.range.arg)))
            found.append(_Read(x.dtype.itemsize, tuple(steps)))
        return tuple(found)


def _lines(read: _Read, tiles: Mapping[UOp, Tile]) -> tuple[int, int, int]:
    """Lines that a tile reads, their places in a way, and the runs of them side by side."""
    runs, places, streams, run = 1, 1, 1, read.itemsize
    for nbytes, spread, r, closed in read.steps:
        size = closed or tiles.get(r, ONE).factor
        if nbytes <= max(run, LINE):
            run += nbytes * (size - 1)
        else:
            runs *= size
            places *= min(size, spread)
        if nbytes > LINE and not closed:
            streams *= size
    of_run = -(-run // LINE)
    return runs * of_run, min(places * of_run, WAY // LINE), streams

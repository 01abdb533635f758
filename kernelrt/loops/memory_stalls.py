"""Memory-stall model: cache lines that a tile of sums waits for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt.ir.ops import Op
from kernelrt.loops.passes.prefetch_streams import WAY
from kernelrt.loops.tiles import extent
from kernelrt.native.tile_cost import Read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrt.ir.uop import UOp
    from kernelrt.loops.access_patterns import Accesses
    from kernelrt.loops.nests import Nest

__all__ = ["LATE", "TRACKED_STREAMS", "reads_of"]

#: Streams that a hardware prefetcher tracks at once, about.
TRACKED_STREAMS = 8
#: Of lines that it does follow, the part that is waited for all the same. Of 0, 0.2, 0.35 and 1 the
#: best for products and convolutions (`python -m bench.report products models`).
LATE = 0.2


def reads_of(accesses: Accesses, nest: Nest, near: int, places: Mapping[UOp, int]) -> list[Read]:
    """The LOADs of `nest`; none where the first cache, of `near` bytes, holds all that they reach.

    `places` numbers the RANGEs.
    """
    params = {x.src[0] for x in nest.loads if x.src[0].op is Op.PARAM}
    held = sum(param.arg[1] * param.dtype.itemsize for param in params) <= near
    if held or not nest.reduces:
        return []
    return [_read(accesses, nest, x, places) for x in nest.loads if x.src[0] in params]


def _read(accesses: Accesses, nest: Nest, x: UOp, places: Mapping[UOp, int]) -> Read:
    """Bytes from one element of each RANGE to the next, the smallest step first.

    And in how many places of a way of the cache its elements end. These are those of a tile, or all
    where a sum closes over it.
    """
    size = x.dtype.itemsize
    steps = [
        (abs(accesses.stride(x, r) or 0) * size, int(r.arg), r)
        for r in accesses.info.deps[x] & nest.ranges
    ]
    steps.sort(key=lambda step: step[:2])
    return Read(
        size,
        [places[r] for *_, r in steps],
        [nbytes for nbytes, *_ in steps],
        [WAY // math.gcd(nbytes, WAY) for nbytes, *_ in steps],
        [extent(r) if r in nest.closed else 0 for *_, r in steps],
    )

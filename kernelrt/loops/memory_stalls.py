"""Memory-stall model: describes the loads of a nest that may wait for cache lines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt.device.spec import WAY
from kernelrt.ir.ops import Op
from kernelrt.loops.tiles import extent
from kernelrt.native.tile_cost import Read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrt.ir.uop import UOp
    from kernelrt.loops.access_patterns import Accesses
    from kernelrt.loops.nests import Nest

__all__ = ["LATE", "reads_of"]

#: Fraction of cache lines that stall although a hardware prefetcher follows their stream. Of 0,
#: 0.2, 0.35 and 1, this gives the best tilings of products and convolutions (`python -m
#: bench.report products models`).
LATE = 0.2


def reads_of(
    accesses: Accesses, nest: Nest, l1_bytes: int, indices: Mapping[UOp, int]
) -> list[Read]:
    """Return the reads of `nest` for the stall model; empty if the buffers fit the L1 cache.

    Parameters
    ----------
    accesses : Accesses
        Accesses of the kernel.
    nest : Nest
        The nest. Only its LOADs of arguments count.
    l1_bytes : int
        Size of the L1 cache in bytes.
    indices : mapping of UOp to int
        Numbers of the RANGEs.
    """
    params = {x.src[0] for x in nest.loads if x.src[0].op is Op.PARAM}
    held = sum(param.arg[1] * param.dtype.itemsize for param in params) <= l1_bytes
    if held or not nest.reduces:
        return []
    return [_read(accesses, nest, x, indices) for x in nest.loads if x.src[0] in params]


def _read(accesses: Accesses, nest: Nest, x: UOp, indices: Mapping[UOp, int]) -> Read:
    """Return the strides of `x` in bytes, smallest first, and the cache sets that they reach.

    A stride reaches ``WAY / gcd(stride, WAY)`` different offsets in a cache way. If the nest sums
    over a RANGE, all elements along it count. Along another RANGE, only the elements of a tile
    count.
    """
    size = x.dtype.itemsize
    steps = [
        (abs(accesses.stride(x, r) or 0) * size, int(r.arg), r)
        for r in accesses.info.deps[x] & nest.ranges
    ]
    steps.sort(key=lambda step: step[:2])
    return Read(
        size,
        [indices[r] for *_, r in steps],
        [nbytes for nbytes, *_ in steps],
        [WAY // math.gcd(nbytes, WAY) for nbytes, *_ in steps],
        [extent(r) if r in nest.closed else 0 for *_, r in steps],
    )

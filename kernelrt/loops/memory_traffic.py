"""Memory traffic: bytes that a loop nest reads from beyond a cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt.loops.tiles import ONE, extent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis
    from kernelrt.loops.tiles import Tile

__all__ = ["streamed"]


def streamed(
    info: Analysis,
    loads: Sequence[UOp],
    closed: Iterable[UOp],
    order: Sequence[UOp],
    tiles: Mapping[UOp, Tile],
    cache: int,
) -> int:
    """Return the bytes that `loads` read from beyond a cache of `cache` bytes.

    If a LOAD does not vary with a loop, each iteration of the loop reads the same bytes again. They
    come from the cache if all bytes that one iteration reads fit the cache.

    Parameters
    ----------
    info : Analysis
        The kernel.
    loads : sequence of UOp
        LOADs in the innermost loops of the kernel.
    closed : iterable of UOp
        RANGEs of the REDUCEs that the LOADs belong to.
    order : sequence of UOp
        The other RANGEs, outermost loop first.
    tiles : mapping of UOp to Tile
        Tiles of the RANGEs in `order`.
    cache : int
        Size of the cache in bytes.
    """
    iterations = dict.fromkeys(loads, 1)
    within = {r: extent(r) for r in (*order, *closed)}
    whole = dict(within)
    for r in order:
        tile = tiles.get(r, ONE).factor
        within[r] = min(extent(r), tile)
        if sum(_touched(info, x, within) for x in loads) > cache:
            for x in loads:
                if r not in info.deps[x]:
                    iterations[x] *= -(-extent(r) // tile)
    return sum(iterations[x] * _touched(info, x, whole) for x in loads)


def _touched(info: Analysis, x: UOp, sizes: Mapping[UOp, int]) -> int:
    """Return the bytes that a LOAD touches while each loop takes `sizes` values."""
    steps = {r: info.stride(x, r) for r in info.deps[x] if r in sizes}
    count = math.prod(sizes[r] for r in steps)
    if None not in steps.values():
        # Overlapping windows touch at most the bytes between their ends.
        count = min(count, 1 + sum(abs(s or 0) * (sizes[r] - 1) for r, s in steps.items()))
    return int(min(x.src[0].arg[1], count)) * x.dtype.itemsize

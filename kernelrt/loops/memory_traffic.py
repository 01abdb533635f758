"""Bytes that a loop nest reads from beyond the cache."""

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
    """Bytes that `loads` have from past a cache of so many bytes.

    A loop that a LOAD does not vary with reads it again, unless all that is read in one turn of
    that loop stays in the cache.

    Parameters
    ----------
    info : Analysis
        The kernel.
    loads : sequence of UOp
        LOADs in its innermost loops.
    closed : iterable of UOp
        RANGEs of the REDUCEs that they belong to.
    order : sequence of UOp
        The other RANGEs, outermost loop first.
    tiles : mapping
        Tiles of these.
    cache : int
        Bytes that it holds.
    """
    turns = dict.fromkeys(loads, 1)
    within = {r: extent(r) for r in (*order, *closed)}
    whole = dict(within)
    for r in order:
        tile = tiles.get(r, ONE).factor
        within[r] = min(extent(r), tile)
        if sum(_touched(info, x, within) for x in loads) > cache:
            for x in loads:
                if r not in info.deps[x]:
                    turns[x] *= -(-extent(r) // tile)
    return sum(turns[x] * _touched(info, x, whole) for x in loads)


def _touched(info: Analysis, x: UOp, sizes: Mapping[UOp, int]) -> int:
    """Bytes of memory that a LOAD reads while loops take so many values each."""
    steps = {r: info.stride(x, r) for r in info.deps[x] if r in sizes}
    count = math.prod(sizes[r] for r in steps)
    if None not in steps.values():
        # Windows over each other touch what lies between their ends.
        count = min(count, 1 + sum(abs(s or 0) * (sizes[r] - 1) for r, s in steps.items()))
    return int(min(x.src[0].arg[1], count)) * x.dtype.itemsize

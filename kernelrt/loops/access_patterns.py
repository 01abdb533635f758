"""Strides and vector axes of memory accesses under a tiling, and sizes of local arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt.ir.local import local_bytes
from kernelrt.ir.ops import Op
from kernelrt.loops.memoized_sums import Total
from kernelrt.loops.passes.share_arrays import replaced
from kernelrt.loops.tiles import ONE, WIDEST_STEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis
    from kernelrt.loops.tiles import Tile

__all__ = ["Accesses", "is_spaced", "vector_of"]


class Accesses:
    """Strides of the accesses of the kernel `info`, and sizes of its local arrays."""

    def __init__(self, info: Analysis) -> None:
        self.info = info
        self._replaced = replaced(info)
        self._strides: dict[tuple[UOp, UOp], int | None] = {}
        arrays = {u: tuple(info.deps[u]) for u in info.locals}
        self._arrays = Total(arrays, self._local_bytes)

    def stride(self, access: UOp, r: UOp) -> int | None:
        """Return the stride of a LOAD or STORE along `r`; None if not constant."""
        key = (access, r)
        if key not in self._strides:
            self._strides[key] = self.info.stride(access, r)
        return self._strides[key]

    def is_wide(self, x: UOp, vector: UOp | None, tiles: Mapping[UOp, Tile]) -> bool:
        """Return whether the LOAD `x` reads an array of vectors along a RANGE not `vector`."""
        array = x.src[0]
        return (
            x.op is Op.LOAD
            and array.op is Op.LOCAL
            and vector is not None
            and any(r is not vector and tiles.get(r, ONE).lanes > 1 for r in self.info.deps[array])
        )

    def local_bytes(self, tiles: Mapping[UOp, Tile]) -> int:
        """Return the bytes of all local arrays.

        There is one array for each element of the tiles of the loops around it.
        """
        return int(self._arrays.under(tiles))

    def _local_bytes(self, array: UOp, tiles: Mapping[UOp, Tile]) -> int:
        around = [tiles.get(r, ONE) for r in self.info.deps[array]]
        if array in self._replaced and not any(tile.lanes > 1 for tile in around):
            return 0
        points = math.prod(tile.factor for tile in around)
        return points * local_bytes(array.dtype, array.src[1:])


def vector_of(ranges: Iterable[UOp], tiles: Mapping[UOp, Tile]) -> UOp | None:
    """Return the RANGE of `ranges` that is vectorized, or None."""
    return next((r for r in ranges if tiles.get(r, ONE).lanes > 1), None)


def is_spaced(x: UOp, step: int | None) -> bool:
    """Return whether the LOAD `x` has so short a stride that it loads a whole run and shuffles."""
    return bool(step) and abs(step or 0) <= WIDEST_STEP and len(x.src) == 2

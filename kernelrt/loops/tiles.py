"""Tiles: elements of a RANGE that one iteration covers, their vectors and offsets."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ONE", "WIDEST_STEP", "Part", "Point", "Position", "Tile", "extent", "is_fixed",
    "lane_within", "lanes_of", "parts", "spread", "vector_range",
]  # fmt: skip

#: The largest stride, in elements, at which a whole run is loaded and shuffled. Beyond it, elements
#: are loaded one by one.
WIDEST_STEP = 4
#: A position along one RANGE in the current tile: (offset from the loop variable, lanes).
Position = tuple[int, int]
#: A point in the tile, where a value is computed: RANGE -> (offset, lanes).
Point = dict[UOp, Position]


class Tile(NamedTuple):
    """Tile of a RANGE: one iteration covers `factor` elements, in vectors of `lanes` elements."""

    factor: int = 1
    lanes: int = 1

    @property
    def points(self) -> int:
        """Number of points along the tile."""
        return -(-self.factor // self.lanes)

    def positions(self) -> tuple[Position, ...]:
        """Return the offset and lanes of each point along the tile."""
        return tuple(
            (o, min(self.lanes, self.factor - o)) for o in range(0, self.factor, self.lanes)
        )


#: The default tile: one element.
ONE = Tile()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a loop whose iterations have tiles of one shape.

    Attributes
    ----------
    tile : Tile
        Elements that one iteration covers.
    trips : int or None
        Number of iterations; None if it is dynamic. A part with one iteration needs no loop.
    masked : bool
        Whether the part is the last, partly filled vector.
    """

    tile: Tile
    trips: int | None
    masked: bool = False


def parts(r: UOp, tile: Tile) -> tuple[Part, ...]:
    """Return the parts of the loop over `r`: whole tiles, then the remainder in smaller tiles.

    If the extent is constant, one smaller tile covers the remainder. If it is dynamic, tiles of a
    quarter of the size follow, then tiles of a quarter of that, and so on, down to single vectors
    and a masked vector. With halves instead of quarters, each loop would have about twice as many
    parts, and the numbers of parts of nested loops multiply.
    """
    if is_fixed(r):
        trips, rest = divmod(int(r.src[0].arg), tile.factor)
        whole = (Part(tile, trips),) if trips else ()
        return (*whole, Part(Tile(rest, tile.lanes), 1)) if rest else whole
    steps = [tile.factor]
    while steps[-1] > tile.lanes:
        steps.append(max(tile.lanes, steps[-1] // 4 // tile.lanes * tile.lanes))
    out = [Part(Tile(step, tile.lanes), None) for step in steps]
    if tile.lanes > 1:
        out.append(Part(Tile(tile.lanes, tile.lanes), None, masked=True))
    return tuple(out)


def extent(r: UOp) -> int:
    """Return the greatest number of iterations of a RANGE, at least 1."""
    return max(1, r.src[0].vmax)


def is_fixed(r: UOp) -> bool:
    """Return whether the number of iterations of a RANGE is constant."""
    return r.src[0].op is Op.CONST


def lanes_of(point: Mapping[UOp, Position]) -> int:
    """Return the number of lanes of a value at `point`."""
    return max((lanes for _, lanes in point.values()), default=1)


def vector_range(point: Mapping[UOp, Position]) -> UOp | None:
    """Return the RANGE along which a value at `point` is a vector, or None if it is a scalar."""
    return next((r for r, (_, lanes) in point.items() if lanes > 1), None)


def spread(point: Mapping[UOp, Position]) -> list[Point]:
    """Return one point for each lane of a vector at `point`."""
    options = [[(o + i, 1) for i in range(lanes)] for o, lanes in point.values()]
    return [dict(zip(point, combo, strict=True)) for combo in itertools.product(*options)]


def lane_within(
    wide: Mapping[UOp, Position], point: Mapping[UOp, Position]
) -> int | None:
    """Return the lane of the vector at `wide` that holds the scalar at `point`, or None."""
    lane = 0
    for r, (offset, _) in point.items():
        start, lanes = wide[r]
        if not start <= offset < start + lanes:
            return None
        if lanes > 1:
            lane = offset - start
    return lane

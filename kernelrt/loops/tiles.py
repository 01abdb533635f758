"""Tiles: how many elements of a RANGE one iteration covers, in which vectors, at which offsets."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ONE", "WIDEST_STEP", "Part", "Place", "Position", "Tile", "extent", "is_fixed",
    "lane_within", "lanes_of", "parts", "spread", "vector_range",
]  # fmt: skip

#: Up to this distance between neighbours a whole run is loaded rather than single elements.
WIDEST_STEP = 4
#: A place on a range inside the current tile: offset from the loop variable, and lanes.
Position = tuple[int, int]
#: Where in the tile a value is computed: range -> (offset, lanes).
Place = dict[UOp, Position]


class Tile(NamedTuple):
    """How many elements of a range one iteration covers, in vectors of how many lanes."""

    factor: int = 1
    lanes: int = 1

    @property
    def places(self) -> int:
        """How many places there are along the tile."""
        return -(-self.factor // self.lanes)

    def positions(self) -> tuple[Position, ...]:
        """Offset and lanes of each place along the tile."""
        return tuple(
            (o, min(self.lanes, self.factor - o)) for o in range(0, self.factor, self.lanes)
        )


#: The tile of a range that has none: one element.
ONE = Tile()


@dataclass(frozen=True, slots=True)
class Part:
    """A run of a loop with one shape of tile.

    Attributes
    ----------
    tile : Tile
        What one iteration covers.
    trips : int or None
        Iterations, where they are known; 1 means that no loop is needed.
    masked : bool
        Whether it is the last, partly filled vector.
    """

    tile: Tile
    trips: int | None
    masked: bool = False


def parts(r: UOp, tile: Tile) -> tuple[Part, ...]:
    """The loop over `r`: whole tiles first, then what is left in smaller ones.

    Where the extent is known, one smaller tile takes what is left. Where it is not, tiles of a
    quarter of the size follow, down to single vectors, and a masked one: what is written for the
    parts of nested loops multiplies, and with halves it were twice as much for each.
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
    """The greatest number of iterations of a RANGE, at least 1."""
    return max(1, r.src[0].vmax)


def is_fixed(r: UOp) -> bool:
    """Whether the number of iterations of a RANGE is known."""
    return r.src[0].op is Op.CONST


def lanes_of(place: Mapping[UOp, Position]) -> int:
    """Lanes of a value at `place`."""
    return max((lanes for _, lanes in place.values()), default=1)


def vector_range(place: Mapping[UOp, Position]) -> UOp | None:
    """The range along which a value at `place` has lanes."""
    return next((r for r, (_, lanes) in place.items() if lanes > 1), None)


def spread(place: Mapping[UOp, Position]) -> list[Place]:
    """A vector place as its single lanes."""
    options = [[(o + i, 1) for i in range(lanes)] for o, lanes in place.values()]
    return [dict(zip(place, combo, strict=True)) for combo in itertools.product(*options)]


def lane_within(
    wide: Mapping[UOp, Position], place: Mapping[UOp, Position]
) -> int | None:
    """The lane of the vector at `wide` that holds the scalar at `place`, if one does."""
    lane = 0
    for r, (offset, _) in place.items():
        start, lanes = wide[r]
        if not start <= offset < start + lanes:
            return None
        if lanes > 1:
            lane = offset - start
    return lane

"""Memoized sums over the parts of a kernel, updated incrementally when tiles change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from kernelrt.loops.tiles import ONE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from kernelrt.ir.uop import UOp
    from kernelrt.loops.tiles import Tile

__all__ = ["Total"]

_Part = TypeVar("_Part", bound="Hashable")


class Total(Generic[_Part]):
    """A sum over parts of a kernel, where the amount of each part depends on the tiles of RANGEs.

    A search tries many tilings that differ in few RANGEs, and a kernel may have hundreds of RANGEs.
    So only parts that depend on a changed tile are evaluated again, and results are cached by the
    tiles.

    Parameters
    ----------
    parts : mapping
        Maps each part to the RANGEs whose tiles it depends on.
    count : callable
        Returns the amount of a part under a mapping of tiles.
    """

    def __init__(
        self,
        parts: Mapping[_Part, Sequence[UOp]],
        count: Callable[[_Part, Mapping[UOp, Tile]], float],
    ) -> None:
        self._parts = parts
        self._count = count
        self._counted: dict[object, float] = {}
        self._tiles: Mapping[UOp, Tile] = {}
        self._amounts = {part: self._amount(part, {}) for part in parts}
        self._varying: dict[UOp, list[_Part]] = {}
        for part, ranges in parts.items():
            for r in ranges:
                self._varying.setdefault(r, []).append(part)

    def under(self, tiles: Mapping[UOp, Tile], parts: Iterable[_Part] | None = None) -> float:
        """Return the sum over `parts` (by default, all parts) under `tiles`."""
        changed = self._tiles.items() ^ tiles.items()
        self._tiles = dict(tiles)
        for part in {part: None for r, _ in changed for part in self._varying.get(r, ())}:
            self._amounts[part] = self._amount(part, tiles)
        if parts is None:
            return sum(self._amounts.values())
        return sum(map(self._amounts.__getitem__, parts))

    def _amount(self, part: _Part, tiles: Mapping[UOp, Tile]) -> float:
        key = (part, *[tiles.get(r, ONE) for r in self._parts[part]])
        found = self._counted.get(key)
        if found is None:
            found = self._counted[key] = self._count(part, tiles)
        return found

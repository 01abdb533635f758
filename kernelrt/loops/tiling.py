"""A tiling as plain data: tiles, loop order and chunks of a kernel."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from kernelrt.errors import SpecError
from kernelrt.ir.ops import Op
from kernelrt.ir.shape import as_dim
from kernelrt.loops.tiles import ONE, Tile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrt.ir.uop import Dim, UOp
    from kernelrt.loops.analysis import Analysis

__all__ = ["Tiling"]


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the loops of a kernel are written: plain data, equal where the loops are.

    Attributes
    ----------
    tiles : mapping of UOp to Tile
        Tiles of RANGEs; one element each for those that are not named.
    order : tuple of UOp
        The RANGEs that stores vary with, outermost loop first.
    chunked : UOp or None
        The one of them that is divided among calls of the kernel.
    share : int
        Elements of it that one call covers; 0 where there is none.
    outside : tuple of UOp
        RANGEs of REDUCEs that go around the loops of the arrays which their results fill: each
        element is added to once for each turn of them.
    """

    tiles: Mapping[UOp, Tile] = field(default_factory=dict)
    order: tuple[UOp, ...] = ()
    chunked: UOp | None = None
    share: int = 0
    outside: tuple[UOp, ...] = ()

    def __post_init__(self) -> None:
        chosen = {r: t for r, t in self.tiles.items() if t != ONE}
        object.__setattr__(self, "tiles", MappingProxyType(chosen))

    def __hash__(self) -> int:
        tiles = frozenset(self.tiles.items())
        return hash((tiles, self.order, self.chunked, self.share, self.outside))

    @property
    def chunks(self) -> Dim:
        """How many chunks the kernel has; follows the Variables in its shape.

        At least one: where there is nothing to compute, it finds that out.
        """
        if self.chunked is None:
            return 1
        parts = (self.chunked.src[0] + (self.share - 1)) // self.share
        return as_dim(parts.alu(Op.MAX, 1))

    def tile(self, r: UOp) -> Tile:
        """The tile of `r`; one element where none was chosen."""
        return self.tiles.get(r, ONE)

    def keeps(self, u: UOp) -> bool:
        """Whether `u` is an array that holds sums while RANGEs go around its loops."""
        fold = u.src[0]
        held = u.op is Op.LOCAL and fold.op is Op.REDUCE
        return held and any(r in self.outside for r in fold.src[1:])

    def text(self) -> str:
        """The canonical JSON form, in which RANGEs go by their numbers in the AST.

        As in ``{"chunked":0,"order":[0,1],"share":8,"tiles":{"0":[4,1],"1":[32,16]}}``, where a
        tile is its factor and its lanes. RANGEs that go outside are named where there are any.
        """
        content: dict[str, Any] = {
            "chunked": None if self.chunked is None else self.chunked.arg,
            "order": [r.arg for r in self.order],
            "share": self.share,
            "tiles": {str(r.arg): [t.factor, t.lanes] for r, t in self.tiles.items()},
        }
        if self.outside:
            content["outside"] = [r.arg for r in self.outside]
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str, info: Analysis) -> Self:
        """Read what :meth:`text` wrote for the kernel `info`; see also ``candidates.verify``.

        Raises
        ------
        SpecError
            It is nothing that was written for a kernel with these RANGEs.
        """
        numbered = {str(r.arg): r for r in info.ranges}
        if len(numbered) < len(info.ranges):
            raise SpecError("a tiling needs RANGEs of different numbers")
        try:
            content: Any = json.loads(text)
            tiles = {numbered[r]: Tile(*map(_whole, t)) for r, t in content["tiles"].items()}
            order = tuple(numbered[str(_whole(r))] for r in content["order"])
            at = content["chunked"]
            chunked = None if at is None else numbered[str(_whole(at))]
            outside = tuple(numbered[str(_whole(r))] for r in content.get("outside", ()))
            found = cls(tiles, order, chunked, _whole(content["share"]), outside)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise SpecError(f"{text[:200]!r} is no tiling of this kernel: {error!r}") from None
        if found.text() != text:
            raise SpecError(f"{text[:200]!r} is not as tilings are written")
        return found


def _whole(number: object) -> int:
    if type(number) is not int:
        raise TypeError(f"expected a whole number, not {number!r}")
    return number

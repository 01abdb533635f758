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
    """The tiling of a kernel: plain data. Equal tilings give equal loops.

    Attributes
    ----------
    tiles : mapping of UOp to Tile
        Tile of each RANGE. RANGEs not in the mapping have tiles of one element.
    order : tuple of UOp
        The RANGEs that stores vary with, outermost loop first.
    chunked : UOp or None
        The RANGE in `order` that is split into chunks. Each call of the kernel runs one chunk.
    share : int
        Elements of `chunked` in a chunk; 0 if `chunked` is None.
    outside : tuple of UOp
        RANGEs of REDUCEs that fill a local array. The loops over these RANGEs enclose the loops
        over the array, and each of their iterations adds to every element of the array
        (output-stationary).
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
        """Number of chunks of the kernel, at least 1; depends on the Variables in its shape.

        An empty kernel has one chunk, whose loops run zero iterations.
        """
        if self.chunked is None:
            return 1
        parts = (self.chunked.src[0] + (self.share - 1)) // self.share
        return as_dim(parts.alu(Op.MAX, 1))

    def tile(self, r: UOp) -> Tile:
        """Return the tile of `r`; the default is one element."""
        return self.tiles.get(r, ONE)

    def keeps(self, u: UOp) -> bool:
        """Return whether `u` is a LOCAL that accumulates sums over RANGEs of `outside`."""
        fold = u.src[0]
        held = u.op is Op.LOCAL and fold.op is Op.REDUCE
        return held and any(r in self.outside for r in fold.src[1:])

    def text(self) -> str:
        """Return the canonical JSON form. It names RANGEs by their numbers in the AST.

        Example: ``{"chunked":0,"order":[0,1],"share":8,"tiles":{"0":[4,1],"1":[32,16]}}``. A tile
        is ``[factor, lanes]``. The key ``"outside"`` is left out if `outside` is empty.
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
        """Parse the output of :meth:`text` for the kernel `info`.

        The tiling may still be invalid for the kernel: see :func:`.search_space.verify`.

        Raises
        ------
        SpecError
            `text` is not the canonical form of a tiling of a kernel with these RANGEs.
        """
        numbered = {str(r.arg): r for r in info.ranges}
        if len(numbered) < len(info.ranges):
            raise SpecError(
                "tiling: two RANGEs of the kernel have the same number, so no text can tell them "
                "apart; this is a bug in kernelrt, please report it"
            )
        try:
            content: Any = json.loads(text)
            tiles = {numbered[r]: Tile(*map(_whole, t)) for r, t in content["tiles"].items()}
            order = tuple(numbered[str(_whole(r))] for r in content["order"])
            at = content["chunked"]
            chunked = None if at is None else numbered[str(_whole(at))]
            outside = tuple(numbered[str(_whole(r))] for r in content.get("outside", ()))
            found = cls(tiles, order, chunked, _whole(content["share"]), outside)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise SpecError(
                f"tiling: expected the JSON text of a tiling of this kernel, not {text[:200]!r} "
                f"({error!r})"
            ) from None
        if found.text() != text:
            raise SpecError(
                f"tiling: expected the canonical form {found.text()}, not {text[:200]!r}; pass the "
                "text that Tiling.text returns"
            )
        return found


def _whole(number: object) -> int:
    if type(number) is not int:
        raise TypeError(f"expected a whole number, not {number!r}")
    return number

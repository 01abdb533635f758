"""Types of the walk that writes down the structure of graphs."""

from collections.abc import Hashable, Sequence
from typing import Literal, overload

from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp

class Skeleton:
    """The structure of graphs, apart from what they read: hashable, compared by value."""

@overload
def survey(
    roots: Sequence[UOp], deep: Literal[False] = False, *, loose: Literal[True]
) -> tuple[Skeleton, list[UOp], list[UOp]]: ...
@overload
def survey(
    roots: Sequence[UOp], deep: bool = False, loose: Literal[False] = False
) -> tuple[Skeleton, list[UOp], list[Hashable]] | None:
    """The structure of graphs, their BUFFER nodes, and the marks of their leaves.

    In a `loose` survey numbers are no part of the structure, and their CONST nodes stand in place
    of the marks. Both lists are in the order in which the structure counts them. Marks are looked
    through, and values that were kept are read from their storage. In a `deep` survey marks are
    part of the structure, and the histories behind them; it gives None if one of those is stale.
    """

def was_surveyed(node: UOp) -> bool:
    """Whether the last survey came to `node`; only a hint, as finalizers survey graphs, too."""

def _name_ops(buffer: Op, number: Op, detach: Op) -> None: ...
def _name_marks(
    kept: type, leaf: type, stale: type, custom: type, hooked: type
) -> None: ...

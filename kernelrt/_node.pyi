"""Types of what UOp extends, and of the walks over graphs."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Literal, overload

from kernelrt._origin import Raw
from kernelrt.dtype import DType
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp

class Node:
    """An interned node: calling the subclass gives the one object with that content.

    Nodes form no cycles: what their `arg` reaches must not lead back to them.
    """

    def __init__(
        self, op: Op, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None
    ) -> None: ...
    @property
    def op(self) -> Op: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def src(self) -> tuple[UOp, ...]: ...
    @property
    def arg(self) -> Any: ...
    @property
    def depth(self) -> int:
        """How many nodes stand one upon the other, down to what lies in memory."""

    cached_bounds: tuple[int, int, bool] | None
    cached_label: str | None
    cached_simple: UOp | bool | None
    cached_shape: tuple[int | UOp, ...] | None
    cached_history: Any
    cached_steady: int
    origin: Raw | None
    """Where the user wrote what this node is part of; see :mod:`kernelrt.ir.origin`."""

class Skeleton:
    """The structure of graphs, apart from what they read: hashable, compared by value."""

def toposort(roots: Iterable[UOp], stop: Callable[[UOp], object] | None = None) -> list[UOp]:
    """Nodes reachable from `roots`, each once, operands first.

    Graphs of any depth can be walked. Below a node for which `stop` is true nothing is visited;
    the node itself is. All of it happens before the first node is given.
    """

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

def _make_nodes_of(kind: type[UOp]) -> None: ...
def _name_ops(buffer: Op, number: Op, detach: Op) -> None: ...
def _name_marks(kept: type, leaf: type, stale: type, custom: type) -> None: ...

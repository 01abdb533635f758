"""Types of the base class of UOp, and of graph traversals."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kernelrt.dtype import DType
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp
from kernelrt.native.source_lines import Raw

class Node:
    """An interned node: calling the subclass returns the unique object with that content.

    Nodes form no cycles: objects reachable from `arg` must not refer back to the node.
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
        """Length of the longest path of operations from the node down to memory."""

    @property
    def made(self) -> int:
        """Number of nodes created before this one: older nodes have smaller numbers."""
    @property
    def asked(self) -> int:
        """Count of all node requests (also of existing nodes) at the last request of this node."""

    @property
    def shape(self) -> tuple[int | UOp, ...]:
        """Shape of a tensor-level node; scalars of a kernel have shape ()."""
    @property
    def bounds(self) -> tuple[int, int]:
        """Least and greatest value of an integer or bool node (those of its dtype if unknown)."""
    @property
    def vmin(self) -> int:
        """Least value of an integer or bool node."""
    @property
    def vmax(self) -> int:
        """Greatest value of an integer or bool node."""
    @property
    def exact(self) -> bool:
        """Whether the value equals that of the same expression in unbounded integers.

        False if a sum or product in it may wrap around.
        """

    def replace(
        self, *, op: Op = ..., dtype: DType = ..., src: tuple[UOp, ...] = ..., arg: Any = ...
    ) -> UOp:
        """Return this node with some of op, dtype, src and arg replaced."""

    cached_bounds: tuple[int, int, bool] | None
    cached_label: str | None
    cached_simple: UOp | bool | None
    cached_shape: tuple[int | UOp, ...] | None
    cached_flow: tuple[UOp, ...] | None
    cached_history: Any
    cached_ports: list[int | None] | None
    cached_steady: int
    origin: Raw | None
    """The user's source line that this node comes from; see :mod:`kernelrt.ir.origin`."""

def is_static(shape: Iterable[int | UOp]) -> bool:
    """Return whether every dimension is a number."""

def reshaped(x: UOp, shape: tuple[int | UOp, ...]) -> UOp | None:
    """Return the result of ``build.reshape`` for static sizes; None if they need more checks."""

def expanded(x: UOp, shape: tuple[int | UOp, ...]) -> UOp | None:
    """Return the result of ``build.expand`` for static sizes; None if they need more checks."""

def reduced(x: UOp, op: Op, axes: set[int]) -> UOp | None:
    """Return the result of ``build.reduce`` for static sizes; None if they need more checks."""

def count_asked() -> int:
    """Return the number of requests for nodes; nodes requested later have a greater `asked`."""

def toposort(
    roots: Iterable[UOp],
    stop: Callable[[UOp], object] | None = None,
    kept: type | None = None,
) -> list[UOp]:
    """Return the nodes reachable from `roots`, each once, operands first.

    The only operand of a node with a tag of the class `kept` is the `storage` of the tag.

    Graphs may have any depth. A node for which `stop` is true is visited, but not its operands.
    The whole traversal is done before the function returns.
    """

def history_order(
    roots: Iterable[UOp], stop: Callable[[UOp], object], custom: type
) -> list[UOp]:
    """Sort as :func:`toposort`; `inputs` and `parts` of tags of class `custom` are operands too."""

def substitute(roots: Iterable[UOp], mapping: Mapping[UOp, UOp]) -> list[UOp]:
    """Return `roots` with nodes replaced as in `mapping`, wherever they occur."""

def inherit(new: UOp, old: UOp) -> UOp:
    """Return `new`, which replaces `old`, with the origin of `old` unless it has a later one."""

def _make_nodes_of(kind: type[UOp]) -> None: ...
def _infer_with(
    shape: Callable[[UOp], None], bounds: Callable[[UOp], None], alike: frozenset[Op]
) -> None: ...
def _name_moves(
    reshape: Op, expand: Op, reduce_axis: Op, most_elements: int, most_axes: int
) -> None: ...
def _name_detach(op: Op) -> None: ...
def _name_kept(kind: type) -> None: ...

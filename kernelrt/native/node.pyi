"""Types of what UOp extends, and of the walks over graphs."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kernelrt.dtype import DType
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp
from kernelrt.native.source_lines import Raw

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

    @property
    def made(self) -> int:
        """How many nodes were made before: of two, the older one has the smaller number."""
    @property
    def asked(self) -> int:
        """How often any node had been asked for when this one was last, made then or not."""

    @property
    def shape(self) -> tuple[int | UOp, ...]:
        """Shape of a tensor-level node; scalars of a kernel have shape ()."""
    @property
    def bounds(self) -> tuple[int, int]:
        """Least and greatest value of an integer or bool node (its type's when unknown)."""
    @property
    def vmin(self) -> int:
        """Least value of an integer or bool node."""
    @property
    def vmax(self) -> int:
        """Greatest value of an integer or bool node."""
    @property
    def exact(self) -> bool:
        """Whether this value is that of the same expression over the whole numbers.

        False where a sum or product that it is made of may wrap.
        """

    def replace(
        self, *, op: Op = ..., dtype: DType = ..., src: tuple[UOp, ...] = ..., arg: Any = ...
    ) -> UOp:
        """This node with some of op, dtype, src and arg exchanged."""

    cached_bounds: tuple[int, int, bool] | None
    cached_label: str | None
    cached_simple: UOp | bool | None
    cached_shape: tuple[int | UOp, ...] | None
    cached_flow: tuple[UOp, ...] | None
    cached_history: Any
    cached_ports: list[int | None] | None
    cached_steady: int
    origin: Raw | None
    """Where the user wrote what this node is part of; see :mod:`kernelrt.ir.origin`."""

def is_static(shape: Iterable[int | UOp]) -> bool:
    """Whether every dimension is a number."""

def reshaped(x: UOp, shape: tuple[int | UOp, ...]) -> UOp | None:
    """What ``build.reshape`` gives for sizes that are numbers; None where they need a look."""

def expanded(x: UOp, shape: tuple[int | UOp, ...]) -> UOp | None:
    """What ``build.expand`` gives for sizes that are numbers; None where they need a look."""

def reduced(x: UOp, op: Op, axes: set[int]) -> UOp | None:
    """What ``build.reduce`` gives for sizes that are numbers; None where they need a look."""

def count_asked() -> int:
    """Return the number of requests for nodes; nodes requested later have a greater `asked`."""

def toposort(
    roots: Iterable[UOp],
    stop: Callable[[UOp], object] | None = None,
    kept: type | None = None,
) -> list[UOp]:
    """Nodes reachable from `roots`, each once, operands first.

    A node with a mark of the class `kept` reads the `storage` of its mark alone.

    Graphs of any depth can be walked. Below a node for which `stop` is true nothing is visited;
    the node itself is. All of it happens before the first node is given.
    """

def history_order(
    roots: Iterable[UOp], stop: Callable[[UOp], object], custom: type
) -> list[UOp]:
    """As :func:`toposort`, and a mark of the class `custom` reads its `inputs` and `parts`, too."""

def substitute(roots: Iterable[UOp], mapping: Mapping[UOp, UOp]) -> list[UOp]:
    """`roots` with the nodes that `mapping` names exchanged, wherever they occur."""

def inherit(new: UOp, old: UOp) -> UOp:
    """`new`, which takes the place of `old`, with its origin unless it has a later one."""

def _make_nodes_of(kind: type[UOp]) -> None: ...
def _infer_with(
    shape: Callable[[UOp], None], bounds: Callable[[UOp], None], alike: frozenset[Op]
) -> None: ...
def _name_moves(
    reshape: Op, expand: Op, reduce_axis: Op, most_elements: int, most_axes: int
) -> None: ...
def _name_detach(op: Op) -> None: ...
def _name_kept(kind: type) -> None: ...

"""Types of the base class of UOp, and of traversals of graphs."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kernelrt.dtype import DType
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp
from kernelrt.native.source_lines import Raw

class Node:
    """Interned node: calling the subclass returns the only object with that content.

    Nodes form no cycles: the objects that their `arg` reaches must not refer back to them.
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
        """Number of operations on the longest path from this node down to values in memory."""

    @property
    def made(self) -> int:
        """Number of nodes made before this one; older nodes have smaller numbers."""
    @property
    def asked(self) -> int:
        """The count of requests for nodes (`count_asked`) at the last request for this one."""

    @property
    def shape(self) -> tuple[int | UOp, ...]:
        """Shape of a tensor-level node; scalars in a kernel have shape ()."""
    @property
    def bounds(self) -> tuple[int, int]:
        """Minimum and maximum of an integer or bool node; the limits of the dtype if unknown."""
    @property
    def vmin(self) -> int:
        """Minimum value of an integer or bool node."""
    @property
    def vmax(self) -> int:
        """Maximum value of an integer or bool node."""
    @property
    def exact(self) -> bool:
        """Whether this value equals the same expression over unbounded integers.

        False if a sum or product in the expression may wrap.
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
    """Source line that made this node; see :mod:`kernelrt.ir.origin`."""

def is_static(shape: Iterable[int | UOp]) -> bool:
    """Return whether every dimension is a number."""

def is_plain(shape: tuple[int | UOp, ...]) -> bool:
    """Return whether a shape consists of Python ints, and a tensor can have it."""

def packed_strides(shape: tuple[int, ...], itemsize: int = 1) -> tuple[int, ...]:
    """Return contiguous row-major strides: in elements, or in bytes if `itemsize` is given."""

def are_packed(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int = 1) -> bool:
    """Return whether `strides` are contiguous row-major strides of `shape`."""

def reshaped_strides(
    sizes: tuple[int, ...], strides: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the strides of the same elements in another shape; None if that needs a copy.

    Two axes can be merged if the stride of the outer equals size times stride of the inner.
    """

def reshaped(x: UOp, shape: tuple[int | UOp, ...]) -> UOp | None:
    """Return ``build.reshape(x, shape)`` for a static shape; None if Python code must handle it."""

def expanded(x: UOp, shape: tuple[int | UOp, ...]) -> UOp | None:
    """Return ``build.expand(x, shape)`` for a static shape; None if Python code must handle it."""

def reduced(x: UOp, op: Op, axes: set[int]) -> UOp | None:
    """Return ``build.reduce(x, op, axes)`` if the shape is static; else None."""

def count_asked() -> int:
    """Return the number of requests for nodes; nodes requested later have a greater `asked`."""

def toposort(
    roots: Iterable[UOp],
    stop: Callable[[UOp], object] | None = None,
    kept: type | None = None,
) -> list[UOp]:
    """Return the nodes reachable from `roots`, each once, operands first.

    Nodes below a node for which `stop` is true are not visited; the node itself is. The only
    operand of a node with a tag of the class `kept` is the `storage` of the tag. Graphs may have
    any depth.
    """

def history_order(
    roots: Iterable[UOp], stop: Callable[[UOp], object], custom: type
) -> list[UOp]:
    """Like :func:`toposort`, but a tag of the class `custom` adds its `inputs` and `parts`."""

def substitute(roots: Iterable[UOp], mapping: Mapping[UOp, UOp]) -> list[UOp]:
    """Return `roots` with the keys of `mapping` replaced by their values, wherever they occur."""

def inherit(new: UOp, old: UOp) -> UOp:
    """Copy the origin of `old` to `new`, unless `new` has a later one; return `new`."""

def _make_nodes_of(kind: type[UOp]) -> None: ...
def _infer_with(
    shape: Callable[[UOp], None], bounds: Callable[[UOp], None], alike: frozenset[Op]
) -> None: ...
def _name_moves(
    reshape: Op, expand: Op, reduce_axis: Op, most_elements: int, most_axes: int
) -> None: ...
def _name_detach(op: Op) -> None: ...
def _name_kept(kind: type) -> None: ...

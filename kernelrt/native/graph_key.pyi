"""Types of the structural keys of graphs."""

from collections.abc import Callable, Hashable, Sequence
from typing import Literal, overload

from kernelrt.dtype import DType
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import Dim, UOp
from kernelrt.tensor.autograd.tags import Severed
from kernelrt.tensor.base import TensorBase

class StructuralKey:
    """Structural key of graphs without the buffers they read: hashable, compared by value.

    Attributes
    ----------
    needs_strip : bool
        For a key without sizes: whether ``tags.strip`` may change more than tags.
    """

    @property
    def needs_strip(self) -> bool: ...

@overload
def structural_key(
    roots: Sequence[UOp], deep: Literal[False] = False, *, loose: Literal[True]
) -> tuple[StructuralKey, list[UOp], list[UOp]]: ...
@overload
def structural_key(
    roots: Sequence[UOp], deep: bool = False, loose: Literal[False] = False
) -> tuple[StructuralKey, list[UOp], list[Hashable]] | None:
    """Return the structural key of graphs, their BUFFER nodes, and the tags of their leaves.

    Tags are skipped, and kept values are read from their storage. A `deep` key includes tags and
    the histories behind them; the result is None if a history is stale. A `loose` key excludes
    numbers, and their CONST nodes are returned instead of the tags. Both lists are in the order of
    the key.
    """

def size_free_key(
    roots: Sequence[UOp],
) -> tuple[StructuralKey, list[UOp], list[UOp], list[Dim], list[UOp]]:
    """Return the structural key of graphs without numbers and sizes, and the excluded parts.

    The parts are the BUFFER nodes, the CONST nodes of other types than int64, the sizes, and the
    nodes that have sizes. Sizes are: the elements of a BUFFER, an int64 CONST, the arg of a
    RESHAPE, EXPAND, SHRINK or PAD, the shape and kernels of a COL2IM, the kernels of an IM2COL,
    the rows and numbers of a routine, and the iterations of a loop. Each list is in the order of
    the key.
    """

def shared(
    roots: list[UOp], others: list[tuple[TensorBase, UOp, bool]], most: int
) -> list[UOp]:
    """Return the outermost nodes that the graphs of `others` share with those of `roots`.

    An entry of `others` is a tensor, its node, and whether to search below the node. At most `most`
    nodes are visited there. Tags are skipped, and nothing below a kept value is visited.
    """

def was_visited(node: UOp) -> bool:
    """Return whether the last traversal visited `node`; a hint: finalizers traverse graphs, too."""

def gradient_operands(node: UOp) -> tuple[UOp, ...]:
    """Return the nodes that a gradient of `node` flows to.

    For a value with a gradient rule, these are the inputs of the rule. They can differ from the
    operands of the value: a window of one element is the element itself. For a result of a loop or
    branch, these are the operands that it depends on; see
    :mod:`kernelrt.tensor.autograd.dependence`.
    """

def lineage(node: UOp) -> bool | Severed:
    """Return whether a gradient of `node` reaches a leaf.

    The result is True if the gradient reaches a leaf or a stale history. Otherwise it is the
    Severed tag that the gradient reaches; False if there is none. The answer is cached in
    `cached_history`.
    """

def _name_ops(
    buffer: Op,
    number: Op,
    detach: Op,
    int64: DType,
    floats: tuple[DType, ...],
    sized: frozenset[Op],
    shrink: Op,
    pad: Op,
    window: Op,
    unwindow: Op,
) -> None: ...
def _name_programs(routine: type, outcome: type, loop: type) -> None: ...
def _name_flows(region: Op, flows: Callable[[UOp], tuple[UOp, ...]]) -> None: ...
def _name_marks(
    kept: type, leaf: type, stale: type, custom: type, hooked: type, severed: type, given: type
) -> None: ...

"""Types of the traversal that computes structural keys of graphs."""

from collections.abc import Callable, Hashable, Sequence
from typing import Literal, overload

from kernelrt.dtype import DType
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import Dim, UOp
from kernelrt.tensor.autograd.tags import Severed
from kernelrt.tensor.base import TensorBase

class Skeleton:
    """A structural key of graphs, independent of the buffers they read; hashable.

    Attributes
    ----------
    needs_strip : bool
        For an open survey: whether ``tags.strip`` may change more than tags.
    """

    @property
    def needs_strip(self) -> bool: ...

@overload
def survey(
    roots: Sequence[UOp], deep: Literal[False] = False, *, loose: Literal[True]
) -> tuple[Skeleton, list[UOp], list[UOp]]: ...
@overload
def survey(
    roots: Sequence[UOp], deep: bool = False, loose: Literal[False] = False
) -> tuple[Skeleton, list[UOp], list[Hashable]] | None:
    """Return the structural key of graphs, their BUFFER nodes, and the tags of their leaves.

    In a `loose` survey numbers are not part of the key, and their CONST nodes are returned instead
    of the tags. Both lists are in the order in which the key counts them. Autograd tags are
    ignored, and values that were kept are read from their storage. In a `deep` survey the tags and
    the histories behind them are part of the key; the result is None if a history is stale.
    """

def survey_open(
    roots: Sequence[UOp],
) -> tuple[Skeleton, list[UOp], list[UOp], list[Dim], list[UOp]]:
    """Return the structural key of graphs without their numbers and sizes.

    Also return the BUFFER nodes, the CONST nodes that are not int64, the sizes, and the nodes with
    these sizes: the element count of a BUFFER, an int64 CONST, the arg of a RESHAPE, EXPAND, SHRINK
    or PAD, shape and kernels of an COL2IM, kernels of a IM2COL, rows and numbers of a routine,
    and iterations of a loop. All are in the order in which the key counts them.
    """

def shared(
    roots: list[UOp], others: list[tuple[TensorBase, UOp, bool]], most: int
) -> list[UOp]:
    """Return the outermost nodes that graphs of `others` share with those of `roots`.

    An entry of `others` is a tensor, its node, and whether nodes below it are visited; at most
    `most` are visited. Autograd tags are ignored, and a value that was kept has no operands.
    """

def was_surveyed(node: UOp) -> bool:
    """Return whether the last survey visited `node`; only a hint, as finalizers may survey too."""

def gradient_operands(node: UOp) -> tuple[UOp, ...]:
    """Return the nodes that a gradient of `node` flows on to.

    For a value with a custom rule these are the inputs of the rule, which may differ from the
    operands of the value: a window of one element is the element itself. For a value of a loop or
    branch they are the operands that it depends on, found by
    :mod:`kernelrt.tensor.autograd.dependence`.
    """

def lineage(node: UOp) -> bool | Severed:
    """Return whether a gradient of `node` reaches a leaf, or the tag at which gradients stop.

    If any leaf is reachable, the result is True. It is cached in `cached_history`.
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

"""Types of the walk that writes down the structure of graphs."""

from collections.abc import Callable, Hashable, Sequence
from typing import Literal, overload

from kernelrt.dtype import DType
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import Dim, UOp
from kernelrt.tensor.autograd.tags import Severed
from kernelrt.tensor.base import TensorBase

class Skeleton:
    """The structure of graphs, apart from what they read: hashable, compared by value.

    Attributes
    ----------
    needs_strip : bool
        Of an open survey: whether ``marks.strip`` may change more than marks.
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
    """The structure of graphs, their BUFFER nodes, and the marks of their leaves.

    In a `loose` survey numbers are no part of the structure, and their CONST nodes stand in place
    of the marks. Both lists are in the order in which the structure counts them. Marks are looked
    through, and values that were kept are read from their storage. In a `deep` survey marks are
    part of the structure, and the histories behind them; it gives None if one of those is stale.
    """

def survey_open(
    roots: Sequence[UOp],
) -> tuple[Skeleton, list[UOp], list[UOp], list[Dim], list[UOp]]:
    """The structure of graphs without their numbers and sizes.

    Then the BUFFER nodes, the CONST nodes that are no int64, the sizes, and the nodes that have
    these: elements of a BUFFER, an int64 CONST, the arg of a RESHAPE, EXPAND, SHRINK or PAD, shape
    and kernels of an UNWINDOW, kernels of a WINDOW, rows and numbers of a routine, turns of a loop.
    All are in the order in which the structure counts them.
    """

def shared(
    roots: list[UOp], others: list[tuple[TensorBase, UOp, bool]], most: int
) -> list[UOp]:
    """Find the outermost nodes that graphs of `others` share with those of `roots`.

    An entry of `others` is a tensor, its node, and whether nodes below that are visited; at most
    `most` are. Marks are looked through, and nothing is below a value that was kept.
    """

def was_surveyed(node: UOp) -> bool:
    """Whether the last survey came to `node`; only a hint, as finalizers survey graphs, too."""

def gradient_operands(node: UOp) -> tuple[UOp, ...]:
    """What a gradient that flows into `node` flows on to.

    For a value with a rule of its own these are the rule's inputs, which need not be what its
    value is computed from: a window of one element is the element itself. For a value of a loop or
    of a choice they are the operands that it depends on:
    :mod:`kernelrt.tensor.autograd.dependence` finds them.
    """

def lineage(node: UOp) -> bool | Severed:
    """Whether a gradient that flows into `node` reaches a leaf; what severs it, if only that does.

    Above a leaf the answer is True, whatever else is there. It is kept in `cached_history`.
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

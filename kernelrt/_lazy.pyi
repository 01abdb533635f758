"""Types of the short roads of eager code."""

from collections.abc import Callable, Iterator
from typing import Any, Self

from kernelrt._handle import ArrayHandle, Roster
from kernelrt.device.buffer import Buffer
from kernelrt.dtype import DType
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp
from kernelrt.tensor.views import Kind

class LazyHandle(ArrayHandle):
    """A handle that may have a node and no data yet."""

    @property
    def uop(self) -> UOp:
        """The node whose value this tensor has.

        Operations read it to use the tensor. Where code outside can write the memory, it has the
        elements that are there now.
        """

    def _live(self) -> UOp:
        """Return the node whose value this tensor has; it reads shared memory itself."""

    @classmethod
    def _of(cls, node: UOp) -> Self:
        """A tensor that is yet to be computed from `node`."""

def quicken(
    operation: Callable[..., Any], op: Op, swapped: bool = False, whole: bool = True
) -> None:
    """Let an operation of a tensor and one operand be `op` of the two at once, where it can be.

    With `swapped` the operand comes first. Without `whole` it is not so for integers.
    """

def quicken_rows(operation: Callable[..., Any]) -> None:
    """Let an operation give the row at a number at once, where it is one run of memory."""

def _name_state(
    pending: dict[int, Any],
    steady: list[Any],
    births: list[int],
    watched: Roster,
    shared: list[bool],
) -> None: ...
def _name_ops(
    moves: frozenset[Op], constant: Op, buffer: Op, reshape: Op, expand: Op, most_depth: int
) -> None: ...
def _name_types(narrow: DType, broad: DType, wide: tuple[DType, ...]) -> None: ...
def _name_views(buffer: type[Buffer], numbers: Iterator[int], index: Kind) -> None: ...

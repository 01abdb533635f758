"""Types of the short roads of eager code."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from kernelrt.device.buffer import Buffer
from kernelrt.dtype import DType
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp
from kernelrt.native.array_handle import ArrayHandle, Roster
from kernelrt.native.eager_plan import Reset
from kernelrt.native.locks import Lock
from kernelrt.native.memory import BlockCache
from kernelrt.tensor.base import TensorBase
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

def is_changing(handle: ArrayHandle, node: UOp) -> bool:
    """Return whether an assignment to a handle, or to memory that its node reads, is pending."""

def storage_node(buffer: Buffer, shape: tuple[int, ...]) -> UOp | None:
    """The elements of `buffer` as a node of `shape`, packed in row-major order.

    None where sizes need a look, as those that no tensor can have.
    """

def adopted(handle: TensorBase) -> bool:
    """Do what `TensorBase._adopt` does for a result of a plan; False where it is none."""

def shows_memory(view: TensorBase) -> bool:
    """Return whether the root of a view has data that are current; no trace is active.

    The view is bound to them where its elements are one run there.
    """

def commits_of(
    handles: Iterable[TensorBase],
) -> tuple[list[tuple[UOp, UOp]], list[Reset]]:
    """The storage and the value of each assignment, and what carries it out."""

def put_rows(tensor: TensorBase, index: object, value: object) -> bool:
    """Assign a tensor or a number to elements that are one run of memory, if that is all.

    False, and nothing done, elsewhere.
    """

def fill_or_copy(tensor: TensorBase, value: object) -> bool:
    """Assign a number, or a tensor of the same shape and type, to all elements of stored memory.

    False, and nothing done, elsewhere.
    """

def put_shown(view: TensorBase, value: TensorBase) -> bool:
    """Assign a tensor to what a view shows, as :func:`put_rows` does."""

def moment() -> tuple[int, int]:
    """Return how often memory was written, and lazy tensors computed, in all threads."""

def put_whole(tensor: TensorBase, value: TensorBase, begun: tuple[int, int]) -> bool | None:
    """Assign a value to all elements of a tensor that has memory; the caller holds the lock.

    Return False where another way has to assign it. Return None where memory that `value` reads may
    have changed since :func:`moment` gave `begun`: compute the value again then.
    """

def quicken(
    operation: Callable[..., Any], op: Op, swapped: bool = False, whole: bool = True
) -> None:
    """Let an operation of a tensor and one operand be `op` of the two at once, where it can be.

    With `swapped` the operand comes first. Without `whole` it is not so for integers.
    """

def quicken_rows(operation: Callable[..., Any]) -> None:
    """Let an operation give elements at once, by numbers and a slice, where they are one run."""

def _name_state(
    pending: dict[int, Any],
    steady: list[Any],
    births: list[int],
    watched: Roster,
    shared: list[bool],
    units: dict[int, tuple[int, ...]],
    lock: Lock,
) -> None: ...
def _name_ops(
    moves: frozenset[Op],
    constant: Op,
    buffer: Op,
    reshape: Op,
    expand: Op,
    detach: Op,
    turn_depth: int,
    most_depth: int,
) -> None: ...
def _name_debugging(note: Callable[[Any], None]) -> None: ...
def _name_types(
    narrow: DType, broad: DType, wide: tuple[DType, ...], by_code: dict[int, DType]
) -> None: ...
def _name_views(
    buffer: type[Buffer],
    numbers: Iterator[int],
    memory: BlockCache,
    index: Kind,
) -> None: ...
def _name_copy(
    copy: Callable[[TensorBase, TensorBase | float], bool],
    carry_out: Callable[[TensorBase], None],
    realize: Callable[[TensorBase], None],
) -> None: ...

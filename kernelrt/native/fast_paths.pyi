"""Types of the fast paths of eager code."""

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
        """Node with the value of this tensor.

        Operations read it to use the tensor. If code outside can write the memory, the node holds a
        copy of the current elements.
        """

    def _live(self) -> UOp:
        """Return the node with the value of this tensor; it reads shared memory directly."""

    @classmethod
    def _of(cls, node: UOp) -> Self:
        """Return a lazy tensor with the value of `node`."""

def is_changing(handle: ArrayHandle, node: UOp) -> bool:
    """Return whether an assignment to a handle, or to memory that its node reads, is pending."""

def storage_node(buffer: Buffer, shape: tuple[int, ...]) -> UOp | None:
    """Return the elements of `buffer` as a node of `shape`, in row-major order.

    Return None if the sizes need further checks, for example if no tensor can have them.
    """

def adopted(handle: TensorBase) -> bool:
    """Do what `TensorBase._adopt` does for a result of a plan; return False if it is not one."""

def shows_memory(view: TensorBase) -> bool:
    """Return whether the root of a view has current data and no trace is active.

    A view that is contiguous in the data is bound to it.
    """

def commits_of(
    handles: Iterable[TensorBase],
) -> tuple[list[tuple[UOp, UOp]], list[Reset]]:
    """Return storage and value of each assignment, and the records to carry them out."""

def put_rows(tensor: TensorBase, index: object, value: object) -> bool:
    """Assign a tensor or a number to contiguous elements, if no other work is involved.

    Return False, with nothing done, in other cases.
    """

def fill_or_copy(tensor: TensorBase, value: object) -> bool:
    """Assign a number, or a tensor of the same shape and dtype, to all elements of stored memory.

    Return False, with nothing done, in other cases.
    """

def put_shown(view: TensorBase, value: TensorBase) -> bool:
    """Assign a tensor to the elements of a view, as :func:`put_rows` does."""

def moment() -> tuple[int, int]:
    """Return the counts of memory writes and of computed lazy tensors, over all threads."""

def put_whole(tensor: TensorBase, value: TensorBase, begun: tuple[int, int]) -> bool | None:
    """Assign a value to all elements of a tensor with memory; the caller holds the lock.

    Return False if this path cannot assign it. Return None if memory that `value` reads may have
    changed since :func:`moment` returned `begun`: the caller must compute the value again.
    """

def quicken(
    operation: Callable[..., Any], op: Op, swapped: bool = False, whole: bool = True
) -> None:
    """Add a fast path to an operation of a tensor and one operand: build `op` of the two directly.

    With `swapped` the operand comes first. Without `whole`, integers do not use the fast path.
    """

def quicken_rows(operation: Callable[..., Any]) -> None:
    """Add a fast path to indexing, for contiguous elements selected by ints and a slice."""

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

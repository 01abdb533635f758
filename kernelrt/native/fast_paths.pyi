"""Types of the fast paths of eager code."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from kernelrt.device.buffer import Buffer
from kernelrt.dtype import DType
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp
from kernelrt.native.array_handle import ArrayHandle, HandleRegistry
from kernelrt.native.eager_plan import Reset
from kernelrt.native.locks import Lock
from kernelrt.native.memory import BlockCache
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.views import Kind

class LazyHandle(ArrayHandle):
    """Handle that may have a node and no data yet."""

    @property
    def uop(self) -> UOp:
        """Node with the value of this tensor.

        Operations read it to use the tensor as an operand. If outside code can write the memory,
        the node has the elements of the moment of this call.
        """

    def _live(self) -> UOp:
        """Return the node with the value of this tensor; it reads shared memory without a copy."""

    @classmethod
    def _of(cls, node: UOp) -> Self:
        """Return a lazy tensor with the value of `node`."""

def is_changing(handle: ArrayHandle, node: UOp) -> bool:
    """Return whether an assignment to a handle, or to memory that its node reads, is pending."""

def storage_node(buffer: Buffer, shape: tuple[int, ...]) -> UOp | None:
    """Return the elements of `buffer` as a node of `shape`, packed in row-major order.

    Return None if Python code has to check the sizes, for example if no tensor can have them.
    """

def adopted(handle: TensorBase) -> bool:
    """Do the work of `TensorBase._adopt` for a result of a plan; return False for other tensors."""

def shows_memory(view: TensorBase) -> bool:
    """Return whether a view can show its root's data: they are current, and no trace is active.

    Also bind the view to the data if its elements are contiguous there.
    """

def commits_of(
    handles: Iterable[TensorBase],
) -> tuple[list[tuple[UOp, UOp]], list[Reset]]:
    """Return (storage, value) and the Reset of each pending assignment to `handles`."""

def put_rows(tensor: TensorBase, index: object, value: object) -> bool:
    """Assign a tensor or a number to contiguous elements of a tensor.

    Return False, and do nothing, if another way has to assign it.
    """

def fill_or_copy(tensor: TensorBase, value: object) -> bool:
    """Assign a number, or a tensor of the same shape and dtype, to all elements of a tensor.

    Return False, and do nothing, if another way has to assign it.
    """

def put_shown(view: TensorBase, value: TensorBase) -> bool:
    """Assign a tensor to the elements of a view, like :func:`put_rows`."""

def moment() -> tuple[int, int]:
    """Return the numbers of writes to memory and of computed lazy tensors, in all threads."""

def put_whole(tensor: TensorBase, value: TensorBase, begun: tuple[int, int]) -> bool | None:
    """Assign a value to all elements of a tensor with memory; the caller holds the lock.

    Return False if another way has to assign it. Return None if memory that `value` reads may have
    changed since :func:`moment` returned `begun`: then compute the value again.
    """

def quicken(
    operation: Callable[..., Any], op: Op, swapped: bool = False, whole: bool = True
) -> None:
    """Give a binary operation a fast path that makes an `op` node of its two operands.

    With `swapped`, the second operand comes first. Without `whole`, integers take the slow path.
    """

def quicken_rows(operation: Callable[..., Any]) -> None:
    """Give an indexing operation a fast path for integers and a slice with a contiguous result."""

def _name_state(
    pending: dict[int, Any],
    steady: list[Any],
    births: list[int],
    watched: HandleRegistry,
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
    cut_depth: int,
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

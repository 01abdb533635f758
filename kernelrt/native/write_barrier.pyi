"""Types of the write barrier: memory that is about to be written, and the search for readers."""

from collections.abc import Collection, Iterable

from kernelrt.device.buffer import Buffer
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp
from kernelrt.native.array_handle import Roster
from kernelrt.native.memory import Memory
from kernelrt.tensor.base import TensorBase

class Written:
    """The memory of `buffers`, plus `more`, that is written."""

    def __init__(
        self, buffers: Iterable[Buffer | Memory | None] = (), more: Written | None = None
    ) -> None: ...
    def overlaps(self, buffer: object) -> bool:
        """Return whether any byte of `buffer` is written; False unless it has memory."""

def memory_of(tensors: Iterable[TensorBase], more: Written | None = None) -> Written:
    """Return the memory of `tensors`, plus `more`."""

def reads(root: UOp, written: Written) -> bool:
    """Return whether the value or the autograd history of `root` reads `written`.

    Nodes that do not are cached while `written` is alive, so queries for all operands of a graph
    take time linear in its size.
    """

def readers_of(roster: Roster, written: Written) -> list[TensorBase]:
    """Return the lazy tensors that are computed from `written`.

    Nodes that read no storage that was ever written are cached, so that a graph that grows from
    call to call, such as a sum of losses, is not traversed again each time.
    """

def history_version() -> int:
    """Return the `cached_steady` value of nodes that read no storage that was ever written."""

def forget_history() -> None:
    """Reset the record of written storages."""

def latest_lazy(
    roster: Roster, most: int, chosen: Collection[int]
) -> list[tuple[TensorBase, UOp, bool]]:
    """Return the lazy tensors among the `most` newest, with their nodes.

    The third item is whether no gradient flows into the tensor. Tensors whose id is in `chosen`,
    and views of data, are left out.
    """

def kept_members(roster: Roster) -> list[TensorBase]:
    """Return the tensors with data."""

def over_kept(roster: Roster) -> list[tuple[TensorBase, UOp]]:
    """Return the lazy tensors that use kept values that may become stale, with their nodes."""

def overlaps_of(storages: list[UOp], read: list[UOp]) -> tuple[tuple[int, int, int], ...]:
    """Return the overlaps of memory that is read with other memory that is written.

    Each overlap is an index into `read`, an index into `storages`, and the distance of the two
    starts in bytes.
    """

def count_looks() -> int:
    """Return how often traversals checked memory so far."""

def _name_nodes(buffer: Op, detach: Op, kept: type, custom: type) -> None: ...

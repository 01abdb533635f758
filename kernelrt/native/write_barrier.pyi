"""Types of the write barrier: memory about to be written, and the search for its readers."""

from collections.abc import Collection, Iterable

from kernelrt.device.buffer import Buffer
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp
from kernelrt.native.array_handle import HandleRegistry
from kernelrt.native.memory import Memory
from kernelrt.tensor.base import TensorBase

class WrittenMemory:
    """Memory that is written: the memory of `buffers`, and `more`."""

    def __init__(
        self, buffers: Iterable[Buffer | Memory | None] = (), more: WrittenMemory | None = None
    ) -> None: ...
    def overlaps(self, buffer: object) -> bool:
        """Return whether `buffer` is a Buffer with memory, and any of its bytes is written."""

def memory_of(tensors: Iterable[TensorBase], more: WrittenMemory | None = None) -> WrittenMemory:
    """Return the memory of `tensors`, together with `more`."""

def reads(root: UOp, written: WrittenMemory) -> bool:
    """Return whether the value or the history of `root` reads `written`.

    Nodes that do not read it are marked, so calls for all nodes of a graph take linear time.
    """

def readers_of(registry: HandleRegistry, written: WrittenMemory) -> list[TensorBase]:
    """Return the lazy tensors with static shapes that are computed from `written`.

    Nodes that read no storage that was ever written are marked. So a graph that grows from call to
    call, such as a sum of losses, is not traversed again each time.
    """

def history_version() -> int:
    """Return the `cached_steady` of nodes that read no storage that was ever written."""

def forget_history() -> None:
    """Forget all writes: from now on no storage counts as written."""

def latest_lazy(
    registry: HandleRegistry, most: int, chosen: Collection[int]
) -> list[tuple[TensorBase, UOp, bool]]:
    """Return (tensor, node, constant) for lazy tensors that are not views, newest first.

    Only the `most` newest members of the registry are searched. `constant` is whether no gradient
    of the tensor reaches a leaf. Tensors whose identity is in `chosen` are left out.
    """

def kept_members(registry: HandleRegistry) -> list[TensorBase]:
    """Return the members that have data."""

def over_kept(registry: HandleRegistry) -> list[tuple[TensorBase, UOp]]:
    """Return the lazy tensors that read kept values whose histories may go stale, with nodes."""

def overlaps_of(storages: list[UOp], read: list[UOp]) -> tuple[tuple[int, int, int], ...]:
    """Find the BUFFER nodes in `read` whose memory overlaps that of other nodes in `storages`.

    Each overlap is (position in `read`, position in `storages`, offset in bytes of the start of
    the first from the start of the second).
    """

def count_looks() -> int:
    """Return the number of overlap checks that traversals have made so far."""

def _name_nodes(buffer: Op, detach: Op, kept: type, custom: type) -> None: ...

"""Types of memory that is about to be written, and of the walks that look for who reads it."""

from collections.abc import Collection, Iterable

from kernelrt.device.buffer import Buffer
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp
from kernelrt.native.array_handle import Roster
from kernelrt.native.memory import Memory
from kernelrt.tensor.base import TensorBase

class Written:
    """Memory that is written: that of `buffers`, and `more`."""

    def __init__(
        self, buffers: Iterable[Buffer | Memory | None] = (), more: Written | None = None
    ) -> None: ...
    def overlaps(self, buffer: object) -> bool:
        """Whether any byte of `buffer`, if it is a Buffer that has memory, is written."""

def memory_of(tensors: Iterable[TensorBase], more: Written | None = None) -> Written:
    """The memory of `tensors`, and `more`."""

def reads(root: UOp, written: Written) -> bool:
    """Whether the value or the history of `root` reads `written`.

    Nodes that do not are remembered while `written` lives: asking for every operand of a graph
    takes time linear in its size.
    """

def readers_of(roster: Roster, written: Written) -> list[TensorBase]:
    """Those that have no data yet, and could have, and are computed from `written`.

    What reads no storage that was ever written is remembered, so that a graph that grows from call
    to call, as a sum of losses does, is not walked again each time.
    """

def history_version() -> int:
    """What `cached_steady` of nodes is that read no storage which was ever written."""

def forget_history() -> None:
    """Begin anew: nothing was written yet."""

def latest_lazy(
    roster: Roster, most: int, chosen: Collection[int]
) -> list[tuple[TensorBase, UOp, bool]]:
    """Those of the `most` newest ones that have no data yet and show none, with their nodes.

    Behind each stands whether no gradient flows into it. Those whose identity is in `chosen` are
    left out.
    """

def kept_members(roster: Roster) -> list[TensorBase]:
    """Those that have data."""

def over_kept(roster: Roster) -> list[tuple[TensorBase, UOp]]:
    """Those that have no data yet and are made of kept values which may go stale, with nodes."""

def overlaps_of(storages: list[UOp], read: list[UOp]) -> tuple[tuple[int, int, int], ...]:
    """Find the memory that is read and overlaps other memory that is written, of BUFFER nodes.

    Each is given by its position in `read`, that of the other in `storages`, and the distance of
    their starts in bytes.
    """

def count_looks() -> int:
    """How often a walk looked at memory so far."""

def _name_nodes(buffer: Op, detach: Op, kept: type, custom: type) -> None: ...

"""Types of a schedule: kernels, copies and regions in execution order, and their buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.origin import Origin, resolve
from kernelrt.ir.region import Port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrt.dtype import DType

__all__ = [
    "CopyItem",
    "Decision",
    "Intermediate",
    "Item",
    "KernelItem",
    "Part",
    "PortUse",
    "RegionItem",
    "Schedule",
    "is_lasting",
    "root",
]


@dataclass(frozen=True, slots=True, eq=False)
class Intermediate:
    """Storage that the plan owns. It is the `arg` of a BUFFER node, and is compared by identity.

    Attributes
    ----------
    size : int
        Number of elements, for the largest values of the Variables.
    dtype : DType
        Dtype of the elements.
    """

    size: int
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Size of the storage in bytes."""
        return self.size * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Part:
    """Part of the storage of another BUFFER. It is the `arg` of a BUFFER that a kernel reads.

    Attributes
    ----------
    base : UOp
        BUFFER whose storage this is part of.
    offset : int
        Offset of the first byte.
    size : int
        Number of elements.
    """

    base: UOp
    offset: int
    size: int


def root(buffer: UOp) -> UOp:
    """Return the base BUFFER of a Part, or `buffer` itself if it is no Part."""
    return buffer.arg.base if isinstance(buffer.arg, Part) else buffer


def is_lasting(buffer: UOp) -> bool:
    """Return whether a BUFFER is memory that outlives the plan."""
    return not isinstance(root(buffer).arg, Intermediate | Port)


@dataclass(frozen=True, slots=True)
class KernelItem:
    """One kernel launch.

    Attributes
    ----------
    ast : UOp
        The kernel AST (a SINK).
    buffers : tuple of UOp
        The BUFFER of each PARAM slot, except the slot of the status word, which is the last one.
        The `arg` of a BUFFER is the caller's object, an :class:`Intermediate` or a :class:`Part`.
    writes : tuple of int
        Slots that are written. An in-place kernel also reads some of them.
    may_fail : bool
        Whether the kernel checks an index. If so, it takes the status word as its last slot.
    renewed : tuple of int
        Slots from which the kernel reads the new value of a commit of the same run.
    origins : tuple of Origin
        Source locations of the operations that the kernel computes, producers first.
    checks : tuple of Origin or None
        Source location of each index check (BOUND) of the kernel, in the order of their numbers.
    """

    ast: UOp
    buffers: tuple[UOp, ...]
    writes: tuple[int, ...]
    may_fail: bool = False
    renewed: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = field(default=(), compare=False)
    checks: tuple[Origin | None, ...] = field(default=(), compare=False)

    @property
    def outs(self) -> tuple[UOp, ...]:
        """BUFFERs that are written."""
        return tuple(self.buffers[slot] for slot in self.writes)

    @property
    def ins(self) -> tuple[UOp, ...]:
        """BUFFERs that are only read."""
        return tuple(b for slot, b in enumerate(self.buffers) if slot not in self.writes)


@dataclass(frozen=True, slots=True)
class CopyItem:
    """A copy of `nbytes` bytes from the start of BUFFER `src` to the start of BUFFER `dst`.

    `renewed` tells whether it reads the new value of a commit of the same run.
    """

    dst: UOp
    src: UOp
    nbytes: Dim
    renewed: bool = False

    @property
    def outs(self) -> tuple[UOp, ...]:
        """BUFFERs that are written."""
        return (self.dst,)

    @property
    def ins(self) -> tuple[UOp, ...]:
        """BUFFERs that are only read."""
        return (self.src,)


@dataclass(frozen=True, slots=True)
class PortUse:
    """Binding of one port of a region body to a slot of the region.

    Attributes
    ----------
    body : int
        Index of the body that the port belongs to.
    port : UOp
        The port's BUFFER.
    slot : int
        Slot of the item that the port is bound to, or -1 for the iteration number.
    stride : int
        Bytes by which the port's address advances each iteration.
    """

    body: int
    port: UOp
    slot: int
    stride: int = 0


@dataclass(frozen=True, slots=True)
class RegionItem:
    """A control-flow region of the plan: a loop body, or the branches of a choice.

    Attributes
    ----------
    bodies : tuple of Schedule
        The loop body, or the branches.
    buffers : tuple of UOp
        The BUFFER of each slot, results before operands.
    writes : tuple of int
        Slots of the results.
    ports : tuple of PortUse
        Bindings of the ports of all bodies.
    copies : tuple of (int, int)
        Pairs of a slot that holds a carry and the slot of its initial value.
    trip_count : int
        Maximum number of iterations.
    reverse : bool
        Whether the loop runs from the last iteration to the first.
    count_slot, condition_slot, choice_slot : int
        Slot of the number of iterations, slot of the loop condition, and slot of the index of the
        branch to run. -1 if there is no such slot.
    may_fail : bool
        Whether any item of the bodies may fail.
    renewed : tuple of int
        Slots from which the bodies read the new value of a commit of the same run.
    origins : tuple of Origin
        Source locations of the operations that the region computes.
    """

    bodies: tuple[Schedule, ...]
    buffers: tuple[UOp, ...]
    writes: tuple[int, ...]
    ports: tuple[PortUse, ...]
    copies: tuple[tuple[int, int], ...]
    trip_count: int
    reverse: bool = False
    count_slot: int = -1
    condition_slot: int = -1
    choice_slot: int = -1
    may_fail: bool = False
    renewed: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = field(default=(), compare=False)

    @property
    def outs(self) -> tuple[UOp, ...]:
        """BUFFERs that are written."""
        return tuple(self.buffers[slot] for slot in self.writes)

    @property
    def ins(self) -> tuple[UOp, ...]:
        """BUFFERs that are only read."""
        return tuple(b for slot, b in enumerate(self.buffers) if slot not in self.writes)


Item = KernelItem | CopyItem | RegionItem


@dataclass(frozen=True, slots=True)
class Decision:
    """Why a value is computed inside its consumers, or has a buffer.

    Attributes
    ----------
    node : UOp
        The tensor-level node.
    choice : str
        ``"inline"``, ``"local"``, ``"global"`` or ``"merge"``.
    grounds : str
        Format string of the reason, with placeholders for `counts`.
    counts : tuple of float
        Numbers that the decision depends on, such as operations and bytes.
    """

    node: UOp
    choice: str
    grounds: str
    counts: tuple[float, ...] = ()

    @property
    def reason(self) -> str:
        """The reason in a few words, with its numbers."""
        return self.grounds.format(*self.counts)

    def __str__(self) -> str:
        op = self.node.op.name
        shape = "x".join(str(d) if isinstance(d, int) else "?" for d in self.node.shape)
        if self.node.op is Op.REDUCE_AXIS:
            op += f"({self.node.arg[0].name})"
        origin = self.node.origin
        where = "" if origin is None else f" of {resolve(origin)}"
        return f"{op} [{shape or 'scalar'}]{where}: {self.choice}, {self.reason}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The kernels, copies and regions that compute a tensor graph.

    Attributes
    ----------
    items : tuple of KernelItem, CopyItem or RegionItem
        Items in execution order.
    outputs : tuple of UOp
        The BUFFER that holds each output. It is an :class:`Intermediate` outside the arena. If the
        output is stored data without a change, it is the BUFFER of this data.
    deps : tuple of tuple of int
        For each item, earlier items that must run before it. If one of these waits for another, the
        other may be left out.
    arena_offsets : mapping of Intermediate to int
        Byte offset of each intermediate in the arena. The other intermediates (outputs) need
        storage of their own.
    arena_size : int
        Size of the arena in bytes.
    variables : tuple of UOp
        VAR nodes of all kernels, in order of first appearance.
    decisions : tuple of Decision
        Fusion decisions and their reasons.
    """

    items: tuple[Item, ...]
    outputs: tuple[UOp, ...]
    deps: tuple[tuple[int, ...], ...]
    arena_offsets: Mapping[Intermediate, int]
    arena_size: int
    variables: tuple[UOp, ...]
    decisions: tuple[Decision, ...] = field(default=(), repr=False, compare=False)

    @property
    def kernels(self) -> tuple[KernelItem, ...]:
        """The kernels of the schedule: its own, then those of region bodies."""
        own = [item for item in self.items if isinstance(item, KernelItem)]
        for item in self.items:
            if isinstance(item, RegionItem):
                for body in item.bodies:
                    own += body.kernels
        return tuple(own)

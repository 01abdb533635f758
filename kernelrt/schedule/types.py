"""Types of a schedule: kernels and copies in execution order, and the place of each value."""

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
    """Storage that the plan owns; the identity-hashed `arg` of a BUFFER node.

    Attributes
    ----------
    size : int
        Elements, for the largest values of the Variables.
    dtype : DType
        Scalar type.
    """

    size: int
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Bytes that the storage needs."""
        return self.size * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Part:
    """Part of another BUFFER's storage; the `arg` of a BUFFER that a kernel reads.

    Attributes
    ----------
    base : UOp
        The BUFFER that it is part of.
    offset : int
        First byte.
    size : int
        Elements.
    """

    base: UOp
    offset: int
    size: int


def root(buffer: UOp) -> UOp:
    """The BUFFER that `buffer` is, or is part of."""
    return buffer.arg.base if isinstance(buffer.arg, Part) else buffer


def is_lasting(buffer: UOp) -> bool:
    """Whether a BUFFER is memory that outlives the plan."""
    return not isinstance(root(buffer).arg, Intermediate | Port)


@dataclass(frozen=True, slots=True)
class KernelItem:
    """One kernel launch.

    Attributes
    ----------
    ast : UOp
        A SINK (kernel stage).
    buffers : tuple of UOp
        The BUFFER of each PARAM slot; the status word's slot, always the last, is not listed.
        Its `arg` is what the caller made it over, an :class:`Intermediate` or a :class:`Part`.
    writes : tuple of int
        Slots that are stored to. An in-place kernel reads some of them too.
    may_fail : bool
        Whether the kernel checks an index and so takes the status word.
    renewed : tuple of int
        Slots that are read for what a commit of the same run has put there.
    origins : tuple of Origin
        What the kernel was made from, producers first.
    checks : tuple of Origin or None
        Where each BOUND of the kernel comes from, by its number.
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
    """`nbytes` bytes from the start of BUFFER `src` to the start of BUFFER `dst`.

    `renewed` says that they are what a commit of the same run has put there.
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
    """What a port of a body stands for.

    Attributes
    ----------
    body : int
        Whose port it is.
    port : UOp
        The BUFFER there.
    slot : int
        The buffer of the item; -1: the number of the turn.
    stride : int
        Bytes from one turn to the next.
    """

    body: int
    port: UOp
    slot: int
    stride: int = 0


@dataclass(frozen=True, slots=True)
class RegionItem:
    """Schedules that run within the plan: one of them, or one again and again.

    Attributes
    ----------
    bodies : tuple of Schedule
        What runs; several where one of them is chosen.
    buffers : tuple of UOp
        The BUFFER of each slot: values that it gives, then operands.
    writes : tuple of int
        Slots of values that it gives.
    ports : tuple of PortUse
        What the bodies are given.
    copies : tuple of (int, int)
        Slots, where what is carried is put, and where its first value comes from.
    turns : int
        How many turns there are, at most.
    reverse : bool
        Whether from the last to the first.
    count_slot, condition_slot, choice_slot : int
        The buffer that says how many turns there are, whether another follows, and which body
        runs; -1 where nothing says that.
    may_fail : bool
        Whether anything in the bodies may.
    renewed : tuple of int
        Slots that are read for what a commit of the same run has put there.
    origins : tuple of Origin
        What the item was made from.
    """

    bodies: tuple[Schedule, ...]
    buffers: tuple[UOp, ...]
    writes: tuple[int, ...]
    ports: tuple[PortUse, ...]
    copies: tuple[tuple[int, int], ...]
    turns: int
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
    """Why a value was inlined into its consumers or given a buffer.

    Attributes
    ----------
    node : UOp
        The tensor-level node.
    choice : str
        ``"inline"``, ``"local"``, ``"global"`` or ``"merge"``.
    grounds : str
        Why, in a few words, with places for `counts`.
    counts : tuple of float
        What was counted.
    """

    node: UOp
    choice: str
    grounds: str
    counts: tuple[float, ...] = ()

    @property
    def reason(self) -> str:
        """The counted grounds, in a few words."""
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
    """A graph as kernels and copies.

    Attributes
    ----------
    items : tuple of KernelItem or CopyItem
        In execution order.
    outputs : tuple of UOp
        The BUFFER that holds each output: an :class:`Intermediate` outside the arena, or, where
        an output is stored data as it is, that data's own BUFFER.
    deps : tuple of tuple of int
        For each item, the earlier items that must have run, transitively reduced or not.
    arena_offsets : mapping of Intermediate to int
        Byte offset of each intermediate that lives in the arena; the others (outputs) need
        storage of their own.
    arena_size : int
        Bytes of the arena.
    variables : tuple of UOp
        VAR nodes of all kernels, in order of first appearance.
    decisions : tuple of Decision
        What was fused and why.
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
        """The items that are kernels, those of bodies of regions behind the others."""
        own = [item for item in self.items if isinstance(item, KernelItem)]
        for item in self.items:
            if isinstance(item, RegionItem):
                for body in item.bodies:
                    own += body.kernels
        return tuple(own)

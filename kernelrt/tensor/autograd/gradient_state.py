"""Gradients as state: the memory of those that outlive a call.

What a jitted function leaves in the ``grad`` of a tensor lies in storage that belongs to that
tensor, its *home*. Plans read and write the home in place, so it does not matter which function
computed a gradient and which one uses it. A gradient that lies there is known as its home; the
tensor over it, its *tenant*, is made when somebody asks for it and lives as long as somebody holds
it. One that lives when its place is needed moves out with a copy of its data.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from kernelrt.device.buffer import Buffer
from kernelrt.errors import GradientError
from kernelrt.ir.shape import is_static
from kernelrt.native.array_handle import touch
from kernelrt.tensor import state, views
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kernelrt.ir import UOp
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.eager import realize
else:
    realize = Module("kernelrt.tensor.eager.realize")

__all__ = ["GIVEN", "Effect", "Handover", "Home", "Spent", "Use", "are_shared_alike", "before_run",
           "find", "home_of", "kind_of", "move_out", "read", "tensor_of", "write"]  # fmt: skip


class Spent:
    """Stands in the place of a gradient that a jitted function used up and did not keep.

    Parameters
    ----------
    function : str
        What the function is called.
    """

    __slots__ = ("function",)

    def __init__(self, function: str) -> None:
        self.function = function

    def error(self) -> GradientError:
        """What reading it comes to."""
        return GradientError(
            f"grad: {self.function} clears this gradient, computes it and uses it in an "
            "optimizer's step, so its plan does not store it; keep it with "
            "jit(keep_grads=True), or return the values you need from the function"
        )


class Use:
    """What a trace does with the ``grad`` of one tensor."""

    __slots__ = ("before", "beside", "gradient", "now", "read", "same", "start", "tensor", "used")

    def __init__(self, tensor: TensorBase, read: bool) -> None:
        self.tensor = tensor
        self.before = tensor._grad
        self.read = read
        #: What the function finds, over the home of the gradient.
        self.start: TensorBase | None = None
        #: The gradient itself, if there is a tensor of it, and its memory, if that is not the home.
        self.gradient: TensorBase | None = None
        self.beside: Buffer | None = None
        #: The first tensor with the same gradient that was looked at, where there is another.
        self.same: TensorBase | None = None
        #: What it is here in the function.
        self.now: TensorBase | Spent | None = None
        #: The value that an optimizer took.
        self.used: UOp | None = None


class Home:
    """The storage in which plans keep the gradient of one tensor."""

    __slots__ = ("__weakref__", "_shape", "_tenant", "buffer", "owner")

    def __init__(self, owner: TensorBase) -> None:
        assert is_static(owner.dims)
        self._shape = cast("tuple[int, ...]", owner.shape)
        self.buffer = Buffer(math.prod(self._shape), owner.dtype)
        self.owner = weakref.ref(owner)
        self._tenant: weakref.ref[TensorBase] | None = None
        state.homes[self.buffer] = self

    def tenant(self) -> TensorBase | None:
        """The tensor that lies here, if any does."""
        tenant = None if self._tenant is None else self._tenant()
        return tenant if tenant is not None and tenant._memory is self.buffer else None

    def over(self, owner: TensorBase) -> TensorBase:
        """A tensor that reads and writes this storage."""
        return owner._over(self.buffer, self._shape)

    def let(self, owner: TensorBase) -> TensorBase:
        """The tenant, a new one if there is none, to be handed out."""
        touch()  # plans that write here must look whether the tensor is still held
        tenant = self.tenant()
        if tenant is None:
            tenant = self.over(owner)
            self._tenant = weakref.ref(tenant)
        return tenant

    def vacate(self) -> None:
        """Let the tenant go on with a copy of the data."""
        tenant = self.tenant()
        if tenant is not None:
            copy = Buffer(self.buffer.size, self.buffer.dtype)
            copy.content()[...] = self.buffer.content()
            tenant._move(copy)
            owner = self.owner()
            if owner is not None and owner._grad is self:
                owner._grad = tenant
        self._tenant = None


def home_of(tensor: TensorBase) -> Home:
    """The home of the gradient of `tensor`, made when first asked for."""
    home: Home | None = getattr(tensor, "_home", None)
    if home is None:
        home = tensor._home = Home(tensor)
    return home


# ---- what `Tensor.grad` does


def read(tensor: TensorBase) -> TensorBase | None:
    """The gradient of `tensor`, recorded by the active trace.

    Raises
    ------
    GradientError
        A jitted function used it up and did not keep it.
    """
    held = find(tensor)
    if isinstance(held, Spent):
        raise held.error()
    return held


def find(tensor: TensorBase) -> TensorBase | Spent | None:
    """As :func:`read`, with what stands for a gradient that was not kept."""
    trace = state.local.trace
    if trace is not None:
        return trace.grad_of(tensor)
    return _handed_out(tensor._grad, tensor)


def _handed_out(
    held: TensorBase | Home | Spent | None, tensor: TensorBase
) -> TensorBase | Spent | None:
    """The tensor or mark that stands for the gradient of `tensor`."""
    return held.let(tensor) if isinstance(held, Home) else held


def write(tensor: TensorBase, value: TensorBase | None) -> None:
    """Set the gradient of `tensor`, recorded by the active trace."""
    trace = state.local.trace
    if trace is not None:
        trace.set_grad(tensor, value)
        return
    if value is not None:
        views.unlink(value)
    new = _settled(tensor, value)
    if tensor._grad is not new:
        touch()
        tensor._grad = new


def _settled(tensor: TensorBase, value: TensorBase | None) -> TensorBase | Home | None:
    """What a gradient is known as: the home of `tensor`, if that is where it lies."""
    home: Home | None = getattr(tensor, "_home", None)
    lies = home is not None and value is not None and home.tenant() is value
    return home if lies else value


def move_out(tensor: TensorBase) -> None:
    """Give a gradient memory of its own, if it lies where plans keep it."""
    buffer = tensor._buffer
    home = None if buffer is None else state.homes.get(buffer)
    if home is not None and home.tenant() is tensor:
        home.vacate()
        touch()


# ---- what a run of a plan does


#: What a ``grad`` is, as far as a plan cares.
NONE: Final = "none"
GIVEN: Final = "there"
SPENT: Final = "used up"


def kind_of(held: object) -> str:
    """Which of the above a ``grad`` is."""
    return NONE if held is None else SPENT if type(held) is Spent else GIVEN


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Effect:
    """What a traced function does to the ``grad`` of one tensor.

    Attributes
    ----------
    tensor : Tensor
        Whose gradient it is.
    reads : str, optional
        What it was, where the function looks at it before setting it.
    home : Home, optional
        Storage that the plan reads or writes.
    renewed : bool
        Whether the function leaves another tensor than it found.
    made : bool
        Whether what it leaves is in the home.
    leaves : Tensor, Spent, Home, optional
        What it leaves otherwise; the home of another tensor for the gradient that is made there.
    source : Tensor, optional
        The tensor whose gradient it leaves, as that one was before the run.
    same : Tensor, optional
        Another tensor of which the gradient that the function found is the gradient, too.
    beside : Buffer, optional
        Where the gradient that the function found lay, if not in the home.
    changed : Buffer, optional
        Where the plan writes what was assigned to the tensor that the function found.
    """

    tensor: TensorBase
    reads: str | None
    home: Home | None
    renewed: bool
    made: bool
    leaves: TensorBase | Spent | Home | None
    source: TensorBase | None
    same: TensorBase | None
    beside: Buffer | None
    changed: Buffer | None

    def fits(self) -> bool:
        """Whether the gradient is what the function found when it was traced."""
        return self.reads is None or kind_of(self.tensor._grad) == self.reads


def tensor_of(held: object) -> TensorBase | None:
    """The tensor that a gradient is, None if nobody has asked for one."""
    return cast("TensorBase | None", held.tenant() if isinstance(held, Home) else held)


def are_shared_alike(
    found: Sequence[Effect], read: Collection[Buffer], written: Collection[Buffer]
) -> bool:
    """Whether gradients are also gradients of others, or state, where they were in the trace.

    Parameters
    ----------
    found : sequence of Effect
        What a plan does to gradients that it finds.
    read, written : collection of Buffer
        What it reads and writes.
    """
    for effect in found:
        if effect.same is not None or effect.tensor._grad is not effect.home:
            break
    else:
        return True
    first: dict[int, TensorBase] = {}
    for effect in found:
        gradient = tensor_of(effect.tensor._grad)
        if gradient is None:
            other = effect.tensor
        else:
            other = first.setdefault(id(gradient), effect.tensor)
            place = gradient._buffer
            state_too = place in written or (effect.changed is not None and place in read)
            if (
                state_too
                and other is effect.tensor
                and place is not effect.beside
                and effect.tensor._grad is not effect.home
            ):
                return False
        if (None if other is effect.tensor else other) is not effect.same:
            return False
    return True


#: What a run leaves to be done when its plan has run: (tensor, address, bytes) to copy over its
#: data, and (tensor, gradient).
Handover: TypeAlias = "tuple[list[tuple[TensorBase, int, int]], list[tuple[TensorBase, object]]]"


def before_run(effects: Sequence[Effect]) -> tuple[bool, Handover]:
    """Bring gradients to where the plan reads them.

    Whether there was anything to do, or will be at the next run; and what is to be done once the
    plan has run.
    """
    moving: list[tuple[Home, TensorBase]] = []
    passed = [_handed_out(e.source._grad, e.source) for e in effects if e.source is not None]
    busy = bool(passed)
    for effect in effects:
        home = effect.home
        if home is None:
            continue
        held = effect.tensor._grad
        if effect.reads == GIVEN and effect.same is None and held is not home:
            moving.append((home, cast("TensorBase", held)))
        elif effect.made and home.tenant() is not None:
            home.vacate()
            busy = True
    if moving:
        busy = True
        lazy = [held for _, held in moving if not held.is_realized]
        if lazy:
            realize.materialize(lazy)
        realize.before_writes([home.buffer for home, _ in moving])
        for home, held in moving:
            home.vacate()
            data = held._buffer
            assert data is not None
            home.buffer.copyin(data)
    copies, given = _to_be_done(effects)
    if copies:
        busy = True
        realize.before_writes([b for tensor, _, _ in copies if (b := tensor._buffer) is not None])
    return busy, (copies, given)


def _to_be_done(effects: Sequence[Effect]) -> Handover:
    copies: list[tuple[TensorBase, int, int]] = []
    given: list[tuple[TensorBase, object]] = []
    for effect in effects:
        held = effect.tensor._grad
        if effect.changed is not None and held is not effect.home:
            changed = effect.changed
            copies.append((cast("TensorBase", held), changed.address, changed.nbytes))
        if effect.renewed:
            left = effect.home if effect.made else effect.leaves
            if effect.source is not None:
                left = _settled(effect.tensor, tensor_of(effect.source._grad))
            elif isinstance(effect.leaves, Home):
                left = effect.leaves.let(cast("TensorBase", effect.leaves.owner()))
            if held is not left and not (type(held) is Spent and type(left) is Spent):
                given.append((effect.tensor, left))
    return copies, given

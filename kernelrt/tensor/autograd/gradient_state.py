"""Gradients as state: storage of gradients that outlive a call of a jitted function.

Each tensor owns one buffer for its gradient, the *home* of the gradient. Jitted functions store
``grad`` there. Plans read and write the home in place, so one function may compute a gradient and
another one use it. For a gradient in its home, ``_grad`` is the `GradientBuffer`. The tensor over
the home, its *tenant*, is created when user code reads ``grad``, and lives as long as user code
holds it. If a plan overwrites the home while the tenant lives, the tenant gets a copy of the data
first.
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

__all__ = [
    "GIVEN", "ConsumedGradient", "Effect", "GradientBuffer", "Handover", "Use", "are_shared_alike",
    "before_run", "find", "home_of", "kind_of", "move_out", "read", "tensor_of", "write",
]  # fmt: skip


class ConsumedGradient:
    """Placeholder for a gradient that a jitted function used and did not keep.

    Parameters
    ----------
    function : str
        Name of the function.
    """

    __slots__ = ("function",)

    def __init__(self, function: str) -> None:
        self.function = function

    def error(self) -> GradientError:
        """Return the error that reading the gradient raises."""
        return GradientError(
            f"grad: {self.function} clears, computes and uses this gradient in one call, so the "
            "plan of the function does not store it; keep gradients with jit(keep_grads=True), or "
            "return the values you need from the function"
        )


class Use:
    """Record of what a trace does with the ``grad`` of one tensor."""

    __slots__ = (
        "before", "gradient", "now", "other_buffer", "read", "same", "start", "tensor", "used",
    )  # fmt: skip

    def __init__(self, tensor: TensorBase, read: bool) -> None:
        self.tensor = tensor
        self.before = tensor._grad
        self.read = read
        #: The tensor over the home that the function finds at its start.
        self.start: TensorBase | None = None
        #: The tensor of the gradient before the trace, if any; and its memory, if not the home.
        self.gradient: TensorBase | None = None
        self.other_buffer: Buffer | None = None
        #: The first tensor seen that has the same tensor as its gradient, if any.
        self.same: TensorBase | None = None
        #: The current value inside the function.
        self.now: TensorBase | ConsumedGradient | None = None
        #: The value that an optimizer used.
        self.used: UOp | None = None


class GradientBuffer:
    """The buffer in which plans keep the gradient of one tensor."""

    __slots__ = ("__weakref__", "_shape", "_tenant", "buffer", "owner")

    def __init__(self, owner: TensorBase) -> None:
        assert is_static(owner.dims)
        self._shape = cast("tuple[int, ...]", owner.shape)
        self.buffer = Buffer(math.prod(self._shape), owner.dtype)
        self.owner = weakref.ref(owner)
        self._tenant: weakref.ref[TensorBase] | None = None
        state.homes[self.buffer] = self

    def tenant(self) -> TensorBase | None:
        """Return the live tensor over this buffer, or None."""
        tenant = None if self._tenant is None else self._tenant()
        return tenant if tenant is not None and tenant._memory is self.buffer else None

    def over(self, owner: TensorBase) -> TensorBase:
        """Return a new tensor that reads and writes this buffer."""
        return owner._over(self.buffer, self._shape)

    def let(self, owner: TensorBase) -> TensorBase:
        """Return the tenant to hand out; create one if there is none."""
        touch()  # plans that write here must check whether the tensor is still held
        tenant = self.tenant()
        if tenant is None:
            tenant = self.over(owner)
            self._tenant = weakref.ref(tenant)
        return tenant

    def vacate(self) -> None:
        """Give the tenant a copy of the data, so that the buffer can be overwritten."""
        tenant = self.tenant()
        if tenant is not None:
            copy = Buffer(self.buffer.size, self.buffer.dtype)
            copy.content()[...] = self.buffer.content()
            tenant._move(copy)
            owner = self.owner()
            if owner is not None and owner._grad is self:
                owner._grad = tenant
        self._tenant = None


def home_of(tensor: TensorBase) -> GradientBuffer:
    """Return the home of the gradient of `tensor`; create it on first use."""
    home: GradientBuffer | None = getattr(tensor, "_home", None)
    if home is None:
        home = tensor._home = GradientBuffer(tensor)
    return home


# ---- Tensor.grad


def read(tensor: TensorBase) -> TensorBase | None:
    """Return the gradient of `tensor`; the active trace records the read.

    Raises
    ------
    GradientError
        A jitted function used the gradient and did not keep it.
    """
    held = find(tensor)
    if isinstance(held, ConsumedGradient):
        raise held.error()
    return held


def find(tensor: TensorBase) -> TensorBase | ConsumedGradient | None:
    """Return the gradient like :func:`read`, or a `ConsumedGradient` if it was not kept."""
    trace = state.local.trace
    if trace is not None:
        return trace.grad_of(tensor)
    return _handed_out(tensor._grad, tensor)


def _handed_out(
    held: TensorBase | GradientBuffer | ConsumedGradient | None, tensor: TensorBase
) -> TensorBase | ConsumedGradient | None:
    """Return the tensor, or the `ConsumedGradient`, of the gradient of `tensor`."""
    return held.let(tensor) if isinstance(held, GradientBuffer) else held


def write(tensor: TensorBase, value: TensorBase | None) -> None:
    """Set the gradient of `tensor`; the active trace records the write."""
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


def _settled(tensor: TensorBase, value: TensorBase | None) -> TensorBase | GradientBuffer | None:
    """Return the value for ``_grad``: the home of `tensor` if `value` is its tenant."""
    home: GradientBuffer | None = getattr(tensor, "_home", None)
    lies = home is not None and value is not None and home.tenant() is value
    return home if lies else value


def move_out(tensor: TensorBase) -> None:
    """Copy a gradient to memory of its own if it is the tenant of a home."""
    buffer = tensor._buffer
    home = None if buffer is None else state.homes.get(buffer)
    if home is not None and home.tenant() is tensor:
        home.vacate()
        touch()


# ---- runs of plans


#: The states of a ``grad`` that plans distinguish.
NONE: Final = "none"
GIVEN: Final = "there"
SPENT: Final = "used up"


def kind_of(held: object) -> str:
    """Return the state of the value of a ``grad``, one of the states above."""
    return NONE if held is None else SPENT if type(held) is ConsumedGradient else GIVEN


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Effect:
    """Effect of a traced function on the ``grad`` of one tensor.

    Attributes
    ----------
    tensor : Tensor
        Tensor that has the gradient.
    reads : str, optional
        State of the gradient during tracing, if the function reads it before setting it.
    home : GradientBuffer, optional
        Buffer that the plan reads or writes.
    renewed : bool
        Whether the function sets ``grad`` to another tensor.
    made : bool
        Whether the new gradient is in the home.
    leaves : Tensor, ConsumedGradient, GradientBuffer, optional
        New gradient if it is not in the home; a GradientBuffer for a gradient that the plan stores
        in the home of another tensor.
    source : Tensor, optional
        Tensor whose gradient before the run becomes the new gradient.
    same : Tensor, optional
        Another tensor that had the same gradient tensor during tracing.
    other_buffer : Buffer, optional
        Memory of the gradient during tracing, if not the home.
    changed : Buffer, optional
        Buffer in which the plan stores the value assigned to the gradient tensor it found.
    """

    tensor: TensorBase
    reads: str | None
    home: GradientBuffer | None
    renewed: bool
    made: bool
    leaves: TensorBase | ConsumedGradient | GradientBuffer | None
    source: TensorBase | None
    same: TensorBase | None
    other_buffer: Buffer | None
    changed: Buffer | None

    @property
    def after(self) -> str | None:
        """State of the gradient after a run, if it was in the state `reads` before."""
        if not self.renewed:
            return self.reads
        return GIVEN if self.made or self.source is not None else kind_of(self.leaves)

    def fits(self) -> bool:
        """Return whether the gradient is in the same state as when the function was traced."""
        return self.reads is None or kind_of(self.tensor._grad) == self.reads


def tensor_of(held: object) -> TensorBase | None:
    """Return the tensor of a gradient, or None if none was handed out."""
    return cast("TensorBase | None", held.tenant() if isinstance(held, GradientBuffer) else held)


def are_shared_alike(
    found: Sequence[Effect], read: Collection[Buffer], written: Collection[Buffer]
) -> bool:
    """Return whether gradients alias each other and other state exactly as during tracing.

    Parameters
    ----------
    found : sequence of Effect
        Effects of a plan on gradients that exist before the run.
    read, written : collection of Buffer
        Buffers that the plan reads and writes.
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
            buffer = gradient._buffer
            state_too = buffer in written or (effect.changed is not None and buffer in read)
            if (
                state_too
                and other is effect.tensor
                and buffer is not effect.other_buffer
                and effect.tensor._grad is not effect.home
            ):
                return False
        if (None if other is effect.tensor else other) is not effect.same:
            return False
    return True


#: Work left for after a run of a plan: (tensor, address, bytes) to copy to the tensor's data, and
#: (tensor, gradient) to set.
Handover: TypeAlias = "tuple[list[tuple[TensorBase, int, int]], list[tuple[TensorBase, object]]]"


def before_run(effects: Sequence[Effect]) -> tuple[bool, Handover]:
    """Move gradients to the buffers where the plan reads them.

    Return a bool and the work that is left for after the run. The bool says whether there was
    anything to do, or will be in the next run.
    """
    moving: list[tuple[GradientBuffer, TensorBase]] = []
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
            elif isinstance(effect.leaves, GradientBuffer):
                left = effect.leaves.let(cast("TensorBase", effect.leaves.owner()))
            consumed = type(held) is ConsumedGradient and type(left) is ConsumedGradient
            if held is not left and not consumed:
                given.append((effect.tensor, left))
    return copies, given

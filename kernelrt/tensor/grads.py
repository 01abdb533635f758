"""Gradients as state: where plans keep those that outlive a call.

What a jitted function leaves in the ``grad`` of a tensor lies in storage that belongs to that
tensor, its *home*. Plans read and write the home in place, so it does not matter which function
computed a gradient and which one uses it. The tensor over a home that is somebody's ``grad`` is
its *tenant*; one that is still held when its place is needed moves out with a copy of its data.
"""

from __future__ import annotations

import math
import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from kernelrt._handle import touch
from kernelrt.device.buffer import Buffer
from kernelrt.errors import GradientError
from kernelrt.ir.shape import is_static
from kernelrt.tensor import state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.tensor.base import TensorBase

__all__ = ["Effect", "Home", "Spent", "after_run", "before_run", "find", "home_of", "read",
           "write"]  # fmt: skip


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
            f"grad: {self.function} clears this gradient, computes it and uses it up in an "
            f"optimizer's step, so its plan does not store it; keep it with "
            "jit(keep_grads=True), or return what is needed of it"
        )


class Home:
    """The storage in which plans keep the gradient of one tensor."""

    __slots__ = ("__weakref__", "_shape", "_tenant", "buffer")

    def __init__(self, owner: TensorBase) -> None:
        assert is_static(owner.dims)
        self._shape = cast("tuple[int, ...]", owner.shape)
        self.buffer = Buffer(math.prod(self._shape), owner.dtype)
        self._tenant: weakref.ref[TensorBase] | None = None
        state.homes[self.buffer] = self

    def tenant(self) -> TensorBase | None:
        """The tensor that lies here, if any does."""
        return None if self._tenant is None else self._tenant()

    def over(self, owner: TensorBase) -> TensorBase:
        """A tensor that reads and writes this storage."""
        return owner._over(self.buffer, self._shape)

    def let(self, owner: TensorBase) -> TensorBase:
        """The tenant, a new one if there is none."""
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
            copy.raw()[...] = self.buffer.raw()
            tenant._move(copy)
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
    held = tensor._grad if trace is None else trace.grad_of(tensor)
    home: Home | None = getattr(tensor, "_home", None)
    if home is not None and home.tenant() is held:
        touch()  # plans that write here must look whether the tensor is still held
    return held


def write(tensor: TensorBase, value: TensorBase | None) -> None:
    """Set the gradient of `tensor`, recorded by the active trace."""
    trace = state.local.trace
    if trace is not None:
        trace.set_grad(tensor, value)
        return
    if tensor._grad is not value:
        touch()
    tensor._grad = value


# ---- what a run of a plan does


#: What a ``grad`` is, as far as a plan cares.
NONE: Final = "none"
GIVEN: Final = "there"
SPENT: Final = "used up"


def kind_of(held: object) -> str:
    """Which of the above a ``grad`` is."""
    return NONE if held is None else SPENT if type(held) is Spent else GIVEN


@dataclass(frozen=True, slots=True, eq=False)
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
    leaves : Tensor, Spent, optional
        What it leaves otherwise.
    changed : Buffer, optional
        Where the plan writes what was assigned to the tensor that the function found.
    """

    tensor: TensorBase
    reads: str | None
    home: Home | None
    renewed: bool
    made: bool
    leaves: TensorBase | Spent | None
    changed: Buffer | None

    def fits(self) -> bool:
        """Whether the gradient is what the function found when it was traced."""
        return self.reads is None or kind_of(self.tensor._grad) == self.reads


def before_run(effects: Sequence[Effect]) -> bool:
    """Bring gradients to where the plan reads them; whether there was anything to do."""
    from kernelrt.tensor.realize import before_writes, materialize

    moving: list[tuple[Home, TensorBase]] = []
    changed = False
    for effect in effects:
        home = effect.home
        if home is None:
            continue
        tenant, held = home.tenant(), effect.tensor._grad
        if effect.reads == GIVEN and tenant is not held:
            moving.append((home, cast("TensorBase", held)))
        elif effect.made and tenant is not None:
            # By `tenant`, by the call that counts, and by `held` and the owner if it is theirs.
            own = 4 if tenant is held else 2
            if sys.getrefcount(tenant) > own:
                home.vacate()
                changed = True
    if not moving:
        return changed
    lazy = [held for _, held in moving if not held.is_realized]
    if lazy:
        materialize(lazy)
    before_writes([home.buffer for home, _ in moving])
    for home, held in moving:
        home.vacate()
        data = held._buffer
        assert data is not None
        home.buffer.raw()[...] = data.raw()
    return True


def after_run(effects: Sequence[Effect]) -> bool:
    """Leave the gradients that the function leaves; whether there was anything to do."""
    changed = False
    for effect in effects:
        tensor, home = effect.tensor, effect.home
        held = tensor._grad
        if effect.changed is not None and home is not None and home.tenant() is not held:
            _overwrite(cast("TensorBase", held), effect.changed)
            changed = True
        if effect.renewed:
            left = home.let(tensor) if effect.made and home is not None else effect.leaves
            if held is not left and not (type(held) is Spent and type(left) is Spent):
                tensor._grad = left
                changed = True
    if changed:
        touch()
    return changed


def _overwrite(tensor: TensorBase, data: Buffer) -> None:
    """Give `tensor` what `data` holds, in place."""
    from kernelrt.tensor.realize import before_writes

    buffer = tensor._buffer
    assert buffer is not None
    before_writes([buffer])
    buffer.raw()[...] = data.raw()

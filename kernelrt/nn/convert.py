"""Converts modules to another floating-point dtype."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, TypeVar

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, StateError, a_type
from kernelrt.nn import modes, tree
from kernelrt.tensor import Tensor
from kernelrt.tensor.base import is_parameter
from kernelrt.tensor.free_functions.creation import tensor
from kernelrt.tensor.tracing.trace import forbid

if TYPE_CHECKING:
    from kernelrt.dtype import DType

__all__ = ["converted"]

_M = TypeVar("_M")


def converted(root: _M, dtype: object) -> _M:
    """Replace the floating-point tensors of `root` by tensors of type `dtype`; return `root`.

    Raises
    ------
    DTypeError
        `dtype` is not a floating-point dtype.
    StateError
        A tensor is in a tuple or another immutable object.
    """
    wanted = dt.parse(dtype)
    if not wanted.is_float:
        raise DTypeError(f"dtype: expected a floating-point dtype, not {wanted.name}")
    forbid("converting a module")
    made: dict[int, Tensor] = {}
    owners = [owner for _, owner in tree.named_objects(root)]
    places = [
        (owner, key, value)
        for owner in owners
        for key, value in _held(owner)
        if isinstance(value, Tensor) and value.dtype.is_float and value.dtype is not wanted
    ]
    for owner, key, _ in places:
        if not isinstance(owner, list | MutableMapping) and not hasattr(owner, "__dict__"):
            raise StateError(
                f"to: cannot replace the tensor at {key!r} of {a_type(owner)}, which is immutable; "
                "keep the tensor in a list, a dict or an attribute"
            )
    for owner, key, value in places:
        if id(value) not in made:
            made[id(value)] = _in_type(value, wanted)
        if isinstance(owner, list | MutableMapping):
            owner[key] = made[id(value)]
        else:
            object.__setattr__(owner, str(key), made[id(value)])
    for owner in owners:
        later = getattr(owner, "__dict__", {})
        if tree.UNMADE in later:
            later[tree.UNMADE] = {**later[tree.UNMADE], "dtype": wanted}
    modes.changed()  # so that traced functions check the attributes that they read
    return root


def _held(owner: object) -> list[tuple[Any, Any]]:
    """Return (key, value) for each item or attribute of an object; nested ones are left out."""
    if isinstance(owner, Tensor):
        return []
    if isinstance(owner, list | tuple):
        return list(enumerate(owner))
    if isinstance(owner, MutableMapping):
        return list(owner.items())
    return list(getattr(owner, "__dict__", {}).items())


def _in_type(value: Tensor, dtype: DType) -> Tensor:
    if not is_parameter(value):
        return value.detach().cast(dtype).clone().realize()
    new = tensor(value.detach().cast(dtype))
    return new._become_parameter(value.requires_grad)  # noqa: SLF001 - a new tensor

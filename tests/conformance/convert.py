"""Arguments of PyTorch, as those of kernelrt."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import torch

import kernelrt as krt

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UnfitError", "is_of_tests", "mapped", "our_function", "our_plain", "our_tensor"]


class UnfitError(Exception):
    """Arguments that kernelrt has no counterpart of."""


def mapped(value: Any, tensor: Callable[[torch.Tensor], Any], other: Callable[[Any], Any]) -> Any:
    """The nest of arguments `value` with each tensor, and each other leaf, replaced."""
    if isinstance(value, torch.Tensor):
        return tensor(value)
    if isinstance(value, dict):
        return {k: mapped(v, tensor, other) for k, v in value.items()}
    if isinstance(value, list | tuple):
        parts = [mapped(v, tensor, other) for v in value]
        return parts if isinstance(value, list) else tuple(parts)
    return other(value)


def our_tensor(value: torch.Tensor) -> krt.Tensor:
    """The tensor of the same numbers, which requires a gradient where `value` does."""
    if value.is_complex():
        raise UnfitError("there are no complex numbers")
    if value.layout is not torch.strided:
        raise UnfitError("there are no sparse tensors")
    array = value.detach()
    if value.dtype is torch.bfloat16:
        made = krt.tensor(array.float().numpy(), dtype=krt.bfloat16)
    else:
        made = krt.tensor(array.resolve_neg().numpy())
    return made.requires_grad_(value.requires_grad)


def our_plain(value: Any) -> Any:
    """What is no tensor: types, devices, functions; numbers and texts stay."""
    if isinstance(value, torch.dtype):
        name = str(value).removeprefix("torch.")
        if not hasattr(krt, name):
            raise UnfitError(f"there is no type {name}")
        return getattr(krt, name)
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, complex):
        raise UnfitError("there are no complex numbers")
    if isinstance(value, torch.layout | torch.memory_format):
        raise UnfitError(f"there are no layouts such as {value}")
    if isinstance(value, torch.Generator):
        raise UnfitError("there are no generators of PyTorch")
    if isinstance(value, torch.nn.Module):
        made = getattr(krt.nn, type(value).__name__, None)
        if made is None or value.state_dict():
            raise UnfitError(f"an argument is the module {type(value).__name__}")
        return made()
    return our_function(value)


def our_function(value: Any) -> Any:
    """What a function of torch is here; in one of torch's tests the name `torch` means kernelrt."""
    if isinstance(value, functools.partial):
        given = [our_function(v) for v in value.args]
        return functools.partial(our_function(value.func), *given, **value.keywords)
    place = str(getattr(value, "__module__", None) or "")
    if callable(value) and place in ("torch._C._nn", "torch.nn.functional"):
        return getattr(krt.nn.functional, value.__name__)
    if not is_of_tests(value):
        return value
    if value.__name__ == "wrapper_set_seed":  # numbers of the two differ anyway
        return _called
    ours = {"torch": krt, "F": krt.nn.functional, "nn": krt.nn, "wrapper_set_seed": _called}
    names = {**value.__globals__, **ours}
    made = types.FunctionType(
        value.__code__, names, value.__name__, value.__defaults__, value.__closure__
    )
    made.__kwdefaults__ = value.__kwdefaults__
    return made


def _called(function: Any, *args: Any, **options: Any) -> Any:
    return function(*args, **options)


def is_of_tests(value: Any) -> bool:
    """Whether a value is a plain function that torch's tests define."""
    place = str(getattr(value, "__module__", None) or "")
    return isinstance(value, types.FunctionType) and place.startswith("torch.testing.")

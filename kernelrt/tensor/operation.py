"""Decorators for operations: functions that read the nodes of tensors and make a new node."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, TypeVar, cast

from kernelrt.native.thread_modes import Operation

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["operation", "operations"]

_F = TypeVar("_F", bound="Callable[..., Any]")
_C = TypeVar("_C", bound=type)


def operation(function: _F) -> _F:
    """Repeat `function` if memory that its operands read was written while it ran.

    The function takes the nodes of its operands and then makes the result. In between, another
    thread, a signal handler or a finalizer may assign to a tensor that an operand is computed from.
    Such a write first computes the existing lazy tensors that read the memory, but not the result,
    which does not exist yet. The function must have no side effects.
    """
    return cast("_F", Operation(function))


def operations(*besides: str) -> Callable[[_C], _C]:
    """Turn the public methods of a class that return tensors into operations.

    Methods named in `besides` have side effects and are left out.
    """

    def decorate(kind: _C) -> _C:
        made: dict[FunctionType, Callable[..., Any]] = {}  # a method may have several names
        for name, value in list(vars(kind).items()):
            if name in besides or (name.startswith("_") and not name.endswith("__")):
                continue
            if isinstance(value, FunctionType) and _gives_tensors(value):
                setattr(kind, name, made.setdefault(value, operation(value)))
            elif isinstance(value, property) and value.fget is not None:
                setattr(kind, name, property(operation(value.fget)))
        return kind

    return decorate


def _gives_tensors(function: FunctionType) -> bool:
    given: str = function.__annotations__["return"]
    return "Self" in given or given == "Any"

"""Marks functions of tensors as operations: they read nodes and make one."""

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
    """Let `function` be done again where memory that its operands read was written meanwhile.

    Another thread, a signal handler or a finalizer may assign to what an operand is computed from,
    between the line that takes the operand's node and the one that makes the result, which then
    nobody has computed before. The function must have no effect but its result.
    """
    return cast("_F", Operation(function))


def operations(*besides: str) -> Callable[[_C], _C]:
    """Let all public methods of a class that give tensors be operations.

    Those named `besides` have another effect, too.
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

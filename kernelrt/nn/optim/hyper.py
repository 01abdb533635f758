"""Numbers that an optimizer's steps are made with, and what setting them does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

import numpy as np

from kernelrt.errors import DTypeError, JitError, ShapeError, UnknownNameError
from kernelrt.nn import modes
from kernelrt.tensor import is_tracing

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Hyper", "Hyperparameter", "decays", "flag", "non_negative"]

T = TypeVar("T")


class Hyperparameter(Generic[T]):
    """An attribute that jitted steps read: once it is set, they are traced with the new value.

    Parameters
    ----------
    check : callable
        Given the name and what it is set to; returns the value, or raises what is wrong with it.
    """

    def __init__(self, check: Callable[[str, object], T]) -> None:
        self._check = check
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Hyper, owner: type) -> T: ...
    def __get__(self, instance: Hyper | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value: T = instance.__dict__["_" + self._name]
        modes.note(instance, "_" + self._name, value)
        return value

    def __set__(self, instance: Hyper, value: object) -> None:
        if is_tracing():
            raise JitError(
                f"{self._name}: it is set while a function is traced, which replays cannot "
                f"repeat; set {type(instance).__name__}.{self._name} outside of the function"
            )
        names, key = instance.__dict__, "_" + self._name
        checked, before = self._check(self._name, value), names.get(key)
        names[key] = checked
        if before is None:
            return
        try:
            instance.adjust()
        except BaseException:
            names[key] = before
            raise
        modes.changed()


class _Sealing(type):
    """Says of an object when its construction is over."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        made.__dict__["_sealed"] = True
        return made


class Hyper(metaclass=_Sealing):
    """An object with hyperparameters, to which no other attributes can be added by mistake."""

    def adjust(self) -> None:
        """Bring what depends on hyperparameters up to date, or raise where they do not fit."""

    def __setattr__(self, name: str, value: object) -> None:
        known = name.startswith("_") or name in self.__dict__ or "_sealed" not in self.__dict__
        if not known and not any(name in vars(base) for base in type(self).__mro__):
            given = (n for base in type(self).__mro__ for n, v in vars(base).items()
                     if isinstance(v, Hyperparameter))  # fmt: skip
            raise UnknownNameError(
                f"{type(self).__name__} has no attribute {name!r} to be set; what steps are made "
                f"with are {', '.join(['lr', *given])}"
            )
        super().__setattr__(name, value)


def non_negative(name: str, value: object) -> float:
    """`value` as a finite float of at least 0, or an error that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise DTypeError(f"{name}: expected a number, not {type(value).__name__}")
    if not (0.0 <= value <= sys.float_info.max):
        raise ShapeError(f"{name}: expected a finite number of at least 0, not {value}")
    return float(value)


def decays(name: str, value: object) -> tuple[float, float]:
    """`value` as a pair of floats from 0 to below 1."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise DTypeError(f"{name}: expected a pair of floats, not {value!r}")
    first, second = (non_negative(f"{name}[{i}]", beta) for i, beta in enumerate(value))
    if first >= 1 or second >= 1:
        raise ShapeError(f"{name}: expected numbers from 0 to below 1, not {value}")
    return first, second


def flag(name: str, value: object) -> bool:
    """`value` as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise DTypeError(f"{name}: expected a bool, not {type(value).__name__}")
    return bool(value)

"""Hyperparameters of optimizers: declaration, checks, and setting them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, overload

import numpy as np

from kernelrt.errors import DomainError, DTypeError, UnknownNameError
from kernelrt.ir.shape import format_shape
from kernelrt.tensor.nodes import arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.nn.optim.param_groups import Group

__all__ = ["Hyper", "Hyperparameter", "any_number", "decays", "flag", "fraction", "maybe_number",
           "non_negative", "numbers", "one_of", "positive", "rules_of", "whole"]  # fmt: skip

T = TypeVar("T")


class _Grouped(Protocol):
    param_groups: list[Group]

    def _set_everywhere(self, name: str, value: object) -> None: ...


class Hyperparameter(Generic[T]):
    """An optimizer attribute that is stored in the parameter groups and read by jitted steps.

    A read returns the value of the first group. An assignment sets all groups.

    Parameters
    ----------
    check : callable
        Function of the name and a new value. It returns the value to store, or raises an error.
    live : bool
        Whether an update can read the value from memory. If so, a change of the value needs no new
        plan.
    """

    def __init__(self, check: Callable[[str, object], T], *, live: bool = False) -> None:
        self.check = check
        self.live = live
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> T: ...
    def __get__(self, instance: Any | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value: T = instance.param_groups[0][self._name]
        return value

    def __set__(self, instance: _Grouped, value: object) -> None:
        instance._set_everywhere(self._name, value)  # noqa: SLF001 - part of the optimizer


def rules_of(kind: type) -> dict[str, Hyperparameter[Any]]:
    """Return the hyperparameters of a class by name, those of its bases first."""
    return {
        name: value
        for base in reversed(kind.__mro__)
        for name, value in vars(base).items()
        if isinstance(value, Hyperparameter)
    }


class _Sealing(type):
    """Metaclass that marks an object as sealed after its construction."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        made.__dict__["_sealed"] = True
        return made


class Hyper(metaclass=_Sealing):
    """Base class of objects that have hyperparameters and reject unknown attributes."""

    def __setattr__(self, name: str, value: object) -> None:
        known = name.startswith("_") or name in self.__dict__ or "_sealed" not in self.__dict__
        if not known and not any(name in vars(base) for base in type(self).__mro__):
            raise UnknownNameError(
                f"{type(self).__name__}: unknown attribute {name!r}, expected one of "
                f"{', '.join(['lr', *rules_of(type(self))])}"
            )
        super().__setattr__(name, value)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise DTypeError(f"{name}: expected a number, not {_named(value)}")
    if not (-sys.float_info.max <= value <= sys.float_info.max):
        raise DomainError(f"{name}: expected a finite number, not {value}")
    return float(value)


def _named(value: object) -> str:
    """Describe a value that was passed instead of a number, with a hint for populations."""
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple):
        return type(value).__name__
    text = f"an array of shape {format_shape(shape)}"
    if not shape:
        return f"{text}; pass its item()"
    if len(shape) == 1:
        return f"{text}; the same number applies to all members of a population"
    return f"{text}; for a number per member of a population pass an array of shape (members,)"


def non_negative(name: str, value: object) -> float:
    """Return `value` as a finite float of at least 0, or raise an error that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise DTypeError(f"{name}: expected a number, not {_named(value)}")
    if not (0.0 <= value <= sys.float_info.max):
        raise DomainError(f"{name}: expected a finite number of at least 0, not {value}")
    return float(value)


def positive(name: str, value: object) -> float:
    """Return `value` as a finite float above 0."""
    number = non_negative(name, value)
    if not number:
        raise DomainError(f"{name}: expected a number above 0, not {value}")
    return number


def any_number(name: str, value: object) -> float:
    """Return `value` as a finite float."""
    return _number(name, value)


def maybe_number(name: str, value: object) -> float | None:
    """Return `value` as a finite float of at least 0, or None."""
    return None if value is None else non_negative(name, value)


def fraction(name: str, value: object) -> float:
    """Return `value` as a float from 0 to 1."""
    number = non_negative(name, value)
    if number > 1:
        raise DomainError(f"{name}: expected a number from 0 to 1, not {value}")
    return number


def decays(name: str, value: object) -> tuple[float, float]:
    """Return `value` as a pair of floats from 0 to below 1."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise DTypeError(f"{name}: expected a pair of floats, not {value!r}")
    first, second = (non_negative(f"{name}[{i}]", beta) for i, beta in enumerate(value))
    if first >= 1 or second >= 1:
        raise DomainError(f"{name}: expected numbers from 0 to below 1, not {value}")
    return first, second


def numbers(count: int) -> Callable[[str, object], tuple[float, ...]]:
    """Return a check for `count` finite floats."""

    def check(name: str, value: object) -> tuple[float, ...]:
        if not isinstance(value, tuple | list) or len(value) != count:
            raise DTypeError(f"{name}: expected {count} numbers, not {value!r}")
        return tuple(_number(f"{name}[{i}]", number) for i, number in enumerate(value))

    return check


def whole(least: int) -> Callable[[str, object], int]:
    """Return a check for an int of at least `least`."""

    def check(name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise DTypeError(f"{name}: expected an int, not {type(value).__name__}")
        if value < least:
            raise DomainError(f"{name}: expected at least {least}, not {value}")
        return int(value)

    return check


def one_of(choices: Sequence[str | None]) -> Callable[[str, object], str | None]:
    """Return a check for one of `choices`."""

    def check(name: str, value: object) -> str | None:
        if value is not None and not isinstance(value, str):
            raise DTypeError(f"{name}: expected a str or None, not {type(value).__name__}")
        if value not in choices:
            raise DomainError(f"{name}: expected one of {', '.join(map(repr, choices))}, "
                             f"not {value!r}")  # fmt: skip
        return value

    return check


def flag(name: str, value: object) -> bool:
    """Return `value` as a bool."""
    return arguments.flag(value, name)

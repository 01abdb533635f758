"""What rows call: their operands and the library stand behind proxies that note each name.

A proxy notes what a row itself asks for, and not what that calls in turn.
"""

from __future__ import annotations

import inspect
import types
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surface import compare, rows

import kernelrt as krt
from kernelrt.tensor.free_functions import from_methods

if TYPE_CHECKING:
    from collections.abc import Callable

    from surface.rows import Row

__all__ = ["Calls", "Use", "public", "same", "used"]

#: Where public names are; those of Tensor are methods, attributes and operators.
PLACES = {
    "Tensor": krt.Tensor, "krt": krt, "nn.functional": krt.nn.functional, "linalg": krt.linalg,
}  # fmt: skip
#: Special methods that compute nothing: they make, show, copy and hand over.
_SERVICES = {
    "__array__", "__array_function__", "__array_ufunc__", "__arrow_array__", "__arrow_c_array__",
    "__copy__", "__deepcopy__", "__dir__", "__dlpack__", "__dlpack_device__",
    "__format__", "__hash__", "__init__", "__new__", "__reduce__", "__repr__",
}  # fmt: skip


@dataclass(frozen=True)
class Use:
    """A call of a method: of which tensor, with what."""

    tensor: krt.Tensor
    args: tuple[Any, ...]
    options: dict[str, Any]


@dataclass
class Calls:
    """The names that rows use, as ``(place, name)``, and the calls of methods."""

    names: set[tuple[str, str]] = field(default_factory=set)
    methods: dict[str, list[Use]] = field(default_factory=lambda: defaultdict(list))

    def note(self, place: str, name: str) -> None:
        """Say that a name is used."""
        self.names.add((place, name))


def used(row: Row, calls: Calls) -> None:
    """Note what a row uses."""
    arrays = rows.draw(row, rows.sizes(row))
    _, operands = compare.given(row, arrays, krt.float64)
    row.call(_Place(calls, "krt"), *(_Operand(calls, x) for x in operands))


def public(place: str) -> list[str]:
    """The names of a place that can be called; of Tensor also attributes and operators."""
    owner = PLACES[place]
    if place == "Tensor":
        families = [c for c in krt.Tensor.__mro__ if c.__module__.startswith("kernelrt.")]
        special = {n for c in families for n, v in vars(c).items() if n[:2] == "__" and callable(v)}
        plain = {n for n in dir(owner) if not n.startswith("_") and hasattr(owner, n)}
        return sorted(plain | special - _SERVICES)
    listed = dir(owner) if "__dir__" in vars(owner) else owner.__all__
    named = {n: getattr(owner, n) for n in listed if not n.startswith("_")}
    return sorted(n for n, v in named.items() if callable(v) and not isinstance(v, type))


def same(place: str, name: str) -> object:
    """What a name stands for: two that stand for one thing need one row."""
    if place != "Tensor" and is_method(place, name):
        return same("Tensor", name)
    value = getattr(PLACES[place], name, name)
    return inspect.unwrap(value) if callable(value) else value


def is_method(place: str, name: str) -> bool:
    """Whether a name is that of a method, or of the function that is made of it."""
    return place == "Tensor" or _is_made(getattr(PLACES[place], name))


def _is_made(value: Any) -> bool:
    """Whether a function is made of the method of its name: see from_methods.py."""
    code = getattr(value, "__code__", None)
    made = Path(from_methods.__file__).name
    own = getattr(code, "co_freevars", ()) == ("made",)  # _activation() of nn/functional.py
    return own or Path(getattr(code, "co_filename", "")).name == made


# ---- proxies


class _Operand:
    """A tensor that notes what is asked of it."""

    __slots__ = ("_calls", "_tensor")
    __array_ufunc__ = None
    _calls: Calls
    _tensor: krt.Tensor

    def __init__(self, calls: Calls, tensor: krt.Tensor) -> None:
        object.__setattr__(self, "_calls", calls)
        object.__setattr__(self, "_tensor", tensor)

    def __getattr__(self, name: str) -> Any:
        self._calls.note("Tensor", name)
        value = getattr(self._tensor, name)
        if not isinstance(value, types.MethodType):
            return _lifted(self._calls, value)

        def call(*args: Any, **options: Any) -> Any:
            args, options = _plain(args), _plain(options)
            self._calls.methods[name].append(Use(self._tensor, args, options))
            return _lifted(self._calls, value(*args, **options))

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._tensor, name, _plain(value))


def _operator(name: str) -> Callable[..., Any]:
    def call(self: _Operand, *args: Any) -> Any:
        self._calls.note("Tensor", name)
        found = getattr(krt.Tensor, name)(self._tensor, *_plain(args))
        return _lifted(self._calls, found)

    return call


for _name in public("Tensor"):
    if _name.startswith("__"):
        setattr(_Operand, _name, _operator(_name))


class _Place:
    """A module that notes what is asked of it."""

    __name__ = "kernelrt"

    def __init__(self, calls: Calls, place: str) -> None:
        self._calls, self._place = calls, place

    def __getattr__(self, name: str) -> Any:
        if self._place not in PLACES:
            return _Place(self._calls, f"{self._place}.{name}")
        value = getattr(PLACES[self._place], name)
        if isinstance(value, types.ModuleType):
            return _Place(self._calls, name)
        if isinstance(value, type) or not callable(value):
            return value
        self._calls.note(self._place, name)
        return lambda *args, **options: _lifted(
            self._calls, value(*_plain(args), **_plain(options))
        )


def _plain(value: Any) -> Any:
    """The tensors themselves, wherever they stand."""
    if isinstance(value, _Operand):
        return value._tensor
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    if type(value) is dict:
        return {key: _plain(v) for key, v in value.items()}
    if type(value) is slice:
        return slice(_plain(value.start), _plain(value.stop), _plain(value.step))
    return value


def _lifted(calls: Calls, value: Any) -> Any:
    """A result with proxies for its tensors."""
    if isinstance(value, krt.Tensor):
        return _Operand(calls, value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_lifted(calls, v) for v in value))
    if type(value) in (list, tuple):
        return type(value)(_lifted(calls, v) for v in value)
    if isinstance(value, types.GeneratorType) or type(value).__name__.endswith("iterator"):
        return (_lifted(calls, v) for v in value)
    return value

"""Parameter names of a jitted function, and the binding of arguments to them."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Protocol

from kernelrt.nn import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Binding", "Parameters", "SavedParameters", "name_of"]


class Binding(Protocol):
    """The parameter names of a function, as far as calls need them."""

    def positional(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Convert keyword arguments to positional ones where possible."""

    def names(self, count: int) -> tuple[str, ...]:
        """Return the names of the first `count` positional parameters."""


class SavedParameters:
    """The names of the parameters of a function in a model file."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def positional(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Convert keyword arguments to positional ones where possible.

        Raises
        ------
        TypeError
            An argument is given twice. The message calls the function `name`.
        """
        given, rest = [*args], dict(kwargs)
        for parameter in self._names[: len(given)]:
            if parameter in rest:
                raise TypeError(f"{name}(): multiple values for argument {parameter!r}")
        for parameter in self._names[len(given) :]:
            if parameter not in rest:
                break
            given.append(rest.pop(parameter))
        return tuple(given), rest

    def names(self, count: int) -> tuple[str, ...]:
        """Return the names of the first `count` positional parameters."""
        known = [name or f"argument {i}" for i, name in enumerate(self._names[:count])]
        return (*known, *(f"argument {i}" for i in range(len(known), count)))


class Parameters:
    """The parameters of `fn`, or of its `forward` if it is a module.

    The signature of some builtins is unknown; then no parameters are known.
    """

    def __init__(self, fn: Callable[..., object]) -> None:
        self._signature: inspect.Signature | None
        try:
            self._signature = inspect.signature(fn.forward if isinstance(fn, Module) else fn)
        except (TypeError, ValueError):
            self._signature = None
        module = "" if isinstance(fn, Module) else str(getattr(fn, "__module__", ""))
        #: Functions of this package accept aliases of parameter names, and check them themselves.
        self._has_other_names = module.partition(".")[0] == "kernelrt"
        self._all = () if self._signature is None else tuple(self._signature.parameters.values())
        self.optional = frozenset(p.name for p in self._all if p.default is not p.empty)
        """Names of the parameters with defaults."""
        #: Aliases that the function accepts in addition to its signature, as `axis` for `dim`.
        self._others: frozenset[str] = getattr(fn, "other_names", frozenset())
        self._named: dict[int, tuple[str, ...]] = {}

    def passed_either_way(self) -> Iterator[str]:
        """Yield the names of the positional parameters; "" for those that are positional-only."""
        for parameter in self._all:
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                yield parameter.name
            elif parameter.kind is parameter.POSITIONAL_ONLY:
                yield ""
            else:
                return

    def positional(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Convert keyword arguments to positional ones where possible.

        Calls by position and by keyword then share a plan.

        Raises
        ------
        TypeError
            The arguments do not fit the signature. The message calls the function `name`.
        """
        if self._signature is None:
            return args, dict(kwargs)
        others = {k: v for k, v in kwargs.items() if k in self._others}
        own = {k: v for k, v in kwargs.items() if k not in others} if others else kwargs
        try:
            bound = self._signature.bind(*args, **own)
        except TypeError as error:
            if self._has_other_names:
                return args, dict(kwargs)
            raise TypeError(f"{name}(): {error}") from None
        return bound.args, {**bound.kwargs, **others} if others else bound.kwargs

    def names(self, count: int) -> tuple[str, ...]:
        """Return the names of the first `count` positional parameters."""
        found = self._named.get(count)
        if found is None:
            found = self._named[count] = self._names(count)
        return found

    def _names(self, count: int) -> tuple[str, ...]:
        names: list[str] = []
        for parameter in self._all:
            if parameter.kind is parameter.VAR_POSITIONAL:
                names += [f"{parameter.name}[{i}]" for i in range(count - len(names))]
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                names.append(parameter.name)
        names += [f"argument {i}" for i in range(len(names), count)]
        return tuple(names[:count])


def name_of(fn: Callable[..., object]) -> str:
    """Return the name of a function for error messages."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", None) or type(fn).__name__

"""Hooks: functions that are called before and after a module's forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kernelrt._modes import MISSING
from kernelrt.errors import DTypeError
from kernelrt.nn import modes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Handle", "Hook", "added", "called", "dropped", "hooks_of"]

_HOOKS = "_hooks"


class Hook(NamedTuple):
    """A function, whether it comes before forward, and whether it sees keyword arguments."""

    function: Callable[..., Any]
    before: bool
    with_kwargs: bool


class Handle:
    """What takes a hook away again."""

    def __init__(self, owner: Any, hook: tuple[Hook]) -> None:
        self._owner = owner
        self._hook = hook

    def remove(self) -> None:
        """Take the hook away; nothing happens a second time."""
        left = tuple(h for h in self._owner.__dict__.get(_HOOKS, ()) if h is not self._hook)
        setattr(self._owner, _HOOKS, left)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def hooks_of(owner: Any) -> tuple[tuple[Hook], ...]:
    """The hooks of a module, which a trace depends on."""
    found: tuple[tuple[Hook], ...] = owner.__dict__.get(_HOOKS, ())
    modes.note(owner, _HOOKS, owner.__dict__.get(_HOOKS, MISSING))
    return found


def added(owner: Any, hook: Hook, first: bool) -> Handle:
    """Add a hook to a module."""
    if not callable(hook.function):
        raise DTypeError(f"hook: expected a function, not {type(hook.function).__name__}")
    own = (hook,)  # an object of its own for each time that a function is added
    before = owner.__dict__.get(_HOOKS, ())
    setattr(owner, _HOOKS, (own, *before) if first else (*before, own))
    return Handle(owner, own)


def dropped(owner: Any, function: object) -> None:
    """Take a function away from the hooks of a module, if it is among them."""
    before = owner.__dict__.get(_HOOKS, ())
    left = tuple(h for h in before if h[0].function is not function)
    if len(left) < len(before):
        setattr(owner, _HOOKS, left)


def called(
    forward: Callable[..., Any], owner: Any, hooks: tuple[tuple[Hook], ...],
    args: tuple[Any, ...], kwargs: dict[str, Any],
) -> Any:  # fmt: skip
    """What forward gives, with hooks around it."""
    for (hook,) in hooks:
        if not hook.before:
            continue
        if hook.with_kwargs:
            given = hook.function(owner, args, kwargs)
            if given is not None:
                args, kwargs = given
        else:
            given = hook.function(owner, args)
            if given is not None:
                args = given if isinstance(given, tuple) else (given,)
    result = forward(*args, **kwargs)
    for (hook,) in hooks:
        if not hook.before:
            more = (kwargs,) if hook.with_kwargs else ()
            given = hook.function(owner, args, *more, result)
            result = result if given is None else given
    return result

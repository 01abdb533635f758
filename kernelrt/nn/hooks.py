"""Forward hooks of modules."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelrt.errors import DTypeError
from kernelrt.native.thread_modes import MISSING
from kernelrt.nn import modes
from kernelrt.tensor import state
from kernelrt.util.hook_handles import Entry, Handle

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Handle", "Hook", "added", "called", "dropped", "hooks_of"]

_HOOKS = "_hooks"


class Hook(NamedTuple):
    """A hook function and its options.

    If `before` is true, the hook runs before forward, otherwise after it. If `with_kwargs` is true,
    it receives keyword arguments. If `always` is true, it also runs if forward fails.
    """

    function: Callable[..., Any]
    before: bool
    with_kwargs: bool
    always: bool = False


_Hooks = tuple[Entry[Hook], ...]


def hooks_of(owner: Any) -> tuple[Entry[Hook], ...]:
    """Return the hooks of a module. If a function is being traced, note that it depends on them."""
    found: tuple[Entry[Hook], ...] = owner.__dict__.get(_HOOKS, ())
    modes.note(owner, _HOOKS, owner.__dict__.get(_HOOKS, MISSING))
    return found


def _edit(owner: Any, change: Callable[[_Hooks], _Hooks]) -> None:
    """Replace the hooks of a module atomically."""
    with state.lock:
        before = owner.__dict__.get(_HOOKS, ())
        hooks = change(before)
        if hooks is before:
            return
        if hooks:
            setattr(owner, _HOOKS, hooks)
        else:  # plans from before the first hook are valid again
            delattr(owner, _HOOKS)


def added(owner: Any, hook: Hook, first: bool) -> Handle:
    """Add a hook to a module."""
    if not callable(hook.function):
        raise DTypeError(f"hook: expected a function, not {type(hook.function).__name__}")
    entry = Entry(hook)
    _edit(owner, lambda hooks: (entry, *hooks) if first else (*hooks, entry))
    return Handle(partial(_edit, owner), entry)


def dropped(owner: Any, function: object) -> None:
    """Remove a function from the hooks of a module, if it is registered."""

    def rest(hooks: _Hooks) -> _Hooks:
        left = tuple(h for h in hooks if h.hook.function is not function)
        return left if len(left) < len(hooks) else hooks

    _edit(owner, rest)


def called(
    forward: Callable[..., Any], owner: Any, hooks: _Hooks,
    args: tuple[Any, ...], kwargs: dict[str, Any],
) -> Any:  # fmt: skip
    """Call forward with the hooks around it, and return the result."""
    waiting = [entry.hook for entry in hooks if entry.hook.always]
    results: list[Any] = [None]
    try:
        _call(forward, owner, hooks, args, kwargs, waiting, results)
    except Exception:
        for hook in waiting:
            more = (kwargs,) if hook.with_kwargs else ()
            with contextlib.suppress(Exception):
                given = hook.function(owner, args, *more, results[-1])
                results.append(results[-1] if given is None else given)
        raise
    return results[-1]


def _call(
    forward: Callable[..., Any], owner: Any, hooks: _Hooks, args: tuple[Any, ...],
    kwargs: dict[str, Any], waiting: list[Hook], results: list[Any],
) -> None:  # fmt: skip
    """Call the hooks and forward; append the result of forward, and each new result of a hook.

    Results are appended to `results`. `waiting` holds the hooks that must also run if forward
    fails; a hook that was called is removed from it.
    """
    for entry in hooks:
        hook = entry.hook
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
    results.append(forward(*args, **kwargs))
    for entry in hooks:
        hook = entry.hook
        if not hook.before:
            if hook.always:
                waiting.remove(hook)
            more = (kwargs,) if hook.with_kwargs else ()
            given = hook.function(owner, args, *more, results[-1])
            results.append(results[-1] if given is None else given)

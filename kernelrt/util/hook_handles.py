"""Hook handles of tensors and modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Entry", "Handle", "without"]

_T = TypeVar("_T")


class Entry(Generic[_T]):
    """One registration of a hook. It is compared by identity, so a hook may be registered twice.

    Parameters
    ----------
    hook : object
        The registered hook.
    """

    __slots__ = ("hook",)

    def __init__(self, hook: _T) -> None:
        self.hook = hook


class Handle:
    """A handle that removes a registered hook.

    Parameters
    ----------
    edit : callable
        Takes a function, and atomically replaces the registrations by the result of this function
        of them.
    entry : Entry
        The registration to remove.
    """

    __slots__ = ("_edit", "_entry")

    def __init__(self, edit: Callable[[Any], None], entry: Entry[Any]) -> None:
        self._edit = edit
        self._entry = entry

    def remove(self) -> None:
        """Remove the hook; further calls do nothing."""
        self._edit(lambda hooks: without(hooks, self._entry))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def without(hooks: tuple[Entry[_T], ...], entry: Entry[Any]) -> tuple[Entry[_T], ...]:
    """Return `hooks` without `entry`, or the same tuple if `entry` is not in it."""
    return tuple(h for h in hooks if h is not entry) if entry in hooks else hooks

"""Hook handles of tensors and modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Entry", "Handle", "without"]

_T = TypeVar("_T")


class Entry(Generic[_T]):
    """One registration, which is equal to no other one, whatever was registered.

    Parameters
    ----------
    hook : object
        What was registered.
    """

    __slots__ = ("hook",)

    def __init__(self, hook: _T) -> None:
        self.hook = hook


class Handle:
    """What takes a hook away again.

    Parameters
    ----------
    edit : callable
        Exchanges the registrations for what a function makes of them, in one step.
    entry : Entry
        The one that goes.
    """

    __slots__ = ("_edit", "_entry")

    def __init__(self, edit: Callable[[Any], None], entry: Entry[Any]) -> None:
        self._edit = edit
        self._entry = entry

    def remove(self) -> None:
        """Take the hook away; nothing happens a second time."""
        self._edit(lambda hooks: without(hooks, self._entry))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def without(hooks: tuple[Entry[_T], ...], entry: Entry[Any]) -> tuple[Entry[_T], ...]:
    """`hooks` but for `entry`; the same tuple where it is not among them."""
    return tuple(h for h in hooks if h is not entry) if entry in hooks else hooks

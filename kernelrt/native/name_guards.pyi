"""Types of the record of the Python state that a traced function read."""

from collections.abc import Callable, Iterable
from types import CellType
from typing import Any

def class_items(cls: type) -> dict[str, Any]:
    """Return the attribute dict of a class defined in Python; callers must not change it."""

ALL_ITEMS: object
"""Used instead of a key: all items of a dict, their keys and their order."""

class Names:
    """A snapshot of variables, attributes and items, to detect changes.

    Parameters
    ----------
    cells : iterable of (str, cell)
        Variables of enclosing functions.
    named : iterable of (key, dict, str, bool)
        Keys of dicts, or `ALL_ITEMS`; the name for users; and whether the item is an attribute of
        an object.
    same : callable
        Returns whether two different objects count as the same value.
    lists : iterable of (str, list, tuple of int, bool)
        Lists, the guarded indices, and whether the length is guarded too.
    slots : iterable of (str, object, descriptor)
        Attributes stored in slots.
    """

    def __init__(
        self,
        cells: Iterable[tuple[str, CellType]],
        named: Iterable[tuple[Any, dict[Any, Any], str, bool]],
        same: Callable[[object, object], bool],
        lists: Iterable[tuple[str, list[Any], tuple[int, ...], bool]] = (),
        slots: Iterable[tuple[str, object, Any]] = (),
    ) -> None: ...
    def __len__(self) -> int: ...
    def changed(self) -> str | None:
        """Describe the first name that changed; None if none did."""

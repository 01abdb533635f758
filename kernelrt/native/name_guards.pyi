"""Types of the guards of Python names that a traced function read."""

from collections.abc import Callable, Iterable
from types import CellType
from typing import Any

def class_items(cls: type) -> dict[str, Any]:
    """Return the attribute dict of a class that Python code defined. Do not write to it."""

ALL_ITEMS: object
"""Used as a key, stands for all items of a dict: their keys, values and order."""

class Names:
    """The values of variables, attributes and items at the creation of this object.

    Parameters
    ----------
    cells : iterable of (str, cell)
        Variables of enclosing functions.
    named : iterable of (key, dict, str, bool)
        Keys of dicts, or `ALL_ITEMS`; the dict; the name in texts; and whether it is an attribute
        of an object.
    same : callable
        Returns whether two values that are different objects count as equal.
    lists : iterable of (str, list, tuple of int, bool)
        Lists, the indices of their guarded items, and whether their length is guarded.
    slots : iterable of (str, object, descriptor)
        Attributes that are not stored in a dict.
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
        """Describe the first name that changed; return None if none did."""

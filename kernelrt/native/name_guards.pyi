"""Types of the record of what a traced function read of Python."""

from collections.abc import Callable, Iterable
from types import CellType
from typing import Any

def class_items(cls: type) -> dict[str, Any]:
    """The dict of the attributes of a class that Python code defined; to be read only."""

ALL_ITEMS: object
"""In the place of a key: all items of a dict, their keys, and the order of these."""

class Names:
    """Variables, attributes and items, as they were when this was made.

    Parameters
    ----------
    cells : iterable of (str, cell)
        Variables of enclosing functions.
    named : iterable of (key, dict, str, bool)
        Keys of dicts, or `ALL_ITEMS`; how users call each; and whether it is an attribute of an
        object.
    same : callable
        Whether two values that are not one object may stand for each other.
    lists : iterable of (str, list, tuple of int, bool)
        Lists, which of their items are looked at, and whether their length is, too.
    slots : iterable of (str, object, descriptor)
        Attributes that no dict has.
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

"""Types of the record of what a traced function read of Python."""

from collections.abc import Callable, Iterable
from types import CellType
from typing import Any

def class_items(cls: type) -> dict[str, Any]:
    """The dict of the attributes of a class that Python code defined; to be read only."""

class Names:
    """Variables, attributes and items, as they were when this was made.

    Parameters
    ----------
    cells : iterable of (str, cell)
        Variables of enclosing functions.
    named : iterable of (key, dict, str, bool)
        Keys of dicts, what is called so by users, and whether it is an attribute of an object.
    same : callable
        Whether two values that are not one object may stand for each other.
    lists : iterable of (str, list, tuple of int)
        Lists, and which of their items are looked at.
    slots : iterable of (str, object, descriptor)
        Attributes that no dict has.
    """

    def __init__(
        self,
        cells: Iterable[tuple[str, CellType]],
        named: Iterable[tuple[Any, dict[Any, Any], str, bool]],
        same: Callable[[object, object], bool],
        lists: Iterable[tuple[str, list[Any], tuple[int, ...]]] = (),
        slots: Iterable[tuple[str, object, Any]] = (),
    ) -> None: ...
    def __len__(self) -> int: ...
    def changed(self) -> str | None:
        """The first of them that is something else now."""

"""Types of the record of variables that a traced function read."""

from collections.abc import Callable, Iterable
from types import CellType
from typing import Any

class Names:
    """Variables of enclosing functions and globals, as they were when this was made.

    Parameters
    ----------
    cells : iterable of (str, cell)
        Variables of enclosing functions.
    named : iterable of (str, dict)
        Names in the globals of a module.
    same : callable
        Whether two values that are not one object may stand for each other.
    """

    def __init__(
        self,
        cells: Iterable[tuple[str, CellType]],
        named: Iterable[tuple[str, dict[str, Any]]],
        same: Callable[[object, object], bool],
    ) -> None: ...
    def __len__(self) -> int: ...
    def changed(self) -> str | None:
        """The first of them that is something else now."""

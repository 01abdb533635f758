"""Types of the stack walk from a running call to the user's line."""

from types import CodeType
from typing import TypeAlias

Raw: TypeAlias = tuple[CodeType, int, CodeType | None, CodeType | None, object, int, bool]

def here(scope: object) -> Raw | None:
    """Return the position outside of this package that the running call came from.

    Parameters
    ----------
    scope : object
        Innermost module that is being called, or None; stored unchanged.

    Returns
    -------
    tuple or None
        Code and offset of the instruction there, the code of the Tensor method that was called, the
        code within this package that called it, `scope`, the epoch, and False.
    """

def now() -> int:
    """Return the number of the current epoch."""

def advance() -> None:
    """Begin a new epoch: origins noted from now on replace those noted before."""

"""Types of the walk from a running call to the user's line."""

from types import CodeType
from typing import TypeAlias

Raw: TypeAlias = tuple[CodeType, int, CodeType | None, CodeType | None, object, int, bool]

def here(scope: object) -> Raw | None:
    """The place outside of this package that the running call came from.

    Parameters
    ----------
    scope : object
        The innermost module that is being called, or None; kept as it is.

    Returns
    -------
    tuple or None
        Code and offset of the instruction there, the code of the method of Tensor that was
        called, the code within this package that called it, `scope`, the epoch, and False.
    """

def now() -> int:
    """How many epochs were begun."""

def advance() -> None:
    """Begin a new epoch: origins noted from now on replace those noted before."""

"""Types of the stack traversal from a running call to the user's source line."""

from types import CodeType
from typing import TypeAlias

Raw: TypeAlias = tuple[CodeType, int, CodeType | None, CodeType | None, object, int, bool]

def here(scope: object) -> Raw | None:
    """Return the instruction outside this package that the running call came from.

    Parameters
    ----------
    scope : object
        The innermost module that is being called, or None. Returned unchanged.

    Returns
    -------
    tuple or None
        Code and offset of the instruction, code of the called Tensor method, code of its caller
        within this package, `scope`, the epoch, and False.
    """

def now() -> int:
    """Return the number of the current epoch; see :func:`advance`."""

def advance() -> None:
    """Begin a new epoch: later origins replace those of earlier epochs."""

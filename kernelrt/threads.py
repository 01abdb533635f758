"""The number of threads, for a while."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kernelrt._dispatch import get_num_threads, set_num_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["num_threads"]


@contextmanager
def num_threads(n: int) -> Iterator[None]:
    """Let plans use at most `n` threads within a ``with`` block, process-wide.

    Raises
    ------
    ShapeError
        `n` is below 1.

    Examples
    --------
    >>> with num_threads(1):
    ...     get_num_threads()
    1
    """
    before = get_num_threads()
    set_num_threads(min(n, before))
    try:
        yield
    finally:
        set_num_threads(before)

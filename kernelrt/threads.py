"""The number of threads, for a while."""

from __future__ import annotations

from kernelrt.native.core import get_num_threads, set_num_threads, thread_count
from kernelrt.native.thread_modes import Limit

__all__ = ["num_threads"]


def num_threads(n: int) -> Limit:
    """Let plans use at most `n` threads within a ``with`` block, process-wide.

    Raises
    ------
    DTypeError
        `n` is no int.
    ShapeError
        It is below 1.

    Examples
    --------
    >>> with num_threads(1):
    ...     get_num_threads()
    1
    """
    return Limit(thread_count(n), get_num_threads, set_num_threads)

"""A context manager for the number of threads."""

from __future__ import annotations

from kernelrt.native.core import get_num_threads, set_num_threads, thread_count
from kernelrt.native.thread_modes import Limit

__all__ = ["num_threads"]


def num_threads(n: int) -> Limit:
    """Limit all plans of the process to `n` threads while a ``with`` block runs.

    Parameters
    ----------
    n : int
        Maximum number of threads, at least 1.

    Returns
    -------
    context manager
        Context manager that restores the former limit.

    Raises
    ------
    DTypeError
        `n` is not an int.
    ShapeError
        `n` is below 1.

    Examples
    --------
    >>> with krt.num_threads(1):
    ...     krt.get_num_threads()
    1
    """
    return Limit(thread_count(n), get_num_threads, set_num_threads)

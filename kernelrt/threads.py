"""The number of threads, for a while; and what the environment says of it."""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kernelrt._dispatch import get_num_threads, set_num_threads
from kernelrt.errors import KernelrtWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["check_environment", "num_threads"]


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


def check_environment() -> None:
    """Warn of a ``KERNELRT_THREADS`` that is no number of threads."""
    text = os.environ.get("KERNELRT_THREADS", "")
    if text and not (text.strip().isdecimal() and int(text) > 0):
        warnings.warn(
            f"KERNELRT_THREADS: expected a whole number of at least 1, not {text!r}; it is ignored "
            f"and {get_num_threads()} threads are used",
            KernelrtWarning,
            stacklevel=2,
        )

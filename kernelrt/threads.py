"""The number of threads, for a while; and what the environment says of it, and of jit."""

from __future__ import annotations

import os
import re
import warnings

from kernelrt._core import get_num_threads, set_num_threads, thread_count
from kernelrt._modes import Limit, begin_stepwise
from kernelrt.errors import KernelrtWarning

__all__ = ["check_environment", "num_threads"]


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


def check_environment() -> None:
    """Begin as ``KERNELRT_JIT`` says; warn of that and of numbers of threads that say nothing."""
    jit = os.environ.get("KERNELRT_JIT", "").strip()
    begin_stepwise(jit == "0")
    if jit not in ("", "0", "1"):
        warnings.warn(
            f"KERNELRT_JIT: expected 0 or 1, not {jit!r}; it is ignored and functions are jitted",
            KernelrtWarning,
            stacklevel=2,
        )
    for name in ("KERNELRT_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "")
        number = text.split(",")[0] if name == "OMP_NUM_THREADS" else text
        if re.fullmatch(r"\s*\+?0*[1-9][0-9]*[ \t]*", number, re.ASCII):
            return
        if text:
            warnings.warn(
                f"{name}: expected a whole number of at least 1, not {text!r}; it is ignored "
                f"and {get_num_threads()} threads are used",
                KernelrtWarning,
                stacklevel=2,
            )

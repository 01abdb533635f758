"""Read environment variables, and check them at import."""

from __future__ import annotations

import os
import re
import warnings
from typing import Final

from kernelrt.errors import KernelrtWarning
from kernelrt.native.core import get_num_threads
from kernelrt.native.thread_modes import begin_stepwise

__all__ = ["check_environment", "expected", "switch"]

_OFF: Final = ("0", "off", "no", "false")
_ON: Final = ("1", "on", "yes", "true")


def switch(name: str, *more: str) -> str | None:
    """Read an on/off switch from the environment.

    Parameters
    ----------
    name : str
        Name of the variable.
    *more : str
        Further valid values.

    Returns
    -------
    str or None
        "on", "off", or one of `more`. "" if the variable is not set, and None if its value is
        invalid.
    """
    text = _text(name)
    if not text or text in more:
        return text
    return "off" if text in _OFF else "on" if text in _ON else None


def expected(name: str, *more: str) -> str:
    """Return the text of a warning about a variable with an invalid value."""
    others = "".join(f", or {word}" for word in more)
    return f"{name}: expected 0 or off, or 1 or on{others}, not {_text(name)!r}"


def _text(name: str) -> str:
    return os.environ.get(name, "").strip().lower()


def check_environment() -> None:
    """Apply ``KERNELRT_JIT``; warn about invalid switches and thread counts."""
    jit = switch("KERNELRT_JIT")
    begin_stepwise(jit == "off")
    if jit is None:
        warnings.warn(
            f"{expected('KERNELRT_JIT')}; the value is ignored and functions are jitted",
            KernelrtWarning,
            stacklevel=2,
        )
    if switch("KERNELRT_INTERPRET") is None:
        warnings.warn(
            f"{expected('KERNELRT_INTERPRET')}; the value is ignored and new graphs are "
            "interpreted",
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
                f"{name}: expected an integer of at least 1, not {text!r}; the value is ignored "
                f"and {get_num_threads()} threads are used",
                KernelrtWarning,
                stacklevel=2,
            )

"""Detect clocks that a traced function reads: replays would see the time of the trace."""

from __future__ import annotations

import datetime as dt
import time
import types
import warnings
from typing import TYPE_CHECKING, Any, Final

from kernelrt.errors import KernelrtWarning
from kernelrt.jit.effects.bytecode import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["tell_clocks"]

_CLOCKS: Final = tuple(
    getattr(time, name + unit)
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for unit in ("", "_ns")
    if hasattr(time, name + unit)
)
_DATES: Final = (dt.datetime, dt.date)
_NOW: Final = ("now", "today", "utcnow")
_told: set[tuple[str, int]] = set()


def tell_clocks(
    name: str, codes: Iterable[types.CodeType], variables: Mapping[str, object]
) -> None:
    """Warn once about each line of the function `name` that reads a clock.

    Parameters
    ----------
    name : str
        Name of the function for the warning.
    codes : iterable of code
        Code that may run while the function is traced.
    variables : mapping
        Globals that the code reads.
    """
    for code in codes:
        for names, line in dotted(code):
            place = code.co_filename, line
            if place in _told or not _is_clock(variables.get(names[0]), names[1:]):
                continue
            warnings.warn(
                f"{name} reads the time with {'.'.join(names)}() ({place[0]}:{line}), but later "
                "calls repeat the time of the first; read the clock outside the function, and pass "
                "the time as a float argument",
                KernelrtWarning,
                stacklevel=2,
            )
            _told.add(place)  # after the warning, which may be turned into an error


def _is_clock(value: Any, attributes: tuple[str, ...]) -> bool:
    for name in attributes:
        if any(value is kind for kind in _DATES) and name in _NOW:
            return True
        if value is not time and value is not dt:
            return False
        value = getattr(value, name, None)
    return type(value) is types.BuiltinFunctionType and value in _CLOCKS

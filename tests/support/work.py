"""Measures work independently of the machine: the number of Python lines that a call runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["lines_run"]


def lines_run(call: Callable[[], object], most: int | None = None) -> int:
    """Return the number of Python lines that `call` runs on this thread.

    If it runs more than `most` lines, raise AssertionError, so that an endless call fails.
    """
    count = 0

    def local(_frame: FrameType, event: str, _arg: object) -> object:
        nonlocal count
        if event == "line":
            count += 1
            if most is not None and count > most:
                raise AssertionError(f"the call ran more than {most} lines of Python")
        return local

    before = sys.gettrace()
    sys.settrace(lambda _frame, _event, _arg: local)
    try:
        call()
    finally:
        sys.settrace(before)
    assert count, f"the tracer counts no line of {call}"
    return count

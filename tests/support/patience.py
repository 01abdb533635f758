"""Waits for something to happen, which no busy machine cuts short."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 300.0
"""Seconds after which a test takes what it waits for to hang."""


def until(condition: Callable[[], object]) -> None:
    """Wait until `condition()` is true; an AssertionError where it never is."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"this was not so within {PATIENCE:.0f} s"
        time.sleep(0.001)

"""Waits for an event, with a time limit so long that even a busy machine does not reach it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 300.0
"""Time limit of a wait, in seconds; exceeding it is a hang."""


def until(condition: Callable[[], object]) -> None:
    """Poll until `condition()` holds; raise AssertionError after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"the condition did not hold within {PATIENCE:.0f} s"
        time.sleep(0.001)

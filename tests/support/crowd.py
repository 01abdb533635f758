"""Threads that interrupt each other between any two bytecodes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from support.forks import quick_switches

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["crowd"]


def crowd(*works: Callable[[], object], seconds: float = 1e-6) -> None:
    """Call functions at the same time, each on its own thread, with this switch interval."""
    threads = [threading.Thread(target=work) for work in works]
    with quick_switches(seconds):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

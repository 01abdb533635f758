"""llvmlite, imported where no handler sees it halfway, and its lock, which forks have to take."""

from __future__ import annotations

import functools
import threading
from typing import Any

from kernelrt import _locks
from kernelrt._late import load

__all__ = ["binding"]


def binding() -> Any:
    """Give llvmlite.binding. A process forks only while no thread is inside."""
    load("llvmlite.binding")
    import llvmlite.binding as llvm

    _guard_forks()
    return llvm


@functools.cache
def _guard_forks() -> _locks.Lock | None:
    from llvmlite.binding import ffi

    guard = getattr(ffi.lib, "_lock", None)
    if isinstance(getattr(guard, "_lock", None), type(threading.RLock())):
        return _locks.Lock(_locks.LLVM, guard)
    return None

"""Work that no signal handler gets to see halfway, as imports put off until they are needed."""

from __future__ import annotations

import _thread
import contextlib
import importlib
import os
import sys
import threading
from typing import TYPE_CHECKING

from kernelrt import _locks

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["aside", "load"]


def aside(work: Callable[[], object], threads: int, *, along: bool = False) -> None:
    """Call `work` on so many other threads, `along` on this one, too, and wait for them.

    Handlers run on the main thread only, between any two steps of what runs there. Where threads
    cannot be started, or are gone because this is a child that a handler forked meanwhile, some of
    the work is left to do. Meanwhile the collector rests: a finalizer that computes would wait on
    those threads for what this one holds.
    """
    process = os.getpid()
    ends = []
    with _locks.uncollected:
        for _ in range(threads):
            end = _thread.allocate_lock()
            end.acquire()
            with contextlib.suppress(RuntimeError):  # no more threads, or the process ends
                _thread.start_new_thread(_run, (work, end))
                ends.append(end)
        if along:
            work()
        for end in ends:
            while not end.acquire(timeout=0.05) and os.getpid() == process:
                pass


def _run(work: Callable[[], object], end: _thread.LockType) -> None:
    try:
        work()
    finally:
        end.release()


def load(*names: str) -> None:
    """Import modules so that no signal handler meets one of them halfway.

    What the main thread is just importing is there by half, and a handler that imports it again
    gets that half. So another thread imports, and who comes meanwhile waits for it.
    """
    if all(map(_is_whole, names)):
        return
    if threading.current_thread() is threading.main_thread():
        aside(lambda: _try_import(names), 1)
        # A handler that computes may not find this thread with the lock that its helper wants.
        if all(map(_is_whole, names)):
            return
    _import(names)  # what went wrong there is raised here


def _is_whole(name: str) -> bool:
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)


def _import(names: tuple[str, ...]) -> None:
    with _locks.uncollected, _locks.imports:
        for name in names:
            importlib.import_module(name)


def _try_import(names: tuple[str, ...]) -> None:
    with contextlib.suppress(Exception):  # met again by the thread that waits
        _import(names)

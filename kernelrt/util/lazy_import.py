"""Lazy imports, and other work that a signal handler must not see half done."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import importlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kernelrt.native import locks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["BEGUN_NS", "Helpers", "Module", "aside", "load", "submodules"]

#: Start of the import of the package, from :func:`time.time_ns`: files that changed since then may
#: differ from the code in this process.
BEGUN_NS: Final = time.time_ns()


def aside(work: Callable[[], object], threads: int) -> None:
    """Call `work` on `threads` other threads and wait for them.

    Signal handlers run only on the main thread, between any two bytecodes, so they do not interrupt
    `work`. Some calls of `work` may not happen. A thread may fail to start, or a handler may fork
    meanwhile; the child process does not have the threads. The garbage collector is off until the
    threads end. Otherwise a finalizer that computes on one of these threads could wait for a lock
    that this thread holds.
    """
    with locks.uncollected:
        helpers = Helpers(work)
        for _ in range(threads):
            helpers.start()
        helpers.wait()


class Helpers:
    """Helper threads, each of which calls `work` once; see :func:`aside`.

    The caller must keep the garbage collector off from :meth:`start` to the end of :meth:`wait`.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._started: list[
            tuple[int, _thread.LockType]
        ] = []  # in which process; held till the end

    def start(self) -> None:
        """Start one more thread, if possible."""
        if sys.is_finalizing():  # the thread would never run
            return
        process = os.getpid()  # not after the start: a handler may fork in between
        end = _thread.allocate_lock()
        end.acquire()
        with contextlib.suppress(RuntimeError):  # thread limit reached, or the process is ending
            _thread.start_new_thread(_run, (self._work, end))
            self._started.append((process, end))

    def busy(self) -> int:
        """Return the number of threads that have not ended."""
        here = os.getpid()
        return sum(end.locked() for process, end in self._started if process == here)

    def wait(self) -> None:
        """Wait until each thread has ended, or no longer exists (in a forked child)."""
        for process, end in self._started:
            while os.getpid() == process and not end.acquire(timeout=0.05):
                pass


def _run(work: Callable[[], object], end: _thread.LockType) -> None:
    try:
        work()
    finally:
        end.release()


def load(*names: str) -> None:
    """Import modules so that no signal handler sees a half imported module.

    If a handler interrupts an import on the main thread and imports the same module, it gets the
    incomplete module. So another thread does the import, and everyone else waits for that thread.
    """
    if all(map(_is_whole, names)):
        return
    if sys.meta_path is None:
        raise ImportError(
            f"{', '.join(names)}: the interpreter is shutting down and cannot import modules; use "
            "the feature once before the shutdown",
            name=names[0],
        )
    # This thread may hold the import lock already (a nested import, as in a child that a handler
    # forked during an import): another thread would then wait for it forever.
    if threading.current_thread() is threading.main_thread() and not locks.imports.is_mine():
        aside(lambda: _try_import(names), 1)
        # A handler may compute here: this thread must not hold the lock that its helper waits for.
        if all(map(_is_whole, names)):
            return
    _import(names)  # raises the error of the other thread again


class Module:
    """A module that is imported on first access of an attribute.

    Functions that use it need no import statement, which would fail while the interpreter shuts
    down. For type checkers, import the real module under ``if TYPE_CHECKING``.

    Parameters
    ----------
    name : str
        Full name of the module.
    """

    every: ClassVar[list[Module]] = []

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.every.append(self)

    def __getattr__(self, attribute: str) -> Any:
        name = self.__dict__["__name__"]
        load(name)
        module = sys.modules[name]
        self.__dict__ = module.__dict__
        return getattr(module, attribute)


@atexit.register
def _keep_for_finalizers() -> None:
    """Keep loaded modules usable for finalizers, which run after sys.modules is cleared."""
    for module in Module.every:
        if _is_whole(module.__name__):
            module.__dict__ = sys.modules[module.__name__].__dict__


def submodules(
    package: str, names: Iterable[str], otherwise: Callable[[str], Any],
    functions: Mapping[str, str] | None = None,
) -> Callable[[str], Any]:  # fmt: skip
    """Return a ``__getattr__`` for a package that imports submodules on first access.

    Parameters
    ----------
    package : str
        Name of the package.
    names : iterable of str
        Names of its submodules.
    otherwise : callable
        Function that ``__getattr__`` calls with any other name.
    functions : mapping of str to str, optional
        Functions that the package provides, with the modules that define them.
    """
    known = frozenset(names)
    elsewhere = functions or {}

    def attribute(name: str) -> Any:
        if name in elsewhere:
            load(elsewhere[name])
            found = getattr(sys.modules[elsewhere[name]], name)
            setattr(sys.modules[package], name, found)  # the next access is not a call
            return found
        if name not in known:
            return otherwise(name)
        whole = f"{package}.{name}"
        load(whole)
        return sys.modules[whole]

    return attribute


def _is_whole(name: str) -> bool:
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)


def _import(names: tuple[str, ...]) -> None:
    with locks.uncollected, locks.imports:
        for name in names:
            importlib.import_module(name)


def _try_import(names: tuple[str, ...]) -> None:
    with contextlib.suppress(Exception):  # the waiting thread imports again and raises it
        _import(names)

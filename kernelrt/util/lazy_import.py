"""Late imports, and other work that a signal handler must not see halfway."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import importlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from kernelrt.native import locks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["BEGUN_NS", "Helpers", "Module", "aside", "load", "submodules"]

#: When the import of the package began, as :func:`time.time_ns` gives it: files that were changed
#: since then may hold other code than this process has.
BEGUN_NS: Final = time.time_ns()


def aside(work: Callable[[], object], threads: int) -> None:
    """Call `work` on so many other threads and wait for them.

    Handlers run on the main thread only, between any two steps of what runs there. Where threads
    cannot be started, or are gone because this is a child that a handler forked meanwhile, some of
    the work is left to do. Meanwhile the collector rests: a finalizer that computes would wait on
    those threads for what this one holds.
    """
    with locks.uncollected:
        helpers = Helpers(work)
        for _ in range(threads):
            helpers.start()
        helpers.wait()


class Helpers:
    """Other threads, each of which calls `work` once; see :func:`aside`.

    Whoever starts them keeps the collector from running until they are waited for.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._started: list[
            tuple[int, _thread.LockType]
        ] = []  # in which process; held till the end

    def start(self) -> None:
        """Start one more, if that can be."""
        if sys.is_finalizing():  # it would never run
            return
        process = os.getpid()  # not after the start: a handler may fork in between
        end = _thread.allocate_lock()
        end.acquire()
        with contextlib.suppress(RuntimeError):  # no more threads, or the process ends
            _thread.start_new_thread(_run, (self._work, end))
            self._started.append((process, end))

    def busy(self) -> int:
        """How many have not ended."""
        here = os.getpid()
        return sum(end.locked() for process, end in self._started if process == here)

    def wait(self) -> None:
        """Wait until each has ended, or is not there any more."""
        for process, end in self._started:
            while os.getpid() == process and not end.acquire(timeout=0.05):
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
    if sys.meta_path is None:
        raise ImportError(
            f"{', '.join(names)}: nothing can be imported while the interpreter ends; use it once "
            "before that",
            name=names[0],
        )
    # What is imported here may ask for more, as in a child that a handler forked amid an import;
    # another thread would wait for the lock that this one holds.
    if threading.current_thread() is threading.main_thread() and not locks.imports.is_mine():
        aside(lambda: _try_import(names), 1)
        # A handler that computes may not find this thread with the lock that its helper wants.
        if all(map(_is_whole, names)):
            return
    _import(names)  # what went wrong there is raised here


class Module:
    """A module that is imported when an attribute of it is first asked for.

    Functions that use it need no import statement, which fails while the interpreter ends. For type
    checkers, import the real module under ``if TYPE_CHECKING``.

    Parameters
    ----------
    name : str
        The module's full name.
    """

    every: ClassVar[list[Module]] = []

    def __init__(self, name: str) -> None:
        self.__name__ = name  # modules have this, too
        self.every.append(self)

    def __getattr__(self, attribute: str) -> Any:
        name = self.__dict__["__name__"]
        load(name)
        module = sys.modules[name]
        self.__dict__ = module.__dict__
        return getattr(module, attribute)


@atexit.register
def _keep_for_finalizers() -> None:
    """Bind each Module that is loaded: sys.modules is cleared while the interpreter ends."""
    for module in Module.every:
        if _is_whole(module.__name__):
            module.__dict__ = sys.modules[module.__name__].__dict__


def submodules(
    package: str, names: Iterable[str], missing: Callable[[str], NoReturn],
    functions: Mapping[str, str] | None = None,
) -> Callable[[str], Any]:  # fmt: skip
    """A ``__getattr__`` for a package that imports some of its modules when they are asked for.

    Parameters
    ----------
    package : str
        What the package is called.
    names : iterable of str
        Its modules.
    missing : callable
        Says of another name that it is not there.
    functions : mapping of str to str, optional
        Functions that are asked for here, and the modules that define them.
    """
    known = frozenset(names)
    elsewhere = functions or {}

    def attribute(name: str) -> Any:
        if name in elsewhere:
            load(elsewhere[name])
            return getattr(sys.modules[elsewhere[name]], name)
        if name not in known:
            return missing(name)
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
    with contextlib.suppress(Exception):  # met again by the thread that waits
        _import(names)

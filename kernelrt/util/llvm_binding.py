"""Import llvmlite safely with regard to signal handlers, and lock it during forks."""

from __future__ import annotations

import functools
import re
import threading
from typing import TYPE_CHECKING, Any

from kernelrt.native import locks
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    import llvmlite
    import llvmlite.binding as llvm
else:
    llvmlite = Module("llvmlite")
    llvm = Module("llvmlite.binding")

__all__ = ["binding", "llvmlite_folder", "llvmlite_version"]

OLDEST = (0, 45)
"""The oldest supported version of llvmlite, as in pyproject.toml."""


def binding() -> Any:
    """Return llvmlite.binding. From the first call on, forks wait until no thread runs llvmlite.

    Raises
    ------
    ImportError
        If llvmlite is missing or too old.
    """
    _check_version()
    _guard_forks()
    return llvm


def llvmlite_version() -> str:
    """Return the version of the installed llvmlite.

    Raises
    ------
    ImportError
        If llvmlite is missing.
    """
    try:
        return str(llvmlite.__version__)
    except ModuleNotFoundError as error:
        if error.name != "llvmlite":
            raise
        raise ImportError(
            "kernelrt needs llvmlite to compile, and it is not installed. Run `python -m pip "
            "install llvmlite`, or open a saved model with kernelrt.load, which compiles nothing",
            name="llvmlite",
        ) from error


def llvmlite_folder() -> str:
    """Return the folder of the installed llvmlite."""
    return str(llvmlite.__path__[0])


@functools.cache
def _check_version() -> None:
    found = llvmlite_version()
    numbers = tuple(map(int, re.findall(r"\d+", found)[:2]))
    if numbers < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(
            f"kernelrt needs llvmlite {oldest} or newer, but llvmlite {found} is installed in "
            f"{llvmlite_folder()}. Run `python -m pip install 'llvmlite>={oldest}'`",
            name="llvmlite",
        )


@functools.cache
def _guard_forks() -> locks.Lock | None:
    guard = getattr(llvm.ffi.lib, "_lock", None)
    if isinstance(getattr(guard, "_lock", None), type(threading.RLock())):
        return locks.Lock(locks.LLVM, guard)
    return None

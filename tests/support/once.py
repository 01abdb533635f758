"""Folders that are made once in a session of tests and shared by its worker processes."""

from __future__ import annotations

import fcntl
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Once"]


class Once:
    """Folders that the tests of a session share, whichever worker process runs them.

    Parameters
    ----------
    root : Path
        The session's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, name: str, make: Callable[[Path], object]) -> Path:
        """Return the folder `name`, which the first caller fills with ``make(folder)``.

        Other processes wait for the first one. `make` gets a folder that is renamed afterwards, so
        its files must not contain the folder's absolute path. If `make` raises, nothing is kept,
        and the next caller tries again.
        """
        folder = self._root / name
        with (self._root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                unfinished = self._root / f"{name}.unfinished"
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir()
                make(unfinished)
                unfinished.rename(folder)
        return folder

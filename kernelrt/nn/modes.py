"""Which modules' modes a traced function read, so that train() and eval() reach jitted functions.

A trace bakes in what ``module.training`` was. The jit therefore notes every module whose mode
was read, and is told whenever modes change; it then looks again for the plan that fits.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelrt.nn.module import Module

__all__ = ["Listener", "changed", "listen", "note", "observe"]


class Listener(Protocol):
    """What wants to know of changes of mode."""

    def modes_changed(self) -> None:
        """Look again: some module may have been put into another mode."""


class _Local(threading.local):
    observed: dict[int, tuple[Module, bool]] | None = None


_local = _Local()
_listeners: weakref.WeakSet[Listener] = weakref.WeakSet()


@contextmanager
def observe() -> Iterator[dict[int, tuple[Module, bool]]]:
    """Collect the modules whose mode this thread reads, with the mode, by identity."""
    before, _local.observed = _local.observed, {}
    try:
        yield _local.observed
    finally:
        _local.observed = before


def note(module: Module, training: bool) -> None:
    """Record that the mode of `module` was read."""
    if _local.observed is not None:
        _local.observed[id(module)] = (module, training)


def listen(listener: Listener) -> None:
    """Call ``listener.modes_changed()`` on changes for as long as the listener lives."""
    _listeners.add(listener)


def changed() -> None:
    """Tell all listeners that modes may have changed."""
    for listener in tuple(_listeners):
        listener.modes_changed()

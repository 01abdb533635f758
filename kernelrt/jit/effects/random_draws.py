"""Detects random numbers of Python and NumPy that a function draws while it is traced.

They become part of the program like any other number: replays, and turns of loops, repeat the first
draw for ever. A generator tells by its state whether it was used.
"""

from __future__ import annotations

import random
import threading
import types
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt.errors import KernelrtWarning
from kernelrt.ir.origin import resolve
from kernelrt.jit.effects.python_containers import is_a
from kernelrt.native.source_lines import here
from kernelrt.util.lazy_import import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kernelrt.jit.effects.purity import Purpose

__all__ = ["Draws"]


class Draws:
    """The generators that are within reach of a function, as they are now.

    Parameters
    ----------
    reached : callable
        Gives what the function reaches of some kinds, with names.
    shared : bool
        Whether those of the process that Python and NumPy have are looked at in any case.
    most : int, optional
        How many are looked at: the state of one takes some microseconds to read.
    """

    def __init__(
        self, reached: Callable[[tuple[type, ...]], Iterable[tuple[str, Any]]], *,
        shared: bool = True, most: int | None = None,
    ) -> None:  # fmt: skip
        # NumPy loads its own when first asked, which an import of kernelrt need not wait for; and
        # with them modules that a handler's first computation needs whole.
        load("numpy.random")
        kinds = np.random.Generator, np.random.RandomState, random.Random
        draws: tuple[Any, Any] = random.random, np.random.rand
        modules = {random: draws[0].__self__, np.random: draws[1].__self__}
        found: dict[int, tuple[str, Any]] = {
            id(own): (module.__name__, module) for module, own in modules.items() if shared
        }
        named: set[int] = set()
        methods = types.BuiltinMethodType, types.MethodType
        for name, value in reached((*kinds, *methods, types.ModuleType)):
            of = value.__self__ if is_a(value, methods) else value
            if is_a(of, types.ModuleType):
                if of in modules:
                    found[id(modules[of])] = of.__name__, of
                    named.add(id(modules[of]))
            # That of the system has no state, so nothing tells whether it was used.
            elif is_a(of, kinds) and not is_a(of, random.SystemRandom):
                found.setdefault(id(of), (name, of))
                named.add(id(of))
        #: Those of the process that no code in reach names: other threads may draw from them, too.
        self._unnamed = {i for i, key in enumerate(found) if key not in named}
        self._sources = tuple(found.values())[:most]
        self._before: list[Any] = [None] * len(self._sources)
        #: Containers that are compared before and after, by identity.
        self.met: set[int] = set()

    def begin(self) -> None:
        """Look from here on; handlers of signals are left out by a trace that has this already."""
        self.leave_out(range(len(self._sources)))

    def idle(self) -> list[int]:
        """The places of those generators that the function has not drawn from."""
        return [i for i in range(len(self._sources)) if not self._has_drawn(i)]

    def leave_out(self, places: Iterable[int]) -> None:
        """Take what was drawn until now at `places` for what others drew, as handlers do."""
        for i in places:
            while (state := _state(self._sources[i][1])) != self._before[i]:
                self._before[i] = state  # and looked at again: a handler may draw meanwhile

    def _has_drawn(self, i: int) -> bool:
        while True:
            before, state = self._before[i], _state(self._sources[i][1])
            if before is self._before[i]:  # no handler has come in between
                return bool(state != before)

    def tell(self, name: str, purpose: Purpose) -> None:
        """Warn of each generator that the function, which is called `name`, has drawn from."""
        wrong, afresh = purpose.drawing
        for i, (source, _) in enumerate(self._sources):
            if not self._has_drawn(i) or (i in self._unnamed and threading.active_count() > 1):
                continue
            found = here(None)
            origin = None if found is None else resolve(found)
            warnings.warn_explicit(
                f"{source}: {name} draws random numbers from it while it is traced; they become "
                f"part of the program, and {wrong}. Draw with kernelrt.rand and its kin, which "
                f"draw afresh {afresh}, or outside, and {purpose.passing}",
                KernelrtWarning,
                *(("", 0) if origin is None else (origin.file, origin.line)),
            )


def _state(generator: Any) -> object:
    """What changes with each draw."""
    if generator is random or isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.Generator):
        return _exact(generator.bit_generator.state)
    return _exact(generator.get_state(legacy=False))


def _exact(state: Any) -> object:
    """What a nested state holds, as something that compares."""
    if isinstance(state, dict):
        return {key: _exact(value) for key, value in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state

"""Detect random numbers of Python and NumPy that a function draws while it is traced.

These numbers become constants of the program, like any other number. Each replay, and each
iteration of a loop, would use the same numbers again. If the state of a generator changed, the
function has drawn from it.
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
    """A snapshot of the random generators that a function can reach.

    Parameters
    ----------
    reached : callable
        Function that takes types, and returns the reachable objects of these types with their
        names.
    shared : bool
        Whether to always include the process-wide generators of Python and NumPy.
    most : int, optional
        Maximum number of generators. It limits the time, because reading a state takes
        microseconds.
    """

    def __init__(
        self, reached: Callable[[tuple[type, ...]], Iterable[tuple[str, Any]]], *,
        shared: bool = True, most: int | None = None,
    ) -> None:  # fmt: skip
        # Imported here because NumPy loads numpy.random on first use: importing kernelrt need not
        # wait for it. It also loads modules that a handler's first computation needs complete.
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
            # SystemRandom has no state, so its use cannot be detected.
            elif is_a(of, kinds) and not is_a(of, random.SystemRandom):
                found.setdefault(id(of), (name, of))
                named.add(id(of))
        #: Process-wide generators that no reachable code names: other threads may use them too.
        self._unnamed = {i for i, key in enumerate(found) if key not in named}
        self._sources = tuple(found.values())[:most]
        self._before: list[Any] = [None] * len(self._sources)
        #: Ids of the containers that are compared before and after.
        self.met: set[int] = set()

    def begin(self) -> None:
        """Record the current states of the generators.

        Call it when the trace knows this object, so that draws of signal handlers do not count.
        """
        self.leave_out(range(len(self._sources)))

    def idle(self) -> list[int]:
        """Return the indices of the generators that the function has not drawn from."""
        return [i for i in range(len(self._sources)) if not self._has_drawn(i)]

    def leave_out(self, indices: Iterable[int]) -> None:
        """Ignore all draws so far from the generators at these indices: other code made them."""
        for i in indices:
            while (state := _state(self._sources[i][1])) != self._before[i]:
                self._before[i] = state  # compare again: a signal handler may have drawn meanwhile

    def _has_drawn(self, i: int) -> bool:
        while True:
            before, state = self._before[i], _state(self._sources[i][1])
            if before is self._before[i]:  # no signal handler ran in between
                return bool(state != before)

    def tell(self, name: str, purpose: Purpose) -> None:
        """Warn about each generator that the function `name` has drawn from."""
        wrong, afresh = purpose.drawing
        for i, (source, _) in enumerate(self._sources):
            if not self._has_drawn(i) or (i in self._unnamed and threading.active_count() > 1):
                continue
            found = here(None)
            origin = None if found is None else resolve(found)
            warnings.warn_explicit(
                f"{source}: {name} draws random numbers from this generator while it is traced; "
                f"they become part of the program, and {wrong}. Use random functions of kernelrt, "
                f"such as kernelrt.rand, which draw new numbers {afresh}; or draw outside, and "
                f"{purpose.passing}",
                KernelrtWarning,
                *(("", 0) if origin is None else (origin.file, origin.line)),
            )


def _state(generator: Any) -> object:
    """Return the state of a generator, which changes with each draw."""
    if generator is random or isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.Generator):
        return _exact(generator.bit_generator.state)
    return _exact(generator.get_state(legacy=False))


def _exact(state: Any) -> object:
    """Return a nested state with arrays as bytes, so that states can be compared."""
    if isinstance(state, dict):
        return {key: _exact(value) for key, value in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state

"""Random numbers of Python and NumPy that a function draws while it is traced.

They become part of the program like any other number: replays repeat the first draw for ever. A
generator tells by its state whether it was used.
"""

from __future__ import annotations

import random
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt._late import load
from kernelrt._origin import here
from kernelrt.errors import KernelrtWarning
from kernelrt.ir.origin import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Draws"]


class Draws:
    """The generators that are within reach of a function, as they are now.

    Parameters
    ----------
    reached : iterable of (str, object)
        What the function reaches, with names; generators are picked out.
    """

    def __init__(self, reached: Iterable[tuple[str, object]]) -> None:
        # NumPy loads its own when first asked, which an import of kernelrt need not wait for; and
        # with them modules that a handler's first computation needs whole.
        load("numpy.random")
        kinds = np.random.Generator, np.random.RandomState, random.Random
        found: dict[int, tuple[str, Any]] = {
            id(value): (name, value) for name, value in reached
            # That of the system has no state, so nothing tells whether it was used.
            if isinstance(value, kinds) and not isinstance(value, random.SystemRandom)
        }
        shared: tuple[tuple[str, Any], ...] = (("random", random), ("numpy.random", np.random))
        self._sources = (*shared, *found.values())
        self._before: list[Any] = [None] * len(self._sources)

    def begin(self) -> None:
        """Look from here on; handlers of signals are left out by a trace that has this already."""
        self.leave_out(range(len(self._sources)))

    def idle(self) -> list[int]:
        """The places of those generators that the function has not drawn from."""
        return [i for i in range(len(self._sources)) if not self._has_drawn(i)]

    def leave_out(self, places: Iterable[int]) -> None:
        """Take what was drawn until now at `places` for what others drew, as handlers do."""
        for i in places:
            while self._has_drawn(i):  # a handler may draw meanwhile
                self._before[i] = _state(self._sources[i][1])

    def _has_drawn(self, i: int) -> bool:
        while True:
            before, state = self._before[i], _state(self._sources[i][1])
            if before is self._before[i]:  # no handler has come in between
                return bool(state != before)

    def tell(self, name: str) -> None:
        """Warn of each generator that the function, which is called `name`, has drawn from."""
        for i, (source, _) in enumerate(self._sources):
            if not self._has_drawn(i):
                continue
            found = here(None)
            origin = None if found is None else resolve(found)
            warnings.warn_explicit(
                f"{source}: {name} draws random numbers from it while it is traced; they become "
                "part of the program, and replays repeat them. Draw with kernelrt.rand and its "
                "kin, which draw afresh in each call, or outside, and pass them as arguments",
                KernelrtWarning,
                *(("", 0) if origin is None else (origin.file, origin.line)),
            )


def _state(generator: Any) -> str | tuple[Any, ...]:
    """What changes with each draw."""
    if generator is random or isinstance(generator, random.Random):
        found: tuple[Any, ...] = generator.getstate()
        return found
    if isinstance(generator, np.random.Generator):
        state = generator.bit_generator.state
    else:
        state = generator.get_state(legacy=False)
    return repr({**state, "state": {k: _exact(v) for k, v in state["state"].items()}})


def _exact(value: Any) -> Any:
    return value.tobytes() if isinstance(value, np.ndarray) else value

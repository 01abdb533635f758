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
            id(value): (name, value) for name, value in reached if isinstance(value, kinds)
        }
        shared: tuple[tuple[str, Any], ...] = (("random", random), ("numpy.random", np.random))
        self._before = [(name, g, _state(g)) for name, g in (*shared, *found.values())]

    def tell(self, name: str) -> None:
        """Warn of each generator that the function, which is called `name`, has drawn from."""
        for source, generator, before in self._before:
            if _state(generator) == before:
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

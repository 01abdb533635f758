"""A word to those who forget jit: the line of a loop that computes the same again and again."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Final

from kernelrt._origin import here
from kernelrt.errors import EagerLoopWarning
from kernelrt.ir.origin import resolve
from kernelrt.tensor import state

__all__ = ["Uses"]

#: A graph of fewer nodes gains little.
LEAST_NODES: Final = 16
#: The line is looked up once in so many runs,
EVERY: Final = 64
#: and has to be the same so many times.
TIMES: Final = 6

_told: set[tuple[str, int]] = set()


@dataclass(slots=True)
class Uses:
    """How often a plan of eager code was found again, and from where.

    Attributes
    ----------
    nodes : int
        How large its graph is.
    """

    nodes: int
    count: int = 0
    times: int = 0
    line: tuple[str, int] = ("", 0)

    def note(self) -> None:
        """Count a run; warn where one line of the user's makes so many of them."""
        self.count += 1
        if self.count % EVERY or self.nodes < LEAST_NODES:
            return
        found = here(None)
        if found is None or state.local.trace is not None:
            return
        origin = resolve(found)
        line = origin.file, origin.line
        self.times = self.times + 1 if line == self.line else 1
        self.line = line
        if self.times >= TIMES and line not in _told:
            _told.add(line)
            warnings.warn_explicit(
                f"this line has computed the same graph of {self.nodes} nodes more than "
                f"{EVERY * (TIMES - 1)} times without jit; a function with @kernelrt.jit around "
                "what the loop does runs as one plan. "
                "warnings.simplefilter('ignore', kernelrt.EagerLoopWarning) silences this",
                EagerLoopWarning,
                origin.file,
                origin.line,
            )

"""What a comparison is: a case with several sides that do the same work."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field

Call = Callable[[], object]
OURS = "kernelrt"


class PeerMissingError(Exception):
    """A peer is not installed; the message says what to install."""


@dataclass(frozen=True)
class Side:
    """One contender.

    Attributes
    ----------
    name : str
        What the table calls it.
    make : callable
        Builds and warms the contender and gives the call to time, which returns the result as a
        NumPy array or a float so that sides can be compared.
    enter : callable
        Run, untimed, before each block of timed calls; sets process-wide switches such as the
        number of threads.
    needs : tuple of str
        Modules that have to be importable.
    calls : int
        How many units of work one call does; times are divided by it.
    limit : bool
        Whether this is no contender but what the machine allows; its result is another one.
    """

    name: str
    make: Callable[[], Call]
    enter: Callable[[], None] = field(default=lambda: None)
    needs: tuple[str, ...] = ()
    calls: int = 1
    limit: bool = False

    def build(self) -> Call:
        """Import what is needed, build, and warm up."""
        for module in self.needs:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise PeerMissingError(
                    f"{self.name}: {module} is not installed; pip install -e '.[bench]'"
                ) from error
        self.enter()
        return self.make()


@dataclass(frozen=True)
class Case:
    """Sides that do the same work, and how they are to be read.

    Attributes
    ----------
    name : str
        Short, for test ids.
    title : str
        For the table.
    sides : tuple of Side
        The first is kernelrt.
    unit : int
        How many repetitions of the thing measured one call makes (1,000 kernels a plan, say).
    aim : float
        The ratio (best peer's time over ours) that the project has set itself.
    tolerance : float
        How far results may differ between sides, relative to their largest value.
    """

    name: str
    title: str
    sides: tuple[Side, ...]
    unit: int = 1
    aim: float | None = None
    tolerance: float = 1e-4

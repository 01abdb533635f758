"""Case, a comparison of libraries, and Side, one of the libraries' ways to do the same work."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field

Call = Callable[[], object]
OURS = "kernelrt"


class PeerMissingError(Exception):
    """A library to compare with is not installed. The message says what to install."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a library that does the work.

    Attributes
    ----------
    name : str
        Name in the table.
    make : callable
        Builds and warms up the side, and returns the call to time. The call returns its result as a
        NumPy array or a float, so that the results of the sides can be compared.
    enter : callable
        Called before each block of timed calls, and not timed. It sets options of the process, such
        as the number of threads.
    needs : tuple of str
        Modules that must be importable.
    calls : int
        Number of units of work in a call. Times are divided by it.
    limit : bool
        Whether the side shows a limit of the machine, such as the time of a copy. The result of
        such a side is not compared with the others.
    """

    name: str
    make: Callable[[], Call]
    enter: Callable[[], None] = field(default=lambda: None)
    needs: tuple[str, ...] = ()
    calls: int = 1
    limit: bool = False

    def build(self) -> Call:
        """Import the needed modules, build the side and warm it up."""
        for module in self.needs:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise PeerMissingError(
                    f"{self.name}: {module} is not installed; run pip install -e '.[bench]'"
                ) from error
        self.enter()
        return self.make()


@dataclass(frozen=True)
class Case:
    """A comparison of sides that do the same work.

    Attributes
    ----------
    name : str
        Short name, for the ids of tests.
    title : str
        Title in the table.
    sides : tuple of Side
        The sides; the first is kernelrt.
    unit : int
        Repetitions of the measured work per call, for example 1,000 kernels in a plan.
    aim : float
        Target for the ratio of the best peer's time to kernelrt's time. For example, 2 means that
        kernelrt should be twice as fast.
    tolerance : float
        Allowed difference of results between sides, relative to their largest value.
    """

    name: str
    title: str
    sides: tuple[Side, ...]
    unit: int = 1
    aim: float | None = None
    tolerance: float = 1e-4

"""Case and Side: a comparison, and its contenders, which do the same work."""

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
    """A contender.

    Attributes
    ----------
    name : str
        Name in the table.
    make : callable
        Builds and warms up the contender; returns the call to time. The call returns the result as
        a NumPy array or a float, so that sides can be compared.
    enter : callable
        Called, untimed, before each block of timed calls; sets process-wide options such as the
        number of threads.
    needs : tuple of str
        Modules that must be importable.
    calls : int
        Units of work per call; times are divided by it.
    limit : bool
        Whether this is a machine limit instead of a contender; its result is not compared.
    """

    name: str
    make: Callable[[], Call]
    enter: Callable[[], None] = field(default=lambda: None)
    needs: tuple[str, ...] = ()
    calls: int = 1
    limit: bool = False

    def build(self) -> Call:
        """Import the needed modules, build the contender and warm it up."""
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
    """A comparison of sides that do the same work.

    Attributes
    ----------
    name : str
        Short name, for test ids.
    title : str
        Title in the table.
    sides : tuple of Side
        Contenders; the first is kernelrt.
    unit : int
        Repetitions of the measured work per call, for example 1,000 kernels in a plan.
    aim : float
        Target ratio: best peer's time over ours.
    tolerance : float
        Allowed difference of results between sides, relative to their largest value.
    """

    name: str
    title: str
    sides: tuple[Side, ...]
    unit: int = 1
    aim: float | None = None
    tolerance: float = 1e-4

"""Types of courses: steps of replays, one after the other, over rows that stay where they are."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelrt.native.array_handle import ArrayHandle
from kernelrt.native.replay import Replay

class Course:
    """Where steps take their rows, where their results go, and how far they have come.

    Parameters
    ----------
    steps
        How many there will be at most.

    Notes
    -----
    It belongs to one call: nothing may be called while :meth:`run` runs.
    """

    def __init__(self, steps: int) -> None: ...
    @property
    def done(self) -> int:
        """How many steps were run."""
    @property
    def results(self) -> tuple[Any, ...] | None:
        """The results of all steps, those to come undefined; None before :meth:`begin`."""
    def read(
        self, leaves: Sequence[np.ndarray[Any, Any] | ArrayHandle | None], n_rows: int
    ) -> None:
        """Take rows of these arrays, each for the argument in its place; None: of no rows.

        Raises
        ------
        ShapeError
            One of them has another number of rows, or is not computed.
        """
    def follow(self, order: np.ndarray[Any, Any] | None) -> None:
        """Take the rows in this order (int64) from now on; None: as they lie.

        Raises
        ------
        ShapeError, DTypeError
            It is no list of numbers of rows that there are.
        """
    def begin(self, replay: Replay) -> None:
        """Make room for the results of all steps, as `replay` gives them, unless there is."""
    def fits(self, replay: Replay) -> bool:
        """Whether the results of `replay` are of the sizes and types that there is room for."""
    def so_far(self, replay: Replay, apart: bool) -> tuple[Any, ...]:
        """The results of the steps that were run; with `apart` in memory of their own."""
    def find(
        self, replays: tuple[Replay, ...], args: tuple[Any, ...], rows: int
    ) -> Replay | None:
        """Give the first of them that takes so many rows and the other arguments, or None.

        Those of functions with nested arguments are not looked at.
        """
    def run(
        self, replay: Replay, args: tuple[Any, ...], first: int, rows: int, count: int
    ) -> int:
        """Run up to `count` steps, each of `rows` rows, from the place `first` of the order on.

        Parameters
        ----------
        replay
            What runs.
        args
            Its arguments, with all rows in the places of those of a step.

        Returns
        -------
        int
            How many were run: fewer where rows were moved, or `replay` is not made for what there
            is then.

        Raises
        ------
        ShapeError
            There are not so many rows, or results are not to be so many.
        KernelrtError
            What a call raises. Steps that were run are `done`, and nothing of others is.
        KeyboardInterrupt
            Or what other handlers of signals raise; likewise.
        """

def hand_out(replay: Replay, results: tuple[Any, ...]) -> Any:
    """Results in the form in which a call of `replay` gives them."""

def order_of(n: int, seed: int, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The numbers from 0 to n - 1 in the order of an epoch, the same everywhere.

    Raises
    ------
    ShapeError
        One of the numbers is below 0.
    """

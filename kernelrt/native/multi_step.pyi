"""Types of the multi-step runner: successive runs of replays over batches of fixed arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelrt.native.array_handle import ArrayHandle
from kernelrt.native.replay import Replay

class MultiStepRun:
    """A multi-step run: the rows of the steps, their results, and the progress.

    Parameters
    ----------
    steps
        Maximum number of steps.

    Notes
    -----
    It belongs to one call: no method may be called while :meth:`run` runs.
    """

    def __init__(self, steps: int) -> None: ...
    @property
    def done(self) -> int:
        """Number of steps that were run."""
    @property
    def results(self) -> tuple[Any, ...] | None:
        """Results of all steps, undefined for future steps; None before :meth:`begin`."""
    def read(
        self, leaves: Sequence[np.ndarray[Any, Any] | ArrayHandle | None], n_rows: int
    ) -> None:
        """Set the arrays to take rows from, one per argument; None for an argument without rows.

        Raises
        ------
        ShapeError
            An array has another number of rows, or is not computed.
        """
    def follow(self, order: np.ndarray[Any, Any] | None) -> None:
        """Take the rows in this order (int64) from now on; None means sequentially.

        Raises
        ------
        ShapeError, DTypeError
            `order` is not a vector of valid row indices.
        """
    def begin(self, replay: Replay) -> None:
        """Allocate the results of all steps, in the form of `replay`, unless it is done."""
    def fits(self, replay: Replay) -> bool:
        """Return whether results of `replay` have the sizes and dtypes of the allocated results."""
    def so_far(self, replay: Replay, apart: bool) -> tuple[Any, ...]:
        """Return the results of the steps that were run; with `apart`, as copies."""
    def find(
        self, replays: tuple[Replay, ...], args: tuple[Any, ...], rows: int
    ) -> Replay | None:
        """Return the first replay that takes `rows` rows and the other arguments, or None.

        Replays of functions with nested arguments are skipped.
        """
    def run(
        self, replay: Replay, args: tuple[Any, ...], first: int, rows: int, count: int
    ) -> int:
        """Run up to `count` steps of `rows` rows each, starting at index `first` of the order.

        Parameters
        ----------
        replay
            Replay to run.
        args
            Arguments of the replay, with all rows instead of those of one step.

        Returns
        -------
        int
            Number of steps that were run. It is less than `count` if rows moved in memory, or if
            `replay` no longer fits.

        Raises
        ------
        ShapeError
            There are too few rows, or more steps than results were allocated for.
        KernelrtError
            A step failed. Steps before it are `done`; the failed step has no effect.
        KeyboardInterrupt
            Or any exception of a signal handler; the same holds.
        """

def hand_out(replay: Replay, results: tuple[Any, ...]) -> Any:
    """Return results in the form in which a call of `replay` returns them."""

def order_of(n: int, seed: int, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the numbers from 0 to n - 1 in the order of an epoch, the same on all platforms.

    Raises
    ------
    ShapeError
        One of the numbers is below 0.
    """

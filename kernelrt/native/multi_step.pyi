"""Types of multi-step runs: consecutive steps of replays over rows at fixed addresses."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelrt.native.array_handle import ArrayHandle
from kernelrt.native.replay import Replay

class MultiStepRun:
    """A multi-step run: the sources of its rows, the memory of its results, and its progress.

    Parameters
    ----------
    steps : int
        Maximum number of steps.

    Notes
    -----
    A run belongs to one call. No method may be called while :meth:`run` runs.
    """

    def __init__(self, steps: int) -> None: ...
    @property
    def done(self) -> int:
        """The number of steps that have run."""
    @property
    def results(self) -> tuple[Any, ...] | None:
        """The results of all steps, undefined for steps to come; None before :meth:`begin`."""
    def read(
        self, leaves: Sequence[np.ndarray[Any, Any] | ArrayHandle | None], n_rows: int
    ) -> None:
        """Set the arrays that the steps take rows of.

        Parameters
        ----------
        leaves : sequence
            One array for each argument; None for an argument that is not taken by rows.
        n_rows : int
            Number of rows of each array.

        Raises
        ------
        ShapeError
            An array has another number of rows, or a tensor has not been computed.
        """
    def follow(self, order: np.ndarray[Any, Any] | None) -> None:
        """Take the rows in this order (int64) from now on; None: in the order of the arrays.

        Raises
        ------
        ShapeError, DTypeError
            `order` is not a contiguous int64 array of existing row indices.
        """
    def begin(self, replay: Replay) -> None:
        """Allocate the results of all steps of `replay`, unless they are allocated."""
    def fits(self, replay: Replay) -> bool:
        """Return whether the results of `replay` have the allocated shapes and dtypes."""
    def so_far(self, replay: Replay, own_memory: bool) -> tuple[Any, ...]:
        """Return the results of the steps that have run; with `own_memory`, not as views."""
    def find(
        self, replays: tuple[Replay, ...], args: tuple[Any, ...], rows: int
    ) -> Replay | None:
        """Return the first replay that takes `rows` rows and the other arguments, or None.

        Replays of functions with nested arguments are skipped.
        """
    def run(
        self, replay: Replay, args: tuple[Any, ...], first: int, rows: int, count: int
    ) -> int:
        """Run up to `count` steps of `rows` rows each, from position `first` of the order on.

        Parameters
        ----------
        replay : Replay
            Replay to run.
        args : tuple
            Arguments of the replay. Each argument taken by rows is the array of all rows.
        first : int
            Position in the order of the first row.
        rows : int
            Number of rows of a step.
        count : int
            Maximum number of steps.

        Returns
        -------
        int
            Number of steps that ran. It is less than `count` if the memory of the rows changed or
            `replay` no longer matches.

        Raises
        ------
        ShapeError
            The steps exceed the rows or the space for results.
        KernelrtError
            An error of a call. `done` counts the completed steps; other steps had no effect.
        KeyboardInterrupt
            Or another exception of a signal handler; likewise.
        """

def hand_out(replay: Replay, results: tuple[Any, ...]) -> Any:
    """Return `results` in the form in which a call of `replay` returns them."""

def order_of(n: int, seed: int, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return a permutation of 0 to n - 1 for an epoch, the same on every platform.

    Raises
    ------
    ShapeError
        `n`, `seed` or `epoch` is negative.
    """

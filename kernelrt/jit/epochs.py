"""Run whole epochs of a jitted function in one call, without Python between the steps."""

from __future__ import annotations

import functools
import sys
import threading
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kernelrt.errors import JitError
from kernelrt.native.replay import JitCore
from kernelrt.tensor import state
from kernelrt.util.lazy_import import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernelrt.jit.parameters import Binding
    from kernelrt.jit.specializations import Plan
    from kernelrt.native.replay import Replay

__all__ = ["Epochs"]

R = TypeVar("R")


@functools.cache
def _work() -> Any:
    """Return the module `kernelrt.jit.multi_step`, imported on first use."""
    load("kernelrt.jit.multi_step")
    return sys.modules["kernelrt.jit.multi_step"]


class Epochs(JitCore, Generic[R]):
    """Base class of jitted functions, and of those in model files, that adds :meth:`over`."""

    _name: str
    _parameters: Binding

    @abstractmethod
    def _variant_for(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, sized: bool = True
    ) -> tuple[Plan, list[Any], Replay]: ...

    @abstractmethod
    def _drop(self, variant: Any) -> None: ...

    def over(
        self,
        *args: Any,
        batch_size: int = 32,
        shuffle: bool = False,
        epochs: int = 1,
        first_epoch: int = 0,
        seed: int | None = None,
        drop_last: bool = False,
        const: Mapping[str, Any] | None = None,
        every: int | None = None,
        callback: Callable[[int, R], object] | None = None,
        progress: bool | None = None,
        **kwargs: Any,
    ) -> R:
        """Run the function once per batch of rows, for whole epochs, in one call.

        The result is bitwise equal to a loop over :func:`kernelrt.data.batches`, but no Python
        runs between the steps. Arrays and tensors with at least one axis, also those in lists,
        tuples and dicts, are sliced into batches along their first axis. Everything else is
        passed to each step unchanged.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the function, with all rows instead of one batch.
        batch_size : int
            Number of rows per step.
        shuffle : bool
            Whether to shuffle the rows in each epoch. The orders are those of
            :func:`kernelrt.data.batches` with the same seed.
        epochs : int
            Number of passes over all rows.
        first_epoch : int
            Number of epochs that were run before; selects the order of the first epoch.
        seed : int, optional
            Seed of the orders. By default they follow :func:`kernelrt.manual_seed`.
        drop_last : bool
            Whether to skip the last batch if it has fewer rows; such a batch needs a separate plan.
        const : mapping of str to object, optional
            Arguments by name. Each step receives them whole, although they have axes.
        every : int, optional
            Number of steps between calls of the callback. By default the steps of one epoch.
        callback : callable, optional
            ``callback(k, results)`` is called after `k` steps, for each `k` that is a multiple of
            `every`. `results` holds the results of all steps so far, in the memory that is
            returned at the end: modify only a ``clone()`` of it. The callback may change any
            state; the next step sees the change. Return True from it to stop early. An exception
            that it raises propagates.
        progress : bool, optional
            Whether to show a progress bar on standard error, tqdm's if it is installed. By default
            the bar appears after 2 seconds, but only on a terminal or in a notebook.

        Returns
        -------
        Tensor, or a structure of them
            Results of the function. Each tensor has an additional first axis with one element per
            step that was run. Numbers, strings and None are those of a single step.

        Raises
        ------
        ShapeError
            Row counts differ, no argument has rows, a number is too small, or the last batch gives
            a result of another shape.
        IndexBoundsError, LinAlgError
            A step failed. The message and the attribute ``step`` give its number, from 0. State
            is as it was before that step.
        KeyboardInterrupt
            The user interrupted the call. State is as it was between two steps.
        JitError
            A function is being traced or differentiated.

        Examples
        --------
        >>> import numpy as np, kernelrt as krt
        >>> total = krt.zeros(())
        >>> @krt.jit
        ... def add(x):
        ...     total.assign(total + x.sum())
        ...     return total
        >>> add.over(np.arange(6, dtype=np.float32), batch_size=2, epochs=2).tolist()
        [1.0, 6.0, 15.0, 16.0, 21.0, 30.0]
        """
        what = f"{self._name}.over()"
        if state.local.trace is not None:
            raise JitError(
                f"{what} is called by a traced function, where values are unknown; call it "
                "outside that function, or write the loop in it with krt.scan over the batches"
            )
        if threading.get_ident() in state.differentiating:
            raise JitError(
                f"{what} cannot be differentiated; call it outside the differentiated function"
            )
        return _work().run_epochs(  # type: ignore[no-any-return]
            self, args, kwargs, const or {}, batch_size=batch_size, shuffle=shuffle, epochs=epochs,
            first_epoch=first_epoch, seed=seed, drop_last=drop_last, every=every, callback=callback,
            progress=progress,
        )  # fmt: skip

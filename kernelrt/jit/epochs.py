"""Whole epochs of a jitted function in one call: no Python runs between the steps."""

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

    from kernelrt.jit.parameters import Parameters
    from kernelrt.jit.specializations import Variant
    from kernelrt.native.replay import Replay

__all__ = ["Epochs"]

R = TypeVar("R")


@functools.cache
def _work() -> Any:
    """The module that does it."""
    load("kernelrt.jit.multi_step")
    return sys.modules["kernelrt.jit.multi_step"]


class Epochs(JitCore, Generic[R]):
    """What a jitted function has for whole epochs."""

    _name: str
    _parameters: Parameters

    @abstractmethod
    def _variant_for(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, sized: bool = True
    ) -> tuple[Variant, list[Any], Replay]: ...

    @abstractmethod
    def _drop(self, variant: Variant) -> None: ...

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
        **kwargs: Any,
    ) -> R:
        """Run a step for each batch of the rows of some arrays, for whole epochs, in one call.

        Does what a loop of calls over :func:`kernelrt.data.batches` does, bit for bit, without
        running Python between the steps. Arrays and tensors with at least one axis are rows, also
        those in lists, tuples and dicts: each step gets some of them. Everything else is passed to
        each step as it is.

        Parameters
        ----------
        *args, **kwargs
            The arguments of the function, with the rows of all steps in the place of a batch.
        batch_size : int
            Rows of a step.
        shuffle : bool
            Whether each epoch takes the rows in an order of its own: the orders that
            :func:`kernelrt.data.batches` has with an equal seed.
        epochs : int
            How often all rows are gone through.
        first_epoch : int
            How many epochs were run before, which tells the order of the first.
        seed : int, optional
            Where the orders come from; else they follow :func:`kernelrt.manual_seed`.
        drop_last : bool
            Whether to leave out a last batch with fewer rows, which has a plan of its own.
        const : mapping of str to object, optional
            Arguments by name that each step gets whole, though they have axes.
        every : int, optional
            After how many steps the callback is called; those of an epoch if not given.
        callback : callable, optional
            ``callback(k, results)`` is called when `k` steps, a multiple of `every`, are done,
            with the results of these, which are the first rows of what is returned in the end:
            change a ``clone()`` of them. It may do anything; the next step finds what it did. If
            what it returns is true, no more steps are run; what it raises comes out of this call.

        Returns
        -------
        Tensor, or a structure of them
            What the function returns, each tensor with an axis before the others that has an
            element for each step that was run. Numbers, strings and None are as in one step.

        Raises
        ------
        ShapeError
            Numbers of rows differ, nothing has rows, a number is too small, or a result of the
            last batch has another shape than those of the others.
        IndexBoundsError, LinAlgError
            From a step, which the message and the attribute ``step`` name, counted from 0. State
            is as it was before that step.
        KeyboardInterrupt
            Likewise: a whole number of steps was run.
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
                "outside, or write the loop in that function with krt.scan over the batches"
            )
        if threading.get_ident() in state.differentiating:
            raise JitError(f"{what} is not differentiated; call it outside of what is")
        return _work().run_epochs(  # type: ignore[no-any-return]
            self, args, kwargs, const or {}, batch_size=batch_size, shuffle=shuffle, epochs=epochs,
            first_epoch=first_epoch, seed=seed, drop_last=drop_last, every=every, callback=callback,
        )  # fmt: skip

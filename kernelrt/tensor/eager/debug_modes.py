"""Debugging modes: detection of NaN and infinities, and running without jit."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar, overload

from kernelrt.native.fast_paths import _name_debugging
from kernelrt.native.thread_modes import NONFINITE, STEPWISE, Closing, Setting
from kernelrt.tensor import state
from kernelrt.tensor.eager.realize import flush, realize
from kernelrt.tensor.nodes.arguments import flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.tensor.base import TensorBase

__all__ = ["debug_nans", "detect_anomaly", "disable_jit"]

_F = TypeVar("_F", bound="Callable[..., Any]")


@overload
def debug_nans(mode: bool = True) -> Setting[bool]: ...
@overload
def debug_nans(mode: _F) -> _F: ...
def debug_nans(mode: Any = True) -> Any:
    """Raise an error that names the first operation that computes a NaN or an infinity.

    Before each run of a plan, its results are computed without changing any state. If a result, a
    gradient or a new value of state is NaN or infinite, the values that lead there are computed one
    by one. :class:`~kernelrt.NonFiniteError` names the first operation that computed such a number:
    its layer, its source line, its kernel, and whether it is part of a gradient. State is as before
    the run.

    An infinity in a constant or an input is not reported, nor is one that the result does not
    depend on. A NaN in an input is reported with the name of the input.

    The mode holds for this thread, from the call on. In a ``with`` statement it ends with the
    block, and lazy tensors made in the block are computed before its end, in the mode. It is a
    decorator, too. If it is off, it costs nothing. In the mode a function of ``krt.call`` runs
    twice. With ``pure=False`` it runs once, and values that depend on it are not checked.

    Parameters
    ----------
    mode : bool, or callable
        Whether to turn the mode on or off, or a function to decorate.

    Returns
    -------
    Setting, or callable
        Context manager for a ``with`` statement, or the function that runs in the mode.

    Raises
    ------
    DTypeError
        `mode` is not a bool.

    Examples
    --------
    >>> x = krt.tensor([1.0, 0.0])
    >>> with krt.debug_nans():
    ...     try:
    ...         (x.log() * 0).sum().item()
    ...     except krt.NonFiniteError as error:
    ...         print(error.op, error.value)
    log -inf
    """
    if callable(mode):
        return _nonfinite(value=True)(mode)
    return _nonfinite(value=flag(mode, "mode"))


def detect_anomaly(mode: bool = True) -> Setting[bool]:
    """Alias of :func:`debug_nans`, PyTorch's name.

    Parameters
    ----------
    mode : bool
        Whether to turn the mode on or off.

    Returns
    -------
    Setting
        Context manager for a ``with`` statement.

    Examples
    --------
    >>> with krt.detect_anomaly():
    ...     y = krt.tensor([1.0]).log()
    >>> y.tolist()
    [0.0]
    """
    return debug_nans(mode)


def _nonfinite(*, value: bool) -> Setting[bool]:
    return Closing(NONFINITE, value, _lazy, _compute)


class _Made(threading.local):
    """The tensors that this thread has made in the mode, by identity."""

    def __init__(self) -> None:
        self.tensors: weakref.WeakValueDictionary[int, TensorBase] = weakref.WeakValueDictionary()

    def lazy(self) -> dict[int, TensorBase]:
        """Return the tensors without data."""
        return {key: t for key, t in list(self.tensors.items()) if not t.is_realized}


_made = _Made()


def _note(tensor: TensorBase) -> None:
    _made.tensors[id(tensor)] = tensor


_name_debugging(_note)


def _lazy() -> dict[int, TensorBase]:
    """Commit pending assignments, and return the lazy tensors of an outer block."""
    if state.local.trace is not None:
        return {}
    flush()
    return _made.lazy()


def _compute(before: dict[int, TensorBase]) -> None:
    """Compute the live lazy tensors that this thread has made in the block."""
    if state.local.trace is None:
        found = _made.lazy()
        realize(*[t for key, t in found.items() if key not in before and t._born is None])


@overload
def disable_jit(mode: bool = True) -> Setting[bool]: ...
@overload
def disable_jit(mode: _F) -> _F: ...
def disable_jit(mode: Any = True) -> Any:
    """Run jitted functions without jit: as plain Python, operation by operation, with values.

    Breakpoints, ``print``, ``item()`` and ``if`` work in them. ``krt.scan``, ``fori_loop`` and
    ``while_loop`` call their bodies once for each iteration. ``cond`` and ``switch`` call the
    chosen function once. ``krt.vmap`` calls its function once for each batch element. State is
    updated as in a jitted call. Functions that are being differentiated, or traced for another
    reason, are not affected.

    The mode holds for this thread, from the call on. In a ``with`` statement it ends with the
    block. It is a decorator, too. With ``KERNELRT_JIT=0`` in the environment, each thread starts in
    the mode.

    Parameters
    ----------
    mode : bool, or callable
        True disables jit, False enables it again; or a function to decorate.

    Returns
    -------
    Setting, or callable
        Context manager for a ``with`` statement, or the function that runs in the mode.

    Raises
    ------
    DTypeError
        `mode` is not a bool.

    Examples
    --------
    >>> @krt.jit
    ... def relu(x):
    ...     return x if x.sum().item() > 0 else x * 0
    >>> with krt.disable_jit():
    ...     relu(krt.tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    if callable(mode):
        return Setting(STEPWISE, True)(mode)
    return Setting(STEPWISE, flag(mode, "mode"))

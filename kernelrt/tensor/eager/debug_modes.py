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
    """Raise an error where an operation makes a NaN or an infinity, and say which one it was.

    Every run of a plan is preceded by one that changes nothing. If a result of it, a gradient or
    a new value of state is NaN or infinite, the values that lead there are computed one by one,
    and :class:`~kernelrt.NonFiniteError` names the first operation that made one: its layer, its
    source line, its kernel, and whether it is part of a gradient. State is as before the run.

    An infinity that was given, as a constant or in an input, is taken to be meant, as is one that
    the result does not depend on. A NaN that was given is reported as the input's.

    It holds for this thread, from the call on; in a ``with`` statement it ends with the block, and
    what the block made is computed there, in the mode. It also decorates functions. When it is off
    it costs nothing. A function of ``krt.call`` runs twice in the mode, unless it is not pure:
    then what depends on it is not looked at.

    Parameters
    ----------
    mode : bool
        False ends the mode.

    Returns
    -------
    Setting
        For a ``with`` statement.

    Raises
    ------
    DTypeError
        `mode` is no bool.

    Examples
    --------
    >>> import kernelrt as krt
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
    """As :func:`debug_nans`, by PyTorch's name."""
    return debug_nans(mode)


def _nonfinite(*, value: bool) -> Setting[bool]:
    return Closing(NONFINITE, value, _lazy, _compute)


class _Made(threading.local):
    """The tensors that this thread has made while it debugged, by identity."""

    def __init__(self) -> None:
        self.tensors: weakref.WeakValueDictionary[int, TensorBase] = weakref.WeakValueDictionary()

    def lazy(self) -> dict[int, TensorBase]:
        """Those that have no data."""
        return {key: t for key, t in list(self.tensors.items()) if not t.is_realized}


_made = _Made()


def _note(tensor: TensorBase) -> None:
    _made.tensors[id(tensor)] = tensor


_name_debugging(_note)


def _lazy() -> dict[int, TensorBase]:
    """Commit what is pending, and give the tensors of an outer block that are lazy."""
    if state.local.trace is not None:
        return {}
    flush()
    return _made.lazy()


def _compute(before: dict[int, TensorBase]) -> None:
    """Compute what this thread has made since then and is there still."""
    if state.local.trace is None:
        found = _made.lazy()
        realize(*[t for key, t in found.items() if key not in before and t._born is None])


@overload
def disable_jit(mode: bool = True) -> Setting[bool]: ...
@overload
def disable_jit(mode: _F) -> _F: ...
def disable_jit(mode: Any = True) -> Any:
    """Run jitted functions as Python does, operation by operation and with values.

    Breakpoints, ``print``, ``item()`` and ``if`` work in them. The bodies of ``krt.scan``,
    ``fori_loop`` and ``while_loop`` are called for each turn, of ``cond`` and ``switch`` the
    function that is chosen, and what ``krt.vmap`` maps once for each member. State is updated as a
    jitted call does. Functions that are being differentiated or traced otherwise are as ever.

    It holds for this thread, from the call on; in a ``with`` statement it ends with the block. It
    also decorates functions. With ``KERNELRT_JIT=0`` in the environment threads begin in the mode.

    Parameters
    ----------
    mode : bool
        False lets functions be jitted again.

    Returns
    -------
    Setting
        For a ``with`` statement.

    Raises
    ------
    DTypeError
        `mode` is no bool.

    Examples
    --------
    >>> import kernelrt as krt
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

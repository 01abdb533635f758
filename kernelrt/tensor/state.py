"""State that all tensors share: pending assignments, live tensors and modes.

The registries in this module hold tensors by identity. They make lazy evaluation invisible: a
tensor keeps the value that its expression had at first, even if tensors in the expression are
assigned to before it is computed.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from kernelrt.native import locks
from kernelrt.native.array_handle import HandleRegistry
from kernelrt.native.thread_modes import GRAD, Mode, Setting, _name_lock, local
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.device.buffer import Buffer
    from kernelrt.ir import UOp
    from kernelrt.native.write_barrier import WrittenMemory
    from kernelrt.tensor.autograd.gradient_state import GradientBuffer
    from kernelrt.tensor.autograd.hooking import Late
    from kernelrt.tensor.autograd.tags import Hooked, Leaf
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.nodes import arguments
else:
    arguments = Module("kernelrt.tensor.nodes.arguments")

__all__ = ["bearer", "births", "changing", "computing", "copied", "differentiating",
           "enable_grad", "flips", "homes", "hooked", "inference_mode", "is_grad_enabled", "late",
           "leaves", "local", "lock", "no_grad", "pending", "set_grad_enabled", "steady", "units",
           "watched"]  # fmt: skip

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: Live tensors without data, and live tensors with data that keep their expression for gradients.
watched: HandleRegistry = HandleRegistry()
#: Live tensors that collect gradients, by the identities of their Leaf tags. The keys are not the
#: tags, because a tag keeps hooks alive, and these may hold the tensors.
leaves: weakref.WeakValueDictionary[int, TensorBase] = weakref.WeakValueDictionary()
#: Tags of tensors that have hooks or retain their gradients, by the identities of the tags.
hooked: weakref.WeakValueDictionary[int, Leaf | Hooked] = weakref.WeakValueDictionary()
#: Tags of results that were used before they were tagged, by the nodes without the tags.
late: weakref.WeakKeyDictionary[UOp, tuple[Late, ...]] = weakref.WeakKeyDictionary()
#: For nodes that read overwritten memory: the nodes that read copies of that memory instead.
copied: weakref.WeakKeyDictionary[UOp, tuple[weakref.ref[UOp], ...]] = weakref.WeakKeyDictionary()
#: Tensors with a pending assignment: their storage does not hold the assigned value yet.
pending: dict[int, TensorBase] = {}
#: For each of these tensors: the identities of all tensors assigned in the same step.
units: dict[int, tuple[int, ...]] = {}
#: The memory that pending assignments are about to change, as the only element. None if it was
#: not computed since the last assignment.
steady: list[WrittenMemory | None] = [None]
#: The homes of gradients that plans have stored, by their storage.
homes: weakref.WeakValueDictionary[Buffer, GradientBuffer] = weakref.WeakValueDictionary()
#: The memory that a running plan writes, or None. Only the thread that holds the lock reads it:
#: if it is set there, the reading code has interrupted the run.
changing: WrittenMemory | None = None
#: Whether a run is computing nodes of live tensors. Only the thread that holds the lock reads it:
#: code that interrupts the run must not replace the nodes, because the run gives a value only to a
#: tensor that still has the same node.
computing = False
#: Number of expressions given to live tensors so far, as the only element. While it stays the
#: same, no tensor has begun to read a buffer.
births: list[int] = [0]
#: Number of changes of `requires_grad` or of hooks of leaves, as the only element.
flips: list[int] = [0]
#: Threads, by their ids, that are differentiating functions, with the nesting depth. Jitted
#: functions called there run without jit, because results of jitted functions have no history.
differentiating: dict[int, int] = {}
#: Held while tensors are given data.
lock: locks.Lock = locks.Lock(locks.STATE)
_name_lock(lock)


def bearer(leaf: Leaf) -> TensorBase | None:
    """Return the live tensor that has this tag, or None."""
    tensor = leaves.get(id(leaf))
    return tensor if tensor is not None and tensor._leaf is leaf else None


def is_grad_enabled() -> bool:
    """Return whether operations of this thread are recorded for gradients.

    Examples
    --------
    >>> with krt.no_grad():
    ...     inside = krt.is_grad_enabled()
    >>> inside, krt.is_grad_enabled()
    (False, True)
    """
    if local.trace is not None:
        local.trace.asked = True
    return local.grad


@overload
def no_grad(function: None = None) -> Mode[bool]: ...
@overload
def no_grad(function: Callable[_P, _R]) -> Callable[_P, _R]: ...
def no_grad(function: Any = None) -> Any:
    """Disable gradients: results record no history, so no gradient flows through them.

    Use as ``with no_grad():``, or as the decorator ``@no_grad()`` or ``@no_grad``.

    Parameters
    ----------
    function : callable, optional
        Function to decorate.

    Returns
    -------
    context manager, or callable
        Context manager, or `function` with gradients disabled.

    Examples
    --------
    >>> w = krt.tensor([1.0], requires_grad=True)
    >>> with krt.no_grad():
    ...     y = w * 2
    >>> y.requires_grad
    False
    """
    return _around(Mode(GRAD, False), function)


@overload
def enable_grad(function: None = None) -> Mode[bool]: ...
@overload
def enable_grad(function: Callable[_P, _R]) -> Callable[_P, _R]: ...
def enable_grad(function: Any = None) -> Any:
    """Enable gradients: results record their history, also inside :func:`no_grad`.

    Use as ``with enable_grad():``, or as the decorator ``@enable_grad()`` or ``@enable_grad``.

    Parameters
    ----------
    function : callable, optional
        Function to decorate.

    Returns
    -------
    context manager, or callable
        Context manager, or `function` with gradients enabled.

    Examples
    --------
    >>> w = krt.tensor([1.0], requires_grad=True)
    >>> with krt.no_grad(), krt.enable_grad():
    ...     y = w * 2
    >>> y.requires_grad
    True
    """
    return _around(Mode(GRAD, True), function)


@overload
def inference_mode(mode: bool = True) -> Mode[bool]: ...
@overload
def inference_mode(mode: Callable[_P, _R]) -> Callable[_P, _R]: ...
def inference_mode(mode: Any = True) -> Any:
    """Disable gradients like :func:`no_grad`; with ``mode=False``, like :func:`enable_grad`.

    Tensors made in this mode are ordinary tensors.

    Parameters
    ----------
    mode : bool, or callable
        Whether to disable gradients, or a function to decorate.

    Returns
    -------
    context manager, or callable
        Context manager, or the function with gradients disabled.

    Examples
    --------
    >>> w = krt.tensor([1.0], requires_grad=True)
    >>> with krt.inference_mode():
    ...     y = w * 2
    >>> y.requires_grad
    False
    """
    return no_grad(mode) if callable(mode) else Mode(GRAD, not _truth(mode))


def set_grad_enabled(mode: bool) -> Setting[bool]:
    """Enable or disable gradients from now on.

    In a ``with`` statement the setting ends with the block. It is a decorator, too. A traced
    function must restore the setting before it returns.

    Parameters
    ----------
    mode : bool
        Whether gradients are enabled.

    Returns
    -------
    context manager
        Context manager that restores the former setting.

    Examples
    --------
    >>> w = krt.tensor([1.0], requires_grad=True)
    >>> with krt.set_grad_enabled(False):
    ...     y = w * 2
    >>> y.requires_grad, krt.is_grad_enabled()
    (False, True)
    """
    return Setting(GRAD, _truth(mode))


def _around(mode: Mode[bool], function: Callable[..., object] | None) -> object:
    return mode if function is None else mode(function)


def _truth(mode: object) -> bool:
    return arguments.flag(mode, "mode")

"""State that all tensors share: pending assignments, live tensors and modes.

The registers hold tensors by identity. They exist so that lazy evaluation is never seen: a
tensor keeps the value that its expression had when it was written down, whatever is assigned to
the tensors it reads before it is computed.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from kernelrt.native import locks
from kernelrt.native.array_handle import Roster
from kernelrt.native.thread_modes import GRAD, Mode, Setting, _name_lock, local
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.device.buffer import Buffer
    from kernelrt.ir import UOp
    from kernelrt.native.write_barrier import Written
    from kernelrt.tensor.autograd.gradient_state import Home
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

#: Live tensors that have no data yet, or that have and, for gradients, still the expression behind
#: them.
watched: Roster = Roster()
#: Live tensors that gradients are collected for, by the identities of the marks on their values:
#: the marks themselves keep hooks alive, which may hold the tensors.
leaves: weakref.WeakValueDictionary[int, TensorBase] = weakref.WeakValueDictionary()
#: Marks of tensors that have hooks or retain their gradients, by the identities of the marks.
hooked: weakref.WeakValueDictionary[int, Leaf | Hooked] = weakref.WeakValueDictionary()
#: Marks of results that something had been made of before, by the values without them.
late: weakref.WeakKeyDictionary[UOp, tuple[Late, ...]] = weakref.WeakKeyDictionary()
#: For nodes that read memory which was written over: the nodes that read copies of it instead.
copied: weakref.WeakKeyDictionary[UOp, tuple[weakref.ref[UOp], ...]] = weakref.WeakKeyDictionary()
#: Tensors whose storage does not hold yet what was assigned to them.
pending: dict[int, TensorBase] = {}
#: What was assigned in one step, as identities, for each of these tensors.
units: dict[int, tuple[int, ...]] = {}
#: What the pending assignments are about to change, as the only element: None where nobody has
#: asked since another one came.
steady: list[Written | None] = [None]
#: Where gradients of tensors lie that plans left, by the storage.
homes: weakref.WeakValueDictionary[Buffer, Home] = weakref.WeakValueDictionary()
#: The memory that a plan is writing right now, if one is. Only the thread that holds the lock
#: looks at it: there it tells that this code interrupted the run.
changing: Written | None = None
#: Whether a run is computing nodes of live tensors. Only the thread that holds the lock reads it:
#: code that interrupts the run must not exchange their nodes, because the run hands a value only to
#: a tensor that still has its node.
computing = False
#: How many expressions live tensors were given so far, as the only element. While it stays the
#: same, no tensor can have begun to read a buffer.
births: list[int] = [0]
#: How often a tensor began or ceased to require a gradient, as the only element.
flips: list[int] = [0]
#: Threads, by their numbers, in which functions are being differentiated, and how deep. What
#: these call is called as it stands: a result of a jitted function has no history.
differentiating: dict[int, int] = {}
#: Held while tensors are given data.
lock: locks.Lock = locks.Lock(locks.STATE)
_name_lock(lock)


def bearer(leaf: Leaf) -> TensorBase | None:
    """The live tensor that gradients are collected for by this mark, if there is one."""
    tensor = leaves.get(id(leaf))
    return tensor if tensor is not None and tensor._leaf is leaf else None


def is_grad_enabled() -> bool:
    """Whether operations of this thread are recorded for gradients."""
    if local.trace is not None:
        local.trace.asked = True
    return local.grad


@overload
def no_grad(function: None = None) -> Mode[bool]: ...
@overload
def no_grad(function: Callable[_P, _R]) -> Callable[_P, _R]: ...
def no_grad(function: Any = None) -> Any:
    """Within it, results have no history: gradients do not pass through them.

    It is entered with ``with``, or decorates a function, as ``@no_grad()`` or as ``@no_grad``.

    Examples
    --------
    >>> from kernelrt import Tensor, no_grad
    >>> w = Tensor([1.0], requires_grad=True)
    >>> with no_grad():
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
    """Within it, histories are recorded, also inside :func:`no_grad`."""
    return _around(Mode(GRAD, True), function)


@overload
def inference_mode(mode: bool = True) -> Mode[bool]: ...
@overload
def inference_mode(mode: Callable[_P, _R]) -> Callable[_P, _R]: ...
def inference_mode(mode: Any = True) -> Any:
    """As :func:`no_grad`, or with False as :func:`enable_grad`.

    Tensors made within it are tensors like any other.
    """
    return no_grad(mode) if callable(mode) else Mode(GRAD, not _truth(mode))


def set_grad_enabled(mode: bool) -> Setting[bool]:
    """Record histories from now on, or do not.

    With ``with`` it lasts as long as the block does, and it decorates functions; a traced function
    may not leave it changed.

    Examples
    --------
    >>> import kernelrt as krt
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

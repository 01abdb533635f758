"""What the tensors of this process share: pending assignments, live tensors, modes.

The registers hold tensors by identity. They exist so that lazy evaluation is never seen: a
tensor keeps the value that its expression had when it was written down, whatever is assigned to
the tensors it reads before it is computed.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from kernelrt import _locks
from kernelrt._handle import Roster
from kernelrt._modes import GRAD, Mode, local

if TYPE_CHECKING:
    from kernelrt.device.buffer import Buffer
    from kernelrt.ir import UOp
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.grads import Home
    from kernelrt.tensor.marks import Leaf
    from kernelrt.tensor.written import Written

__all__ = ["births", "changing", "differentiating", "enable_grad", "flips", "homes",
           "is_grad_enabled", "leaves", "local", "lock", "no_grad", "pending", "steady", "units",
           "watched"]  # fmt: skip

#: Live tensors that have no data yet, or that have and, for gradients, still the expression behind
#: them.
watched: Roster = Roster()
#: Live tensors that gradients are collected for, by the mark on their value.
leaves: weakref.WeakValueDictionary[Leaf, TensorBase] = weakref.WeakValueDictionary()
#: Tensors whose storage does not hold yet what was assigned to them.
pending: dict[int, TensorBase] = {}
#: What was assigned in one step, as identities, for each of these tensors.
units: dict[int, tuple[int, ...]] = {}
#: Nodes known not to read what the pending assignments are about to change, as the only element.
#: With another assignment pending it is another set, None at first.
steady: list[set[UOp] | None] = [None]
#: Where gradients of tensors lie that plans left, by the storage.
homes: weakref.WeakValueDictionary[Buffer, Home] = weakref.WeakValueDictionary()
#: The memory that a plan is writing right now, if one is. Only the thread that holds the lock
#: looks at it: there it tells that this code interrupted the run.
changing: Written | None = None
#: How many expressions live tensors were given so far, as the only element. While it stays the
#: same, no tensor can have begun to read a buffer.
births: list[int] = [0]
#: How often a tensor began or ceased to require a gradient, as the only element.
flips: list[int] = [0]
#: Threads, by their numbers, in which functions are being differentiated, and how deep. What
#: these call is called as it stands: a result of a jitted function has no history.
differentiating: dict[int, int] = {}
#: Held while tensors are given data.
lock = _locks.Lock(_locks.STATE)


def is_grad_enabled() -> bool:
    """Whether operations of this thread are recorded for gradients."""
    if local.trace is not None:
        local.trace.asked = True
    return local.grad


def no_grad() -> Mode[bool]:
    """Within it, results have no history: gradients do not pass through them.

    It is entered with ``with``, or decorates a function.

    Examples
    --------
    >>> from kernelrt import Tensor, no_grad
    >>> w = Tensor([1.0], requires_grad=True)
    >>> with no_grad():
    ...     y = w * 2
    >>> y.requires_grad
    False
    """
    return Mode(GRAD, False)


def enable_grad() -> Mode[bool]:
    """Within it, histories are recorded, also inside :func:`no_grad`."""
    return Mode(GRAD, True)

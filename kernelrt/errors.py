"""The typed errors of kernelrt.

Every error derives from :class:`KernelrtError` and, where Python users expect a
builtin type, from that type too, so that ``except ValueError`` keeps working.
"""

from __future__ import annotations

import threading
from typing import Any

__all__ = [
    "AxisError",
    "BufferReleasedError",
    "CompileError",
    "CopyError",
    "CustomFunctionError",
    "DTypeError",
    "DeviceError",
    "DomainError",
    "EagerLoopWarning",
    "ForkError",
    "GradientError",
    "IndexBoundsError",
    "JitError",
    "KernelrtError",
    "KernelrtWarning",
    "LinAlgError",
    "NonFiniteError",
    "OutOfMemoryError",
    "PlanBuildError",
    "PlanBusyError",
    "PlanReleasedError",
    "RetraceWarning",
    "ScalarError",
    "ShapeError",
    "SharingError",
    "SpecError",
    "StateError",
    "UnknownNameError",
    "VariableError",
    "ViewWarning",
]


class _Made(threading.local):
    """How many errors were made in this thread, also those that somebody catches."""

    count = 0


made = _Made()


class KernelrtError(Exception):
    """Base class of every error that kernelrt raises on purpose."""

    def __init__(self, *args: object, **options: Any) -> None:
        super().__init__(*args, **options)
        made.count += 1


class KernelrtWarning(UserWarning):
    """Something works, but hardly as it was meant."""


class EagerLoopWarning(KernelrtWarning):
    """A loop computes the same, or compiles, again and again without :func:`kernelrt.jit`."""


class RetraceWarning(KernelrtWarning, RuntimeWarning):
    """A function of :func:`kernelrt.jit` is traced again and again."""


class ViewWarning(KernelrtWarning):
    """Not given any more, as views share memory; kept for filters that name it."""


class ShapeError(KernelrtError, RuntimeError, ValueError):
    """A shape, rank, axis or size does not fit: PyTorch's RuntimeError, NumPy's ValueError."""


class AxisError(ShapeError, IndexError):
    """An axis is out of range, or an index has other or more axes than the tensor."""


class ScalarError(ShapeError, TypeError):
    """A tensor without axes has no length, and nothing to iterate over."""


class SharingError(KernelrtError, ValueError):
    """Memory was to be shared, not copied, but what is asked for is a copy."""


class DomainError(ShapeError):
    """Data hold a number that an operation does not take, as a probability of 1.5 or NaN.

    Attributes
    ----------
    op : int or None
        The operation of the plan that met it.
    value : float or None
        The number, to 12 digits, or 7 of what is not float64.
    step : int or None
        The step of a jitted function's ``over``, counted from 0, in which it was met.
    turn : int or None
        The turn of the loop that met it, from 0; None outside of loops.
    """

    op: int | None = None
    value: float | None = None
    step: int | None = None
    turn: int | None = None


class DTypeError(KernelrtError, TypeError):
    """A scalar type is unsupported or does not fit the operation."""


class DeviceError(KernelrtError, ValueError):
    """A device is unknown, or operands live on different devices."""


class IndexBoundsError(KernelrtError, IndexError):
    """An index (static or read from data at run time) lies outside its axis.

    Attributes
    ----------
    op : int or None
        The operation of the plan that met it.
    index : int or None
        The first index that was found out of range, as the user gave it.
    size : int or None
        The size of the axis.
    step : int or None
        The step of a jitted function's ``over``, counted from 0, in which it was met.
    turn : int or None
        The turn of the loop that met it, from 0; None outside of loops.
    """

    op: int | None = None
    index: int | None = None
    size: int | None = None
    step: int | None = None
    turn: int | None = None


class LinAlgError(KernelrtError, RuntimeError, ValueError):
    """A problem of linear algebra has no solution, as of a matrix that is singular.

    Attributes
    ----------
    step : int or None
        The step of a jitted function's ``over``, counted from 0, in which it came up.
    turn : int or None
        The turn of the loop that met it, from 0; None outside of loops.
    """

    step: int | None = None
    turn: int | None = None


class NonFiniteError(KernelrtError, FloatingPointError, RuntimeError):
    """An operation made a NaN or an infinity, or was given a NaN, within ``krt.debug_nans()``.

    Attributes
    ----------
    value : float
        The first such number.
    op : str
        The method or function of the user's line that made it, or read it first.
    layer : str
        Dotted path of its module within the outermost one; empty outside of modules.
    file, function : str
        Where the line stands; empty where that is not known.
    line : int
        Its number; 0 where that is not known.
    backward : bool
        Whether it is part of the gradient of that operation.
    kernel : str
        The kernel that computes it; empty where that is not known.
    input : str
        The name of the input that holds a NaN, if it was given and has a name.
    turn : int or None
        The turn of the loop that made it, from 0; None outside of loops.
    step : int or None
        The step of a jitted function's ``over``, counted from 0, in which it came up.
    """

    value: float = float("nan")
    op: str = ""
    layer: str = ""
    file: str = ""
    function: str = ""
    line: int = 0
    backward: bool = False
    kernel: str = ""
    input: str = ""
    turn: int | None = None
    step: int | None = None


class GradientError(KernelrtError, RuntimeError):
    """A gradient was asked for where none is defined."""


class JitError(KernelrtError, RuntimeError):
    """A function cannot be traced, or a value was read while tracing."""


class VariableError(KernelrtError, ValueError):
    """A Variable is unknown, fixed, or bound outside its interval."""


class StateError(KernelrtError, ValueError):
    """A state dict does not fit the object that it is loaded into, or its file is broken."""


class UnknownNameError(KernelrtError, AttributeError):
    """An attribute is set that the object does not have."""


class SpecError(KernelrtError, RuntimeError):
    """A graph breaks the rules of its stage; this is a bug in kernelrt or in hand-made IR."""


class CompileError(KernelrtError, RuntimeError):
    """The compiler rejected the source of a kernel."""


class PlanBuildError(KernelrtError, ValueError):
    """An execution plan was assembled from parts that do not fit together."""


class PlanBusyError(KernelrtError, RuntimeError):
    """A plan, or memory being assigned to, was used by code that interrupts just that."""


class PlanReleasedError(KernelrtError, RuntimeError):
    """A plan was executed after its buffers had been released."""


class BufferReleasedError(KernelrtError, RuntimeError):
    """A buffer was used after its memory had been freed."""


class CopyError(KernelrtError, TypeError):
    """An object cannot be copied or pickled: it stands for memory or code of this process."""


class CustomFunctionError(KernelrtError, RuntimeError):
    """A custom function of a plan raised; the original exception is the cause.

    Attributes
    ----------
    turn : int or None
        The turn of the loop that it was called in, from 0; None outside of loops.
    step : int or None
        The step of a jitted function's ``over``, counted from 0, in which it was called.
    """

    turn: int | None = None
    step: int | None = None


class ForkError(KernelrtError, RuntimeError):
    """A run was lost in a forked child, which has none of the threads that took part in it."""


class OutOfMemoryError(KernelrtError, MemoryError):
    """Memory for a buffer, a plan or a kernel could not be had."""

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
    """Number of errors created in this thread, including caught ones."""

    count = 0


made = _Made()


class _InLoop:
    """Attribute of errors that may come from an iteration of a loop."""

    iteration: int | None = None

    @property
    def turn(self) -> int | None:
        """Former name of `iteration`, kept for one version."""
        return self.iteration


class KernelrtError(Exception):
    """Base class of all errors that kernelrt raises intentionally."""

    def __init__(self, *args: object, **options: Any) -> None:
        super().__init__(*args, **options)
        made.count += 1


class KernelrtWarning(UserWarning):
    """Base class of warnings: something works, but probably not as intended."""


class EagerLoopWarning(KernelrtWarning):
    """A loop without :func:`kernelrt.jit` repeats a computation or compiles again and again."""


class RetraceWarning(KernelrtWarning, RuntimeWarning):
    """A jitted function is traced again and again."""


class ViewWarning(KernelrtWarning):
    """Not issued any more, as views share memory; kept for warning filters that name it."""


class ShapeError(KernelrtError, RuntimeError, ValueError):
    """A shape, rank, axis or size does not fit.

    PyTorch raises RuntimeError and NumPy ValueError in such cases; this error is both.
    """


class AxisError(ShapeError, IndexError):
    """An axis is out of range, or an index does not match the axes of the tensor."""


class ScalarError(ShapeError, TypeError):
    """A tensor without axes has no length and cannot be iterated over."""


class SharingError(KernelrtError, ValueError):
    """A copy was forbidden, but the request needs one."""


class DomainError(_InLoop, ShapeError):
    """Data contains a number outside the domain of an operation, such as a probability of 1.5.

    Attributes
    ----------
    op : int or None
        Index of the operation in the plan.
    value : float or None
        The number, to 12 digits if it is float64, else to 7.
    step : int or None
        Step of a jitted function's ``over``, from 0.
    iteration : int or None
        Iteration of the loop, from 0; None outside of loops.
    """

    op: int | None = None
    value: float | None = None
    step: int | None = None


class DTypeError(KernelrtError, TypeError):
    """A dtype is unsupported or does not fit the operation."""


class DeviceError(KernelrtError, ValueError):
    """A device is unknown, or operands live on different devices."""


class IndexBoundsError(_InLoop, KernelrtError, IndexError):
    """An index (static or read from data at run time) is out of range for its axis.

    Attributes
    ----------
    op : int or None
        Index of the operation in the plan.
    index : int or None
        The first index out of range, as the user passed it.
    size : int or None
        Size of the axis.
    step : int or None
        Step of a jitted function's ``over``, from 0.
    iteration : int or None
        Iteration of the loop, from 0; None outside of loops.
    """

    op: int | None = None
    index: int | None = None
    size: int | None = None
    step: int | None = None


class LinAlgError(_InLoop, KernelrtError, RuntimeError, ValueError):
    """A linear algebra problem has no solution, for example because a matrix is singular.

    Attributes
    ----------
    step : int or None
        Step of a jitted function's ``over``, from 0.
    iteration : int or None
        Iteration of the loop, from 0; None outside of loops.
    """

    step: int | None = None


class NonFiniteError(_InLoop, KernelrtError, FloatingPointError, RuntimeError):
    """An operation produced NaN or infinity, or read a NaN, within ``krt.debug_nans()``.

    Attributes
    ----------
    value : float
        The first such number.
    op : str
        Method or function in the user's line that produced the number, or read it first.
    layer : str
        Dotted path of the module within the outermost module; empty outside of modules.
    file, function : str
        File and function of the user's line; empty if unknown.
    line : int
        Line number; 0 if unknown.
    backward : bool
        Whether the number is part of the gradient of the operation.
    kernel : str
        Kernel that computes the number; empty if unknown.
    input : str
        Name of the input that holds a NaN, if an input does and has a name.
    iteration : int or None
        Iteration of the loop, from 0; None outside of loops.
    step : int or None
        Step of a jitted function's ``over``, from 0.
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
    step: int | None = None


class GradientError(KernelrtError, RuntimeError):
    """A gradient was requested that is not defined."""


class JitError(KernelrtError, RuntimeError):
    """A function cannot be traced, or a value was read while tracing."""


class VariableError(KernelrtError, ValueError):
    """A Variable is unknown, fixed, or bound to a value outside its bounds."""


class StateError(KernelrtError, ValueError):
    """A state dict does not fit the object it is loaded into, or its file is corrupt."""


class UnknownNameError(KernelrtError, AttributeError):
    """An attribute that the object does not have was set."""


class SpecError(KernelrtError, RuntimeError):
    """A graph violates the rules of its stage; this is a bug in kernelrt or in handwritten IR."""


class CompileError(KernelrtError, RuntimeError):
    """The compiler rejected the source of a kernel."""


class PlanBuildError(KernelrtError, ValueError):
    """An execution plan was assembled from parts that do not fit together."""


class PlanBusyError(KernelrtError, RuntimeError):
    """Code that interrupted a plan or an assignment used the same plan or memory."""


class PlanReleasedError(KernelrtError, RuntimeError):
    """A plan was executed after its buffers had been released."""


class BufferReleasedError(KernelrtError, RuntimeError):
    """A buffer was used after its memory had been freed."""


class CopyError(KernelrtError, TypeError):
    """An object cannot be copied or pickled: it refers to memory or code of this process."""


class CustomFunctionError(_InLoop, KernelrtError, RuntimeError):
    """A custom function of a plan raised; the original exception is the cause.

    Attributes
    ----------
    iteration : int or None
        Iteration of the loop, from 0; None outside of loops.
    step : int or None
        Step of a jitted function's ``over``, from 0.
    """

    step: int | None = None


class ForkError(KernelrtError, RuntimeError):
    """A run was lost in a forked child process, which does not have the threads of the run."""


class OutOfMemoryError(KernelrtError, MemoryError):
    """Memory for a buffer, a plan or a kernel could not be allocated."""

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
    "ModelFileError",
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
    """Base class of errors that may come from an iteration of a loop: the number `iteration`."""

    iteration: int | None = None

    @property
    def turn(self) -> int | None:
        """Former name of `iteration`, kept for one version."""
        return self.iteration


def with_article(name: str) -> str:
    """Return a class name after "a" or "an", whichever fits its pronunciation.

    Examples
    --------
    >>> from kernelrt.errors import with_article
    >>> [with_article(name) for name in ("dict", "ExecutionPlan", "LSTM", "UOp", "ndarray")]
    ['a dict', 'an ExecutionPlan', 'an LSTM', 'a UOp', 'an ndarray']
    """
    spelled = name[:2].isupper() or name.startswith("nd")  # letters are read one by one
    vowel = name[:1].upper() in (set("AEFHILMNORSX") if spelled else set("AEIO"))
    return f"an {name}" if vowel else f"a {name}"


def a_type(value: object) -> str:
    """Return the name of the type of a value, with its article."""
    return with_article(type(value).__name__)


class KernelrtError(Exception):
    """Base class of all errors that kernelrt raises intentionally.

    Each message says what is wrong, what came, what was expected and the way out.

    Examples
    --------
    >>> try:
    ...     krt.zeros(2) + krt.zeros(3)
    ... except krt.KernelrtError as error:
    ...     print(type(error).__name__)
    ShapeError
    """

    def __init__(self, *args: object, **options: Any) -> None:
        super().__init__(*args, **options)
        made.count += 1


class KernelrtWarning(UserWarning):
    """Base class of warnings: something works, but probably not as intended.

    To turn all of them into errors, call ``warnings.simplefilter("error", krt.KernelrtWarning)``.
    """


class EagerLoopWarning(KernelrtWarning):
    """A loop without :func:`kernelrt.jit` repeats a computation or compiles again and again.

    kernelrt issues the warning once for each line of code. Usually a jitted function helps;
    docs/eager.md has recipes.
    """


class RetraceWarning(KernelrtWarning, RuntimeWarning):
    """A jitted function is traced again and again.

    The message names the argument that changes. Pass changing numbers as floats or arrays, and
    make axes of changing size dynamic, or pad them.

    Examples
    --------
    >>> import warnings
    >>> scale = krt.jit(lambda x, n: x * n)
    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     for n in range(10):  # each int gets a plan of its own
    ...         _ = scale(krt.tensor([1.0]), n)
    >>> [warning.category.__name__ for warning in found]
    ['RetraceWarning']
    """


class ViewWarning(KernelrtWarning):
    """No longer issued, because views share memory; the name stays for existing filters."""


class ShapeError(KernelrtError, RuntimeError, ValueError):
    """A shape, rank, axis, size or count does not fit, or arguments contradict each other.

    A number or a word that an argument does not take raises the subclass :class:`DomainError`.
    PyTorch raises RuntimeError and NumPy ValueError in such cases; this error is both.

    Examples
    --------
    >>> krt.zeros(2, 3) + krt.zeros(4)
    Traceback (most recent call last):
        ...
    kernelrt.errors.ShapeError: shapes (2, 3) and (4,) do not broadcast...
    """


class AxisError(ShapeError, IndexError):
    """An axis is out of range, or an index does not match the axes of the tensor.

    Examples
    --------
    >>> krt.zeros(2).sum(1)
    Traceback (most recent call last):
        ...
    kernelrt.errors.AxisError: dim: axis 1 is out of range for a tensor with 1 axes...
    """


class ScalarError(ShapeError, TypeError):
    """A tensor without axes has no length and cannot be iterated over.

    Examples
    --------
    >>> len(krt.tensor(1.0))
    Traceback (most recent call last):
        ...
    kernelrt.errors.ScalarError: len: a tensor without axes has no length; use numel()
    """


class SharingError(KernelrtError, ValueError):
    """``copy=False`` forbids a copy, but the call needs one. Pass ``copy=None``.

    Examples
    --------
    >>> krt.asarray([1.0], copy=False)
    Traceback (most recent call last):
        ...
    kernelrt.errors.SharingError: copy: False forbids a copy, but list has no memory to share...
    """


class DomainError(_InLoop, ShapeError):
    """A number, or a word such as a mode, lies outside of the domain of an operation.

    A wrong argument, such as a probability of 1.5, raises this error at the call. A wrong element
    of a tensor raises it when the value is computed. The attributes describe the second case.

    Attributes
    ----------
    op : int or None
        Index of the operation in the plan.
    value : float or None
        The element, to 12 digits if it is float64, else to 7.
    step : int or None
        Step of a jitted function's ``over``, from 0.
    iteration : int or None
        Iteration of the loop, from 0; None outside of loops.

    Examples
    --------
    >>> krt.nn.Dropout(1.5)
    Traceback (most recent call last):
        ...
    kernelrt.errors.DomainError: p: expected a probability from 0 to 1, not 1.5
    >>> x = krt.tensor([0.5, 1.5]).bernoulli()
    >>> try:
    ...     x.tolist()
    ... except krt.DomainError as error:
    ...     print(error.value)
    1.5
    """

    op: int | None = None
    value: float | None = None
    step: int | None = None


class DTypeError(KernelrtError, TypeError):
    """A dtype is unsupported or does not fit the operation, or an argument has another type.

    Usually a cast helps, such as ``x.float()``.

    Examples
    --------
    >>> krt.tensor([1, 2]).mean()
    Traceback (most recent call last):
        ...
    kernelrt.errors.DTypeError: mean: expected a floating type, not int64; cast the tensor first...
    """


class DeviceError(KernelrtError, ValueError):
    """A device is unknown, or operands live on different devices.

    Examples
    --------
    >>> krt.zeros(2, device="cuda")
    Traceback (most recent call last):
        ...
    kernelrt.errors.DeviceError: device: 'cuda' is unknown; expected 'cpu'
    """


class IndexBoundsError(_InLoop, KernelrtError, IndexError):
    """An index (static or read from data at run time) is out of range for its axis.

    Attributes
    ----------
    op : int or None
        Index of the operation in the plan.
    index : int or None
        The first index out of range, as the user passed it; None for static ones.
    size : int or None
        Size of the axis; None for static indices.
    step : int or None
        Step of a jitted function's ``over``, from 0.
    iteration : int or None
        Iteration of the loop, from 0; None outside of loops.

    Examples
    --------
    >>> krt.zeros(3)[5]
    Traceback (most recent call last):
        ...
    kernelrt.errors.IndexBoundsError: index: 5 is out of range for axis 0 with size 3
    >>> x = krt.zeros(3)[krt.tensor([0, 5])]
    >>> try:
    ...     x.tolist()
    ... except krt.IndexBoundsError as error:
    ...     print(error.index, error.size)
    5 3
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

    Examples
    --------
    >>> krt.linalg.inv(krt.zeros(2, 2)).tolist()
    Traceback (most recent call last):
        ...
    kernelrt.errors.LinAlgError: inv ...: the matrix is singular...
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

    Examples
    --------
    >>> with krt.debug_nans():
    ...     try:
    ...         krt.tensor([0.0]).log().tolist()
    ...     except krt.NonFiniteError as error:
    ...         print(error.op, error.value)
    log -inf
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
    """A gradient is not defined, or a tensor that requires one would change in place.

    Examples
    --------
    >>> krt.tensor(1.0).backward()
    Traceback (most recent call last):
        ...
    kernelrt.errors.GradientError: backward: the tensor does not depend on any tensor...
    >>> krt.ones(2, requires_grad=True).zero_()
    Traceback (most recent call last):
        ...
    kernelrt.errors.GradientError: zero_: the tensor requires a gradient...
    """


class JitError(KernelrtError, RuntimeError):
    """A function cannot be traced, or a value was read while tracing.

    Return the tensor and read it outside, or decide with ``where()`` or ``krt.cond``. To find the
    place, run the function under :func:`disable_jit`.

    Examples
    --------
    >>> krt.jit(lambda x: x.item())(krt.tensor(1.0))
    Traceback (most recent call last):
        ...
    kernelrt.errors.JitError: item() reads a value while a function is traced...
    """


class VariableError(KernelrtError, ValueError):
    """A Variable is unknown, fixed or out of bounds, or Python needs its value during a trace.

    Examples
    --------
    >>> bool(krt.Variable("n", 1, 8) > 3)
    Traceback (most recent call last):
        ...
    kernelrt.errors.VariableError: n > 3: Python needs True or False, but the size is known only...
    """


class StateError(KernelrtError, ValueError):
    """A state dict does not fit the object it is loaded into, or its file is corrupt.

    Examples
    --------
    >>> krt.nn.Linear(2, 1).load_state_dict({"weight": krt.zeros(1, 3), "bias": krt.zeros(1)})
    Traceback (most recent call last):
        ...
    kernelrt.errors.StateError: state_dict does not fit Linear:
      'weight' has shape (1, 3), expected (1, 2)
    """


class ModelFileError(KernelrtError, ValueError):
    """A model file cannot be written or opened: the message says why.

    Examples
    --------
    >>> krt.load(b"not a model")
    Traceback (most recent call last):
        ...
    kernelrt.errors.ModelFileError: this is no model file: it has 11 bytes, and a model file has ...
    """


class UnknownNameError(KernelrtError, AttributeError):
    """Code set an attribute that the object does not have.

    Examples
    --------
    >>> opt = krt.optim.SGD([krt.zeros(2, requires_grad=True)], lr=0.1)
    >>> opt.rate = 1.0
    Traceback (most recent call last):
        ...
    kernelrt.errors.UnknownNameError: SGD: unknown attribute 'rate', expected one of lr...
    """


class SpecError(KernelrtError, RuntimeError):
    """A graph violates the rules of its stage; this is a bug in kernelrt or in handwritten IR."""


class CompileError(KernelrtError, RuntimeError):
    """The compiler rejected the source of a kernel, or a kernel has no source to show.

    This error concerns kernels that you give as code; see docs/runtime.md.

    Examples
    --------
    >>> from kernelrt.runtime import CachedKernel
    >>> CachedKernel.from_source("twice", "no code", buf_count=1, outs=[0])
    Traceback (most recent call last):
        ...
    kernelrt.errors.CompileError: kernel 'twice': LLVM rejected the source...
    """


class PlanBuildError(KernelrtError, ValueError):
    """An execution plan was assembled from parts that do not fit together.

    This error concerns plans that you build by hand; see docs/runtime.md.

    Examples
    --------
    >>> from kernelrt.runtime import ExecutionPlanBuilder
    >>> ExecutionPlanBuilder().set_output_buffer(3)
    Traceback (most recent call last):
        ...
    kernelrt.errors.PlanBuildError: output: there is no buffer 3; the plan has 0 buffers
    """


class PlanBusyError(KernelrtError, RuntimeError):
    """Code that interrupted a plan or an assignment used the same plan or memory.

    Such code is a custom function of the plan, a signal handler or a finalizer. Let it execute a
    copy of the plan, made with ``plan.replicate()``.

    Examples
    --------
    >>> def again(array):
    ...     plan.execute()
    ...     return array
    >>> x = krt.tensor([1.0])
    >>> plan = krt.prepare(krt.call(again, x, out=x))
    >>> try:
    ...     plan.execute()
    ... except krt.CustomFunctionError as error:
    ...     print(type(error.__cause__).__name__)
    PlanBusyError
    """


class PlanReleasedError(KernelrtError, RuntimeError):
    """A plan was executed after its buffers had been released. Prepare it again.

    Examples
    --------
    >>> plan = (krt.zeros(2) + 1).prepare()
    >>> plan.release()
    >>> plan.execute()
    Traceback (most recent call last):
        ...
    kernelrt.errors.PlanReleasedError: the plan was released; prepare it again
    """


class BufferReleasedError(KernelrtError, RuntimeError):
    """A buffer was used after its memory had been freed. Make a new buffer.

    Examples
    --------
    >>> from kernelrt.device import Buffer
    >>> buffer = Buffer.wrap(np.zeros(4))
    >>> buffer.release()
    >>> buffer.numpy()
    Traceback (most recent call last):
        ...
    kernelrt.errors.BufferReleasedError: the buffer's memory was released; make a new buffer
    """


class CopyError(KernelrtError, TypeError):
    """An object cannot be copied or pickled: it refers to memory or code of this process.

    Examples
    --------
    >>> import copy
    >>> copy.deepcopy(krt.zeros(2).prepare())
    Traceback (most recent call last):
        ...
    kernelrt.errors.CopyError: an ExecutionPlan refers to memory of this process...
    """


class CustomFunctionError(_InLoop, KernelrtError, RuntimeError):
    """A custom function of a plan raised; the original exception is the cause.

    Attributes
    ----------
    iteration : int or None
        Iteration of the loop, from 0; None outside of loops.
    step : int or None
        Step of a jitted function's ``over``, from 0.

    Examples
    --------
    >>> x = krt.tensor([1.0])
    >>> y = krt.call(lambda a: 1 // 0, x, out=x)
    >>> try:
    ...     y.tolist()
    ... except krt.CustomFunctionError as error:
    ...     print(repr(error.__cause__))
    ZeroDivisionError('integer division or modulo by zero')
    """

    step: int | None = None


class ForkError(KernelrtError, RuntimeError):
    """A run was lost in a forked child process, which does not have the threads of the run."""


class OutOfMemoryError(KernelrtError, MemoryError):
    """Memory for a buffer, a plan or a kernel could not be allocated.

    Examples
    --------
    >>> krt.zeros(1 << 50).tolist()
    Traceback (most recent call last):
        ...
    kernelrt.errors.OutOfMemoryError: cannot allocate ... bytes
    """

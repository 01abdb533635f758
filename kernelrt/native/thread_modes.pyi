"""Types of the modes of a thread, and of the calls of operations."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, Self, TypeVar

from kernelrt.ir import UOp
from kernelrt.native.locks import Lock
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.tracing.trace import Trace

_T = TypeVar("_T")
_P = ParamSpec("_P")
_R = TypeVar("_R")

GRAD: Final[int]
OBSERVED: Final[int]
NONFINITE: Final[int]
STEPWISE: Final[int]

class Local:
    """The modes of the current thread. Each thread sees its own."""

    @property
    def grad(self) -> bool:
        """Whether operations are recorded for gradients."""
    trace: Trace | None
    """The active trace, or None."""
    scope: object
    """The innermost module that is being called, or None; `str` of it is its path."""
    @property
    def observed(self) -> Any:
        """The dict that records attributes that are read, or None."""
    @property
    def debugs(self) -> bool:
        """Whether this thread is in debug_nans or disable_jit."""
    @property
    def nonfinite(self) -> bool:
        """Whether this thread is in debug_nans."""
    @property
    def stepwise(self) -> bool:
        """Whether this thread is in disable_jit."""
    @property
    def writes(self) -> int:
        """The number of writes of this thread to memory that lazy tensors may read."""

local: Final[Local]

def begin_stepwise(value: bool, /) -> None:
    """Set whether threads run jitted functions step by step by default."""

def began_write() -> None:
    """Count a write to memory that lazy tensors may read. Call this when the write begins."""

def computed() -> None:
    """Count a computation of lazy tensors."""

def _name_lock(lock: Lock) -> None: ...

def count_read() -> None:
    """Count a read of tensor values on this thread."""

def aliases_of(function: object) -> dict[str, str] | None:
    """Return a mapping of aliases of parameters to the parameters' names; None without aliases."""

def several_of(function: object) -> tuple[str, ...] | None:
    """Return the keywords that may give a starred parameter's values; None if there are none."""

def with_starred(
    name: str, several: tuple[str, ...], before: int, given: tuple[Any, ...],
    options: dict[str, Any],
) -> tuple[Any, ...]:
    """Return `given`, followed by the value of a starred parameter that `options` gives.

    The keyword is one of `several`, and is removed from `options`.

    At most `before` positional arguments may come with the keyword. Otherwise the values are given
    twice, which raises DTypeError.
    """

class Operation(Generic[_P, _R]):
    """A function or method of tensors that is atomic with respect to interrupting code.

    The function reads the nodes of its operands and creates a node from them. If, meanwhile, lazy
    tensors were computed and memory was written, by interrupting code or because an operand had to
    be committed, the function is called again with the new nodes of the operands. So it must have
    no other effects. If it is interrupted every time, PlanBusyError is raised.
    """

    def __init__(self, function: Callable[_P, _R]) -> None: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...

def undisturbed(
    function: Callable[[], _R], named: Callable[..., object], any_write: bool = True
) -> _R:
    """Call `function` until this thread writes no memory during the call; return the result.

    Without `any_write`, a write counts only if lazy tensors were computed, too.

    Raises
    ------
    PlanBusyError
        Every call was interrupted. The message contains the name of `named`.
    """

class Mode(Generic[_T]):
    """Sets `field` to `value` within a ``with`` block, or while a decorated function runs.

    The ``with`` statement binds `value`. Entering and leaving are one C call each, so an interrupt
    comes before or after the change, and the ``with`` statement handles both cases.
    """

    def __init__(self, field: int, value: _T) -> None: ...
    def __enter__(self) -> _T: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]: ...

class Setting(Mode[_T]):
    """A Mode that begins at its creation, and ends when it is exited or decorates a function."""

class Closing(Setting[_T]):
    """A Setting that calls `end` at the end of its ``with`` block, while the mode is still set.

    `begin` is called when the mode begins, and `end` receives its result. If the block raises, or
    `value` is false, `end` is not called.
    """

    def __init__(
        self, field: int, value: _T, begin: Callable[[], object], end: Callable[[Any], object]
    ) -> None: ...

class Limit:
    """Limits a number to `most` within a ``with`` block. The C functions `read`, `write` access it.

    Like those of a Mode, entering and leaving are not interrupted.
    """

    def __init__(
        self, most: int, read: Callable[[], int], write: Callable[[int], object]
    ) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

class TraceMode:
    """The active trace of this thread within a ``with`` block.

    Signal handlers run as if no trace were active, so their computations are not traced. The cyclic
    garbage collector is disabled meanwhile, so that finalizers do not run during the trace.

    Attributes
    ----------
    around : TraceMode or None
        The enclosing trace, which is active before and after this one.
    draws : object or None
        Detector of random-number use while a function is traced. Its ``idle`` and ``leave_out``
        exclude draws of signal handlers.

    Raises
    ------
    JitError
        Another trace is active on this thread.
    """

    around: Trace | None
    draws: object
    _states: dict[int, tuple[TensorBase, UOp]]
    def _begin(self) -> None:
        """Prepare the trace, which is not active yet."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

MISSING: Final[object]
"""Stands for the value of an attribute that the ``__dict__`` of an object does not have."""

class Observed:
    """Base class of Module that records attribute reads while this thread observes.

    The first read of each attribute records (owner, name, value in its ``__dict__``) under the key
    (identity of the owner, name).
    """

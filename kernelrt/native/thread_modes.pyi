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
    """The modes of the current thread."""

    @property
    def grad(self) -> bool:
        """Whether operations are recorded for gradients."""
    trace: Trace | None
    """The active trace, or None."""
    scope: object
    """The innermost module that is being called; its str() is its path."""
    @property
    def observed(self) -> Any:
        """The record of attributes that are read, or None."""
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
        """Number of times this thread began to change memory that lazy tensors may read."""

local: Final[Local]

def begin_stepwise(value: bool, /) -> None:
    """Set whether threads run jitted functions step by step by default."""

def began_write() -> None:
    """Count that a thread begins to change memory that lazy tensors may read."""

def computed() -> None:
    """Count that lazy tensors get values."""

def _name_lock(lock: Lock) -> None: ...

def count_read() -> None:
    """Count a read of tensor values on this thread."""

def aliases_of(function: object) -> dict[str, str] | None:
    """Return a dict from NumPy's names of parameters to the own names; None if there are none."""

def several_of(function: object) -> tuple[str, ...] | None:
    """Return the keyword names that a starred parameter also accepts; None if there are none."""

def placed(
    name: str, several: tuple[str, ...], before: int, given: tuple[Any, ...],
    options: dict[str, Any],
) -> tuple[Any, ...]:
    """Return positional arguments, with the argument named in `several` moved from `options`.

    At most `before` arguments may come before it. Raise DTypeError if it is given twice.
    """

class Operation(Generic[_P, _R]):
    """A function or method of tensors that is atomic with regard to handlers and finalizers.

    It reads the nodes of its operands and builds a new node. If lazy tensors were computed and
    memory was written meanwhile, by interrupting code or because an operand had to be committed, it
    is repeated with the current nodes of the operands; so it must not have side effects. Raise
    PlanBusyError if it is repeated too often.
    """

    def __init__(self, function: Callable[_P, _R]) -> None: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...

def undisturbed(
    function: Callable[[], _R], named: Callable[..., object], any_write: bool = True
) -> _R:
    """Return the result of `function`; repeat the call if this thread wrote memory meanwhile.

    Without `any_write`, repeat only if lazy tensors were also computed because of the write.

    Raise PlanBusyError, with the name of `named`, if the call is repeated too often.
    """

class Mode(Generic[_T]):
    """Sets `field` to `value` within a ``with`` block, or while a decorated function runs.

    The ``with`` statement binds `value`. Entering and leaving are one C call each, so an interrupt
    comes before or after, where the statement handles it.
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
    """A Mode that begins on creation, and stays unless it is left or decorates a function."""

class Closing(Setting[_T]):
    """A Setting that calls a function at the end of its ``with`` block, still in the mode.

    `begin` is called when the mode begins, and its result is passed to `end`. After an error in the
    block, or if `value` is false, `end` is not called.
    """

    def __init__(
        self, field: int, value: _T, begin: Callable[[], object], end: Callable[[Any], object]
    ) -> None: ...

class Limit:
    """Limits a number to `most` within a ``with`` block; C functions read and set it.

    As with a Mode, entering and leaving are not interrupted.
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
    """Base class of traces: a ``with`` block makes one the active trace of this thread.

    Signal handlers run as if there were no trace, so their computations are not part of it. The
    cyclic garbage collector is off meanwhile, so that finalizers do not run within it.

    Attributes
    ----------
    around : TraceMode or None
        Enclosing trace, which is active before and after.
    draws : object or None
        Observer of random generators while a function is traced. Draws of signal handlers are
        excluded with its ``idle`` and ``leave_out``.

    Raises
    ------
    JitError
        Another trace is active on this thread.
    """

    around: Trace | None
    draws: object
    _states: dict[int, tuple[TensorBase, UOp]]
    def _begin(self) -> None:
        """Prepare the trace before it is active."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

MISSING: Final[object]
"""Value of an attribute that is missing from the ``__dict__`` of an object."""

class Observed:
    """Base class of Module that records attribute reads while this thread observes them.

    The first read of each attribute records (owner, name, value in its ``__dict__``), keyed by the
    id of the owner and the name.
    """

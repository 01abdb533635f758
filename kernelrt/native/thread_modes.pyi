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
    """What this thread is doing; each thread sees its own."""

    @property
    def grad(self) -> bool:
        """Whether operations are recorded for gradients."""
    trace: Trace | None
    """The trace that is active."""
    scope: object
    """The innermost module that is being called; its text is its path."""
    @property
    def observed(self) -> Any:
        """Where attributes that are read are noted, or None."""
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
        """How often this thread began to change memory that lazy tensors may read."""

local: Final[Local]

def begin_stepwise(value: bool, /) -> None:
    """Set whether threads run jitted functions step by step until they say otherwise."""

def began_write() -> None:
    """Count that a thread begins to change memory that lazy tensors may read."""

def computed() -> None:
    """Count that lazy tensors are given values."""

def _name_lock(lock: Lock) -> None: ...

def count_read() -> None:
    """Count a read of tensor values on this thread."""

def aliases_of(function: object) -> dict[str, str] | None:
    """NumPy's names of a function's parameters, with those they have; None without some."""

def several_of(function: object) -> tuple[str, ...] | None:
    """The names by which what a starred parameter takes may be given as one; None without one."""

def placed(
    name: str, several: tuple[str, ...], before: int, given: tuple[Any, ...],
    options: dict[str, Any],
) -> tuple[Any, ...]:
    """The arguments by their places, with those of the names `several` taken from `options`.

    `before` of them may come before. DTypeError where what is several is given twice.
    """

class Operation(Generic[_P, _R]):
    """A function or method of tensors that is not cut in two by a handler or a finalizer.

    It takes the nodes of its operands and makes one of them. Where lazy tensors were computed and
    memory was written meanwhile, by code that came in between or because an operand had to be
    committed, all of it is done again with the nodes that the operands have now; so it must not do
    anything else. PlanBusyError where that does not come to an end.
    """

    def __init__(self, function: Callable[_P, _R]) -> None: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...

def undisturbed(
    function: Callable[[], _R], named: Callable[..., object], any_write: bool = True
) -> _R:
    """What `function` gives when this thread has written no memory meanwhile; else done again.

    Without `any_write` only if lazy tensors were computed because of the write, too.

    PlanBusyError, which says the name of `named`, where that does not come to an end.
    """

class Mode(Generic[_T]):
    """Sets `field` to `value` within a ``with`` block, or while a function that it decorates runs.

    What the ``with`` statement binds is `value`. Entering and leaving are one C call each: an
    interrupt comes before or after, where the statement knows of it.
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
    """A Mode that begins when it is made, and stays unless it is left or decorates a function."""

class Closing(Setting[_T]):
    """A Setting with work at the end of its ``with`` block, done in the mode.

    `begin` is called where the mode begins, and `end` gets what it gave. An error in the block, or
    a false `value`, leaves `end` out.
    """

    def __init__(
        self, field: int, value: _T, begin: Callable[[], object], end: Callable[[Any], object]
    ) -> None: ...

class Limit:
    """Lets a number be at most `most` within a ``with`` block; functions of C read and set it.

    As those of a Mode, its two steps are not interrupted.
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
    """What is the trace of this thread within a ``with`` block.

    Handlers of signals run as if it were not: what they compute is no part of it. The collector of
    cycles rests meanwhile, so that finalizers do not run at any odd place of it.

    Attributes
    ----------
    around : TraceMode or None
        The trace that this one is a part of: it is active before and after.
    draws : object or None
        What looks at generators of random numbers while a function is traced: handlers' draws are
        left out with its ``idle`` and ``leave_out``.

    Raises
    ------
    JitError
        Another trace is active on this thread.
    """

    around: Trace | None
    draws: object
    _states: dict[int, tuple[TensorBase, UOp]]
    def _begin(self) -> None:
        """Make ready; the trace is not active yet."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

MISSING: Final[object]
"""What an attribute is that the ``__dict__`` of an object does not have."""

class Observed:
    """What Module extends: while this thread observes, attributes that are read are noted.

    What is noted is (owner, name, value in its ``__dict__``) at the first time, by the identity of
    the owner and the name.
    """

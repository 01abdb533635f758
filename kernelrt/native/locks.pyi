"""Types of the locks of the package, and of what happens to them when the process forks."""

from _thread import LockType
from collections.abc import Callable
from typing import Any, Final, TypeVar

CALL: Final[int]
STATE: Final[int]
DEVICES: Final[int]
KERNELS: Final[int]
COMPILER: Final[int]
LOADER: Final[int]
IMPORTS: Final[int]
GATE: Final[int]
LLVM: Final[int]
"""Ranks: the order in which nested code takes locks."""

_T = TypeVar("_T")

class Lock:
    """A reentrant lock that is free in a forked child unless its only thread holds it.

    An interrupt loses no lock, and a finalizer or a signal handler may take one that its thread
    holds: what it guards must be in order wherever Python code can run.

    Where such code wants one of a lower rank than its thread holds, and waiting for it would not
    end, it gets a PlanBusyError.

    Parameters
    ----------
    rank : int
        Its place in the order in which locks are taken.
    home : object, optional
        Where another library keeps the RLock that is meant, as its `_lock`.
    """

    def __init__(self, rank: int, home: object = None) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    def is_mine(self) -> bool:
        """Whether this thread holds it."""
    @property
    def rank(self) -> int: ...

class Gate:
    """Lets many threads in at once, and a fork wait until they are out.

    For calls of libraries with locks of their own: one that is held at the fork stays held.
    """

    def __init__(self, rank: int) -> None: ...
    def run(self, function: Callable[..., _T], *args: Any) -> _T:
        """Call `function` inside."""

class Pause:
    """While some thread is inside, the collector of cycles does not run.

    It calls finalizers on any thread, and these may compute. On a thread that another one waits
    for they would want what that one holds; amid an import they would meet half of a module.

    Parameters
    ----------
    rank : int
        When it is looked after in a forked child.
    """

    def __init__(self, rank: int) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...

def at_fork(
    rank: int,
    before: Callable[[], object] | None = None,
    in_parent: Callable[[], object] | None = None,
    in_child: Callable[[], object] | None = None,
) -> None:
    """Call something around each fork.

    Parameters
    ----------
    rank : int
        `before` is called in the order of ranks, the others in reverse.
    before, in_parent : callable, optional
        In the process that forks.
    in_child : callable, optional
        In the child, even where `before` was not reached; `in_parent`, if that was, where this is
        not given. A bound method does not keep its object alive.
    """

def is_free_within(lock: LockType, seconds: float) -> bool:
    """Wait so long until `lock` is free, and whether it is; no interrupt leaves it taken."""

def existing() -> list[Lock]:
    """All Locks that there are."""

def waits_for_me(thread: int) -> bool:
    """Whether `thread` waits, perhaps by way of others, for a Lock that this thread holds."""

uncollected: Final[Pause]
"""Entered by code whose thread must run no finalizers."""
imports: Final[Lock]
"""Held by code that imports modules when they are first needed.

A module that another thread is importing when the process forks can never be imported in the child.
"""

"""Types of the package's locks, and of the fork handlers."""

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
"""Ranks: nested code takes locks in ascending order of rank."""

_T = TypeVar("_T")

class Lock:
    """A reentrant lock that a fork leaves free in the child, unless the forking thread holds it.

    An interrupt never leaves a lock taken. A finalizer or a signal handler may take a lock that its
    thread holds, so the guarded data must be consistent wherever Python code can run.

    If such code takes a lock of a lower rank than a lock that its thread holds, and waiting would
    never end, then taking the lock raises PlanBusyError.

    Parameters
    ----------
    rank : int
        Position in the order in which locks are taken.
    home : object, optional
        Object of another library whose RLock, its attribute `_lock`, this Lock takes.
    """

    def __init__(self, rank: int, home: object = None) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    def is_mine(self) -> bool:
        """Return whether this thread holds the lock."""
    @property
    def rank(self) -> int: ...

class Gate:
    """Admits many threads at once, and makes a fork wait until they have left.

    For calls of libraries with their own locks: such a lock, if held at the fork, stays held in the
    child.
    """

    def __init__(self, rank: int) -> None: ...
    def run(self, function: Callable[..., _T], *args: Any) -> _T:
        """Call `function` inside the gate."""

class GcPause:
    """Disables the cyclic garbage collector while a thread is inside.

    The collector calls finalizers on any thread, and finalizers may compute. On a thread that
    another thread waits for, they would need locks of that thread; during an import, they would see
    a partially initialized module.

    Parameters
    ----------
    rank : int
        Rank of its fork handler.
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
    """Register functions to call around each fork.

    Parameters
    ----------
    rank : int
        `before` is called in ascending order of ranks, the others in descending order.
    before, in_parent : callable, optional
        Called in the process that forks.
    in_child : callable, optional
        Called in the child, even if `before` was not reached. Without it, the child calls
        `in_parent` if `before` was reached. A bound method does not keep its object alive.
    """

def is_free_within(lock: LockType, seconds: float) -> bool:
    """Wait up to `seconds` until `lock` is free; return whether it is. The lock is not taken."""

def existing() -> list[Lock]:
    """Return all existing Locks."""

def waits_for_me(thread: int) -> bool:
    """Return whether `thread` waits, directly or indirectly, for a Lock of this thread."""

uncollected: Final[GcPause]
"""Entered by code during which no finalizers may run."""
imports: Final[Lock]
"""Held by code that imports modules on first use.

If another thread is importing a module when the process forks, the child can never import it.
"""

"""Types of the package's locks, and of their handling when the process forks."""

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
"""Ranks: nested code takes locks in this order."""

_T = TypeVar("_T")

class Lock:
    """A reentrant lock that is free in a forked child unless the child's only thread holds it.

    Interrupts never leak a lock. A finalizer or a signal handler may take a lock that its thread
    already holds, so guarded state must be consistent wherever Python code can run.

    If such code requests a lock of a lower rank than its thread holds, and waiting would be a
    deadlock, it gets a PlanBusyError.

    Parameters
    ----------
    rank : int
        Position in the order in which locks are taken.
    home : object, optional
        Object of another library whose attribute `_lock` is the RLock to use.
    """

    def __init__(self, rank: int, home: object = None) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    def is_mine(self) -> bool:
        """Return whether this thread holds the lock."""
    @property
    def rank(self) -> int: ...

class Gate:
    """A gate that many threads may be inside at once; a fork waits until all have left.

    For calls of libraries with their own locks: a lock held at a fork stays held in the child.
    """

    def __init__(self, rank: int) -> None: ...
    def run(self, function: Callable[..., _T], *args: Any) -> _T:
        """Call `function` inside the gate."""

class Pause:
    """A context in which the cyclic garbage collector does not run, as long as a thread is inside.

    The collector calls finalizers on any thread, and these may compute. On a thread that another
    thread waits for, they would deadlock; during an import, they would see an incomplete module.

    Parameters
    ----------
    rank : int
        Position in the order of the work in a forked child.
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
        `before` functions are called in the order of ranks, the others in reverse order.
    before, in_parent : callable, optional
        Called in the process that forks.
    in_child : callable, optional
        Called in the child, even if `before` was not reached. If omitted, `in_parent` is called
        instead, provided that `before` was reached. A bound method does not keep its object alive.
    """

def is_free_within(lock: LockType, seconds: float) -> bool:
    """Wait up to `seconds` until `lock` is free; return whether it is. No interrupt leaks it."""

def existing() -> list[Lock]:
    """Return all existing Locks."""

def waits_for_me(thread: int) -> bool:
    """Return whether `thread` waits, perhaps indirectly, for a Lock that this thread holds."""

uncollected: Final[Pause]
"""Entered by code whose thread must not run finalizers."""
imports: Final[Lock]
"""Held by code that imports modules on first use.

If another thread is importing a module when the process forks, the child can never import it.
"""

"""Types of what is linked to the C core (csrc/krt.h)."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

Bindings: TypeAlias = tuple[
    Sequence[tuple[int, int, int]],
    Sequence[tuple[int, int, int]],
    Sequence[tuple[int, int]],
    Sequence[tuple[object, str, object]],
]
"""New addresses ``(op, slot, address)``, values ``(op, slot, value)`` and chunks ``(op, n)``; and
attributes ``(owner, name, value)`` to be set once the table has all of these."""

Exchanges: TypeAlias = tuple[
    Sequence[tuple[Table, Sequence[tuple[int, int, Sequence[int], int, int, int, int]]]],
    Sequence[tuple[object, str, object]],
]
"""For the plan, and for bodies of its regions, kernels ``(op, fn, vals, chunks, core_slot, cost_ns,
slices)`` as in OpTuple; and attributes as in Bindings. Slices may be left out. What was made as a
chain is one from then on if all its slices are equal."""

class Table:
    """The prepared operations of a plan as flat C arrays, and whose turn it is to use them.

    Made and run by `kernelrt._dispatch.PlanCore`.
    """

    def pointer(self, op: int, slot: int) -> int: ...
    def set_pointer(self, op: int, slot: int, address: int) -> None:
        """Bind another address; like every setter it waits for a running execute to end."""
    def value(self, op: int, slot: int) -> int: ...
    def set_value(self, op: int, slot: int, v: int) -> None:
        """Set one value in the rows of all chunks. The core_id slot cannot be set."""
    def chunks(self, op: int) -> int: ...
    def slices(self, op: int) -> int:
        """Give the slices of the chain that `op` is in, 0 where it is in none."""
    def set_chunks(self, op: int, n: int) -> None:
        """Split `op` into `n` chunks, 0 to skip it; more than ever before allocates."""
    def set_with(self, bind: Callable[[], Bindings]) -> None:
        """Call `bind` in a turn of the plan and set what it returns, all or nothing.

        `bind` may look at whatever executions change; using the plan itself raises
        PlanBusyError. What it raises is passed on.
        """
    def exchange_with(self, bind: Callable[[], Exchanges]) -> None:
        """Call `bind` in a turn of the plan and let what it returns take the place of kernels.

        All or nothing, as by `set_with`, in the plan and in bodies. Whoever calls it sees to it
        that the new code does what the old did to the same buffers, and keeps it alive.
        """
    def unless_busy(self, work: Callable[[], object]) -> bool:
        """Call `work` in a turn of the plan, and return True, unless somebody has the turn."""
    @property
    def is_body(self) -> bool:
        """Whether a region has it as a body, so that its plan alone runs and changes it."""
    def set_threads(self, n: int) -> None:
        """Run on at most `n` threads, beside the limit of the process.

        Raises
        ------
        ShapeError
            `n` is below 1.
        """
    def calls_foreign_code(self) -> None:
        """Note that it calls C functions that somebody gave: they are called without the GIL."""
    def need_stack(self, nbytes: int) -> None:
        """Note that a kernel has arrays of `nbytes` on the stack; the most that was noted counts.

        A thread that has less left has kernels called on another one, one after the other.
        """
    @property
    def max_threads(self) -> int | None:
        """What `set_threads` said; None where nothing did."""
    @property
    def released(self) -> bool: ...
    @property
    def n_ops(self) -> int: ...
    @property
    def cost_ns(self) -> int:
        """The summed estimate of all ops that are not skipped."""
    def release(self) -> None:
        """Free the tables, those of bodies too. Waits for a running execute.

        Raises
        ------
        PlanBusyError
            The code that calls it has a turn of the plan or of a body, as an own op has. Nothing
            was freed.
        """

def clock_ns() -> int:
    """Monotonic time in nanoseconds, the clock of the profile."""

def affinity_count() -> int:
    """How many CPUs this process may be scheduled on (at least 1)."""

def cgroup_quota() -> float | None:
    """The CPU limit of this process's control group in CPUs, None where there is none."""

def pool_limit() -> int:
    """The most threads a plan may use here: min(affinity, cgroup quota, KERNELRT_THREADS)."""

def get_num_threads() -> int:
    """How many threads, the calling one included, a plan may use."""

def set_thread_costs(hand_over_ns: int, chunk_ns: int, part_ns: int, wake_ns: int) -> None:
    """Tell what passing work to a thread costs, what is worth that, and what waking one costs.

    Plans that are made later estimate with these nanoseconds.
    """

def thread_count(n: object) -> int:
    """`n` as a number of threads, of at most a million.

    Raises
    ------
    DTypeError
        It is no int.
    ShapeError
        It is below 1.
    """

def set_num_threads(n: int) -> None:
    """Set the number of threads for the process, at most `pool_limit()`.

    Raises
    ------
    DTypeError
        `n` is no int.
    ShapeError
        It is below 1.
    """

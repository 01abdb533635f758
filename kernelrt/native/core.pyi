"""Types of the module that links the C core (csrc/krt.h)."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

Bindings: TypeAlias = tuple[
    Sequence[tuple[int, int, int]],
    Sequence[tuple[int, int, int]],
    Sequence[tuple[int, int]],
    Sequence[tuple[object, str, object]],
]
"""New addresses ``(op, slot, address)``, values ``(op, slot, value)`` and chunk counts ``(op, n)``;
and attributes ``(owner, name, value)`` to set after the table has all of these."""

Exchanges: TypeAlias = tuple[
    Sequence[tuple[Table, Sequence[tuple[int, int, Sequence[int], int, int, int, int]]]],
    Sequence[tuple[object, str, object]],
]
"""Kernels ``(op, fn, vals, chunks, core_slot, cost_ns, slices)``, as in OpTuple, for the plan and
for bodies of its regions; and attributes as in Bindings. Slices may be omitted. A chain (kernel
pipelining) that was built as such stays one if all its slices are equal."""

class Table:
    """The prepared operations of a plan as flat C arrays, with a lock for exclusive access.

    Created and run by `kernelrt._dispatch.PlanCore`.
    """

    def pointer(self, op: int, slot: int) -> int: ...
    def set_pointer(self, op: int, slot: int, address: int) -> None:
        """Bind another address; like every setter, wait for a running execute to end."""
    def value(self, op: int, slot: int) -> int: ...
    def set_value(self, op: int, slot: int, v: int) -> None:
        """Set one value in the rows of all chunks. The core_id slot cannot be set."""
    def chunks(self, op: int) -> int: ...
    def slices(self, op: int) -> int:
        """Return the number of slices of the chain of `op`, or 0 if it is in none."""
    def set_chunks(self, op: int, n: int) -> None:
        """Split `op` into `n` chunks, 0 to skip it; a new maximum allocates memory."""
    def set_with(self, bind: Callable[[], Bindings]) -> None:
        """Call `bind` with exclusive access to the plan and apply its result, all or nothing.

        `bind` may read state that executions change; using the plan itself raises PlanBusyError.
        Exceptions of `bind` propagate.
        """
    def exchange_with(self, bind: Callable[[], Exchanges]) -> None:
        """Call `bind` with exclusive access to the plan and replace kernels by its result.

        All or nothing, as with `set_with`, in the plan and in bodies. The caller ensures that the
        new code does the same to the same buffers as the old code, and keeps it alive.
        """
    def unless_busy(self, work: Callable[[], object]) -> bool:
        """Call `work` with exclusive access and return True; return False if the plan is in use."""
    @property
    def is_body(self) -> bool:
        """Whether this is the body of a region, so that only the region's plan runs it."""
    def set_threads(self, n: int) -> None:
        """Run on at most `n` threads, in addition to the limit of the process.

        Raises
        ------
        ShapeError
            `n` is below 1.
        """
    def calls_foreign_code(self) -> None:
        """Note that it calls C functions of users; these are called without the GIL."""
    def need_stack(self, nbytes: int) -> None:
        """Note that a kernel has arrays of `nbytes` on the stack; the maximum counts.

        If a thread has less stack left, the kernels are called on another thread, sequentially.
        """
    @property
    def max_threads(self) -> int | None:
        """The limit set by `set_threads`, or None."""
    @property
    def released(self) -> bool: ...
    @property
    def n_ops(self) -> int: ...
    @property
    def cost_ns(self) -> int:
        """Estimated time of all ops that are not skipped, in nanoseconds."""
    def release(self) -> None:
        """Free the tables, including those of bodies. Wait for a running execute.

        Raises
        ------
        PlanBusyError
            The caller runs within the plan or a body of it, as a custom op does. Nothing was freed.
        """

def clock_ns() -> int:
    """Return monotonic time in nanoseconds, from the clock of profiles."""

def affinity_count() -> int:
    """Return the number of CPUs this process may be scheduled on (at least 1)."""

def cgroup_quota() -> float | None:
    """Return the CPU limit of this process's control group in CPUs, or None if there is none."""

def pool_limit() -> int:
    """Return the maximum number of threads: min(affinity, cgroup quota, KERNELRT_THREADS)."""

def get_num_threads() -> int:
    """Return the number of threads that a plan may use, including the calling thread."""

def set_thread_costs(hand_over_ns: int, chunk_ns: int, part_ns: int, wake_ns: int) -> None:
    """Set the costs of threads in nanoseconds, used by the estimates of plans made later.

    `hand_over_ns` is the time to pass a chunk or an op to a thread, `chunk_ns` the least work that
    is worth that, `part_ns` the least work that is worth another thread, and `wake_ns` the time
    until a sleeping thread works.
    """

def thread_count(n: object) -> int:
    """Return `n` as a number of threads, at most a million.

    Raises
    ------
    DTypeError
        `n` is not an int.
    ShapeError
        `n` is below 1.
    """

def set_num_threads(n: int) -> None:
    """Set the number of threads for the process, at most `pool_limit()`.

    Raises
    ------
    DTypeError
        `n` is not an int.
    ShapeError
        `n` is below 1.
    """

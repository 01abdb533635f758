"""Types of the extension that is linked to the C core (csrc/krt.h)."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

_T = TypeVar("_T")

Bindings: TypeAlias = tuple[
    Sequence[tuple[int, int, int]],
    Sequence[tuple[int, int, int]],
    Sequence[tuple[int, int]],
    Sequence[tuple[object, str, object]],
]
"""New addresses ``(op, slot, address)``, values ``(op, slot, value)`` and chunk counts ``(op, n)``;
and attributes ``(owner, name, value)`` that are set after all of these are in the table."""

Exchanges: TypeAlias = tuple[
    Sequence[tuple[Table, Sequence[tuple[int, int, Sequence[int], int, int, int, int]]]],
    Sequence[tuple[object, str, object]],
]
"""New kernels ``(op, fn, vals, chunks, core_slot, cost_ns, slices)``, as in OpTuple, for the plan
and for bodies of its regions; and attributes as in Bindings. Slices may be left out. Ops that were
created as a pipeline are a pipeline afterwards if their numbers of slices are equal."""

class Table:
    """The prepared operations of a plan as flat C arrays, and the lock for access to them.

    `kernelrt._dispatch.PlanCore` creates and runs it.
    """

    def pointer(self, op: int, slot: int) -> int:
        """Return the address that a slot of an op is bound to.

        Parameters
        ----------
        op : int
            Index of the op in the plan.
        slot : int
            Index of the address among those of the op.

        Raises
        ------
        PlanBuildError
            There is no such op or slot.
        PlanReleasedError
            The plan was released.
        """
    def set_pointer(self, op: int, slot: int, address: int) -> None:
        """Bind another address. Like every setter, wait until a running execution has ended.

        Parameters
        ----------
        op : int
            Index of the op in the plan.
        slot : int
            Index of the address among those of the op.
        address : int
            Address of memory that stays allocated until another one is bound.
        """
    def value(self, op: int, slot: int) -> int:
        """Return a value that is passed to an op, such as that of a Variable.

        Parameters
        ----------
        op : int
            Index of the op in the plan.
        slot : int
            Index of the value among those of the op.

        Raises
        ------
        PlanBuildError
            There is no such op or slot.
        PlanReleasedError
            The plan was released.
        """
    def set_value(self, op: int, slot: int, v: int) -> None:
        """Set a value in the rows of all chunks. The core_id slot cannot be set.

        Parameters
        ----------
        op : int
            Index of the op in the plan.
        slot : int
            Index of the value among those of the op.
        v : int
            Value, in the range of int64.
        """
    def chunks(self, op: int) -> int:
        """Return the number of chunks that an op is split into; 0 if it is skipped.

        Parameters
        ----------
        op : int
            Index of the op in the plan.

        Raises
        ------
        PlanBuildError
            There is no such op.
        PlanReleasedError
            The plan was released.
        """
    def slices(self, op: int) -> int:
        """Return the number of slices of the pipeline that `op` is in; 0 if it is in none.

        Parameters
        ----------
        op : int
            Index of the op in the plan.
        """
    def set_chunks(self, op: int, n: int) -> None:
        """Split `op` into `n` chunks; 0 skips the op.

        This allocates memory if `n` exceeds all earlier numbers of chunks.

        Parameters
        ----------
        op : int
            Index of the op in the plan.
        n : int
            Number of chunks, at least 0.
        """
    def set_with(self, bind: Callable[[], Bindings]) -> None:
        """Call `bind` with exclusive access to the plan and make all changes it returns, or none.

        `bind` may read anything that executions change. If it uses the plan itself, that raises
        PlanBusyError. Exceptions that `bind` raises are passed on.

        Parameters
        ----------
        bind : callable
            Function without arguments that returns the changes: a tuple of new addresses
            ``(op, slot, address)``, new values ``(op, slot, value)``, new numbers of chunks
            ``(op, n)``, and attributes ``(owner, name, value)`` to set after all of these.
        """
    def exchange_with(self, bind: Callable[[], Exchanges]) -> None:
        """Call `bind` with exclusive access to the plan and replace kernels by those it returns.

        Like `set_with`, make all replacements or none, in the plan and in bodies of its regions.
        The caller ensures that the new code is equivalent to the old code on the same buffers, and
        keeps it alive.

        Parameters
        ----------
        bind : callable
            Function without arguments that returns a tuple: the replacements, each a plan with its
            new kernels ``(op, fn, vals, chunks, core_slot, cost_ns, slices)``, and attributes
            ``(owner, name, value)`` to set after them.
        """
    def unless_busy(self, work: Callable[[], object]) -> bool:
        """Call `work` with exclusive access and return True; return False if the plan is in use.

        Parameters
        ----------
        work : callable
            Function without arguments. Its result is ignored, and its exceptions are passed on.
        """
    @property
    def is_body(self) -> bool:
        """Whether the plan is a body of a region, so that only the region's plan can use it."""
    def set_threads(self, n: int) -> None:
        """Limit the plan to `n` threads. The limit of the process applies, too.

        Parameters
        ----------
        n : int
            Greatest number of threads, at least 1. The calling thread is one of them.

        Raises
        ------
        ShapeError
            `n` is below 1.
        """
    def calls_foreign_code(self) -> None:
        """Note that the plan calls C functions of users, which run without the GIL."""
    def need_stack(self, nbytes: int) -> None:
        """Note that a kernel has arrays of `nbytes` on the stack; the maximum of all notes counts.

        If a thread has less stack left, another thread calls the kernels, one after the other.

        Parameters
        ----------
        nbytes : int
            Size of the arrays, in bytes.
        """
    @property
    def max_threads(self) -> int | None:
        """The limit that `set_threads` set; None if there is none."""
    @property
    def released(self) -> bool: ...
    @property
    def n_ops(self) -> int: ...
    @property
    def cost_ns(self) -> int:
        """The sum of the time estimates of all ops that are not skipped."""
    def release(self) -> None:
        """Free the tables of the plan and of bodies. Wait until a running execution has ended.

        Raises
        ------
        PlanBusyError
            This thread is already using the plan or a body, for example in a custom function of
            the plan. Nothing was freed.
        """

def clock_ns() -> int:
    """Return monotonic time in nanoseconds, from the clock that profiles use."""

def processor_identity() -> str:
    """Return all that LLVM reads to tell the name and the features of this processor.

    The string is empty where that is not known.
    """

def affinity_count() -> int:
    """Return the number of CPUs that this process may run on (at least 1)."""

def cgroup_quota() -> float | None:
    """Return the limit of this process's control group in CPUs; None if no limit is set."""

def pool_limit() -> int:
    """Return the maximum threads of a plan: min(affinity, cgroup quota, KERNELRT_THREADS)."""

def get_num_threads() -> int:
    """Return the number of threads, including the caller, that a plan may use.

    Examples
    --------
    >>> krt.get_num_threads() >= 1
    True
    """

def set_thread_costs(hand_over_ns: int, chunk_ns: int, part_ns: int, wake_ns: int) -> None:
    """Set the costs of threads for the estimates of plans that are created later.

    Parameters
    ----------
    hand_over_ns : int
        Time of passing a chunk or an op to another thread, in nanoseconds.
    chunk_ns : int
        Minimum work of a chunk that is worth a handover.
    part_ns : int
        Minimum work that is worth another thread.
    wake_ns : int
        Time from waking a sleeping thread until it works.
    """

def thread_count(n: object) -> int:
    """Return `n` as a number of threads, clamped to 2**20.

    Raises
    ------
    DTypeError
        `n` is not an int.
    ShapeError
        `n` is below 1.
    """

def set_num_threads(n: int) -> None:
    """Set the number of threads for the process, at most `pool_limit()`.

    Parameters
    ----------
    n : int
        Number of threads, at least 1. The calling thread is one of them.

    Raises
    ------
    DTypeError
        `n` is not an int.
    ShapeError
        `n` is below 1.

    Examples
    --------
    >>> before = krt.get_num_threads()
    >>> krt.set_num_threads(1)
    >>> krt.get_num_threads()
    1
    >>> krt.set_num_threads(before)
    """

def under_locks(tables: Iterable[Table], work: Callable[[], _T]) -> _T:
    """Return the result of `work`, called while this thread has exclusive access to some plans."""

class Model:
    """A model file in memory: functions that were compiled ahead of time, and their state.

    Functions and plans are known by number.

    Parameters
    ----------
    source : str or bytes
        Path of the file, or its content.
    routines : dict of str to int
        Addresses of C routines by name.
    allocate : callable
        Returns the address of memory of a number of bytes, which outlives this object.

    Raises
    ------
    ModelFileError
        The file cannot be opened.
    """

    def __init__(
        self, source: str | bytes, routines: dict[str, int], allocate: Callable[[int], int]
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def python(self) -> str:
        """The text for Python callers."""
    @property
    def n_plans(self) -> int:
        """Number of plans."""
    def name(self, function: int) -> str:
        """Return the name of a function."""
    def plans_of(self, function: int) -> tuple[int, int | None]:
        """Return the plan of a function, and the plan that prepares its run, if any."""
    def writes_state(self, plan: int) -> bool:
        """Return whether a plan writes state."""
    def bodies(self, plan: int) -> list[tuple[int, tuple[int, ...]]]:
        """Return the regions of a plan: the op, and the plans of its bodies."""
    def ports(
        self, function: int, side: int
    ) -> list[tuple[str, int, int, str | None, tuple[tuple[int, int, int], ...]]]:
        """Return name, dtype code, address, constant and sites of each input (0) or output (1)."""
    def shape(
        self, function: int, side: int, number: int, values: Sequence[int]
    ) -> tuple[int, ...]:
        """Return the shape of an input or output for values of the plan's variables."""
    def written(self, function: int) -> list[tuple[int, int]]:
        """Return the ranges of addresses that a function writes."""
    @property
    def n_states(self) -> int:
        """Number of states."""
    def states(self) -> list[tuple[str, int, tuple[int, ...], int]]:
        """Return name, dtype code, shape and address of each state."""
    def variables(self, plan: int) -> list[tuple[str, int, int, int]]:
        """Return name, bounds and initial value of each variable of a plan."""
    def launch(
        self, plan: int, values: Sequence[int]
    ) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
        """Return the values and chunks of a plan's table for values of its variables."""
    def explain(
        self, plan: int, op: int, word: int, values: Sequence[int]
    ) -> tuple[int, str, int, int]:
        """Describe a failure: its kind, message, index, and size of the axis."""
    def op_name(self, plan: int, op: int) -> str:
        """Return the name of an op for errors."""
    def region_name(self, plan: int, op: int) -> str:
        """Return the name of a loop for errors; empty if the op is none."""
    def save(self, path: str) -> None:
        """Write the file anew, with the present state."""

class ModelPlan:
    """A plan of a model, for the `ops` of a PlanCore, with the tables of its regions' bodies."""

    def __init__(
        self, model: Model, number: int, bodies: Sequence[tuple[int, Sequence[Table]]]
    ) -> None: ...

"""Types of the compiled boundary to the C core (csrc/krt.h)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from kernelrt._memory import Storage
from kernelrt.errors import CustomFunctionError, IndexBoundsError, LinAlgError

KERNEL: Final = 0
"""``fn`` is the address of ``void (*)(void *const *bufs, const int64_t *vals)``."""
COPY: Final = 1
"""``bufs`` is (destination, source), ``vals`` is (nbytes,); overlap is allowed."""
CUSTOM: Final = 2
"""``fn`` is a Python callable; it is called with no arguments and with the GIL."""
NOP: Final = 3
"""Nothing runs: a buffer view, kept so that op indices stay those of the caller."""

REGION: Final = 4
"""``fn`` is a RegionTuple: plans of their own that are run, again and again or one of them."""

HOST_PARALLEL_SAFE: Final = 1
"""Op flag: may run at the same time as ops that it is not ordered with."""
MAY_FAIL: Final = 2
"""Op flag: may store to the status word; the plan stops behind it if it did."""
COMMIT: Final = 4
"""Op flag: writes state that outlives the plan. From the first such op on the plan is not
interrupted by signals; it starts only when every earlier op that may fail has not."""

STATUS: Final = 0
"""Among the ``bufs`` of an op that MAY_FAIL: the address of its own status word, an int64 that is 0
when a run begins. What is stored there is handed to `_index_error`."""

RegionTuple: TypeAlias = tuple[
    Sequence[PlanCore],  # bodies, each that of one region
    int,  # count: the most turns
    bool,  # reverse: from count - 1 down to 0
    int,  # count_slot: of bufs, an int64; or -1
    int,  # condition_slot: of bufs, a byte; or -1
    int,  # choice_slot: of bufs, an int64; or -1
    Sequence[tuple[int, int, int]],  # copies: slots of destination and source, bytes
    Sequence[tuple[int, int, int, int, int, int]],
]
"""The last are bindings: address ``(body, op, slot there)`` is that of a slot of bufs, plus an
offset, plus the number of the turn times a stride; slot -1 is an int64 that has that number."""

OpTuple: TypeAlias = tuple[
    int,  # kind
    int | Callable[[], object] | RegionTuple | None,  # fn
    Sequence[int],  # bufs: addresses
    Sequence[int],  # vals: int64
    int,  # chunks: >= 1, or 0 to skip the op
    int,  # core_slot: the index in vals that receives 0 .. chunks - 1, or -1
    int,  # flags
    int,  # cost_ns: estimated time of the whole op
    Sequence[int],  # deps: indices of earlier ops
]

Bindings: TypeAlias = tuple[
    Sequence[tuple[int, int, int]],
    Sequence[tuple[int, int, int]],
    Sequence[tuple[int, int]],
    Sequence[tuple[object, str, object]],
]
"""New addresses ``(op, slot, address)``, values ``(op, slot, value)`` and chunks ``(op, n)``; and
attributes ``(owner, name, value)`` to be set once the table has all of these."""

Exchanges: TypeAlias = tuple[
    Sequence[tuple[int, int, Sequence[int], int, int, int]],
    Sequence[tuple[object, str, object]],
]
"""Kernels ``(op, fn, vals, chunks, core_slot, cost_ns)`` as in OpTuple, and attributes as in
Bindings."""

class PlanCore:
    """The prepared operations of a plan as flat C arrays, and the loop over them.

    `ops` is checked once, here: types, ranges, null addresses, dependencies on earlier ops only.
    The addresses are borrowed: whoever makes the plan keeps code and buffers alive until
    `release` or until the plan is gone.

    Raises
    ------
    PlanBuildError
        An op is malformed; the message names the op and the field.
    OutOfMemoryError
        The tables could not be allocated.
    """

    def __init__(self, ops: Sequence[OpTuple]) -> None: ...
    def execute(self) -> None:
        """Run every op in dependency order.

        Raises
        ------
        IndexBoundsError
            An op stored to the status word; `op` on the exception is its index.
        CustomFunctionError
            A custom function raised; the original exception is the cause.
        PlanBusyError
            Called from one of the plan's own custom functions.
        PlanReleasedError
            The plan was released.
        OutOfMemoryError
            This thread's stack is too small for the plan, and no other thread could be started;
            nothing was run.
        KeyboardInterrupt
            Or whatever a signal handler raised while a long plan ran. The plan stays usable.
        """
    def execute_with(self, bind: Callable[[], Bindings]) -> None:
        """Do what `set_with` and then `execute` do, in one turn."""
    def execute_profiled_raw(
        self, bind: Callable[[], Bindings] | None = None
    ) -> list[tuple[int, int, int, int, int]]:
        """Run as `execute_with` or `execute` does; (start_ns, elapsed_ns, worker, chunks, runs).

        One an op. `start_ns` counts from the start of the plan. `worker` is 0 for the calling
        thread. A skipped op has zeros, but keeps its place. Behind these come, region by region and
        body by body, those of the ops of bodies, each body's followed by those of its own regions:
        the first start, the time of all turns, and how many these were.
        """
    def pointer(self, op: int, slot: int) -> int: ...
    def set_pointer(self, op: int, slot: int, address: int) -> None:
        """Bind another address; like every setter it waits for a running execute to end."""
    def value(self, op: int, slot: int) -> int: ...
    def set_value(self, op: int, slot: int, v: int) -> None:
        """Set one value in the rows of all chunks. The core_id slot cannot be set."""
    def chunks(self, op: int) -> int: ...
    def set_chunks(self, op: int, n: int) -> None:
        """Split `op` into `n` chunks, 0 to skip it; more than ever before allocates."""
    def set_with(self, bind: Callable[[], Bindings]) -> None:
        """Call `bind` in a turn of the plan and set what it returns, all or nothing.

        `bind` may look at whatever executions change; using the plan itself raises
        PlanBusyError. What it raises is passed on.
        """
    def exchange_with(self, bind: Callable[[], Exchanges]) -> None:
        """Call `bind` in a turn of the plan and let what it returns take the place of kernels.

        All or nothing, as by `set_with`. Whoever calls it sees to it that the new code does what
        the old did to the same buffers, and keeps it alive.
        """
    def exchange_within(self, exchanges: Exchanges) -> None:
        """Do as `exchange_with` does to a body, in a turn of the plan that runs it."""
    @property
    def is_body(self) -> bool:
        """Whether a region has it as a body, so that its plan alone runs and changes it."""
    def _turn_name(self, op: int, turn: int) -> str | None:
        """What errors call a turn of the region `op`; None where that tells nothing."""
    def _op_name(self, op: int) -> str:
        """What errors call an op; a subclass may know better than its index."""
    def _index_error(
        self, op: int, status_word: int
    ) -> IndexBoundsError | LinAlgError | CustomFunctionError:
        """The error for what a kernel met, such as an index out of range, from what it stored."""
    def set_threads(self, n: int) -> None:
        """Run on at most `n` threads, beside the limit of the process.

        Raises
        ------
        ShapeError
            `n` is below 1.
        """
    def keep_to_own_memory(self) -> None:
        """Note that no run writes to memory that outlives the plan."""
    def prepare_by(self, preparation: PlanCore, sources: Iterable[Storage]) -> None:
        """Run `preparation` before a run whenever `sources` may have been written since.

        It is run with these, and shares no memory that this plan writes. Where one of `sources` is
        shared with others (`Storage.own`), it runs before every run.
        """
    _prepared_by: tuple[PlanCore | None, tuple[Storage, ...]]
    """The preparation and the storages that it reads. Set within a turn."""
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
        """Free the tables. Waits for a running execute; PlanBusyError from an own op."""

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

def set_thread_costs(hand_over_ns: int, chunk_ns: int, wake_ns: int) -> None:
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

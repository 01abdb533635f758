"""Types of the compiled boundary to the C core: the ops of plans, and their runs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from kernelrt.errors import CustomFunctionError, DomainError, IndexBoundsError, LinAlgError
from kernelrt.native.core import Bindings, Table
from kernelrt.native.memory import Storage

KERNEL: Final = 0
"""``fn`` is the address of ``void (*)(void *const *bufs, const int64_t *vals)``."""
COPY: Final = 1
"""``bufs`` is (destination, source), ``vals`` is (nbytes,); overlap is allowed."""
CUSTOM: Final = 2
"""``fn`` is a Python callable; it is called with no arguments and with the GIL."""
NOP: Final = 3
"""Nothing runs: a buffer view, kept so that op indices match those of the caller."""

REGION: Final = 4
"""``fn`` is a RegionTuple: separate plans, run repeatedly (a loop) or one of them (a branch)."""

HOST_PARALLEL_SAFE: Final = 1
"""Op flag: may run at the same time as ops that it is not ordered with."""
MAY_FAIL: Final = 2
"""Op flag: may store to the status word; if it did, the plan stops after the op."""
COMMIT: Final = 4
"""Op flag: writes state that outlives the plan. From the first such op on, signals do not interrupt
the plan; the op starts only after every earlier op that may fail has succeeded."""
FOLLOWS: Final = 8
"""Op flag: belongs to the same chain as the previous op; the chain runs slice by slice."""
UNKNOWN_COST: Final = 16
"""Op flag: ``cost_ns`` is a guess, so signals are always checked after the op."""

STATUS: Final = 0
"""Placeholder in the ``bufs`` of an op that MAY_FAIL: the address of the op's status word, an int64
that is 0 when a run begins. A value stored there is passed to `_index_error`."""

RegionTuple: TypeAlias = tuple[
    Sequence[PlanCore],  # bodies, each used by one region only
    int,  # count: maximum number of iterations
    bool,  # reverse: from count - 1 down to 0
    int,  # count_slot: index in bufs of an int64; or -1
    int,  # condition_slot: index in bufs of a byte; or -1
    int,  # choice_slot: index in bufs of an int64; or -1
    Sequence[tuple[int, int, int]],  # copies: slots of destination and source, bytes
    Sequence[tuple[int, int, int, int, int, int]],
]
"""The last item holds bindings: the address at ``(body, op, slot there)`` is the address in a slot
of bufs, plus an offset, plus the iteration number times a stride. Slot -1 is an int64 with the
iteration number."""

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
    int,  # slices: number of slices of the op's chain; 0: it is in no chain
]
"""All ops of a chain except the first have the flag FOLLOWS; see ``krt_op`` in csrc/krt.h. The
number of slices may be omitted."""

class PlanCore(Table):
    """A table of prepared operations that can be run.

    `ops` is checked once, here: types, ranges, null addresses, dependencies on earlier ops only.
    The addresses are borrowed: the creator of the plan keeps code and buffers alive until
    `release` or until the plan is deleted.

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
        IndexBoundsError, DomainError
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
            Or any exception of a signal handler while a long plan ran. The plan stays usable.
        """
    def execute_with(self, bind: Callable[[], Bindings]) -> None:
        """Call `set_with` and then `execute`, with exclusive access throughout."""
    def execute_profiled_raw(
        self, bind: Callable[[], Bindings] | None = None
    ) -> list[tuple[int, int, int, int, int]]:
        """Run as `execute_with` or `execute`; return (start_ns, elapsed_ns, worker, chunks, runs).

        There is one tuple per op. `start_ns` counts from the start of the plan. `worker` is 0 for
        the calling thread. A skipped op has zeros. After these come the tuples for ops of bodies,
        region by region and body by body, each body followed by its own regions: first start, total
        time and number of all iterations.
        """
    def _iteration_name(self, op: int, iteration: int) -> str | None:
        """Return the name of an iteration of the region `op` for errors, or None."""
    def _op_name(self, op: int) -> str:
        """Return the name of an op for errors; subclasses may return more than its index."""
    def _index_error(
        self, op: int, status_word: int
    ) -> IndexBoundsError | DomainError | LinAlgError | CustomFunctionError:
        """Return the error for the status word that a kernel stored."""
    def set_threads(self, n: int) -> None:
        """Limit the threads as `Table.set_threads` does, also for the preparation."""
    def keep_to_own_memory(self) -> None:
        """Note that no run writes to memory that outlives the plan."""
    def prepare_by(self, preparation: PlanCore, sources: Iterable[Storage]) -> None:
        """Run the hoisted `preparation` before a run if `sources` may have been written since.

        The preparation reads `sources` and shares no memory that this plan writes. If code outside
        can write one of `sources` unnoticed (see `Storage.own`), it runs before every run.
        """
    _prepared_by: tuple[PlanCore | None, tuple[Storage, ...]]
    """The preparation and the storages that it reads. Set only with exclusive access."""

"""Types of the compiled boundary to the C core: the ops of a plan, and its runs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from kernelrt.errors import CustomFunctionError, DomainError, IndexBoundsError, LinAlgError
from kernelrt.native.core import Bindings, ModelPlan, Table
from kernelrt.native.memory import Storage

KERNEL: Final = 0
"""``fn`` is the address of ``void (*)(void *const *bufs, const int64_t *vals)``."""
COPY: Final = 1
"""``bufs`` is (destination, source), ``vals`` is (nbytes,); overlap is allowed."""
CUSTOM: Final = 2
"""``fn`` is a Python callable, called without arguments and with the GIL."""
NOP: Final = 3
"""Nothing runs: a buffer view, kept so that op indices equal those of the caller."""

REGION: Final = 4
"""``fn`` is a RegionTuple: body plans that run as a loop or as a choice of one of them."""

HOST_PARALLEL_SAFE: Final = 1
"""Op flag: the op may run in parallel with ops that are not ordered with it."""
MAY_FAIL: Final = 2
"""Op flag: the op may store to its status word; if it did, the plan stops after it."""
COMMIT: Final = 4
"""Op flag: the op writes state that outlives the plan. The first such op starts only after all
earlier ops that may fail have succeeded; from then on signals do not interrupt the plan."""
FOLLOWS: Final = 8
"""Op flag: the op is in the pipeline of the op before it; a pipeline runs slice by slice."""
UNKNOWN_COST: Final = 16
"""Op flag: ``cost_ns`` is a guess, so the plan always checks for signals after the op."""

STATUS: Final = 0
"""Stands for the address of the op's status word in the ``bufs`` of a MAY_FAIL op: an int64 that is
0 when a run begins. `_index_error` receives the stored value."""

Sample: TypeAlias = tuple[
    int, int, int, int, int, tuple[tuple[int, int, int, int, int], ...]
]  # fmt: skip
"""The timing of an op, as `PlanCore.execute_profiled_raw` returns it."""

RegionTuple: TypeAlias = tuple[
    Sequence[PlanCore],  # bodies; each belongs to one region only
    int,  # count: maximum number of iterations
    bool,  # reverse: iterate from count - 1 down to 0
    int,  # count_slot: index in bufs of an int64, or -1
    int,  # condition_slot: index in bufs of a byte, or -1
    int,  # choice_slot: index in bufs of an int64, or -1
    Sequence[tuple[int, int, int]],  # copies: slots of destination and source, bytes
    Sequence[tuple[int, int, int, int, int, int]],
]
"""The last element holds bindings ``(body, op, slot of that op, slot of bufs, offset, stride)``.
They bind the slot of the body's op to the address of the slot of bufs + offset + iteration number *
stride. Slot -1 of bufs stands for an int64 that holds the iteration number."""

OpTuple: TypeAlias = tuple[
    int,  # kind
    int | Callable[[], object] | RegionTuple | None,  # fn
    Sequence[int],  # bufs: addresses
    Sequence[int],  # vals: int64
    int,  # chunks: >= 1, or 0 to skip the op
    int,  # core_slot: the index in vals that receives 0 .. chunks - 1, or -1
    int,  # flags
    int,  # cost_ns: estimated time of all chunks together
    Sequence[int],  # deps: indices of earlier ops
    int,  # slices: number of slices of the op's pipeline; 0: the op is in no pipeline
]
"""All ops of a pipeline but the first have the flag FOLLOWS; see ``krt_op`` in csrc/krt.h. The
number of slices may be left out."""

class PlanCore(Table):
    """A table of prepared operations that can be executed.

    The constructor checks `ops` once: types, ranges, null addresses, dependencies on earlier ops
    only. The addresses are borrowed: the creator of the plan keeps code and buffers alive until
    `release` is called or the plan is destroyed. A ModelPlan instead of ops is a plan that a model
    file holds.

    Raises
    ------
    PlanBuildError
        An op is malformed; the message names the op and the field.
    OutOfMemoryError
        The tables could not be allocated.
    """

    def __init__(self, ops: Sequence[OpTuple] | ModelPlan) -> None: ...
    def execute(self) -> None:
        """Run every op in dependency order.

        Raises
        ------
        IndexBoundsError, DomainError
            An op stored to the status word; `op` on the exception is its index.
        CustomFunctionError
            A custom function raised; the original exception is the cause.
        PlanBusyError
            This thread is already using the plan, for example in one of its custom functions.
        PlanReleasedError
            The plan was released.
        OutOfMemoryError
            This thread's stack is too small for the plan, and no other thread could be started.
            Nothing was run.
        KeyboardInterrupt
            Or another exception that a signal handler raised while a long plan ran. The plan stays
            usable.
        """
    def execute_with(self, bind: Callable[[], Bindings]) -> None:
        """Do the same as `set_with` followed by `execute`, under one exclusive access.

        Parameters
        ----------
        bind : callable
            Function without arguments that returns the changes, as for `set_with`.
        """
    def execute_profiled_raw(
        self, bind: Callable[[], Bindings] | None = None
    ) -> list[Sample]:
        """Run like `execute_with` or `execute` and return the timing of each op.

        Parameters
        ----------
        bind : callable, optional
            Function without arguments that returns changes to make first, as for `set_with`.

        Returns
        -------
        list of (start_ns, elapsed_ns, worker, chunks, runs, claims)
            One tuple per op. `start_ns` counts from the start of the plan. `worker` is 0 for the
            calling thread. The tuple of a skipped op holds zeros. `claims` has a tuple (begin, end,
            worker, start_ns, elapsed_ns) for each range of chunks that a thread ran at once; it is
            empty where the plan ran on the calling thread alone, and in bodies of regions. Then,
            region by region and body by body, the tuples of the ops of bodies, each body followed
            by those of its own regions: `start_ns` of the first iteration, the time and number of
            all iterations.
        """
    def _iteration_name(self, op: int, iteration: int) -> str | None:
        """Return the text by which errors name an iteration of region `op`; None for a choice."""
    def _op_name(self, op: int) -> str:
        """Return the text by which errors name an op. Subclasses may return more than its index."""
    def _index_error(
        self, op: int, status_word: int
    ) -> IndexBoundsError | DomainError | LinAlgError | CustomFunctionError:
        """Return the error for the value that an op stored to its status word."""
    def set_threads(self, n: int) -> None:
        """Limit the plan and its preparation to `n` threads, like `Table.set_threads`.

        Parameters
        ----------
        n : int
            Greatest number of threads, at least 1. The calling thread is one of them.
        """
    def keep_to_own_memory(self) -> None:
        """Note that no run writes memory that outlives the plan."""
    def prepare_by(self, preparation: PlanCore, sources: Iterable[Storage]) -> None:
        """Run `preparation` before a run if `sources` may have been written since its last run.

        `preparation` reads `sources` and shares no memory that this plan writes. If `Storage.own`
        is false for one of `sources`, writes may go unnoticed, so it runs before every run.
        """
    _prepared_by: tuple[PlanCore | None, tuple[Storage, ...]]
    """The preparation and the storages that it reads. Set with exclusive access to the plan."""

"""Types of the compiled boundary to the C core: what a plan is made of, and its runs."""

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
FOLLOWS: Final = 8
"""Op flag: is of one chain with the op before, which goes slice by slice."""
UNKNOWN_COST: Final = 16
"""Op flag: ``cost_ns`` is a guess, so signals are looked for after the op, whatever it says."""

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
    int,  # slices: of a chain of ops that goes slice by slice; 0: it is in none
]
"""Of a chain all ops but the first have FOLLOWS among the flags; see ``krt_op`` in csrc/krt.h. The
number of slices may be left out."""

class PlanCore(Table):
    """A table of prepared operations, and the runs of it.

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
    def _turn_name(self, op: int, turn: int) -> str | None:
        """What errors call a turn of the region `op`; None where that tells nothing."""
    def _op_name(self, op: int) -> str:
        """What errors call an op; a subclass may know better than its index."""
    def _index_error(
        self, op: int, status_word: int
    ) -> IndexBoundsError | DomainError | LinAlgError | CustomFunctionError:
        """The error for what a kernel met, such as an index out of range, from what it stored."""
    def set_threads(self, n: int) -> None:
        """Do as `Table.set_threads` does, and to the preparation, too."""
    def keep_to_own_memory(self) -> None:
        """Note that no run writes to memory that outlives the plan."""
    def prepare_by(self, preparation: PlanCore, sources: Iterable[Storage]) -> None:
        """Run `preparation` before a run whenever `sources` may have been written since.

        It is run with these, and shares no memory that this plan writes. Where one of `sources` is
        shared with others (`Storage.own`), it runs before every run.
        """
    _prepared_by: tuple[PlanCore | None, tuple[Storage, ...]]
    """The preparation and the storages that it reads. Set within a turn."""

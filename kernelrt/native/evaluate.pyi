"""Types of the evaluation of lazy tensors."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final, Generic, TypeVar

import numpy as np

from kernelrt.device.buffer import Buffer
from kernelrt.dtype import DType
from kernelrt.ir import Op, UOp
from kernelrt.native.eager_plan import Fresh, Prepared, Reset
from kernelrt.native.interpreter import Interpretation
from kernelrt.native.memory import BlockCache, Memory
from kernelrt.native.source_lines import Raw
from kernelrt.native.write_barrier import Written
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.eager.execute import Constant, Copy

_U = TypeVar("_U", bound=Used)

#: Number of graphs that differ only in numbers and still get separate plans.
ALIKE: Final[int]
#: Memory of at least this many bytes is accounted for.
LARGE_BYTES: Final[int]

class Used:
    """Base class of values in a :class:`Table`; records its last use."""

    def weigh(self, nodes: int) -> None:
        """Set the number of nodes of its graph, before it is put into a table."""

class Table(Generic[_U]):
    """An LRU cache of at most `most` values; a value of a large graph counts as several."""

    def __init__(self, most: int) -> None: ...
    def __len__(self) -> int: ...
    def get(self, key: Hashable) -> _U | None:
        """Return the value and mark it as used, or return None."""

    def put(self, key: Hashable, value: _U) -> None:
        """Store a value and mark it as used."""

    def pop(self, key: Hashable) -> None:
        """Remove a value, if there is one."""

    def items(self) -> list[tuple[Hashable, _U]]:
        """Return all keys with their values."""

    def clear(self) -> None:
        """Remove all values."""

class Uses:
    """Statistics on the uses of a cached plan of eager code.

    Attributes
    ----------
    nodes : int
        Number of nodes of the graph.
    left : int
        Number of uses until the user's line is looked up.
    times : int
        Number of consecutive lookups that gave `line`.
    """

    nodes: int
    left: int
    times: int
    line: tuple[str, int]

class Entry(Used):
    """A cache entry that computes graphs of one structure.

    Parameters
    ----------
    prepared : Prepared or Interpretation, optional
        The plan, or the interpretation; None if nothing is computed.
    sources : tuple
        Source of each result: an index of the plan's outputs, or a value that needs no plan.
    sizes : tuple of (int, DType)
        Number of elements and dtype of each result.
    nbytes : int
        Size of the plan's intermediates in bytes.
    given : dict, optional
        Size in bytes of each large storage that the plan was made with, by the storage's id.
    sized : object, optional
        The SizedPlan that the entry belongs to, if its plan serves many sizes.

    Attributes
    ----------
    notes : tuple of int
        Data of the creator.
    uses : Uses
        Statistics on its uses.
    origins : tuple
        Source lines for errors of indices out of range; empty if no index is checked.
    numbers : list of UOp
        BUFFER nodes of numbers, passed after the buffers of a run.
    """

    notes: tuple[int, ...]
    uses: Uses
    origins: tuple[Raw | None, ...]
    numbers: list[UOp]

    def __init__(
        self,
        prepared: Prepared | Interpretation | None,
        sources: tuple[int | Constant | Copy, ...],
        sizes: tuple[tuple[int, DType], ...],
        nbytes: int,
        given: dict[int, int] | None = None,
        sized: object = None,
    ) -> None: ...
    @property
    def prepared(self) -> Prepared | Interpretation | None: ...
    @property
    def sources(self) -> tuple[int | Constant | Copy, ...]: ...
    @property
    def sizes(self) -> tuple[tuple[int, DType], ...]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def given(self) -> Mapping[int, int]: ...
    @property
    def sized(self) -> object: ...
    def is_spent(self) -> bool:
        """Return whether its graphs were interpreted so often that compiling them pays off."""

    def with_numbers(self, numbers: list[UOp]) -> Entry:
        """Return an entry that differs in `numbers` only."""

    def results(self, buffers: list[UOp]) -> list[Memory]:
        """Return memory for each result; results that need no plan are already in it."""

    def run(
        self,
        buffers: list[UOp],
        results: list[Memory],
        fresh: list[Fresh],
        resets: list[Reset],
        born: tuple[list[int], int] | None = None,
    ) -> int:
        """Run the plan, if there is one, and hand everything over; see :meth:`Prepared.run`."""

class Family(Used):
    """Graphs that are equal except for their numbers (CONST nodes).

    Parameters
    ----------
    numbers : list of UOp
        The numbers of the first graph.
    """

    def __init__(self, numbers: list[UOp]) -> None: ...
    @property
    def positions(self) -> tuple[int, ...] | None:
        """Positions of the numbers that vary; None until there were enough graphs."""

    def meet(self, numbers: list[UOp], most: int) -> tuple[int, ...] | None:
        """Count a graph; return `positions`, which are known after more than `most` graphs."""

class Lookup:
    """The result of a lookup of graphs in a :class:`PlanTable`.

    Attributes
    ----------
    entry : Entry, optional
        Entry that computes the graphs; None if there is none yet.
    buffers : list of UOp
        BUFFER nodes to run it with: those that the graphs read, and those of numbers.
    """

    entry: Entry | None
    buffers: list[UOp]

    @property
    def read(self) -> list[UOp]:
        """BUFFER nodes that the graphs read."""

    @property
    def numbers(self) -> list[UOp]:
        """CONST nodes of the graphs."""

    @property
    def alike(self) -> tuple[Hashable, ...]:
        """Key of all graphs that are equal except for their numbers."""

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Key of a plan for these graphs only."""

    def key_but_for(self, positions: tuple[int, ...]) -> tuple[Hashable, ...]:
        """Return the key of a plan that reads the numbers at `positions` from memory."""

    def in_memory(self, positions: tuple[int, ...]) -> list[UOp]:
        """Return BUFFER nodes of memory that holds the numbers at `positions`."""

class PlanTable:
    """The eager plan cache: entries by graph structure, and families of graphs.

    Attributes
    ----------
    hits : int
        Number of lookups that found an entry.
    """

    hits: int

    def __init__(self, most: int) -> None: ...
    def __len__(self) -> int: ...
    @property
    def entries(self) -> Table[Entry]: ...
    @property
    def families(self) -> Table[Family]: ...
    def note_memory(self, entry: Entry) -> None:
        """Note the use of an entry that has, or keeps alive, much memory."""

    def get(self, key: Hashable) -> Entry | None:
        """Return the entry with this key, or None."""

    def look_up(self, values: list[UOp], commits: list[tuple[UOp, UOp]]) -> Lookup:
        """Find an entry for graphs, which may have autograd tags."""

def number_buffer(node: UOp) -> UOp:
    """Return the BUFFER node of memory that holds the number of a CONST node."""

def copied(
    target: TensorBase,
    value: TensorBase | float | np.ndarray[Any, Any],
    part: np.ndarray[Any, Any] | None = None,
    index: Any = ...,
) -> bool:
    """Copy `value` to the memory of `target` if no graph must be computed first.

    The caller holds the lock. A tensor has the shape and dtype of `target`; a number is
    representable in the dtype. With `part`, an array over a part of the memory, a number or an
    array is copied to its elements at `index`.

    Returns
    -------
    bool
        Whether the copy was made. If False, nothing was done, and a plan must assign the value.
    """

def computed_alone(tensor: TensorBase) -> bool:
    """Compute a lazy tensor that is not a view, if no other work is involved.

    Return False, with nothing done, if :func:`kernelrt.tensor.eager.realize.realize` is needed.
    """

def entered(tensors: tuple[TensorBase, ...]) -> None:
    """Check that each item is a tensor with a node and a static shape.

    A view that is contiguous in the memory of its root is bound to that memory.
    """

def lazy_ones(tensors: Iterable[TensorBase]) -> list[TensorBase]:
    """Return the tensors that are not computed yet."""

def due(apart: Collection[int]) -> list[TensorBase]:
    """Return the tensors with pending assignments that interrupted code is not carrying out.

    Tensors whose id is in `apart` are left out.
    """

def attempt(
    targets: list[TensorBase], commits: list[TensorBase], more: Written | None
) -> bool:
    """Compute `targets` and lazy tensors that read memory about to change; carry out `commits`.

    The memory in `more` changes too. Values that other lazy tensors need are stored as well.
    Return False, with nothing done, if the assignments changed meanwhile.
    """

def evaluate(
    targets: list[TensorBase],
    commits: list[TensorBase],
    readers: set[int],
    written: Written | None,
) -> bool:
    """Compute `targets` and carry out `commits`; the autograd histories of `readers` become stale.

    `written` is the memory of `commits`, if the caller knows it.

    After the run everything is handed over atomically, so that no signal handler or other thread
    sees an assignment that was carried out but is still pending.
    """

def _name_modules(
    now_state: ModuleType,
    now_plan_cache: ModuleType,
    now_hints: ModuleType,
    now_execute: ModuleType,
    now_views: ModuleType,
    now_weak: ModuleType,
    now_realize: ModuleType,
) -> None: ...
def _name_memory(
    buffer: type[Buffer], numbers: Iterator[int], memory: BlockCache
) -> None: ...
def _name_values(iota: Op, kept: type, still: frozenset[Op]) -> None: ...

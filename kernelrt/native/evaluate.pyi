"""Types of `evaluate`: the evaluation of lazy tensors."""

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
from kernelrt.native.write_barrier import WrittenMemory
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.eager.execute import Constant, Copy

_U = TypeVar("_U", bound=LruValue)

#: Number of graphs, equal except for numbers, that get plans of their own.
ALIKE: Final[int]
#: Minimum number of bytes of memory that is accounted for.
LARGE_BYTES: Final[int]

class LruValue:
    """Value in a :class:`LruTable`, with the time of its last use."""

    def weigh(self, nodes: int) -> None:
        """Set the number of nodes of the graph; call this before the value is put into a table."""

class LruTable(Generic[_U]):
    """Values by keys. If their number exceeds `most`, the least recently used are evicted.

    A value with a large graph counts as several.
    """

    def __init__(self, most: int) -> None: ...
    def __len__(self) -> int: ...
    def get(self, key: Hashable) -> _U | None:
        """Return the value of a key, and note its use; None if there is none."""

    def put(self, key: Hashable, value: _U) -> None:
        """Store a value, and note its use."""

    def pop(self, key: Hashable) -> None:
        """Remove a value, if there is one."""

    def items(self) -> list[tuple[Hashable, _U]]:
        """Return all keys with their values."""

    def clear(self) -> None:
        """Remove all values."""

class UseCounts:
    """Counts of the uses of a cached plan of eager code, with the line that uses it.

    Attributes
    ----------
    nodes : int
        Number of nodes of the graph.
    left : int
        Number of uses until the line is looked up.
    times : int
        Number of successive look-ups that found `line`.
    line : (str, int)
        File and line of the last look-up.
    """

    nodes: int
    left: int
    times: int
    line: tuple[str, int]

class Entry(LruValue):
    """Cache entry that computes graphs of one structure.

    Parameters
    ----------
    prepared : Prepared or Interpretation, optional
        Plan or interpreted program; None if nothing has to be computed.
    sources : tuple
        Source of each result: a position in the plan's outputs, or a Constant or Copy.
    sizes : tuple of (int, DType)
        Number of elements and dtype of each result.
    nbytes : int
        Bytes of the plan's intermediates.
    given : dict, optional
        Bytes of each large storage that the plan was made with, by the identity of the storage.
    sized : object, optional
        The SizedPlan that the entry belongs to, if its plan serves many sizes.

    Attributes
    ----------
    notes : tuple of int
        Data of the caller that made the entry.
    uses : UseCounts
        Counts of its uses.
    origins : tuple
        Origins that errors of checks in the plan name; empty if the plan checks nothing.
    numbers : list of UOp
        BUFFER nodes of numbers, passed after the buffers of a run.
    """

    notes: tuple[int, ...]
    uses: UseCounts
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
        """Return whether the graphs were interpreted so often that compiling them pays."""

    def with_numbers(self, numbers: list[UOp]) -> Entry:
        """Return an entry that differs in `numbers` only."""

    def results(self, buffers: list[UOp]) -> list[Memory]:
        """Return memory for each result; results that need no plan are stored there already."""

    def run(
        self,
        buffers: list[UOp],
        results: list[Memory],
        fresh: list[Fresh],
        resets: list[Reset],
        born: tuple[list[int], int] | None = None,
    ) -> int:
        """Compute the results that need a plan; hand over all, as :meth:`Prepared.run` does."""

class NumberFamily(LruValue):
    """Graphs that are equal except for their numbers, which are CONST nodes.

    Parameters
    ----------
    numbers : list of UOp
        Numbers of the first graph.
    """

    def __init__(self, numbers: list[UOp]) -> None: ...
    @property
    def positions(self) -> tuple[int, ...] | None:
        """Positions of the numbers that vary; None until there were enough graphs."""

    def meet(self, numbers: list[UOp], most: int) -> tuple[int, ...] | None:
        """Count a graph; return `positions`, which are set after more than `most` graphs."""

class Lookup:
    """Result of a look-up of graphs in a :class:`PlanTable`.

    Attributes
    ----------
    entry : Entry, optional
        Entry that computes the graphs; None if there is none yet.
    buffers : list of UOp
        Nodes to run the entry with: the BUFFER nodes that the graphs read, and numbers.
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
        """Key that all graphs share that differ from these in numbers only."""

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Key of a plan for these graphs only."""

    def key_but_for(self, positions: tuple[int, ...]) -> tuple[Hashable, ...]:
        """Return the key of a plan that reads the numbers at `positions` from memory."""

    def in_memory(self, positions: tuple[int, ...]) -> list[UOp]:
        """Return BUFFER nodes of memory with the numbers at `positions`."""

class PlanTable:
    """Entries by the structures of graphs, and families of graphs that differ in numbers.

    Attributes
    ----------
    hits : int
        Number of look-ups that found an entry.
    """

    hits: int

    def __init__(self, most: int) -> None: ...
    def __len__(self) -> int: ...
    @property
    def entries(self) -> LruTable[Entry]: ...
    @property
    def families(self) -> LruTable[NumberFamily]: ...
    def note_memory(self, entry: Entry) -> None:
        """Note a use of an entry that has, or keeps alive, much memory."""

    def get(self, key: Hashable) -> Entry | None:
        """Return the entry of a key, or None."""

    def look_up(self, values: list[UOp], commits: list[tuple[UOp, UOp]]) -> Lookup:
        """Look up an entry for graphs, with or without tags."""

def number_buffer(node: UOp) -> UOp:
    """Return a BUFFER node of memory with the number of a CONST node."""

def copied(
    target: TensorBase,
    value: TensorBase | float | np.ndarray[Any, Any],
    part: np.ndarray[Any, Any] | None = None,
    index: Any = ...,
) -> bool:
    """Copy `value` to the memory of `target`, if no graph has to be computed first.

    The caller holds the lock. A tensor must have the shape and dtype of `target`, and a number must
    be representable in the dtype. `part` is an array over a part of the memory: with it, a number
    or an array is copied to ``part[index]``.

    Returns
    -------
    bool
        False, with nothing done, if the value has to be assigned by a plan.
    """

def computed_alone(tensor: TensorBase) -> bool:
    """Compute a lazy tensor that is not a view, if there is nothing else to do.

    Return False, and do nothing, if that needs :func:`kernelrt.tensor.eager.realize.realize`.
    """

def entered(tensors: tuple[TensorBase, ...]) -> None:
    """Give each tensor a node, and check that it is a tensor with a static shape.

    A view is bound to the memory of its root if its elements are contiguous there.
    """

def lazy_ones(tensors: Iterable[TensorBase]) -> list[TensorBase]:
    """Return the tensors that are not computed yet."""

def due(deferred: Collection[int]) -> list[TensorBase]:
    """Return tensors with pending assignments, except those that interrupted code is carrying out.

    Tensors whose id is in `deferred` are left out.
    """

def attempt(
    targets: list[TensorBase], commits: list[TensorBase], more: WrittenMemory | None
) -> bool:
    """Compute `targets` and the lazy tensors that read changing memory, and carry out `commits`.

    The memory `more` will change, too. Parts of the graphs that other lazy tensors read, too, are
    computed once and stored. Return False, with nothing done, if assignments have changed
    meanwhile.
    """

def evaluate(
    targets: list[TensorBase],
    commits: list[TensorBase],
    readers: set[int],
    written: WrittenMemory | None,
) -> bool:
    """Compute `targets` and carry out `commits`; the histories of `readers` become stale.

    `written` is the memory of `commits`, if the caller knows it. After the plan has run, all is
    handed over in one step, so no signal handler and no other thread sees an assignment that is
    carried out and still pending. Return False if `targets` or assignments have changed meanwhile.
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

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

#: Graphs that differ only in numbers have plans of their own so often.
ALIKE: Final[int]
#: Memory of at least so many bytes is accounted for.
LARGE_BYTES: Final[int]

class Used:
    """A value of a :class:`Table`, which notes when it was used."""

    def weigh(self, nodes: int) -> None:
        """Say how large its graph is, before it is put into a table."""

class Table(Generic[_U]):
    """Values by keys. Where there are more than `most`, those used longest ago go.

    A value of a large graph counts as several.
    """

    def __init__(self, most: int) -> None: ...
    def __len__(self) -> int: ...
    def get(self, key: Hashable) -> _U | None:
        """Return the value, used now, or None."""

    def put(self, key: Hashable, value: _U) -> None:
        """Keep a value, used now."""

    def pop(self, key: Hashable) -> None:
        """Forget a value, if there is one."""

    def items(self) -> list[tuple[Hashable, _U]]:
        """Return all keys with their values."""

    def clear(self) -> None:
        """Forget all values."""

class Uses:
    """How often a plan of eager code was found again, and from where.

    Attributes
    ----------
    nodes : int
        How large its graph is.
    left : int
        How many uses there are until the line is looked up.
    times : int
        How often in a row it was `line`.
    """

    nodes: int
    left: int
    times: int
    line: tuple[str, int]

class Entry(Used):
    """How to compute graphs of one structure.

    Parameters
    ----------
    prepared : Prepared or Interpretation, optional
        The plan, or what computes without one; None where nothing is computed.
    sources : tuple
        Where each result comes from: a position among the plan's outputs, or what takes no plan.
    sizes : tuple of (int, DType)
        Elements and type of each result.
    nbytes : int
        The memory of its plan's intermediates.
    given : dict, optional
        The bytes of each large storage that its plan was made with, by the storage's identity.
    sized : object, optional
        The SizedPlan that the entry belongs to, if its plan serves many sizes.

    Attributes
    ----------
    notes : tuple of int
        Data of whoever made it.
    uses : Uses
        How often it was found again.
    origins : tuple
        What an index that is out of range is told by; empty where none is checked.
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
        """Return whether its graphs were interpreted until compiling them pays."""

    def with_numbers(self, numbers: list[UOp]) -> Entry:
        """Return an entry that differs in `numbers` only."""

    def results(self, buffers: list[UOp]) -> list[Memory]:
        """Return memory for each result; those that take no plan are in it already."""

    def run(
        self,
        buffers: list[UOp],
        results: list[Memory],
        fresh: list[Fresh],
        resets: list[Reset],
        born: tuple[list[int], int] | None = None,
    ) -> int:
        """Compute what takes a plan and hand everything over; see :meth:`Prepared.run`."""

class Family(Used):
    """Graphs that are equal up to their numbers, which are CONST nodes.

    Parameters
    ----------
    numbers : list of UOp
        The numbers of the first graph.
    """

    def __init__(self, numbers: list[UOp]) -> None: ...
    @property
    def positions(self) -> tuple[int, ...] | None:
        """The positions of the numbers that vary; None until there were enough graphs."""

    def meet(self, numbers: list[UOp], most: int) -> tuple[int, ...] | None:
        """Count a graph; return `positions`, which are there after more than `most` graphs."""

class Lookup:
    """What a :class:`PlanTable` knows of some graphs.

    Attributes
    ----------
    entry : Entry, optional
        Computes the graphs; None if there is none yet.
    buffers : list of UOp
        The BUFFER nodes that it is run with: those that the graphs read, and numbers.
    """

    entry: Entry | None
    buffers: list[UOp]

    @property
    def read(self) -> list[UOp]:
        """The BUFFER nodes that the graphs read."""

    @property
    def numbers(self) -> list[UOp]:
        """The CONST nodes of the graphs."""

    @property
    def alike(self) -> tuple[Hashable, ...]:
        """A key of all graphs that are equal up to their numbers."""

    @property
    def key(self) -> tuple[Hashable, ...]:
        """The key of a plan for these graphs alone."""

    def key_but_for(self, positions: tuple[int, ...]) -> tuple[Hashable, ...]:
        """The key of a plan that reads the numbers at `positions` from memory."""

    def in_memory(self, positions: tuple[int, ...]) -> list[UOp]:
        """BUFFER nodes of memory that holds the numbers at `positions`."""

class PlanTable:
    """Entries by the structures of graphs, and the families of graphs that differ in numbers.

    Attributes
    ----------
    hits : int
        How often an entry was found.
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
        """Return what is kept by a key."""

    def look_up(self, values: list[UOp], commits: list[tuple[UOp, UOp]]) -> Lookup:
        """Find an entry for graphs, which may bear marks."""

def number_buffer(node: UOp) -> UOp:
    """The BUFFER node of memory that holds the number of a CONST node."""

def copied(
    target: TensorBase,
    value: TensorBase | float | np.ndarray[Any, Any],
    part: np.ndarray[Any, Any] | None = None,
    index: Any = ...,
) -> bool:
    """Copy `value` to the memory of `target`, if no graph has to be computed before.

    The caller holds the lock. A tensor has the shape and type of `target`; a number is one that
    the type has. Where `part` is given, an array over a part of the memory, a number or an array
    is copied to the elements of it that `index` names.

    Returns
    -------
    bool
        False, and nothing done, if the value has to be assigned by a plan.
    """

def computed_alone(tensor: TensorBase) -> bool:
    """Compute a lazy tensor that is no view, where nothing else is to be done.

    False, and nothing done, where that takes :func:`kernelrt.tensor.eager.realize.realize`.
    """

def entered(tensors: tuple[TensorBase, ...]) -> None:
    """Make sure that each is a tensor that has a node and a static shape.

    A view is bound to the memory of its root, where its elements are one run there.
    """

def lazy_ones(tensors: Iterable[TensorBase]) -> list[TensorBase]:
    """Those that are yet to be computed."""

def due(apart: Collection[int]) -> list[TensorBase]:
    """What is pending and not being carried out by the code that this thread interrupted.

    Tensors whose identity is in `apart` are left out.
    """

def attempt(
    targets: list[TensorBase], commits: list[TensorBase], more: Written | None
) -> bool:
    """Compute `targets`, and lazy tensors that read what changes, and carry out `commits`.

    What `more` tells is going to change, too. Values that other lazy tensors are made of are
    stored along. False, with nothing done, if the assignments changed meanwhile.
    """

def evaluate(
    targets: list[TensorBase],
    commits: list[TensorBase],
    readers: set[int],
    written: Written | None,
) -> bool:
    """Give `targets` data and carry `commits` out; the histories of `readers` go stale.

    `written` is the memory of `commits`, if the caller knows it.

    Once the plan has run everything is handed over in one piece, so that neither a handler of a
    signal nor another thread sees an assignment that was carried out and still is pending.
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

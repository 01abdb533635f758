"""Types of the interpreter of graphs."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from kernelrt.dtype import DType
from kernelrt.ir import Op, UOp
from kernelrt.native.eager_plan import Fresh, Reset
from kernelrt.native.memory import BlockCache, Memory

#: Number of elements that a block function computes in one call.
BLOCK: Final[int]
#: Indices of base addresses. Buffers begin at FIRST_BUFFER, and results follow them.
CONSTANTS: Final[int]
ARENA: Final[int]
FIRST_BUFFER: Final[int]
_Call: TypeAlias = tuple[int, Callable[..., None], list[tuple[View, DType]]]

LOOPS: Final[dict[tuple[str, int, int], int]]
"""Addresses of loops by (operation, dtype code of the last operand, dtype code of the result).
Loops that move elements of any dtype have the bytes of an element in place of the codes."""

class Budget:
    """Time that interpreting a family of graphs may take before the graphs are compiled.

    Attributes
    ----------
    spent : float
        Estimated cost of all runs so far, in nanoseconds. Infinity: compile the graphs now.
    limit : float
        Estimated cost of compiling, in nanoseconds.
    """

    limit: float

    @property
    def spent(self) -> float: ...
    def allows(self, cost: float = 0.0) -> bool:
        """Return whether another `cost` nanoseconds stay within the limit."""

    def add(self, cost: float) -> None:
        """Add the cost of a run, or of making a program."""

    def exhaust(self) -> None:
        """Spend the whole budget: compile the graphs from now on."""

class View:
    """A strided array in a slot.

    Parameters
    ----------
    slot : int
        Index of the slot.
    offset : int
        Bytes from the start of the slot to the first element.
    shape, strides : tuple of int
        Size and stride of each axis; strides in bytes. A stride is 0 if all elements along the
        axis are equal and stored once.
    """

    def __init__(
        self, slot: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None: ...
    @property
    def slot(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...

class Slot:
    """Memory of a value: its base, offset and size; `permanent` memory is not reused."""

    base: int
    offset: int
    nbytes: int
    permanent: bool

class Steps:
    """The steps of a program, in the order in which they run."""

    def __len__(self) -> int: ...
    def slots_of(self, i: int) -> list[int]:
        """Return the slots of the operands of a step, the result first."""

class Unfit(Exception):  # noqa: N818 - like StopIteration
    """Raised if the interpreter cannot run a graph, which is then compiled. Users never see it."""

class ProgramBuilder:
    """Collects the steps and the memory of a program; :meth:`write` makes the steps of a graph.

    Parameters
    ----------
    read, numbers : sequence of UOp
        BUFFER and CONST nodes of the graph, in the order in which a run lists theirs.

    Attributes
    ----------
    cost : float
        Estimated cost of a run, in nanoseconds.
    length : int
        Number of operations.
    slots : list of Slot
        Memory of the values.
    views : dict
        Where the value of each node is.
    steps : Steps
        The steps so far.
    calls : list of tuple
        Python functions to call: number of steps before the call, function, and its arguments.
    constant_data : bytearray
        Elements of constants.
    number_slots : list of (slot, code, position)
        CONST nodes whose numbers vary: slot, code of the dtype, and position of the node.
    size_positions : list of int
        Positions of numbers that are sizes; other values need another program.
    constant_nodes : set of UOp
        Nodes that are computed from CONST nodes alone.
    buffer_positions, number_positions : dict
        Positions of the BUFFER nodes and of the CONST nodes.
    """

    cost: float

    def __init__(self, read: Sequence[UOp], numbers: Sequence[UOp]) -> None: ...
    @property
    def length(self) -> int: ...
    @property
    def slots(self) -> list[Slot]: ...
    @property
    def views(self) -> dict[UOp, View]: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def calls(self) -> list[_Call]: ...
    @property
    def constant_data(self) -> bytearray: ...
    @property
    def number_slots(self) -> list[tuple[int, int, int]]: ...
    @property
    def size_positions(self) -> list[int]: ...
    @property
    def constant_nodes(self) -> set[UOp]: ...
    @property
    def buffer_positions(self) -> dict[UOp, int]: ...
    @property
    def number_positions(self) -> dict[UOp, int]: ...
    def slot(self, base: int, offset: int, nbytes: int) -> int:
        """Make a slot; return its index."""

    def new(self, shape: tuple[int, ...], itemsize: int) -> View:
        """Make a slot of elements in the memory of a run.

        Raises
        ------
        Unfit
            The array is larger than the limit that `_name_costs` sets.
        """

    def add_constant(self, data: bytes) -> int:
        """Make a slot of constants; return its index."""

    def step(
        self, loop: int, views: list[View], *, code: int = 0, more: Sequence[int] = (),
        each_ns: float | None = None,
    ) -> None:  # fmt: skip
        """Add a step over views of one shape, and its cost; the first view is the result.

        `each_ns` is the cost of an element; by default that of plain arithmetic. For `code` and
        `more` see krt_step in csrc/interpret.h.
        """

    def append(
        self, loop: int, views: list[View], inner: list[View] | None = None, *, combine: int = 0,
        code: int = 0, more: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Add a step without its cost.

        `inner` has a view for each operand with the sizes and strides of the reduced axes.
        """

    def copied(self, view: View, itemsize: int) -> View:
        """Add a step that makes a packed copy of a value; return the copy."""

    def computed(self, itemsize: int, views: list[View]) -> tuple[View, View, list[View]]:
        """Make the memory of the result of an elementwise operation.

        Along axes where all operands are broadcast, one element is computed. Return the result
        with all elements, the part of it that is computed, and the operands cut to that part.
        """

    def elementwise(
        self, loop: int, itemsize: int, views: list[View], each_ns: float | None = None
    ) -> View:
        """Add the step of an elementwise operation; return the result."""

    def reduced(
        self, loop: int, itemsize: int, views: list[View], axes: tuple[int, ...], each_ns: float
    ) -> View:
        """Add a step that reduces a value, or the product of two; return the result."""

    def write(self, order: list[UOp], roots: Sequence[UOp]) -> None:
        """Write the nodes of a graph, each after its operands."""

    def write_rare(self, node: UOp) -> None:
        """Write a node that this class cannot write; a subclass overrides it.

        Raises
        ------
        Unfit
            The node cannot be interpreted.
        """

def merged_axes(views: list[View]) -> int:
    """Return how many axes are left after merging axes that are contiguous in all views."""

class Interpretation:
    """A program that computes graphs in place of a compiled plan.

    Parameters
    ----------
    steps : Steps
        The steps. A program owns them: they belong to no other one.
    slots : list of Slot
        Memory of the values that the steps name.
    calls : sequence of tuple
        Python functions that run between steps: the number of steps before the call, the function,
        and its arrays. An array is a tuple of its base, offset, shape, strides, NumPy dtype, and
        the number of bytes from the base to its end.
    constants : bytes
        Elements of constants.
    arena : int
        Bytes of memory that a run needs for its values.
    numbers : list of (offset, code, position)
        CONST nodes whose numbers vary: offset of the number in the arena, code of its dtype, and
        position of the node in the `buffers` of a run.
    n_buffers, n_results : int
        Number of BUFFER nodes, which come before the CONST nodes, and number of results.
    writes : list of (position, offset, nbytes)
        Copies to buffers at the end of a run: position of the buffer, offset of the value in the
        arena, and its size in bytes.
    cost : float
        Estimated cost of a run, in nanoseconds.
    budget : Budget
        Budget that each run adds its cost to.
    keeps : object, optional
        Objects to keep alive, such as the owners of compiled code.
    """

    #: An interpretation has no plan.
    plan: Final[None]

    def __init__(
        self,
        steps: Steps,
        slots: list[Slot],
        calls: Sequence[tuple[int, Callable[..., None], Sequence[tuple[Any, ...]]]],
        constants: bytes,
        arena: int,
        numbers: list[tuple[int, int, int]],
        n_buffers: int,
        n_results: int,
        writes: list[tuple[int, int, int]],
        cost: float,
        budget: Budget,
        keeps: object = None,
    ) -> None: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def cost(self) -> float: ...
    def run(
        self,
        buffers: list[UOp],
        results: list[Memory],
        fresh: list[Fresh],
        resets: list[Reset],
        pending: dict[int, Any],
        born: tuple[list[int], int] | None = None,
    ) -> int:
        """Compute graphs, given their BUFFER and CONST nodes, and hand over the results.

        Returns the same values as :meth:`kernelrt.native.eager_plan.Prepared.run`. UNFIT means that
        an index is out of range or memory is short: nothing was done, and graphs of this structure
        are compiled from now on.
        """

def _name_memory(array: type[np.ndarray[Any, Any]], memory: BlockCache) -> None:
    """Set NumPy's array class, and the allocator of the memory of runs."""

def _name_costs(step_ns: float, element_ns: float, most_bytes: int) -> None:
    """Set the costs of a step and of an element, and the maximum number of bytes of a value."""

def _name_rules(
    ops: tuple[Op, ...],
    element_loops: dict[tuple[Op, DType, DType], tuple[int, float]],
    kept: type,
    buffer: type,
    halves: frozenset[DType],
    summed: frozenset[DType],
) -> None:
    """Set how nodes are written.

    Parameters
    ----------
    ops : tuple of Op
        The ops that ProgramBuilder knows, in the order of its variables.
    element_loops : dict
        Address of the loop and cost of an element, by op, dtype of the first operand, and dtype.
        LOOPS has the dtype of the last operand instead: the first one of WHERE is a bool.
    kept, buffer : type
        Classes of tags of stored values, and of memory.
    halves, summed : frozenset of DType
        Dtypes that are not interpreted, and those for which a step sums products.
    """

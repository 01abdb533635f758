"""Types of the interpreter of graphs."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from kernelrt.ir import UOp
from kernelrt.native.eager_plan import Fresh, Reset
from kernelrt.native.memory import BlockCache, Memory

#: Maximum number of axes of a step.
AXES: Final[int]
#: Number of elements that a block function computes in one call.
BLOCK: Final[int]
#: Indices of base addresses. Buffers begin at FIRST_BUFFER, and results follow them.
CONSTANTS: Final[int]
ARENA: Final[int]
FIRST_BUFFER: Final[int]
LOOPS: Final[dict[tuple[str, int, int], int]]
"""Addresses of loops by (operation, dtype code of the last operand, dtype code of the result).
Loops that move elements of any dtype have the bytes of an element in place of the codes."""

class Budget:
    """Budget for interpreting a family of graphs.

    Attributes
    ----------
    spent : float
        Estimated cost of all runs so far, in nanoseconds. Infinity: compile the graphs now.
    limit : float
        Estimated cost of compiling, in nanoseconds.
    """

    spent: float
    limit: float

def joined(
    sizes: Sequence[int], strides: list[tuple[int, ...]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Drop axes of size 1, and merge axes that are contiguous in all operands.

    Parameters
    ----------
    sizes : sequence of int
        Sizes of the axes.
    strides : list of tuple of int
        Strides of each operand.
    """

class Interpretation:
    """A program that computes graphs in place of a compiled plan.

    Parameters
    ----------
    steps : list of tuple
        Fields of each krt_step, in order; see csrc/interpret.h. Functions are addresses.
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
        steps: list[tuple[Any, ...]],
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

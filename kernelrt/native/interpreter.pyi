"""Types of the programs that compute graphs step by step."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from kernelrt.ir import UOp
from kernelrt.native.eager_plan import Fresh, Reset
from kernelrt.native.memory import BlockCache, Memory

#: Most axes of a step.
AXES: Final[int]
#: Elements that the code of one function computes in a call.
BLOCK: Final[int]
#: Bases of operands. Buffers begin at FIRST_BUFFER, and results follow them.
CONSTANTS: Final[int]
ARENA: Final[int]
FIRST_BUFFER: Final[int]
LOOPS: Final[dict[tuple[str, int, int], int]]
"""The addresses of loops, by operation and the codes of the types of the last operand and the
result; for those that move elements of any type by the bytes of an element."""

class Budget:
    """The budget for interpreting a family of graphs.

    Attributes
    ----------
    spent : float
        The estimated cost of all runs so far, in nanoseconds. Infinity: compile the graphs now.
    limit : float
        The estimated cost of compiling, in nanoseconds.
    """

    spent: float
    limit: float

def joined(
    sizes: Sequence[int], strides: list[tuple[int, ...]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Leave out axes of one element, and join those that follow each other in memory.

    Parameters
    ----------
    sizes : sequence of int
        The sizes of the axes.
    strides : list of tuple of int
        The strides of each operand.
    """

class Interpretation:
    """Runs a program in the place of a plan.

    Parameters
    ----------
    steps : list of tuple
        The fields of each krt_step, in order; see csrc/interpret.h. Functions are addresses.
    calls : sequence of tuple
        Python functions that run between steps: the number of steps before the call, the function,
        and its arrays. An array is a tuple of its base, offset, shape, strides, NumPy type, and the
        number of bytes from the base to its end.
    constants : bytes
        The elements of constants.
    arena : int
        The bytes of memory that a run needs for its values.
    numbers : list of (offset, code, position)
        CONST nodes whose numbers vary: the offset of the number in that memory, the code of its
        type, and the position of the node in the `buffers` of a run.
    n_buffers, n_results : int
        The number of BUFFER nodes, which come before the CONST nodes, and of results.
    writes : list of (position, offset, nbytes)
        Copies to buffers at the end of a run: the position of the buffer, the offset of the value
        in the memory of the run, and its size.
    cost : float
        The estimated cost of a run, in nanoseconds.
    budget : Budget
        The budget that each run adds its cost to.
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
        """Compute graphs, given their BUFFER and CONST nodes, and hand everything over.

        Returns what :meth:`kernelrt.native.eager_plan.Prepared.run` does. UNFIT means that an index
        is out of range or memory is short. Nothing has happened then, and graphs of this structure
        are compiled from now on.
        """

def _name_memory(array: type[np.ndarray[Any, Any]], memory: BlockCache) -> None:
    """Set NumPy's class of arrays, and what gives memory to runs."""

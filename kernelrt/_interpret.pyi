"""Types of the programs that compute graphs step by step."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from kernelrt._eager import Fresh, Reset
from kernelrt._memory import BlockCache, Memory
from kernelrt.ir import UOp

#: Most axes of a step.
AXES: Final[int]
#: Elements that the code of one function computes in a call.
BLOCK: Final[int]
#: What operands are relative to: constants, memory of the run, then buffers, then results.
CONSTANTS: Final[int]
ARENA: Final[int]
FIRST_BUFFER: Final[int]
LOOPS: Final[dict[tuple[str, int, int], int]]
"""The addresses of loops, by operation and the codes of the types of the last operand and the
result; for those that move elements of any type by the bytes of an element."""

class Budget:
    """What interpreting may cost.

    Attributes
    ----------
    spent : float
        What it has cost, in nanoseconds, by an estimate; infinite once the graphs are to be
        compiled.
    limit : float
        An estimate of what compiling costs.
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
        Of each step: the addresses of its loop, of what a scatter combines with, and of compiled
        code; the number of its axes, of those that are reduced, and of its operands; its layout,
        and more numbers. See krt_step in csrc/interpret.h.
    calls : sequence of tuple
        Functions that are called with arrays: how many steps come before, the function, and of
        each array its base, offset, shape, strides, type, and bytes from the base to its end.
    constants : bytes
        The elements of constants.
    arena : int
        The bytes of memory that a run needs for its values.
    numbers : list of (offset, code, position)
        Numbers of a run: where in that memory they are put, the code of their type, and their
        position in what the run is given.
    n_buffers, n_results : int
        How many buffers a run is given ahead of the numbers, and how many results it has.
    writes : list of (position, offset, nbytes)
        What is copied to buffers in the end, from where in the memory of the run.
    cost : float
        What a run costs, in nanoseconds, by an estimate.
    budget : Budget
        What all runs may cost.
    keeps : object, optional
        Kept alive, as the owners of code.
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

        Like :meth:`kernelrt._eager.Prepared.run`. UNFIT, and nothing done, where an index is out of
        range: then graphs of this structure are not interpreted again.
        """

def _name_memory(array: type[np.ndarray[Any, Any]], memory: BlockCache) -> None:
    """Set NumPy's class of arrays, and what gives memory to runs."""

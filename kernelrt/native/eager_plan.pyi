"""Types of the plans of eager code."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from kernelrt._dispatch import PlanCore
from kernelrt.device.buffer import Buffer
from kernelrt.ir import Op, UOp
from kernelrt.native.array_handle import ArrayHandle
from kernelrt.native.core import Bindings
from kernelrt.native.memory import BlockCache, Memory
from kernelrt.native.signature import Site
from kernelrt.tensor.base import TensorBase

DONE: Final[int]
UNFIT: Final[int]
"""The graphs have to be compiled anew: buffers overlap in another way than those that the plan was
made for, this thread is running the plan, or an interpreter gave up."""
CHANGED: Final[int]
"""An assignment that the run was to carry out is not pending any more."""

#: A handle, the node it had, its data (owner, export, address, dtype code, shape, bytes), the node
#: it gets, and whether it stays watched. Nothing happens if it has data or another node by then.
Fresh: TypeAlias = tuple[
    ArrayHandle, UOp | None, Memory | Buffer, memoryview | None, int, int, tuple[int, ...], int,
    UOp | None, bool,
]
#: A handle whose assignment is carried out, the node that was pending, and the one it gets.
Reset: TypeAlias = tuple[ArrayHandle, UOp, UOp]

class Prepared:
    """A plan, where it takes its buffers from, and where its results go.

    Where something that the plan writes overlaps another place, the order of its operations holds
    for the first addresses only, and it fits no others.

    Parameters
    ----------
    plan : PlanCore
        What runs; nobody else may run it.
    places : iterable of (address, nbytes, written, sites)
        For each buffer that a run is given: what it is bound to now, its length, whether the plan
        writes there, and where the plan's table points to it.
    outputs : iterable of (address, nbytes, sites)
        For each result: where the plan leaves it, its length, and where the plan's table points
        to it; without the last it is copied.
    bindings : callable, optional
        Returns the plan's bindings for this size. Other objects may run the plan with other values.
    """

    def __init__(
        self,
        plan: PlanCore,
        places: Iterable[tuple[int, int, bool, Sequence[Site]]],
        outputs: Iterable[tuple[int, int, Sequence[Site]]],
        bindings: Callable[[], Bindings] | None = None,
    ) -> None: ...
    @property
    def plan(self) -> PlanCore: ...
    def run(
        self,
        buffers: list[UOp],
        results: list[Memory],
        fresh: list[Fresh],
        resets: list[Reset],
        pending: dict[int, Any],
        born: tuple[list[int], int] | None = None,
    ) -> int:
        """Run with these BUFFER nodes, then hand over to `fresh` and take `resets` out of pending.

        No Python code runs between the end of the plan and that of the call. Gives DONE, or what
        hindered it: then nothing has happened. `born` is ``state.births`` and how many there were;
        it is CHANGED if there are others.
        """

def write_unless_born(births: list[int], born: int, target: Buffer, source: Buffer) -> bool:
    """Copy the bytes of `source` to `target`, unless ``births[0]`` is not `born` any more.

    No Python code runs between the comparison and the copy. Returns whether it was made.
    """

def give(fresh: list[Fresh], resets: list[Reset], pending: dict[int, Any]) -> int:
    """Hand over what took no plan, as :meth:`Prepared.run` does; gives DONE or CHANGED."""

def new_result(cache: BlockCache, nbytes: int) -> Memory:
    """Uninitialised memory for a result."""

def settlement(handle: TensorBase, node: UOp, data: Memory) -> Fresh | None:
    """What `TensorBase._settlement` gives where no history, view or gradient is there; or None."""

def _name_buffer(op: Op) -> None: ...

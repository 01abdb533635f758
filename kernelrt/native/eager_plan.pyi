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
"""The graphs must be compiled again: buffers overlap in another way than those of the plan, this
thread is already running the plan, or an interpreter gave up."""
CHANGED: Final[int]
"""An assignment that the run was to carry out is no longer pending."""

#: A handle, its old node, its data (owner, export, address, dtype code, shape, bytes), its new
#: node, and whether it stays watched. Nothing happens if it has data or another node by then.
Fresh: TypeAlias = tuple[
    ArrayHandle, UOp | None, Memory | Buffer, memoryview | None, int, int, tuple[int, ...], int,
    UOp | None, bool,
]
#: A handle whose assignment is carried out, the pending node, and the new node.
Reset: TypeAlias = tuple[ArrayHandle, UOp, UOp]

class Prepared:
    """A plan with the sites of its buffers and results, so that it can run with others.

    If memory that the plan writes overlaps other memory of the plan, the order of its operations is
    only valid for the first addresses; the plan fits no others.

    Parameters
    ----------
    plan : PlanCore
        The plan; other code must not run it.
    places : iterable of (address, nbytes, written, sites)
        For each buffer passed to a run: the address bound now, its length, whether the plan writes
        it, and the sites in the plan's table that hold the address.
    outputs : iterable of (address, nbytes, sites)
        For each result: its address in the plan's memory, its length, and the sites in the plan's
        table that hold the address. Without sites the result is copied.
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
        """Run with these BUFFER nodes, hand over to `fresh`, and remove `resets` from pending.

        No Python code runs between the end of the plan and the end of the call. Return DONE, or the
        reason why nothing was done. `born` is ``state.births`` and its expected value; if tensors
        were created since, the result is CHANGED.
        """

def write_unless_born(births: list[int], born: int, target: Buffer, source: Buffer) -> bool:
    """Copy the bytes of `source` to `target` if ``births[0]`` still is `born`.

    No Python code runs between the comparison and the copy. Return whether the copy was made.
    """

def give(fresh: list[Fresh], resets: list[Reset], pending: dict[int, Any]) -> int:
    """Hand over results that needed no plan, as :meth:`Prepared.run`; return DONE or CHANGED."""

def new_result(cache: BlockCache, nbytes: int) -> Memory:
    """Return uninitialized memory for a result."""

def settlement(handle: TensorBase, node: UOp, data: Memory) -> Fresh | None:
    """Return `TensorBase._settlement` for a tensor without history, view or gradient; else None."""

def _name_buffer(op: Op) -> None: ...

"""Types of the cached plans of eager code."""

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
"""The graphs must be compiled again: the buffers overlap differently than those that the plan was
made for, this thread is already running the plan, or an interpreter gave up."""
CHANGED: Final[int]
"""An assignment that the run should carry out is no longer pending, or a tensor was made."""

#: A handle, its former node, its data (owner, export, address, dtype code, shape, bytes), its new
#: node, and whether it stays watched. Skipped if the handle has data or another node by then.
Fresh: TypeAlias = tuple[
    ArrayHandle, UOp | None, Memory | Buffer, memoryview | None, int, int, tuple[int, ...], int,
    UOp | None, bool,
]
#: A handle whose assignment is carried out, the pending node, and the new node.
Reset: TypeAlias = tuple[ArrayHandle, UOp, UOp]

class Prepared:
    """A plan with the entries of its table that buffers and results are bound to.

    The order of a plan's operations depends on how written buffers overlap others. So buffers that
    overlap differently do not fit the plan.

    Parameters
    ----------
    plan : PlanCore
        Plan to run; without `bindings`, no other object may run it.
    buffers : iterable of (address, nbytes, written, sites)
        For each buffer of a run: the address it is bound to now, its length, whether the plan
        writes to it, and the entries of the plan's table that point to it.
    outputs : iterable of (address, nbytes, sites)
        For each result: the address where the plan stores it, its length, and the entries of the
        plan's table that point to it. A result without entries is copied.
    bindings : callable, optional
        Returns the plan's bindings for this size. Other objects may run the plan with other values.
    """

    def __init__(
        self,
        plan: PlanCore,
        buffers: Iterable[tuple[int, int, bool, Sequence[Site]]],
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
        """Run with these BUFFER nodes, hand the results to the handles of `fresh`.

        The assignments `resets` are then carried out: they are removed from `pending`.

        No Python code runs between the end of the plan and the end of the call. Returns DONE, or
        UNFIT or CHANGED, if nothing was done. `born` is ``state.births`` and an expected count; the
        result is CHANGED if the count differs.
        """

def write_unless_born(births: list[int], born: int, target: Buffer, source: Buffer) -> bool:
    """Copy the bytes of `source` to `target` if ``births[0]`` is still `born`.

    No Python code runs between the comparison and the copy. Return whether the bytes were copied.
    """

def give(fresh: list[Fresh], resets: list[Reset], pending: dict[int, Any]) -> int:
    """Hand over results without running a plan, as :meth:`Prepared.run` does after a run.

    Return DONE or CHANGED.
    """

def new_result(cache: BlockCache, nbytes: int) -> Memory:
    """Return uninitialised memory for a result."""

def settlement(handle: TensorBase, node: UOp, data: Memory) -> Fresh | None:
    """Return `TensorBase._settlement`; None if a history, a view or a gradient is involved."""

def _name_buffer(op: Op) -> None: ...

"""From a schedule to a plan: compile what is missing, take memory, lay out the C table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.device.buffer import Buffer
from kernelrt.errors import PlanBuildError
from kernelrt.ir import Op
from kernelrt.ir.foreign import is_host_call
from kernelrt.runtime.builder import ExecutionPlanBuilder
from kernelrt.runtime.foreign import host_call
from kernelrt.runtime.kernel_cache import KernelCache, kernels
from kernelrt.runtime.ops import PreparedKernel
from kernelrt.runtime.routines import numbers_of
from kernelrt.schedule.types import Intermediate, KernelItem, Part, Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrt.ir import UOp
    from kernelrt.runtime.kernel import CachedKernel
    from kernelrt.runtime.plan import ExecutionPlan

__all__ = ["prepare"]


def prepare(
    schedule: Schedule,
    *,
    device: str = "CPU",
    fixedvars: Mapping[str, int] | None = None,
    values: Mapping[str, int] | None = None,
    cache: KernelCache = kernels,
) -> ExecutionPlan:
    """Make a schedule executable.

    Parameters
    ----------
    schedule : Schedule
        Kernels and copies over BUFFER nodes, whose `arg` is a Buffer or an Intermediate.
    device : str
        Where to run.
    fixedvars : mapping, optional
        Variables to bind for good.
    values : mapping, optional
        First values of the others; their upper bounds if not given.
    cache : KernelCache
        Where kernels come from.

    Returns
    -------
    ExecutionPlan
        ``plan.buffer(node)`` finds the buffer of a BUFFER node. Outputs that are no stored data
        have memory of their own.

    Raises
    ------
    CompileError, SpecError
        A kernel cannot be compiled.
    PlanBuildError
        The schedule does not fit together.
    OutOfMemoryError
        Buffers do not fit memory.
    """
    builder = _Assembler(device)
    asts = [
        item.ast for item in schedule.items
        if isinstance(item, KernelItem) and not is_host_call(item.ast)
    ]  # fmt: skip
    compiled = iter(cache.get_many(asts, device))
    fixed, first = fixedvars or {}, values or {}
    for item in schedule.items:
        if isinstance(item, KernelItem) and is_host_call(item.ast):
            builder.call(item)
        elif isinstance(item, KernelItem):
            kernel = next(compiled)
            names = {*kernel.var_names, *(v.arg[0] for v in kernel.vars)}
            builder.launch(
                item,
                kernel,
                {n: v for n, v in fixed.items() if n in names} | numbers_of(kernel),
                {n: v for n, v in first.items() if n in names and n not in fixed},
            )
        else:
            builder.add_copy(builder.index(item.dst), builder.index(item.src), item.nbytes)
    builder.set_output_buffers([builder.index(node) for node in schedule.outputs])
    return builder.finish(schedule)


class _Assembler(ExecutionPlanBuilder):
    """A builder that takes order, dependencies and places from the schedule."""

    def launch(
        self,
        item: KernelItem,
        kernel: CachedKernel,
        fixedvars: Mapping[str, int],
        vals: Mapping[str, int],
    ) -> None:
        """Add a launch of `kernel`, which was made for `item`."""
        buffers = tuple(self.index(b) for b in item.buffers)
        self.add_op(
            PreparedKernel(
                self._new_id(), kernel, buffers, fixedvars, (), vals, item.origins, item.checks
            )
        )

    def call(self, item: KernelItem) -> None:
        """Add the call of a Python function."""
        self.add_op(host_call(self._new_id(), item, [self.index(b) for b in item.buffers]))

    def index(self, node: UOp) -> int:
        """Give the plan's buffer for a BUFFER node."""
        found = self._ast_map.get(node)
        if found is not None:
            return found
        if node.op is not Op.BUFFER:
            raise PlanBuildError(f"expected a BUFFER node, not {node!r}")
        if isinstance(node.arg, Intermediate):
            index = self._layout.add_own(node.arg.size, node.arg.dtype, node.arg)
            self.map_buffer(node, index)
            return index
        if isinstance(node.arg, Part):
            whole = self.index(node.arg.base)
            index = self._layout.add_part(whole, node.arg.offset, node.arg.size, node.dtype)
            self.map_buffer(node, index)
            return index
        if not isinstance(node.arg, Buffer):
            raise PlanBuildError(f"{node!r}: its storage is neither a Buffer nor an Intermediate")
        return self.add_buffer(node.arg, node)

    def finish(self, schedule: Schedule) -> ExecutionPlan:
        """Make the plan."""
        for op in self._ops:
            self._check_op(op)
        return self.assemble(
            self._layout, self._ops, schedule.deps, schedule.arena_offsets, schedule.arena_size,
            schedule.decisions,
        )  # fmt: skip

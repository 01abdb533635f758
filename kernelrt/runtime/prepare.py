"""Builds a plan from a schedule: compiles kernels, allocates memory, fills the C table."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from kernelrt.device.buffer import Buffer
from kernelrt.errors import PlanBuildError
from kernelrt.ir import Op
from kernelrt.ir.ffi import is_host_call
from kernelrt.ir.region import Port
from kernelrt.runtime.accessors import BuildTimes
from kernelrt.runtime.builder import ExecutionPlanBuilder
from kernelrt.runtime.ffi_kernels import host_call
from kernelrt.runtime.kernel_cache import KernelCache, kernels
from kernelrt.runtime.plan_ops import PortBinding, PreparedKernel, PreparedRegion
from kernelrt.schedule.types import Intermediate, KernelItem, Part, RegionItem, Schedule

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
    """Make an execution plan from a schedule.

    Parameters
    ----------
    schedule : Schedule
        Kernels and copies over BUFFER nodes, whose `arg` is a Buffer or an Intermediate.
    device : str
        Device to run on.
    fixedvars : mapping, optional
        Variables with a fixed value.
    values : mapping, optional
        Initial values of the other variables; their upper bounds by default.
    cache : KernelCache
        Cache to get the kernels from.

    Returns
    -------
    ExecutionPlan
        The plan. Its ``buffer(node)`` returns the buffer of a BUFFER node. Each output has its own
        memory, unless it is data that exists already.

    Raises
    ------
    CompileError, SpecError
        A kernel cannot be compiled.
    PlanBuildError
        The schedule is inconsistent.
    OutOfMemoryError
        There is not enough memory for the buffers.

    Examples
    --------
    >>> from kernelrt.schedule.scheduler import schedule
    >>> x = krt.tensor(np.array([1.0, 2.0], np.float32))
    >>> plan = krt.runtime.prepare(schedule([(x * 2).uop]))
    >>> plan.execute()
    >>> plan.output_buffer.numpy().tolist()
    [2.0, 4.0]
    """
    began = perf_counter()
    asts = list(dict.fromkeys(k.ast for k in schedule.kernels if not is_host_call(k.ast)))
    compiled = dict(zip(asts, cache.get_many(asts, device), strict=True))
    has_code = perf_counter()
    plan = _assembled(schedule, device, compiled, fixedvars or {}, values or {})
    plan.build_times = BuildTimes(compile=has_code - began, assemble=perf_counter() - has_code)
    return plan


def _assembled(
    schedule: Schedule,
    device: str,
    compiled: Mapping[UOp, CachedKernel],
    fixed: Mapping[str, int],
    first: Mapping[str, int],
) -> ExecutionPlan:
    builder = _Assembler(device)
    for item in schedule.items:
        if isinstance(item, KernelItem) and is_host_call(item.ast):
            builder.call(item)
        elif isinstance(item, KernelItem):
            kernel = compiled[item.ast]
            names = {*kernel.var_names, *(v.arg[0] for v in kernel.vars)}
            builder.launch(
                item,
                kernel,
                {n: v for n, v in fixed.items() if n in names},
                {n: v for n, v in first.items() if n in names and n not in fixed},
            )
        elif isinstance(item, RegionItem):
            bodies = tuple(_assembled(b, device, compiled, fixed, first) for b in item.bodies)
            builder.repeat(item, bodies)
        else:
            builder.add_copy(builder.index(item.dst), builder.index(item.src), item.nbytes)
    builder.set_output_buffers([builder.index(node) for node in schedule.outputs])
    return builder.finish(schedule)


class _Assembler(ExecutionPlanBuilder):
    """Assembles a plan. Order, dependencies and arena offsets are those of the schedule."""

    def launch(
        self,
        item: KernelItem,
        kernel: CachedKernel,
        fixedvars: Mapping[str, int],
        vals: Mapping[str, int],
    ) -> None:
        """Add a launch of `kernel`, the compiled kernel of `item`."""
        buffers = tuple(self.index(b) for b in item.buffers)
        self.add_op(
            PreparedKernel(
                self._new_id(), kernel, buffers, fixedvars, (), vals, item.origins, item.checks
            )
        )

    def repeat(self, item: RegionItem, bodies: tuple[ExecutionPlan, ...]) -> None:
        """Add a region with `bodies`, the plans of the bodies of `item`."""
        buffers = tuple(self.index(b) for b in item.buffers)
        bindings = []
        for use in item.ports:
            index = bodies[use.body].buffer_index(use.port)
            if index is not None:  # None: the body does not use the port
                bindings.append(PortBinding(use.body, index, use.slot, use.stride))
        nbytes = [self._layout.entries[b].nbytes for b in buffers]
        copies = tuple((to, source, nbytes[to]) for to, source in item.copies)
        run = PreparedRegion(
            self._new_id(), bodies, buffers, item.writes, tuple(bindings), copies, item.trip_count,
            item.reverse, item.count_slot, item.condition_slot, item.choice_slot, item.may_fail,
            item.origins,
        )  # fmt: skip
        self.add_op(run)

    def call(self, item: KernelItem) -> None:
        """Add the call of a Python function."""
        self.add_op(host_call(self._new_id(), item, [self.index(b) for b in item.buffers]))

    def index(self, node: UOp) -> int:
        """Return the index of the plan's buffer for a BUFFER node."""
        found = self._ast_map.get(node)
        if found is not None:
            return found
        if node.op is not Op.BUFFER:
            raise PlanBuildError(f"schedule: expected a BUFFER node, not {node!r}")
        if isinstance(node.arg, Intermediate):
            index = self._layout.add_own(node.arg.size, node.arg.dtype, node.arg)
            self.map_buffer(node, index)
            return index
        if isinstance(node.arg, Port):
            index = self._layout.add_port(node.arg.size, node.dtype)
            self.map_buffer(node, index)
            return index
        if isinstance(node.arg, Part):
            whole = self.index(node.arg.base)
            index = self._layout.add_part(whole, node.arg.offset, node.arg.size, node.dtype)
            self.map_buffer(node, index)
            return index
        if not isinstance(node.arg, Buffer):
            raise PlanBuildError(
                f"{node!r}: expected a Buffer or an Intermediate as storage, not {node.arg!r}"
            )
        return self.add_buffer(node.arg, node)

    def finish(self, schedule: Schedule) -> ExecutionPlan:
        """Check the operations and make the plan."""
        for op in self._ops:
            self._check_op(op)
        return self.assemble(
            self._layout, self._ops, schedule.deps, schedule.arena_offsets, schedule.arena_size,
            schedule.decisions,
        )  # fmt: skip

"""Rows of the C table: one tuple per operation of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from kernelrt import _dispatch
from kernelrt.ir import UOp
from kernelrt.runtime.ffi_kernels import PreparedForeignCall
from kernelrt.runtime.op_cost import estimate_ns, is_unknown, largest
from kernelrt.runtime.op_order import lasting
from kernelrt.runtime.plan_ops import (
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedRegion,
    can_fail,
)
from kernelrt.runtime.sizes import evaluate
from kernelrt.runtime.verify_region import sites

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kernelrt._dispatch import OpTuple, RegionTuple
    from kernelrt.ir import Dim
    from kernelrt.runtime.kernel import CachedKernel
    from kernelrt.runtime.plan import PlanParts
    from kernelrt.runtime.plan_ops import PreparedOp
    from kernelrt.runtime.slice_pipelining import Pipeline
    from kernelrt.runtime.variables import VariableTable

__all__ = ["Launch", "caller", "is_serial", "launches", "rows"]

Launch: TypeAlias = tuple[int, int, list[int], int, int, int, int]
"""Row of a kernel that replaces another; `kernelrt.native.core.Exchanges` lists the fields."""


def rows(
    parts: PlanParts,
    ops: Sequence[PreparedOp],
    variables: VariableTable,
    pipelines: Sequence[Pipeline],
    values: Mapping[str, int],
    address: Callable[[int], int],
    code: Callable[[CachedKernel], int],
    function: Callable[[int, PreparedCustomFunction], Callable[[], object]],
    status: int = _dispatch.STATUS,
) -> list[OpTuple]:
    """Return the rows of a plan, for the C core or for a file.

    Parameters
    ----------
    parts, ops, variables
        Parts of the plan.
    pipelines : sequence of Pipeline
        Pipelines of ops that run slice by slice.
    values : mapping of str to int
        Current values of the variables.
    address : callable
        Returns the address of a buffer of the plan, by its index.
    code : callable
        Returns the address of a kernel.
    function : callable
        Returns the callable for a custom function, by the index of its op.
    status : int
        Number to use as the address of a status word.
    """
    now = values or variables.initial
    set_values, set_chunks = variables.launch(now)
    numbers = {(op, slot): v for op, slot, v in set_values}
    chunks = dict(set_chunks)
    nbytes = [entry.nbytes for entry in parts.layout.entries]
    found: list[OpTuple] = []
    slices, follows = _slices(pipelines), {i for p in pipelines for i in p.members[1:]}
    for i, (op, deps) in enumerate(zip(ops, _all_deps(parts, pipelines), strict=True)):
        kind = _dispatch.NOP
        call: Callable[[], object] | RegionTuple | int | None = None
        bufs = [] if isinstance(op, PreparedBufferView) else [*map(address, op.buffer_indices)]
        vals: list[int] = []
        n, core_slot = 1, -1
        if isinstance(op, PreparedKernel):
            kind, call = _dispatch.KERNEL, code(op.kernel)
            bufs += [status] * op.kernel.may_fail
            vals, n, core_slot = _launch(op, now)
            n = chunks.get(i, n)
        elif isinstance(op, PreparedCopy):
            kind, vals = _dispatch.COPY, [numbers.get((i, 0), _fixed(op.nbytes))]
        elif isinstance(op, PreparedCustomFunction):
            kind, call = _dispatch.CUSTOM, function(i, op)
        elif isinstance(op, PreparedRegion):
            kind, call = _dispatch.REGION, (
                op.bodies, op.count, op.reverse, op.count_slot, op.condition_slot, op.choice_slot,
                op.copies, sites(op),
            )  # fmt: skip
        cost = estimate_ns(op, nbytes)
        flags = _flags(op, parts) | (_dispatch.FOLLOWS if i in follows else 0)
        found.append(
            (kind, call, bufs, vals, n, core_slot, flags, cost, deps, slices.get(i, 0))
        )
    return found


def launches(
    parts: PlanParts,
    ops: Mapping[int, PreparedOp],
    pipelines: Sequence[Pipeline],
    values: Mapping[str, int],
) -> list[Launch]:
    """Return the rows of replacement kernels for the C core.

    Parameters
    ----------
    parts : PlanParts
        Parts of the plan.
    ops : mapping of int to PreparedOp
        New launches by op index in the plan.
    pipelines : sequence of Pipeline
        Pipelines of the plan after the replacement.
    values : mapping of str to int
        Current values of the plan's variables.
    """
    slices = _slices(pipelines)
    nbytes = [entry.nbytes for entry in parts.layout.entries]
    found = []
    for i, op in ops.items():
        if isinstance(op, PreparedKernel):
            vals, n, core_slot = _launch(op, values)
            # The estimate is for the largest sizes, the row for the present ones.
            most = max(1, largest(op.kernel.global_size[0]))
            cost = estimate_ns(op, nbytes) * n // most
            found.append((i, op.kernel.address, vals, n, core_slot, cost, slices.get(i, 0)))
    return found


def _launch(op: PreparedKernel, values: Mapping[str, int]) -> tuple[list[int], int, int]:
    """Return the values of a row, the number of chunks, and the slot of ``core_id`` (or -1)."""
    known = {**values, **op.fixedvars}
    vals = op.kernel.vals_for(known)
    n = evaluate(op.kernel.global_size[0], known)
    return vals, n, len(vals) - 1 if op.kernel.is_split else -1


def _slices(pipelines: Iterable[Pipeline]) -> dict[int, int]:
    """Return the number of slices of each op in a pipeline, by op index."""
    return {i: pipeline.slices for pipeline in pipelines for i in pipeline.members}


def _all_deps(parts: PlanParts, pipelines: Iterable[Pipeline]) -> list[tuple[int, ...]]:
    """Return the dependencies of ops. The first op of a pipeline takes those of all others."""
    deps = list(parts.deps)
    for pipeline in pipelines:
        before = {d for i in pipeline.members for d in parts.deps[i] if d < pipeline.first}
        deps[pipeline.first] = tuple(sorted(before))
        for i in pipeline.members[1:]:
            deps[i] = tuple(sorted({pipeline.first, *parts.deps[i]}))
    return deps


def _fixed(nbytes: Dim) -> int:
    return 0 if isinstance(nbytes, UOp) else nbytes


def is_serial(op: PreparedOp, parts: PlanParts) -> bool:
    """Return whether an op must run alone, may fail, or writes bytes that a failed run keeps."""
    return _flags(op, parts) != _dispatch.HOST_PARALLEL_SAFE


def _flags(op: PreparedOp, parts: PlanParts) -> int:
    flags = 0
    if isinstance(op, PreparedCopy) or (
        isinstance(op, PreparedKernel) and op.kernel.host_parallel_safe
    ):
        flags |= _dispatch.HOST_PARALLEL_SAFE
    if isinstance(op, PreparedKernel) and can_fail(op):
        flags |= _dispatch.MAY_FAIL
    if lasting(op, parts.layout):
        flags |= _dispatch.COMMIT
    if is_unknown(op):
        flags |= _dispatch.UNKNOWN_COST
    return flags


def caller(
    op: PreparedCustomFunction,
    arrays: Callable[[], list[Any]],
    values: Callable[[], Mapping[str, int]],
) -> Callable[[], object]:
    """Return a function without arguments, which the C core calls for a custom function.

    Parameters
    ----------
    op : PreparedCustomFunction
        The op.
    arrays, values : callable
        Return the arrays to pass, and the current values of the plan's Variables.
    """
    if isinstance(op, PreparedForeignCall):
        return op.at_addresses()
    function = op.function
    if not op.variables:
        return lambda: function(*arrays())
    names = [v.arg[0] for v in op.variables]

    def call() -> object:
        now = values()
        return function(*arrays(), **{name: now[name] for name in names})

    return call

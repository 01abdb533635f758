"""Runs the stages of the scheduler in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.device.byte_ranges import ByteRangeMap
from kernelrt.device.spec import host
from kernelrt.errors import ShapeError
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.ffi import FfiResult
from kernelrt.ir.kernel_spec import verify_kernel
from kernelrt.ir.origin import spread
from kernelrt.ir.region import Loop
from kernelrt.ir.shape import dim_max, prod
from kernelrt.ir.tensor_spec import verify_tensor
from kernelrt.native.source_lines import advance
from kernelrt.schedule.fuse.fusion import Fusion, fuse
from kernelrt.schedule.fuse.fusion_cost import elements, strip
from kernelrt.schedule.fuse.index_maps import Indexer
from kernelrt.schedule.kernels.canonical_form import Forms
from kernelrt.schedule.kernels.drop_bounds_checks import drop_repeated
from kernelrt.schedule.kernels.lower import lower_group
from kernelrt.schedule.kernels.region_bodies import RegionDraft, run_of
from kernelrt.schedule.kernels.unscheduled import CallDraft, CopyDraft, KernelDraft, UnscheduledItem
from kernelrt.schedule.memory.arena import plan_arena, touched
from kernelrt.schedule.memory.commits import Commit, settle
from kernelrt.schedule.memory.hazards import Extents, accesses, dependencies, extent
from kernelrt.schedule.memory.item_order import execution_order
from kernelrt.schedule.memory.partial_writes import concatenate_assigned
from kernelrt.schedule.memory.verify_schedule import verify_schedule
from kernelrt.schedule.rewrite.array_layouts import free_contractions
from kernelrt.schedule.rewrite.concatenate_products import concatenate_products
from kernelrt.schedule.rewrite.materialize_padding import materialize_padding
from kernelrt.schedule.rewrite.one_pass_reductions import reduce_in_one_pass
from kernelrt.schedule.rewrite.prepack_in_loops import prepack_matrices
from kernelrt.schedule.rewrite.push_down_slices import push_slices_down
from kernelrt.schedule.rewrite.simplify import simplify_graph
from kernelrt.schedule.rewrite.split_products import block_contractions
from kernelrt.schedule.rewrite.split_reductions import split_reductions
from kernelrt.schedule.rewrite.transpose_operands import transpose_operands
from kernelrt.schedule.types import Intermediate, Item, KernelItem, RegionItem, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.dtype import DType
    from kernelrt.schedule.fuse.fusion_groups import Group
    from kernelrt.schedule.types import Decision

__all__ = ["schedule"]


def schedule(
    outputs: Sequence[UOp],
    commits: Sequence[tuple[UOp, UOp]] = (),
    *,
    device: DeviceSpec | None = None,
    arena: bool = True,
) -> Schedule:
    """Lower a tensor graph to kernels in execution order.

    Parameters
    ----------
    outputs : sequence of UOp
        Values to compute (tensor stage, any shape).
    commits : sequence of (UOp, UOp)
        Pairs of a BUFFER node and the value that replaces its content, which has as many elements.
        All values are computed from the old contents, so the order of the pairs does not matter.
    device : DeviceSpec, optional
        Target of the kernels; the CPU of this process by default.
    arena : bool
        Whether intermediates may reuse each other's memory. Results do not depend on it.

    Returns
    -------
    Schedule
        The schedule; its ``outputs`` are in the caller's order.

    Raises
    ------
    SpecError
        The graph breaks a rule of the tensor stage.
    ShapeError
        A commit's value and its target differ in dtype or number of elements.
    """
    for storage, value in commits:
        _check_commit(storage, value)
    advance()
    values = prepack_matrices([*outputs, *(value for _, value in commits)])
    values = simplify_graph(values)
    cropped = push_slices_down(concatenate_assigned(values))
    if cropped != values:
        values = simplify_graph(cropped)
    target = host() if device is None else device
    values = reduce_in_one_pass(concatenate_products(values, target), target)
    values = split_reductions(values, target)
    values = materialize_padding(block_contractions(values, target), target)
    values = transpose_operands(free_contractions(values), target)
    verify_tensor(values)
    return _Scheduling(
        values[: len(outputs)],
        [(t, v) for (t, _), v in zip(commits, values[len(outputs) :], strict=True)],
        target,
    ).run(arena)


def _check_commit(target: UOp, value: UOp) -> None:
    if target.op is not Op.BUFFER:
        raise ShapeError(
            f"commits: a target is a {target.op.name} node; it must be a BUFFER (stored data)"
        )
    if target.dtype is not value.dtype or int(target.arg.size) != elements(value.shape):
        raise ShapeError(
            f"commits: a value of {elements(value.shape)} {value.dtype.name} cannot replace "
            f"{int(target.arg.size)} {target.dtype.name}; sizes and dtypes must be equal"
        )


class _Scheduling:
    def __init__(
        self, outputs: list[UOp], commits: list[tuple[UOp, UOp]], device: DeviceSpec
    ) -> None:
        self._device = device
        self._outputs = outputs
        self._where = Extents()
        self._changing: ByteRangeMap[None] = ByteRangeMap()
        self._commits: list[tuple[UOp, UOp]] = []
        for target, value in commits:
            # A commit of the target itself is needed only if an earlier commit changes the target.
            if strip(value) is not target or self._changes(target):
                self._commits.append((target, value))
                self._changing.add(self._where[target], None)
        self._indexer = Indexer()
        self._buffers: dict[UOp, UOp] = {}
        self._drafts: list[UnscheduledItem] = []

    def run(self, arena: bool) -> Schedule:
        fusion = self._fuse()
        for node in fusion.home:
            self._buffers[node] = _intermediate(elements(node.shape), node)
        for group in fusion.groups:
            if group.kind == "call":
                self._drafts.append(self._called(group))
                continue
            if group.kind == "region":
                self._drafts.append(self._run(group))
                continue
            stores = lower_group(group, self._buffers, fusion.orders, self._indexer)
            self._drafts.append(KernelDraft(group, stores))
        outputs = [self._output(strip(v)) for v in self._outputs]
        pending = [
            Commit(
                target, self._source(strip(value)), prod((*value.shape, target.dtype.itemsize))
            )
            for target, value in self._commits
            if elements(value.shape)
        ]
        drop_repeated(self._drafts, self._where)
        graph = settle(self._drafts, pending, set(outputs), self._where)
        forms = Forms(self._indexer, frozenset(outputs))
        items: list[Item] = [d.finish(forms) for d in execution_order(graph)]
        for ast in dict.fromkeys(item.ast for item in items if isinstance(item, KernelItem)):
            verify_kernel(ast)
        deps = dependencies(accesses(items, self._where))
        keep = {b.arg for b in outputs if isinstance(b.arg, Intermediate)}
        offsets, size = plan_arena(touched(items), deps, keep, reuse=arena)
        made = Schedule(
            tuple(items), tuple(outputs), deps, offsets, size,
            _variables(items), (*fusion.decisions, *_decisions(items)),
        )  # fmt: skip
        verify_schedule(made, [c.target for c in pending], self._where)
        return made

    def _called(self, group: Group) -> CallDraft:
        node = next(iter(group.roots))
        operands = [strip(s) for s in node.src]
        buffers = [n if n.op is Op.BUFFER else self._buffers[n] for n in operands]
        results = [self._buffers[node]]
        if isinstance(node.arg, FfiResult):
            wanted = {root.arg.index: self._buffers[root] for root in group.roots}
            slots = node.arg.callee.slots[: node.arg.callee.n_results]
            results = [
                wanted[k] if k in wanted else _fresh(size, dtype)
                for k, (dtype, size) in enumerate(slots)
            ]
        return CallDraft(group, node, [*results, *buffers])

    def _run(self, group: Group) -> RegionDraft:
        nodes = list(group.roots)
        run = run_of(nodes)
        buffers = []
        for wanted, (size, dtype) in zip(run.given, run.sizes, strict=True):
            if wanted is None:
                buffers.append(UOp(Op.BUFFER, dtype, (), Intermediate(size, dtype)))
            else:
                buffers.append(self._buffers[nodes[wanted]])
        buffers += [self._operand(strip(nodes[0].src[k])) for k in run.operands]
        bodies = tuple(schedule((), commits, device=self._device) for commits in run.bodies)
        program = nodes[0].arg.program
        loops = isinstance(program, Loop)
        trip_count = dim_max(program.trip_count) if loops else 1
        return RegionDraft(group, run, buffers, bodies, trip_count, loops and program.reverse)

    def _operand(self, node: UOp) -> UOp:
        """Return the BUFFER of a region operand."""
        return node if node.op is Op.BUFFER else self._output(node)

    def _fuse(self) -> Fusion:
        committed: dict[UOp, list[UOp]] = {}
        for target, value in self._commits:
            committed.setdefault(strip(value), []).append(target)
        wanted = [*self._outputs, *(v for _, v in self._commits)]
        spread(list(toposort(wanted)))  # while reshapes at the end still carry their origins
        wanted = [strip(v) for v in wanted]
        wanted = [n for n in dict.fromkeys(wanted) if n.op is not Op.BUFFER]
        return fuse(wanted, committed, self._indexer, self._device)

    def _output(self, node: UOp) -> UOp:
        """Return the BUFFER of an output. If a commit changes this BUFFER, return a copy of it."""
        if node.op is Op.BUFFER:
            return self._copied(node) if self._changes(node) else node
        if node not in self._buffers:  # no elements, no kernel
            self._buffers[node] = _intermediate(0, node)
        return self._buffers[node]

    def _source(self, node: UOp) -> UOp:
        """Return the BUFFER of a commit's value. If a commit changes it, return a copy of it."""
        if node.op is not Op.BUFFER:
            return self._buffers[node]
        return self._copied(node) if self._changes(node) else node

    def _changes(self, node: UOp) -> bool:
        """Return whether a commit changes any byte of a BUFFER."""
        return bool(self._changing.meeting(self._where[node]))

    def _copied(self, node: UOp) -> UOp:
        copy = _intermediate(int(node.arg.size), node)
        self._drafts.append(CopyDraft(copy, node, extent(copy).nbytes))
        return copy


def _intermediate(size: int, node: UOp) -> UOp:
    return _fresh(size, node.dtype)


def _fresh(size: int, dtype: DType) -> UOp:
    return UOp(Op.BUFFER, dtype, (), Intermediate(size, dtype))


def _decisions(items: Sequence[Item]) -> Iterator[Decision]:
    """Yield the fusion decisions of region bodies."""
    for item in items:
        if isinstance(item, RegionItem):
            for body in item.bodies:
                yield from body.decisions


def _variables(items: Sequence[Item]) -> tuple[UOp, ...]:
    sinks = dict.fromkeys(item.ast for item in items if isinstance(item, KernelItem))
    return tuple(n for n in toposort(sinks) if n.op is Op.VAR)

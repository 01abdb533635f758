"""From lazy tensors to data: what has to be computed together, and what must not be overwritten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.device.region import RegionMap, region_of
from kernelrt.errors import VariableError
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.shape import format_shape, is_static
from kernelrt.tensor import build, execute, state
from kernelrt.tensor.marks import Stale, is_kept, mark, strip
from kernelrt.tensor.trace import forbid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kernelrt.runtime import ExecutionPlan
    from kernelrt.tensor.base import TensorBase

__all__ = ["before_writes", "flush", "is_changing", "materialize", "prepare", "realize"]


def realize(*tensors: TensorBase) -> None:
    """Compute `tensors`, and commit what was assigned, in one plan.

    Raises
    ------
    JitError
        A function is being traced.
    VariableError
        A tensor has a dimension that is known only at run time.
    IndexBoundsError
        An index read from data was out of range. Assignments that were part of the run are
        undone then: those tensors read what they held before.
    """
    forbid("realize()")
    for tensor in tensors:
        tensor._enter()
        _check_static(tensor)
    with state.lock:
        _run([t for t in tensors if not t.is_realized and t._uop is not None])


def flush() -> None:
    """Commit what was assigned."""
    if state.pending:
        with state.lock:
            _run([])


def is_changing(tensor: TensorBase) -> bool:
    """Whether the node of `tensor` reads what a pending assignment is about to change.

    What was found steady is not looked at again before the next assignment, so asking for every
    operand of a graph takes time linear in its size.
    """
    if id(tensor) in state.pending:
        return True
    steady = state.steady
    if tensor._uop in steady:
        return False
    with state.lock:
        written = _written(state.pending.values())
        found = []
        for node in toposort([tensor._uop], stop=steady.__contains__):
            source = _leaf_of(node.arg.storage) if is_kept(node) else node
            if source.op is Op.BUFFER and _overlaps(source.arg, written):
                return True
            found.append(node)
        steady.update(found)
    return False


def materialize(tensors: Sequence[TensorBase]) -> None:
    """Compute `tensors` without asking whether a trace is active."""
    for tensor in tensors:
        _check_static(tensor)
    with state.lock:
        _compute(tensors, (), set())


def before_writes(buffers: Iterable[Buffer]) -> None:
    """Compute the lazy tensors whose expressions read `buffers`, which are about to change.

    Whoever executes a plan with commits calls this first, unless ``state.lazy`` is empty. So a
    tensor keeps the value it had when its expression was written.
    """
    written = _memory(buffers)
    with state.lock:
        readers = _readers(list(state.lazy.values()), written)
        _compute(readers, (), set(map(id, readers)))
        _expire(written)


def prepare(*tensors: TensorBase, threads: int | None = None) -> ExecutionPlan:
    """One plan that computes `tensors` each time it is executed.

    The plan reads the data of the tensors they are made of in place. A tensor among the arguments
    that was assigned to, and not read since, is committed by each execute; its storage is the
    output.

    Parameters
    ----------
    *tensors : Tensor
        What to compute.
    threads : int, optional
        The most threads that the plan may use.

    Returns
    -------
    ExecutionPlan
        Its outputs are `tensors` in order.

    Raises
    ------
    JitError
        A function is being traced.

    Examples
    --------
    >>> import numpy as np, kernelrt as krt
    >>> x = krt.from_numpy(np.arange(3, dtype=np.float32))
    >>> plan = krt.prepare(x * 2)
    >>> plan.execute()
    """
    forbid("prepare()")
    with state.lock:
        assigned = [id(t) in state.pending for t in tensors]
        _run([], apart={id(t) for t in tensors})
        for tensor in tensors:
            tensor._enter()
        nodes = strip(t._uop for t in tensors)
        commits = {i: _commit(t, nodes[i]) for i, t in enumerate(tensors) if assigned[i]}
        plan = execute.prepare(nodes, list(commits.values()), {i: c[0] for i, c in commits.items()})
        for t, a in zip(tensors, assigned, strict=True):
            if a:
                _reset(t)
    if threads is not None:
        plan.set_threads(threads)
    return plan


def _check_static(tensor: TensorBase) -> None:
    if not is_static(tensor.shape):
        raise VariableError(
            f"a tensor of shape {format_shape(tensor.shape)} has no value before its Variables "
            "have; prepare() it and pass them to execute_with_vars, or use jit(dynamic=...)"
        )


def _run(targets: list[TensorBase], apart: Collection[int] = ()) -> None:
    """Compute `targets` and what is pending; tensors that read what changes come along.

    Assignments to tensors whose identity is in `apart` stay pending.
    """
    commits = [t for t in state.pending.values() if id(t) not in apart]
    chosen = {id(t): t for t in targets}
    readers: set[int] = set()
    if commits:
        written = _written(commits)
        found = _readers([t for t in state.lazy.values() if is_static(t.shape)], written)
        readers = {id(t) for t in found}
        chosen |= {id(t): t for t in found}
    _compute(list(chosen.values()), commits, readers)
    if commits:
        _expire(written)


def _compute(
    targets: Sequence[TensorBase], commits: Sequence[TensorBase], readers: set[int]
) -> None:
    """Give `targets` data and carry `commits` out; the histories of `readers` go stale."""
    if not targets and not commits:
        return
    nodes = strip(t._uop for t in (*targets, *commits))
    values = nodes[: len(targets)]
    writes = [
        w for t, n in zip(commits, nodes[len(targets) :], strict=True)
        if (w := _commit(t, n))[0] is not w[1]
    ]  # fmt: skip
    ready = {i: b for i, v in enumerate(values) if (b := _without_kernel(v)) is not None}
    rest = [i for i in range(len(values)) if i not in ready]
    try:
        if rest or writes:
            buffers = execute.compute([values[i] for i in rest], writes)
            ready |= dict(zip(rest, buffers, strict=True))
    finally:
        for t in commits:
            _reset(t)
    for i, t in enumerate(targets):
        t._settle(ready[i], tuple(map(int, t.shape)), stale=id(t) in readers)  # type: ignore[arg-type]


def _commit(tensor: TensorBase, value: UOp) -> tuple[UOp, UOp]:
    buffer: Buffer = tensor._memory
    return UOp(Op.BUFFER, buffer.dtype, (), buffer), build.reshape(value, (buffer.size,))


def _reset(tensor: TensorBase) -> None:
    """Let an assigned tensor read its storage again."""
    state.pending.pop(id(tensor), None)
    state.steady.clear()
    shape = tensor._shape
    assert shape is not None
    tensor._settle(tensor._memory, shape, stale=True)


def _without_kernel(value: UOp) -> Buffer | None:
    """The data of a value that no kernel is needed for: a constant, a copy, nothing at all."""
    shape = value.shape
    if build.has_zero(shape):
        return Buffer(0, value.dtype)
    number = build.const_value(value)
    if number is not None and value.dtype is not dt.bfloat16:
        buffer = Buffer(int(build.volume(shape)), value.dtype)  # type: ignore[arg-type]
        buffer.numpy()[...] = np.array(number).astype(dt.to_numpy(value.dtype))
        return buffer
    while value.op is Op.RESHAPE:
        value = value.src[0]
    if value.op is Op.BUFFER and isinstance(value.arg, Buffer):
        buffer = Buffer(value.arg.size, value.dtype)
        buffer.raw()[...] = value.arg.raw()
        return buffer
    return None


def _readers(tensors: Sequence[TensorBase], written: RegionMap[None]) -> list[TensorBase]:
    """Those of `tensors` whose expressions read one of the buffers."""
    roots = [t._uop for t in tensors]
    reads: dict[UOp, bool] = {}
    for node in toposort(roots, stop=is_kept):
        source = _leaf_of(node.arg.storage) if is_kept(node) else node
        if source.op is Op.BUFFER:
            reads[node] = _overlaps(source.arg, written)
        else:
            reads[node] = any(reads[s] for s in node.src)
    return [t for t, root in zip(tensors, roots, strict=True) if reads[root]]


def _leaf_of(storage: UOp) -> UOp:
    """The BUFFER below a storage node."""
    while storage.src:
        storage = storage.src[0]
    return storage


def _written(tensors: Iterable[TensorBase]) -> RegionMap[None]:
    """The memory of `tensors`."""
    return _memory(b for t in tensors if (b := t._memory) is not None)


def _memory(buffers: Iterable[Buffer]) -> RegionMap[None]:
    found: RegionMap[None] = RegionMap()
    for buffer in buffers:
        found.add(region_of(buffer), None)
    return found


def _overlaps(buffer: object, written: RegionMap[None]) -> bool:
    # What has no memory yet shares none.
    return (
        isinstance(buffer, Buffer)
        and buffer.allocated
        and bool(written.meeting(region_of(buffer)))
    )


def _expire(written: RegionMap[None]) -> None:
    """Give up the histories that went over `written`, which changed."""
    for tensor in list(state.kept.values()):
        kept = tensor._uop
        if kept.op is not Op.DETACH or _history_reads(kept.src[0], written):
            state.kept.pop(id(tensor), None)
            if kept.op is Op.DETACH:
                tensor._uop = mark(kept.arg.storage, Stale())


def _history_reads(node: UOp, written: RegionMap[None]) -> bool:
    return any(n.op is Op.BUFFER and _overlaps(n.arg, written) for n in toposort([node]))

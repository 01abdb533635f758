"""Computation of lazy tensors: groups what one run computes, and orders writes after reads."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from kernelrt.device import registry
from kernelrt.device.buffer import Buffer, ids
from kernelrt.errors import DTypeError, PlanBusyError, VariableError
from kernelrt.ir import UOp, toposort
from kernelrt.ir.origin import lines, origins
from kernelrt.ir.shape import format_shape, is_static
from kernelrt.native.array_handle import ArrayHandle, exchange
from kernelrt.native.eager_plan import CHANGED, give
from kernelrt.native.evaluate import (
    _name_memory,
    _name_modules,
    attempt,
    copied,
    due,
    entered,
    evaluate,
    lazy_ones,
)
from kernelrt.native.fast_paths import _name_copy
from kernelrt.native.write_barrier import (
    WrittenMemory,
    history_version,
    kept_members,
    memory_of,
    over_kept,
    readers_of,
    reads,
)
from kernelrt.tensor import state, views
from kernelrt.tensor.autograd.tags import below, is_kept, lineage, rewritten, stale, strip
from kernelrt.tensor.eager import diagnostics, execute, plan_cache, shared_memory
from kernelrt.tensor.nodes import build
from kernelrt.tensor.tracing import weak_types
from kernelrt.tensor.tracing.trace import forbid
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from kernelrt.native.evaluate import Entry
    from kernelrt.runtime import ExecutionPlan
    from kernelrt.tensor.base import TensorBase

    #: Assignments made in one step: tensors and the nodes of their values.
    _Unit = list[tuple[TensorBase, UOp | None]]
    from kernelrt.tensor.eager import nonfinite
else:
    nonfinite = Module("kernelrt.tensor.eager.nonfinite")

__all__ = ["before_writes", "check_settled", "compute_piece", "copied", "flush", "flush_some",
           "materialize", "prepare", "realize"]  # fmt: skip

#: Interrupting code creates lazy tensors once. Other threads may create them all the time, and must
#: synchronize with code that writes memory they read.
MOST_PASSES: Final = 4
BUSY = (
    "this tensor reads memory that the interrupted code is assigning to; read it in a signal "
    "handler or finalizer only after the assignment has finished"
)
NEEDED = (
    "the interrupted code is executing an assignment whose value is computed from memory that this "
    "code would write now; in a signal handler or finalizer, assign to the tensor without reading "
    "it, and the interrupted code executes the assignment later"
)


def realize(*tensors: TensorBase) -> None:
    """Compute `tensors` and commit pending assignments, in one plan.

    Parameters
    ----------
    *tensors : Tensor
        Tensors to compute; without any, only pending assignments are committed.

    Raises
    ------
    JitError
        A function is being traced.
    DTypeError
        One of `tensors` is not a Tensor.
    VariableError
        A tensor has a dimension that is known only at run time.
    IndexBoundsError
        An index read from data is out of range. The target of the failing assignment keeps its old
        value. So do tensors assigned in the same step of an optimizer, and memory that the failing
        expression reads. All other assignments are executed.

    Examples
    --------
    >>> x = krt.tensor([1.0, 2.0])
    >>> y, z = x * 2, x.sum()
    >>> krt.realize(y, z)  # one plan for both
    >>> y.is_realized, z.is_realized
    (True, True)
    """
    forbid("realize()")
    entered(tensors)
    with state.lock:
        targets = lazy_ones(tensors)
        if targets or state.pending:
            _run(targets)
    diagnostics.tell()


def flush(reader: TensorBase | None = None) -> None:
    """Commit pending assignments; raise PlanBusyError if `reader` reads memory being written."""
    if state.pending:
        with state.lock:
            check_settled(() if reader is None else (reader,))
            _run([])


def flush_some(chosen: Callable[[TensorBase], bool]) -> None:
    """Commit pending assignments to the tensors for which `chosen` is true.

    Other assignments whose values read memory that this changes are executed, too.
    """
    with state.lock:
        check_settled(())
        _run([], deferred=_deferrable(t for t in list(state.pending.values()) if not chosen(t)))


_name_copy(copied, flush, realize)


def materialize(tensors: Sequence[TensorBase]) -> None:
    """Compute `tensors`, even if a trace is active."""
    for tensor in tensors:
        check_static(tensor)
    with state.lock:
        evaluate([*tensors], [], set(), None)


def compute_piece(tensor: TensorBase) -> None:
    """Compute a tensor and values that other lazy tensors share with it; commit no assignments."""
    with state.lock:
        attempt([tensor], [], None)


def before_writes(buffers: Iterable[Buffer], targets: Sequence[TensorBase] = ()) -> int:
    """Compute the lazy tensors whose expressions read `buffers`, which are about to change.

    If any tensor is watched, code that executes a plan with commits calls this first. So a
    tensor keeps the value that it had when its expression was created. `targets` are computed in
    the same run. As long as ``state.births`` equals the returned number, no other readers exist.
    """
    written = WrittenMemory(buffers)
    with state.lock:
        return _compute_readers(written, targets)


def _compute_readers(written: WrittenMemory, targets: Sequence[TensorBase]) -> int:
    for _ in range(MOST_PASSES):
        births = state.births[0]
        _run([t for t in targets if not t.is_realized], written=written)
        if births == state.births[0]:
            break  # no interrupting code has created more readers
    return births


def prepare(*tensors: TensorBase, threads: int | None = None) -> ExecutionPlan:
    """Return a plan that computes `tensors` each time it is executed.

    The plan reads the data of the operands in place. If one of `tensors` has a pending assignment,
    each execute commits the assignment; its storage is the output. Exception: if its value reads a
    tensor that was assigned to later, the assignment is committed once, before that tensor changes.

    Parameters
    ----------
    *tensors : Tensor
        Tensors to compute.
    threads : int, optional
        Maximum number of threads of the plan.

    Returns
    -------
    ExecutionPlan
        Plan whose outputs are `tensors` in order.

    Raises
    ------
    JitError
        A function is being traced.
    DTypeError
        One of `tensors` is not a Tensor, or `threads` is not an int.
    ShapeError
        `threads` is below 1.

    Examples
    --------
    >>> array = np.arange(3, dtype=np.float32)
    >>> plan = krt.prepare(krt.from_numpy(array) * 2)
    >>> array[0] = 5
    >>> plan.execute()
    >>> plan.output_buffer.numpy().tolist()
    [10.0, 2.0, 4.0]
    """
    forbid("prepare()")
    check_tensors(tensors)
    with state.lock:
        plan = _prepared(tensors)
        state.steady[0] = None
    if threads is not None:
        plan.set_threads(threads)
    return plan


def _prepared(tensors: Sequence[TensorBase]) -> ExecutionPlan:
    outcome = CHANGED
    while outcome == CHANGED:
        deferred = _deferrable(tensors)
        assigned = [id(t) in deferred for t in tensors]
        _run([], deferred=deferred)
        marked = [t._entered() for t in tensors]
        nodes = strip(shared_memory.in_place(marked))
        commits = {
            i: build.write(t._memory, node)
            for i, (t, node) in enumerate(zip(tensors, nodes, strict=True))
            if assigned[i]
        }
        plan = execute.prepare(
            nodes, list(commits.values()), {i: c[0] for i, c in commits.items()}
        )
        resets = {id(t): (t, marked[i], t._at_rest()) for i in commits for t in [tensors[i]]}
        outcome = give([], list(resets.values()), state.pending)
    return plan


def check_tensors(tensors: Iterable[object]) -> None:
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, ArrayHandle):
            raise DTypeError(f"tensors[{i}]: expected a Tensor, not {type(tensor).__name__}")


def _deferrable(tensors: Iterable[TensorBase]) -> dict[int, TensorBase]:
    """Return `tensors` whose assignments can wait until all others are committed, by identity."""
    deferred = {id(t): t for t in tensors if id(t) in state.pending}
    early = list(deferred)
    while early:
        before = memory_of(due(deferred))
        early = [
            key for key, t in deferred.items()
            if before.overlaps(t._memory) or reads(t._entered(), before)
        ]  # fmt: skip
        for key in early:
            del deferred[key]
    return deferred


def check_static(tensor: TensorBase) -> None:
    if not is_static(tensor.dims):
        raise VariableError(
            f"a tensor of shape {format_shape(tensor.dims)} has no value before its Variables "
            "have values; prepare() it and pass the values to execute_with_vars, or use "
            "jit(dynamic=...)"
        )


def _run(
    targets: list[TensorBase], deferred: Collection[int] = (), written: WrittenMemory | None = None
) -> None:
    """Compute `targets` and commit assignments; first compute tensors that read changed memory.

    Assignments to tensors whose identity is in `deferred` stay pending. Memory in `written` is
    about to change, too.
    """
    check_settled(targets)
    while True:
        commits = due(deferred)
        nodes = [(t, t._uop) for t in commits]
        try:
            if attempt(targets, commits, written):
                return
        except (Warning, PlanBusyError):
            # Not an error of the run itself, but of the kernel cache or a check before the run. All
            # assignments stay pending.
            raise
        except Exception:
            _execute_sound(nodes)
            raise
        targets = [t for t in targets if not t.is_realized]


def _execute_sound(commits: Sequence[tuple[TensorBase, UOp | None]]) -> None:
    """After a failed run, execute the commits that do not fail, and drop the others.

    Assignments of one step are executed or dropped together. No commit reads a tensor that another
    one assigns to, because reading would have executed that assignment.
    """
    units: dict[object, _Unit] = {}
    for t, node in commits:
        units.setdefault(state.units.get(id(t), id(t)), []).append((t, node))
    sound: list[_Unit] = []
    complete = True
    for unit in units.values():
        try:
            evaluate([_lazy_copy(*entry) for entry in unit], [], set(), None)
        except (Warning, PlanBusyError):
            complete = False
        except Exception:  # noqa: BLE001 - the caller raises the first one
            _drop(unit)
        else:
            sound.append(unit)
    if not complete:
        return  # the remaining assignments may read memory that the others would write
    try:
        while sound:
            sound = _execute(sound)
    except (Warning, PlanBusyError):
        pass  # they stay pending


def _execute(units: list[_Unit]) -> list[_Unit]:
    """Execute all of `units`, or execute none, drop some and return the rest.

    A lazy tensor that must be computed before a write, but fails, prevents only the units that
    write memory it reads. These are dropped.
    """
    nodes = {id(t): node for unit in units for t, node in unit}
    try:
        # Assignments that interrupting code has made since are left for the next run.
        while not attempt([], [t for t in due(()) if _same(t, nodes.get(id(t)))], None):
            pass
    except (Warning, PlanBusyError):
        raise
    except Exception:  # noqa: BLE001 - the caller of the caller raises the first one
        written = memory_of([t for unit in units for t, _ in unit])
        failing = _failing(readers_of(state.watched, written))
        rest = []
        for unit in units:
            touched = memory_of([t for t, _ in unit])
            if failing and not any(reads(node, touched) for node in failing):
                rest.append(unit)
            else:
                _drop(unit)
        return rest
    return []


def _same(tensor: TensorBase, node: UOp | None) -> bool:
    return node is not None and tensor._uop is node


def _failing(tensors: Sequence[TensorBase]) -> list[UOp]:
    """Compute `tensors`, and return the nodes of those that fail."""
    entries = [(t, node) for t in tensors if not t.is_realized and (node := t._uop) is not None]
    try:
        evaluate([t for t, _ in entries], [], set(), None)
    except (Warning, PlanBusyError):
        raise
    except Exception:  # noqa: BLE001 - the caller of the caller raises the first one
        if len(entries) == 1:
            return [entries[0][1]]
        middle = len(entries) // 2
        return [node for part in (entries[:middle], entries[middle:])
                for node in _failing([t for t, _ in part])]  # fmt: skip
    return []


def _lazy_copy(tensor: TensorBase, node: UOp | None) -> TensorBase:
    """Return a new lazy tensor with the class of `tensor` and the node `node`."""
    twin = type(tensor).__new__(type(tensor))
    twin._uop, twin._grad, twin._leaf = node, None, None
    twin._born, twin._plain = None, True
    return twin


def _drop(commits: Iterable[tuple[TensorBase, UOp | None]]) -> None:
    for t, node in commits:
        if node is not None:
            give([], [(t, node, t._at_rest())], state.pending)
    state.steady[0] = None


def check_settled(tensors: Sequence[TensorBase]) -> None:
    """Raise PlanBusyError if `tensors` read memory that this thread is writing right now."""
    changing = state.changing
    if changing is not None:
        nodes = [node for t in tensors if (node := t._uop) is not None]
        if any(reads(node, changing) for node in nodes):
            raise PlanBusyError(BUSY)


def check_unneeded(written: WrittenMemory) -> None:
    """Raise PlanBusyError if values that this thread is writing right now read `written`.

    Only the interrupted code, which has the plan of these values, can compute them.
    """
    changing = state.changing
    if changing is None:
        return
    for tensor in list(state.pending.values()):
        node = tensor._uop
        if node is None or not changing.overlaps(tensor._memory):
            continue
        if reads(node, written):
            raise PlanBusyError(NEEDED)


def check_finite(nodes: Sequence[UOp], writes: Sequence[tuple[UOp, UOp]]) -> None:
    """Raise NonFiniteError if a run would compute numbers that are not finite."""
    nonfinite.check(nodes, writes)


def names_lines_of(
    entry: Entry, nodes: Sequence[UOp], writes: Sequence[tuple[UOp, UOp]]
) -> bool:
    """Return whether errors of a plan name the lines that made these graphs."""
    order = toposort([*nodes, *(new for _, new in writes)])
    return lines(entry.origins) == lines(origins(order))


def expire(written: WrittenMemory) -> None:
    """Mark histories as stale that read `written`, which has changed.

    This applies to tensors with data. It also applies to the graphs of lazy tensors, because these
    may read computed values whose history reads the written memory.
    """
    for tensor in kept_members(state.watched):
        node = tensor._uop
        if node is None or not tensor.is_realized:
            continue
        if not is_kept(node) or (
            reads(node.src[0], written)
            and exchange(tensor, node, stale(node.arg.storage, node))
        ):
            state.watched.discard(tensor)
    version = history_version()

    def ends(node: UOp) -> bool:
        return is_kept(node) or node.cached_steady == version

    for tensor, root in over_kept(state.watched):
        ended = {
            node: stale(node.arg.storage, node)
            for node in below([root], ends)
            if is_kept(node)
            and not (node.arg.shared and lineage(node) is False)
            and reads(node.src[0], written)
        }
        if ended:
            exchange(tensor, root, rewritten([root], ended)[0])


_name_modules(state, plan_cache, diagnostics, execute, views, weak_types, sys.modules[__name__])
_name_memory(Buffer, ids, registry.allocator("CPU"))

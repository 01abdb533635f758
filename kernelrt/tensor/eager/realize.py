"""Computes lazy tensors: collects what is computed together, and orders writes after reads."""

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
    Written,
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

    #: What was assigned in one step: tensors and the nodes of their values.
    _Unit = list[tuple[TensorBase, UOp | None]]
    from kernelrt.tensor.eager import nonfinite
else:
    nonfinite = Module("kernelrt.tensor.eager.nonfinite")

__all__ = ["before_writes", "check_settled", "compute_piece", "copied", "flush", "flush_some",
           "materialize", "prepare", "realize"]  # fmt: skip

#: Interrupting code makes lazy tensors once; other threads may make them all the time, and have to
#: take turns with whoever writes what they read.
MOST_PASSES: Final = 4
BUSY = (
    "this tensor reads memory that the interrupted code is assigning to; a handler of a signal or "
    "a finalizer can read it once that is done"
)
NEEDED = (
    "the interrupted code is carrying out an assignment whose value is computed from memory that "
    "would be written now; a handler of a signal or a finalizer can assign, and leave it to the "
    "code that it interrupts to carry that out"
)


def realize(*tensors: TensorBase) -> None:
    """Compute `tensors`, and commit what was assigned, in one plan.

    Raises
    ------
    JitError
        A function is being traced.
    VariableError
        A tensor has a dimension that is known only at run time.
    IndexBoundsError
        An index read from data was out of range. What it was to be assigned to reads what it held
        before, as does what was assigned in the same step of an optimizer, and memory that the
        failing expression reads; all other assignments are carried out.
    """
    forbid("realize()")
    entered(tensors)
    with state.lock:
        targets = lazy_ones(tensors)
        if targets or state.pending:
            _run(targets)
    diagnostics.tell()


def flush(reader: TensorBase | None = None) -> None:
    """Commit what was assigned, for the sake of `reader`, which must not be in the making."""
    if state.pending:
        with state.lock:
            check_settled(() if reader is None else (reader,))
            _run([])


def flush_some(chosen: Callable[[TensorBase], bool]) -> None:
    """Commit what was assigned to the tensors for which `chosen` is true.

    Other assignments whose values read what that changes are carried out, too.
    """
    with state.lock:
        check_settled(())
        _run([], apart=_can_wait(t for t in list(state.pending.values()) if not chosen(t)))


_name_copy(copied, flush, realize)


def materialize(tensors: Sequence[TensorBase]) -> None:
    """Compute `tensors` without asking whether a trace is active."""
    for tensor in tensors:
        check_static(tensor)
    with state.lock:
        evaluate([*tensors], [], set(), None)


def compute_piece(tensor: TensorBase) -> None:
    """Compute a tensor, and what other lazy tensors share with it; leave assignments pending."""
    with state.lock:
        attempt([tensor], [], None)


def before_writes(buffers: Iterable[Buffer], targets: Sequence[TensorBase] = ()) -> int:
    """Compute the lazy tensors whose expressions read `buffers`, which are about to change.

    Whoever executes a plan with commits calls this first, unless nothing is watched. So a
    tensor keeps the value it had when its expression was written. `targets` are computed along.
    While ``state.births`` is what this gives, there are no others.
    """
    written = Written(buffers)
    with state.lock:
        return _compute_readers(written, targets)


def _compute_readers(written: Written, targets: Sequence[TensorBase]) -> int:
    for _ in range(MOST_PASSES):
        births = state.births[0]
        _run([t for t in targets if not t.is_realized], written=written)
        if births == state.births[0]:
            break  # no interrupting code has made others
    return births


def prepare(*tensors: TensorBase, threads: int | None = None) -> ExecutionPlan:
    """One plan that computes `tensors` each time it is executed.

    The plan reads the data of the tensors they are made of in place. A tensor among the arguments
    that was assigned to, and not read since, is committed by each execute; its storage is the
    output. Where another tensor that its value reads was assigned to since, it is committed once,
    before that one changes.

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
    DTypeError
        One of `tensors` is none, or `threads` is no int.

    Examples
    --------
    >>> import numpy as np, kernelrt as krt
    >>> x = krt.from_numpy(np.arange(3, dtype=np.float32))
    >>> plan = krt.prepare(x * 2)
    >>> plan.execute()
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
        apart = _can_wait(tensors)
        assigned = [id(t) in apart for t in tensors]
        _run([], apart=apart)
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


def _can_wait(tensors: Iterable[TensorBase]) -> dict[int, TensorBase]:
    """Those of `tensors`, by identity, whose assignments can wait until all others are done."""
    apart = {id(t): t for t in tensors if id(t) in state.pending}
    early = list(apart)
    while early:
        before = memory_of(due(apart))
        early = [
            key for key, t in apart.items()
            if before.overlaps(t._memory) or reads(t._entered(), before)
        ]  # fmt: skip
        for key in early:
            del apart[key]
    return apart


def check_static(tensor: TensorBase) -> None:
    if not is_static(tensor.dims):
        raise VariableError(
            f"a tensor of shape {format_shape(tensor.dims)} has no value before its Variables "
            "have values; prepare() it and pass the values to execute_with_vars, or use "
            "jit(dynamic=...)"
        )


def _run(
    targets: list[TensorBase], apart: Collection[int] = (), written: Written | None = None
) -> None:
    """Compute `targets` and what is pending; tensors that read what changes come along.

    Assignments to tensors whose identity is in `apart` stay pending. What is in `written` is going
    to change, too.
    """
    check_settled(targets)
    while True:
        commits = due(apart)
        nodes = [(t, t._uop) for t in commits]
        try:
            if attempt(targets, commits, written):
                return
        except (Warning, PlanBusyError):
            # Of something beside the run, as where kernels are kept, or before it: all stays to be
            # done.
            raise
        except Exception:
            _salvage(nodes)
            raise
        targets = [t for t in targets if not t.is_realized]


def _salvage(commits: Sequence[tuple[TensorBase, UOp | None]]) -> None:
    """Carry out those of `commits` that can be, and give up the others.

    They were to be carried out together with something that failed. What was assigned in one step
    stays together. None reads what another assigns: reading would have carried it out.
    """
    units: dict[object, _Unit] = {}
    for t, node in commits:
        units.setdefault(state.units.get(id(t), id(t)), []).append((t, node))
    sound: list[_Unit] = []
    complete = True
    for unit in units.values():
        try:
            evaluate([_twin(*entry) for entry in unit], [], set(), None)
        except (Warning, PlanBusyError):
            complete = False
        except Exception:  # noqa: BLE001 - the caller raises the first one
            _give_up(unit)
        else:
            sound.append(unit)
    if not complete:
        return  # what stays to be done may read what the others would write
    try:
        while sound:
            sound = _carry_out(sound)
    except (Warning, PlanBusyError):
        pass  # they stay to be done


def _carry_out(units: list[_Unit]) -> list[_Unit]:
    """Carry all of `units` out; or give up some and none is carried out, and these are the rest.

    Something lazy that has to be computed before, and cannot be, stands in the way of those that
    write what it reads, and of no others.
    """
    nodes = {id(t): node for unit in units for t, node in unit}
    try:
        # What interrupting code has assigned since is a matter of the next run.
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
                _give_up(unit)
        return rest
    return []


def _same(tensor: TensorBase, node: UOp | None) -> bool:
    return node is not None and tensor._uop is node


def _failing(tensors: Sequence[TensorBase]) -> list[UOp]:
    """The nodes of those of `tensors` that cannot be computed; the others are."""
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


def _twin(tensor: TensorBase, node: UOp | None) -> TensorBase:
    """Another tensor like `tensor`, yet to be computed from `node`."""
    twin = type(tensor).__new__(type(tensor))
    twin._uop, twin._grad, twin._leaf = node, None, None
    twin._born, twin._plain = None, True
    return twin


def _give_up(commits: Iterable[tuple[TensorBase, UOp | None]]) -> None:
    for t, node in commits:
        if node is not None:
            give([], [(t, node, t._at_rest())], state.pending)
    state.steady[0] = None


def check_settled(tensors: Sequence[TensorBase]) -> None:
    """Raise PlanBusyError where `tensors` read what this thread is writing right now."""
    changing = state.changing
    if changing is not None:
        nodes = [node for t in tensors if (node := t._uop) is not None]
        if any(reads(node, changing) for node in nodes):
            raise PlanBusyError(BUSY)


def check_unneeded(written: Written) -> None:
    """Raise PlanBusyError where values that this thread is writing right now come from `written`.

    Code that was interrupted has found the plan that computes them, and nobody else can.
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
    """Raise NonFiniteError where a run would give numbers that are not finite."""
    nonfinite.check(nodes, writes)


def names_lines_of(
    entry: Entry, nodes: Sequence[UOp], writes: Sequence[tuple[UOp, UOp]]
) -> bool:
    """Return whether errors of a plan name the lines that made these graphs."""
    order = toposort([*nodes, *(new for _, new in writes)])
    return lines(entry.origins) == lines(origins(order))


def expire(written: Written) -> None:
    """Give up the histories that went over `written`, which changed.

    Those of tensors that have data, and those below lazy ones: what a lazy tensor is made of may
    have been computed, and its history gone over what is written.
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

"""Assignment to several tensors in one step."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kernelrt.errors import ShapeError
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.shape import is_static
from kernelrt.native.array_handle import put_all as settle
from kernelrt.tensor import state
from kernelrt.tensor.autograd.tags import detach, is_kept, mark
from kernelrt.tensor.eager import data_alias, shared_memory
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.eager import realize
else:
    realize = Module("kernelrt.tensor.eager.realize")

__all__ = ["assign_all", "put_all"]


def assign_all(pairs: Iterable[tuple[TensorBase, TensorBase]]) -> None:
    """Assign to each target the value of its source before any target changes.

    All sources are computed in one run. Made one by one, ``b[...] = f(a)`` after ``a[...] = ...``
    would read the new value of ``a``.
    """
    given = list(pairs)
    pairs = [pair for pair in given if pair[0]._link is None]
    # The root of a view keeps its other elements and their history, so assign to views separately.
    shown = [(t, t._of(detach(source.uop))) for t, source in given if t._link is not None]
    if state.local.trace is None:
        _store(pairs)
    done = False
    while not done:
        # One step, so that no other thread writes memory that the values read.
        with state.lock if state.local.trace is None else contextlib.nullcontext():
            writes = state.local.writes
            nodes = [source.uop for _, source in pairs]
            done = put_all(
                [(t, detach(node)) for (t, _), node in zip(pairs, nodes, strict=True)],
                writes=writes,
            )
    for view, value in shown:
        view._become_shown(value, value)  # type: ignore[attr-defined]
    shared_memory.write_now(target for target, _ in given)


def _store(pairs: Sequence[tuple[TensorBase, TensorBase]]) -> None:
    """Compute lazy targets whose old value is read by a new value, so that they have storage.

    Otherwise a loop that updates such a target would build an ever-growing graph, and each
    iteration would compute it again with a new plan. Targets whose old value is not read are not
    computed.
    """
    lazy = [
        (t, node) for t, _ in pairs
        if t._address is None and t._born is None and (node := t._uop) is not None
        and not _is_picked(node)
    ]  # fmt: skip
    if not lazy:
        return
    sources = [node for _, source in pairs if (node := source._uop) is not None]
    read = dict.fromkeys(toposort(sources, stop=is_kept))
    found = [t for t, node in lazy if node in read]
    if found and not any(node.op is Op.VAR or not is_static(node.shape) for node in read):
        realize.materialize(found)


def _is_picked(node: UOp) -> bool:
    """Return whether index tensors gather a value from memory, as in ``x[i] += y``."""
    if node.op is not Op.GATHER:
        return False
    source = node.src[0]
    while source.op is Op.RESHAPE:
        source = source.src[0]
    return source.op is Op.BUFFER


def put_all(
    pairs: Iterable[tuple[TensorBase, UOp]],
    gradients: Iterable[tuple[TensorBase, TensorBase]] = (),
    found: Iterable[tuple[TensorBase, UOp, object]] = (),
    *,
    writes: int,
) -> bool:
    """Assign to each tensor the value of a node from :attr:`TensorBase.uop`; set gradients.

    Outside a trace this is one atomic step. It does nothing and returns False if a tensor no longer
    has the node and the ``grad`` given in `found`. The same happens if memory was written since the
    write counter was `writes`; the caller read this counter before it took the nodes.
    """
    trace = state.local.trace
    if state.local.writes != writes:
        return False  # before a trace records anything
    ready = []
    for target, node in pairs:
        owner = getattr(target, "_whose", None)
        tensor = target if owner is None else data_alias.writable(target, owner)
        buffer = tensor._buffer
        if buffer is None and trace is not None and tensor._born is not trace:
            trace.admit(tensor)
            buffer = tensor._buffer
        if buffer is not None and buffer.readonly:
            raise ShapeError(
                "value: the tensor shares read-only memory and cannot be assigned to; copy "
                "the tensor first with kernelrt.tensor"
            )
        value = node if tensor._leaf is None else mark(node, tensor._leaf)
        if trace is not None and (buffer is not None or trace.keeps(tensor)):
            trace.record(tensor, value)
            writes = state.local.writes
        else:
            ready.append((tensor, value))
    with state.lock:
        if state.changing is not None:
            realize.check_settled(_with_memory(ready))
        together = tuple(id(t) for t, _ in ready)
        unit = dict.fromkeys(together, together) if len(together) > 1 else {}
        gradients = list(gradients)
        return settle(
            ready, gradients, list(found), state.pending, state.births, state.steady,
            state.units, unit, writes,
        )  # fmt: skip


def _with_memory(pairs: Iterable[tuple[TensorBase, UOp]]) -> list[TensorBase]:
    return [tensor for tensor, _ in pairs if tensor._memory is not None]

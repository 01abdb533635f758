"""The required dependencies of a plan, found by comparing all pairs of its operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.ir import UOp
from kernelrt.runtime import (
    ExecutionPlan,
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.runtime import PreparedOp

__all__ = ["check_order"]

#: First address, end address, and whether the bytes are written.
_Span = tuple[int, int, bool]


def check_order(plan: ExecutionPlan, lasting: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Raise AssertionError if `plan` lacks a required dependency.

    If two operations touch the same byte and one of them writes it, the later one must wait for the
    earlier one. An operation that writes to an address range in `lasting` must wait for all
    operations that may fail.

    Returns
    -------
    tuple of int
        Number of conflicting pairs, and number of lasting writes that had to wait for a check.
    """
    ops = plan.prepared_ops
    position = {op.id: i for i, op in enumerate(ops)}
    spans = [_touched(plan, op) for op in ops]
    before: list[set[int]] = []
    failing: list[int] = []
    met = held = 0
    for i, op in enumerate(ops):
        waits = {position[d] for d in op.dependencies}
        before.append(waits.union(*(before[d] for d in waits)))
        for j in range(i):
            if any((x[2] or y[2]) and _meet(x, y) for x in spans[i] for y in spans[j]):
                assert j in before[i], f"op {i} does not wait for op {j}"
                met += 1
        lasts = any(x[2] and _meet(x, (*y, True)) for x in spans[i] for y in lasting)
        if lasts:
            assert before[i].issuperset(failing), f"op {i} does not wait for {failing}"
            held += bool(failing)
        if isinstance(op, PreparedCustomFunction) or (
            isinstance(op, PreparedKernel) and op.kernel.may_fail
        ):
            assert not lasts, f"op {i} may fail and writes what must stay"
            failing.append(i)
    return met, held


def _meet(a: _Span, b: _Span) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _touched(plan: ExecutionPlan, op: PreparedOp) -> list[_Span]:
    if isinstance(op, PreparedBufferView):
        return []
    out = []
    for slot, b in enumerate(op.buffer_indices):
        nbytes = op.nbytes if isinstance(op, PreparedCopy) else plan.buffers[b].nbytes
        size = nbytes.vmax if isinstance(nbytes, UOp) else nbytes
        start = plan.buffers[b].address
        if size:
            out.append((start, start + size, slot in op.output_indices))
    return out

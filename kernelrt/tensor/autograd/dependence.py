"""Dependence analysis: which results of a loop or branch depend on which operands.

The graph of a body shows which ports a value reads. In a loop, this relation is followed from
iteration to iteration. There are two kinds of dependence:

- value: the result may change if the operand changes;
- flow: a gradient of the result flows to the operand, unless the body detaches the value or
  computes it under ``no_grad``.

Nodes of bodies read only ports and constants, so the set of ports that a node reaches never
changes. Each node caches its own set (`UOp.cached_ports`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.ir import Op, UOp
from kernelrt.ir.region import Choice, Loop, Outcome, Port
from kernelrt.ir.shape import dim_max
from kernelrt.native.graph_key import _name_flows
from kernelrt.tensor.autograd.tags import below, gradient_operands, history, reads_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["carries_of_run", "flow_of_run", "value_of_run", "varying"]

# Sets of ports, operands and carries are bit sets in integers.
_FLOW, _VALUE = 0, 1


def value_of_run(outcome: Outcome, operands: Sequence[UOp]) -> UOp:
    """Return the REGION node of a result of a loop or branch.

    The set of operands that its gradients flow to is determined here, because later callers must
    not be interrupted.
    """
    node = UOp(Op.REGION, outcome.dtype, tuple(operands), outcome)
    gradient_operands(node)
    return node


def _value_reads(node: UOp) -> tuple[UOp, ...]:
    """Return the nodes that a node depends on; for a REGION, only the operands it depends on."""
    if node.op is not Op.REGION:
        return reads_of(node)
    return tuple(node.src[k] for k in _bits(_operands(node.arg, _VALUE)))


def varying(loop: Loop, operands: Sequence[bool]) -> set[int]:
    """Return the indices of the ports that vary in any iteration.

    Parameters
    ----------
    loop : Loop
        Program of the loop.
    operands : sequence of bool
        Whether each operand varies.
    """
    varies = sum(1 << k for k, v in enumerate(operands) if v)
    given = {k for k in _bits(varies) if k < len(loop.ports) - loop.numbered}
    carries = range(len(loop.carries))
    return given | {k for k in carries if varies & _operands(Outcome(loop, k), _VALUE)}


def flow_of_run(outcomes: list[Outcome]) -> set[int]:
    """Return which operands, by index, get gradients from some results of one run."""
    return {k for outcome in outcomes for k in _bits(_operands(outcome, _FLOW))}


def carries_of_run(outcomes: list[Outcome]) -> set[int]:
    """Return the carries, by index, through which gradients of some results of a loop flow."""
    loop = outcomes[0].program
    assert isinstance(loop, Loop)
    carried = (1 << len(loop.carries)) - 1
    now = 0
    for outcome in outcomes:
        now |= 1 << outcome.carry if outcome.carry >= 0 else _ports(outcome.each, _FLOW) & carried
    before = 0
    while now != before:
        before = now
        for k in _bits(before):
            now |= _ports(loop.carries[k], _FLOW) & carried
    return set(_bits(now))


def _flow(node: UOp) -> tuple[UOp, ...]:
    """Return the operands of a REGION that its gradients flow to."""
    return tuple(node.src[k] for k in _bits(_operands(node.arg, _FLOW)))


_name_flows(Op.REGION, _flow)


def _bits(number: int) -> Iterator[int]:
    while number:
        least = number & -number
        yield least.bit_length() - 1
        number ^= least


def _ports(root: UOp, kind: int) -> int:
    """Return the ports that a node of a body depends on, or that its gradients flow to."""
    found = _known(root, kind)
    if found is None:
        stop = _is_known_flow if kind == _FLOW else _is_known_value
        nodes = history(root, stop) if kind == _FLOW else below([root], stop)
        for node in nodes:
            found = _known(node, kind)
            if found is None:
                found = _reached(node, kind)
                if node.cached_ports is None:
                    node.cached_ports = [None, None]
                node.cached_ports[kind] = found
        assert found is not None
    return found


def _known(node: UOp, kind: int) -> int | None:
    return None if node.cached_ports is None else node.cached_ports[kind]


def _is_known_flow(node: UOp) -> bool:
    return _known(node, _FLOW) is not None


def _is_known_value(node: UOp) -> bool:
    return _known(node, _VALUE) is not None


def _reached(node: UOp, kind: int) -> int:
    """Return the ports that a node reaches, given cached ports of its operands."""
    if node.op is Op.BUFFER:
        is_port = isinstance(node.arg, Port) and (kind == _VALUE or node.dtype.is_float)
        return 1 << node.arg.number if is_port else 0
    found = 0
    for read in gradient_operands(node) if kind == _FLOW else _value_reads(node):
        found |= _ports(read, kind)
    return found


def _operands(outcome: Outcome, kind: int) -> int:
    """Return the operands that a result of a loop or branch depends on."""
    if isinstance(outcome.program, Choice):
        found = 0
        for value in outcome.values:
            found |= _ports(value, kind) << 1
        # A value depends on the index of the branch only if the branches return different nodes.
        same = all(value is outcome.values[0] for value in outcome.values)
        return found if kind == _FLOW or same else found | 1
    return _of_loop(outcome, outcome.program, kind)


def _of_loop(outcome: Outcome, loop: Loop, kind: int) -> int:
    """Return the operands that a result of a loop depends on, from the last iteration backward.

    For flow, a known number of iterations bounds the steps backward. For values, it does not:
    whether a carry varies must have one answer in all iterations.
    """
    carried = (1 << len(loop.carries)) - 1
    operands = (1 << len(loop.ports) - loop.numbered) - 1
    may_end = loop.counted or loop.conditional
    goes_on = int(loop.conditional and kind == _VALUE)  # carry 0 is the loop condition
    left = dim_max(loop.trip_count)
    if outcome.carry >= 0:
        begin = 1 << outcome.carry
    else:
        begin = _ports(outcome.each, kind) | goes_on
        left -= 1
    #: Whether reached carries stay reached: if any iteration may be the last, and for stacked rows.
    stays = may_end or outcome.carry < 0 or kind == _VALUE
    found, now = begin & ~carried, begin & carried
    seen: dict[int, int] = {}
    while now and (left > 0 or kind == _VALUE):
        if now in seen:
            if stays:
                break
            left %= seen[now] - left  # skip whole periods
            seen.clear()
            if not left:
                break
        seen[now] = left
        read = goes_on
        for k in _bits(now):
            read |= _ports(loop.carries[k], kind)
        found |= read & ~carried
        now = read & carried | (now if stays else 0)
        left -= 1
    found = (found | now) & operands
    if loop.counted and kind == _VALUE:
        found |= 1 << len(loop.ports) - loop.numbered
    return found

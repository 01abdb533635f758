"""Dependence analysis: which results of a loop or branch depend on which operands.

The graph of a body says which ports it reads; of a loop, what one turn makes of them is followed
from turn to turn. There are two questions. A value is *made of* an operand if it may have another
value where the operand has. Gradients of it *flow* to an operand if a path of operations that
gradients pass leads there: not where the body detaches it, or computes without recording.

Nodes of bodies are made of ports and of constants alone, so the ports that one reaches are known
once and for all: each keeps its own (`UOp.cached_ports`).
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

# Sets of ports, of operands and of carries are integers, with a bit for each.
_FLOW, _VALUE = 0, 1


def value_of_run(outcome: Outcome, operands: Sequence[UOp]) -> UOp:
    """The REGION node of a value of a run.

    Where its gradients flow is found here: whoever asks later may not be interrupted.
    """
    node = UOp(Op.REGION, outcome.dtype, tuple(operands), outcome)
    gradient_operands(node)
    return node


def _value_reads(node: UOp) -> tuple[UOp, ...]:
    """What a value is made of: of a value of a loop or of a choice, those of its operands."""
    if node.op is not Op.REGION:
        return reads_of(node)
    return tuple(node.src[k] for k in _bits(_operands(node.arg, _VALUE)))


def varying(loop: Loop, operands: Sequence[bool]) -> set[int]:
    """The places of the ports that vary in any turn.

    Parameters
    ----------
    loop : Loop
        The program.
    operands : sequence of bool
        Which of the operands vary.
    """
    varies = sum(1 << k for k, v in enumerate(operands) if v)
    given = {k for k in _bits(varies) if k < len(loop.ports) - loop.numbered}
    carries = range(len(loop.carries))
    return given | {k for k in carries if varies & _operands(Outcome(loop, k), _VALUE)}


def flow_of_run(outcomes: list[Outcome]) -> set[int]:
    """The places of the operands that gradients of some values of one run flow to."""
    return {k for outcome in outcomes for k in _bits(_operands(outcome, _FLOW))}


def carries_of_run(outcomes: list[Outcome]) -> set[int]:
    """The places of what a loop carries that gradients of some of its values flow through."""
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
    """The operands of a REGION that its gradients flow to."""
    return tuple(node.src[k] for k in _bits(_operands(node.arg, _FLOW)))


_name_flows(Op.REGION, _flow)


def _bits(number: int) -> Iterator[int]:
    while number:
        least = number & -number
        yield least.bit_length() - 1
        number ^= least


def _ports(root: UOp, kind: int) -> int:
    """The ports that a node of a body is made of, or that gradients of it flow to."""
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
    """The ports of a node, those of its operands being known."""
    if node.op is Op.BUFFER:
        is_port = isinstance(node.arg, Port) and (kind == _VALUE or node.dtype.is_float)
        return 1 << node.arg.number if is_port else 0
    found = 0
    for read in gradient_operands(node) if kind == _FLOW else _value_reads(node):
        found |= _ports(read, kind)
    return found


def _operands(outcome: Outcome, kind: int) -> int:
    """The operands that a value of a run depends on."""
    if isinstance(outcome.program, Choice):
        found = 0
        for value in outcome.values:
            found |= _ports(value, kind) << 1
        # Which branch it is matters where they make different things.
        same = all(value is outcome.values[0] for value in outcome.values)
        return found if kind == _FLOW or same else found | 1
    return _of_loop(outcome, outcome.program, kind)


def _of_loop(outcome: Outcome, loop: Loop, kind: int) -> int:
    """The same of a loop, from its last turn back to the first.

    Where the number of turns is known, gradients flow as so many turns let them. What a value is
    made of is so in every turn: what is carried has one form in all of them.
    """
    carried = (1 << len(loop.carries)) - 1
    operands = (1 << len(loop.ports) - loop.numbered) - 1
    may_end = loop.counted or loop.conditional
    goes_on = int(loop.conditional and kind == _VALUE)  # what says so is the first carry
    left = dim_max(loop.turns)
    if outcome.carry >= 0:
        begin = 1 << outcome.carry
    else:
        begin = _ports(outcome.each, kind) | goes_on
        left -= 1
    #: Whether what was reached before stays so: where any turn may be the last, and for rows.
    stays = may_end or outcome.carry < 0 or kind == _VALUE
    found, now = begin & ~carried, begin & carried
    seen: dict[int, int] = {}
    while now and (left > 0 or kind == _VALUE):
        if now in seen:
            if stays:
                break
            left %= seen[now] - left  # turns that only repeat what others did
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

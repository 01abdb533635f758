"""Evaluates integer expressions over Variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.errors import VariableError
from kernelrt.ir import Dim, Op, UOp, const, toposort
from kernelrt.ir.integers import exact
from kernelrt.ir.terms import render

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["INT64_MAX", "evaluate", "evaluate_all", "launch_size", "variables_of"]

INT64_MAX = (1 << 63) - 1


def evaluate_all(dims: Iterable[Dim], values: Mapping[str, int]) -> dict[Dim, int]:
    """Evaluate several expressions; subexpressions that they share are evaluated once.

    Raises
    ------
    VariableError
        A Variable has no value, or an expression contains an op that is not integer arithmetic.
    """
    dims = list(dims)
    out: dict[Dim, int] = {dim: dim for dim in dims if not isinstance(dim, UOp)}
    for node in toposort(d for d in dims if isinstance(d, UOp)):
        out[node] = _value(node, out, values)
    return out


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """Evaluate one expression.

    Examples
    --------
    >>> from kernelrt.ir import Variable
    >>> evaluate((Variable("n", 1, 100) + 15) // 16, {"n": 40})
    3
    """
    return evaluate_all([dim], values)[dim] if isinstance(dim, UOp) else dim


def _value(node: UOp, done: Mapping[Dim, int], values: Mapping[str, int]) -> int:
    if node.op is Op.CONST:
        return int(node.arg)
    if node.op is Op.VAR:
        name = node.arg[0]
        if name not in values:
            raise VariableError(
                f"Variable {name!r} has no value; pass one for it (the variables with values are "
                f"{list(values)})"
            )
        return values[name]
    operands = [done[s] for s in node.src]
    if node.op is Op.CAST:
        return int(const(operands[0], node.dtype).arg)
    found = exact(node.op, node.src[-1].dtype, operands) if operands else None
    if found is None:
        raise VariableError(
            f"a size can depend only on integer arithmetic, not on {node.op.name}: {render(node)}"
        )
    return int(found)


def launch_size(dim: Dim, number: int, what: str, values: Mapping[str, int]) -> int:
    """Check `number`, the value of the launch size `dim`, and return it.

    Raises
    ------
    VariableError
        `number` is below one or does not fit 64 bits.
    """
    if 1 <= number <= INT64_MAX:
        return number
    text = render(dim) if isinstance(dim, UOp) else str(dim)
    given = ", ".join(f"{name}={value}" for name, value in values.items())
    raise VariableError(
        f"{what}: expected a number from 1 to 2**63 - 1, but {text} is {number} for "
        f"{given or 'no variables'}"
    )


def variables_of(dims: Iterable[Dim]) -> list[UOp]:
    """List the distinct Variables of expressions, in order of first appearance."""
    return [u for u in toposort(d for d in dims if isinstance(d, UOp)) if u.op is Op.VAR]

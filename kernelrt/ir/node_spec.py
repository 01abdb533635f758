"""Verifier rules for single nodes that both stages share.

A rule checks one node. It returns an error text, or None if the node is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import SpecError
from kernelrt.ir.ops import ALU, COMPARE, Op
from kernelrt.ir.uop import UOp

if TYPE_CHECKING:
    from kernelrt.dtype import DType

__all__ = [
    "ELEMENTWISE",
    "Check",
    "apply_table",
    "at_least",
    "constant",
    "integer",
    "is_of",
    "keeps_type",
    "operands",
    "variable",
]

#: Returns the error in a node; None if it is valid.
Check = Callable[[UOp], "str | None"]


def apply_table(table: Mapping[Op, tuple[Check, ...]], stage: str, node: UOp) -> None:
    """Raise SpecError if `node` breaks a rule, or if its op is not allowed at this stage."""
    checks = table.get(node.op)
    if checks is None:
        raise SpecError(
            f"{stage} stage: {node!r}: {node.op.name} is not allowed at this stage; lower it in an "
            "earlier pass"
        )
    for check in checks:
        fault = check(node)
        if fault is not None:
            raise SpecError(f"{stage} stage: {node!r}: {fault}")


def operands(*counts: int) -> Check:
    """Return a rule that requires one of `counts` as the number of operands."""
    def check(u: UOp) -> str | None:
        if len(u.src) in counts:
            return None
        return f"takes {' or '.join(map(str, counts))} operands, has {len(u.src)}"

    return check


def at_least(count: int) -> Check:
    """Return a rule that requires at least `count` operands."""
    def check(u: UOp) -> str | None:
        return None if len(u.src) >= count else f"takes {count} operands or more"

    return check


def is_of(dtype: DType) -> Check:
    """Return a rule that requires `dtype` as the scalar type."""
    def check(u: UOp) -> str | None:
        return None if u.dtype is dtype else f"its dtype is {u.dtype.name}; expected {dtype.name}"

    return check


def _not_bool(u: UOp) -> str | None:
    return f"{u.op.name} of bool is not defined; cast first" if u.src[0].dtype.is_bool else None


def _float(u: UOp) -> str | None:
    return None if u.dtype.is_float else f"{u.op.name} is for floats, not {u.dtype.name}"


def _no_float(u: UOp) -> str | None:
    return f"{u.op.name} is for integers and bool, not float" if u.dtype.is_float else None


def integer(u: UOp) -> str | None:
    """Check that the type is an integer type."""
    return None if u.dtype.is_int else f"{u.op.name} is for integers, not {u.dtype.name}"


def _one_type(u: UOp) -> str | None:
    """Check that operands and result have the same type; a comparison gives bool."""
    types = {s.dtype for s in u.src}
    if len(types) > 1:
        return f"operands have types {', '.join(sorted(t.name for t in types))}; cast to one"
    expected = dt.bool_ if u.op in COMPARE else u.src[0].dtype
    return None if u.dtype is expected else f"its dtype is {u.dtype.name}; expected {expected.name}"


def _where(u: UOp) -> str | None:
    condition, yes, no = u.src
    if not condition.dtype.is_bool:
        return f"its condition is {condition.dtype.name}; it must be bool"
    if yes.dtype is not no.dtype or u.dtype is not yes.dtype:
        return (
            f"its dtype is {u.dtype.name}, but its operands are {yes.dtype.name} and "
            f"{no.dtype.name}; expected one dtype"
        )
    return None


def _same_width(u: UOp) -> str | None:
    if u.dtype.bits == u.src[0].dtype.bits:
        return None
    return f"BITCAST from {u.src[0].dtype.bits} to {u.dtype.bits} bits; widths must be equal"


def keeps_type(u: UOp) -> str | None:
    """Check that the type is that of the first operand."""
    if u.dtype is u.src[0].dtype:
        return None
    return (
        f"its dtype is {u.dtype.name}, but its first operand is {u.src[0].dtype.name}; {u.op.name} "
        "keeps the dtype"
    )


def constant(u: UOp) -> str | None:
    """Check that the arg is a Python number of the node's type."""
    wanted = float if u.dtype.is_float else bool if u.dtype.is_bool else int
    return None if type(u.arg) is wanted else f"its value {u.arg!r} must be a {wanted.__name__}"


def variable(u: UOp) -> str | None:
    """Check that the arg is (name, min, max) with min <= max."""
    ok = (
        isinstance(u.arg, tuple)
        and len(u.arg) == 3
        and isinstance(u.arg[0], str)
        and u.arg[1] <= u.arg[2]
    )
    return None if ok else f"its arg {u.arg!r} must be (name, min, max)"


#: Rules of operands' types, by the types that the op's record names.
_TYPES: dict[str, tuple[Check, ...]] = {
    "all": (), "numbers": (_not_bool,), "floats": (_float,), "integers": (integer,),
    "bits": (_no_float,),
}  # fmt: skip
#: Rules of ops whose operands have several types.
_OWN: dict[Op, tuple[Check, ...]] = {Op.CAST: (), Op.BITCAST: (_same_width,), Op.WHERE: (_where,)}
_OPERANDS = {"unary": 1, "binary": 2, "ternary": 3}


def _rules(op: Op) -> tuple[Check, ...]:
    count = operands(_OPERANDS[op.form.group])
    if op in _OWN:
        return count, *_OWN[op]
    return count, keeps_type if op.form.group == "unary" else _one_type, *_TYPES[op.form.types]


#: Rules of the ops on elements.
ELEMENTWISE: dict[Op, tuple[Check, ...]] = {op: _rules(op) for op in ALU}

"""Verifier of kernel ASTs: rules by op, and rules for the whole AST."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelrt import dtype as dt
from kernelrt.errors import SpecError
from kernelrt.ir.domain import Domain
from kernelrt.ir.ffi import FfiFunction
from kernelrt.ir.local import ROWS_BYTES, local_bytes
from kernelrt.ir.node_spec import (
    ELEMENTWISE,
    Check,
    apply_table,
    at_least,
    constant,
    is_of,
    keeps_type,
    operands,
    variable,
)
from kernelrt.ir.ops import HALVES, REDUCERS, Op, Parts
from kernelrt.ir.routine import Routine
from kernelrt.ir.uop import UOp, toposort

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KERNEL", "verify_kernel"]


def verify_kernel(sink: UOp) -> None:
    """Check a kernel AST.

    Raises
    ------
    SpecError
        A node breaks a rule; the message names both.
    """
    if sink.op is not Op.SINK:
        raise SpecError(f"kernel stage: the root must be a SINK, not {sink!r}")
    nodes = list(toposort([sink]))
    for node in nodes:
        apply_table(KERNEL, "kernel", node)
    _closed_ranges(nodes)
    _local_arrays(nodes)
    _distinct_numbers(nodes)


def _param(u: UOp) -> str | None:
    slot, size = u.arg
    if isinstance(slot, int) and isinstance(size, int) and slot >= 0 and size >= 0:
        return None
    return f"its arg {u.arg!r} must be (slot, size), both at least 0"


def _range(u: UOp) -> str | None:
    size = u.src[0]
    if size.dtype is not dt.int64 or not isinstance(u.arg, int) or u.arg < 0:
        return "its size must be int64, and its arg a number of at least 0"
    return None


def _address(u: UOp) -> str | None:
    if u.src[0].op not in ((Op.PARAM,) if u.op is Op.STORE else (Op.PARAM, Op.LOCAL, Op.WORDS)):
        wanted = "a PARAM" if u.op is Op.STORE else "a PARAM, a LOCAL or WORDS"
        return f"{u.op.name} accesses {u.src[0]!r}; it must be {wanted}"
    if u.src[1].dtype is not dt.int64:
        return f"its index is {u.src[1].dtype.name}; it must be int64"
    return None


def _rare(u: UOp) -> str | None:
    condition, usual, *inputs = u.src
    if not condition.dtype.is_bool:
        return f"its condition is {condition.dtype.name}; it must be bool"
    body = u.arg
    if type(body) is not type(u):
        return f"its arg {body!r} must be the value of the cold path, over VARs for its inputs"
    if u.dtype is not usual.dtype or u.dtype is not body.dtype:
        return (
            f"its dtype is {u.dtype.name}, but its operands are {usual.dtype.name} and "
            f"{body.dtype.name}; expected one dtype"
        )
    for n in toposort([body]):
        if n.op is Op.VAR:
            name, *_ = n.arg
            if name not in range(len(inputs)) or inputs[name].dtype is not n.dtype:
                return f"its cold path reads {n!r}, which is none of its {len(inputs)} inputs"
        elif n.op not in ELEMENTWISE and n.op is not Op.CONST:
            return f"its cold path contains {n!r}; only arithmetic on its inputs is allowed"
    return None


def _dot(u: UOp) -> str | None:
    if any(s.dtype is not dt.int32 for s in u.src):
        return (
            f"its operands are {u.src[0].dtype.name} and {u.src[1].dtype.name}; expected packed "
            "words, which are int32"
        )
    if u.dtype not in (dt.int32, dt.float32, dt.bfloat16):
        return f"its dtype is {u.dtype.name}; expected int32, float32 or bfloat16"
    if isinstance(u.arg, Parts) and (u.arg == HALVES or (u.dtype.is_int and u.arg.number == 4)):
        return None
    bytes_ = ", or Parts of 4 bytes" if u.dtype.is_int else ""
    return f"its arg {u.arg!r} must be {HALVES}{bytes_}"


def _words(u: UOp) -> str | None:
    source = u.src[0]
    narrow = source.dtype.is_int and source.dtype.itemsize in (1, 2)
    if source.op is Op.PARAM and (narrow or source.dtype is dt.bfloat16):
        return None
    return f"reads {source!r}; it must be a PARAM of integers of 8 or 16 bits, or of bfloat16"


def _predicate(u: UOp) -> str | None:
    if len(u.src) > 2 and not u.src[2].dtype.is_bool:
        return f"its predicate is {u.src[2].dtype.name}; it must be bool"
    return None


def _stores_type(u: UOp) -> str | None:
    if u.src[0].dtype is u.src[2].dtype is u.dtype:
        return None
    return f"stores {u.src[2].dtype.name} to memory of {u.src[0].dtype.name}"


def _store_mode(u: UOp) -> str | None:
    if u.arg is not None and u.arg not in REDUCERS:
        return f"its mode {u.arg!r} must be None or a reducer: ADD, MUL, MAX or MIN"
    if u.arg is None and len(u.src) > 3:
        return (
            "has loop operands, but its mode is None; only a STORE with a reducer takes loop "
            "operands"
        )
    if any(r.op is not Op.RANGE for r in u.src[3:]):
        return "has a loop operand that is not a RANGE"
    return None


def _reduce(u: UOp) -> str | None:
    if u.arg not in REDUCERS:
        return f"its arg {u.arg!r} is not a reducer; use ADD, MUL, MAX or MIN"
    return _closes(u)


def _closes(u: UOp) -> str | None:
    if any(r.op is not Op.RANGE for r in u.src[1:]):
        return "has an operand after the first that is not a RANGE"
    if len(set(u.src[1:])) < len(u.src[1:]):
        return "has a RANGE as operand twice"
    return None


def _bound(u: UOp) -> str | None:
    if u.src[0].dtype is not dt.int64 or u.src[1].dtype is not dt.int64:
        return "its index and its size must be int64"
    status = u.src[2]
    if status.op is not Op.PARAM or status.dtype is not dt.int64:
        return "its status word must be an int64 PARAM"
    kinds = list(map(type, u.arg)) if isinstance(u.arg, tuple) else []
    if kinds not in ([int, bool], [int, Domain]):
        return f"its arg {u.arg!r} must be (number, allow_negative: bool) or (number, Domain)"
    if u.dtype is not (u.src[3] if len(u.src) > 3 else u.src[0]).dtype:
        return f"its dtype is {u.dtype.name}; expected the dtype of the checked value"
    return None


def _sink(u: UOp) -> str | None:
    if all(s.op is Op.STORE for s in u.src) or [s.op for s in u.src] == [Op.CALL]:
        return None
    return "its operands must all be STOREs, or one CALL"


def _call(u: UOp) -> str | None:
    if not isinstance(u.arg, Routine | FfiFunction):
        return f"its arg {u.arg!r} must be a Routine or an FfiFunction"
    if any(s.op is not Op.PARAM for s in u.src):
        return "takes only PARAMs as operands"
    slots = [*u.arg.slots]
    if u.arg.takes_status:
        slots.append((dt.int64, 1))  # the status word
    if u.dtype is not slots[0][0] or [(s.dtype, s.arg[1]) for s in u.src] != slots:
        return f"its PARAMs must be {', '.join(f'{dtype.name} x {size}' for dtype, size in slots)}"
    return None


KERNEL: Mapping[Op, tuple[Check, ...]] = {
    **ELEMENTWISE,
    Op.CONST: (operands(0), constant),
    Op.VAR: (operands(0), is_of(dt.int64), variable),
    Op.PARAM: (operands(0), _param),
    Op.RANGE: (operands(1), is_of(dt.int64), _range),
    Op.COLD: (at_least(2), _rare),
    Op.DOT: (operands(2), _dot),
    Op.WORDS: (operands(1), is_of(dt.int32), _words),
    Op.LOAD: (operands(2, 3), keeps_type, _address, _predicate),
    Op.REDUCE: (at_least(2), keeps_type, _reduce),
    Op.LOCAL: (at_least(2), keeps_type, _closes),
    Op.BOUND: (operands(3, 4), _bound),
    Op.STORE: (at_least(3), _address, _stores_type, _store_mode),
    Op.CALL: (at_least(1), _call),
    Op.SINK: (at_least(1), _sink),
}


_CLOSING = (Op.REDUCE, Op.LOCAL)


def _closed_ranges(nodes: list[UOp]) -> None:
    """Check that only the operands of a REDUCE or LOCAL use the RANGEs of this node.

    A STORE with a reducer must name, as its operands, all other RANGEs that its operands use.
    """
    owner: dict[UOp, UOp] = {}
    for node in nodes:
        for r in node.src[1:] if node.op in _CLOSING else ():
            if r in owner:
                raise SpecError(
                    f"kernel stage: {node!r}: RANGE {r.arg} also belongs to {owner[r]!r}; each "
                    f"{node.op.name} needs its own RANGEs"
                )
            owner[r] = node
    open_ranges: dict[UOp, frozenset[UOp]] = {}
    nothing: frozenset[UOp] = frozenset()
    for node in nodes:
        inner = nothing.union(*(open_ranges[s] for s in node.src)) if node.src else nothing
        if node in owner:
            inner = frozenset({node})
        elif node.op in _CLOSING:
            inner -= frozenset(node.src[1:])
        elif node.op is Op.STORE and inner:
            loop = next(iter(inner))
            raise SpecError(
                f"kernel stage: {node!r}: uses RANGE {loop.arg}, which only the operands of "
                f"{owner[loop]!r} may use"
            )
        open_ranges[node] = inner
    for node in nodes:
        if node.op is Op.STORE and node.arg is not None:
            _names_its_loops(node, owner)


def _local_arrays(nodes: list[UOp]) -> None:
    """Check that only LOADs read LOCALs, and that the LOCALs fit the memory limit."""
    for node in nodes:
        for number, operand in enumerate(node.src):
            if operand.op is Op.LOCAL and (node.op is not Op.LOAD or number):
                raise SpecError(
                    f"kernel stage: {node!r}: uses the array {operand!r} as a number; LOAD an "
                    "element of the array"
                )
    taken = sum(local_bytes(n.dtype, n.src[1:]) for n in nodes if n.op is Op.LOCAL)
    if taken > ROWS_BYTES:
        raise SpecError(
            f"kernel stage: the LOCALs take up to {taken} bytes, expected at most {ROWS_BYTES}; "
            "use smaller RANGEs"
        )


def _names_its_loops(store: UOp, owner: Mapping[UOp, UOp]) -> None:
    named = set(store.src[3:])
    for n in toposort(store.src[:3]):
        if n.op is Op.RANGE and n not in owner and n not in named:
            raise SpecError(
                f"kernel stage: {store!r}: RANGE {n.arg} repeats the update, but is not a loop "
                "operand of the STORE; name all loops that repeat the STORE"
            )


def _distinct_numbers(nodes: list[UOp]) -> None:
    for op, kind in ((Op.RANGE, "RANGE number"), (Op.PARAM, "slot")):
        seen: dict[Any, UOp] = {}
        for node in nodes:
            if node.op is op:
                number = node.arg if op is Op.RANGE else node.arg[0]
                if number in seen:
                    raise SpecError(
                        f"kernel stage: {node!r}: {kind} {number} is used twice, the first time by "
                        f"{seen[number]!r}"
                    )
                seen[number] = node

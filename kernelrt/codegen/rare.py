"""Values that few elements need, as functions beside the kernel.

A whole vector branches: where no lane wants the rare value, it is not computed. Lanes that do not
want it keep the usual one, so that no element depends on its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.codegen.alu import alu
from kernelrt.codegen.llvm import Text, Value, register_type, vector
from kernelrt.ir.fingerprint import fingerprint
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import toposort

if TYPE_CHECKING:
    from kernelrt.codegen.emitter import Emitter
    from kernelrt.ir.uop import UOp

__all__ = ["rare"]


#: That a branch is taken once in a million times.
_SELDOM = '!1 = !{!"branch_weights", i32 1, i32 1000000}'


def rare(emitter: Emitter, u: UOp, operands: list[Value]) -> Value:
    """The value of a RARE node of which `operands` are the condition, the usual value, the inputs.

    The branch is part of the kernel; the arithmetic behind it is one function, called.
    """
    b = emitter.text
    (condition, usual, *inputs), lanes = b.align(operands)
    name = f"krt.rare.{fingerprint(u.arg)}.{lanes}"
    b.define(name, lambda: _function(b, u, name, lanes))
    b.define("!1", lambda: _SELDOM)
    some = condition
    if lanes > 1:
        mask = (b.type_of(condition), condition.text)
        some = Value(b.call(f"llvm.vector.reduce.or.v{lanes}i1", "i1", mask), 1, condition.dtype)
    ty, chosen = b.type_of(usual), ""

    def body() -> None:
        nonlocal chosen
        passed = ", ".join(f"{b.type_of(v)} {v.text}" for v in inputs)
        value = Value(b.emit(f"call {ty} @{name}({passed})"), lanes, u.dtype)
        chosen = alu(b, Op.WHERE, u.dtype, [condition, value, usual]).text

    before, after = emitter.frames.branch_if(some, body, ", !prof !1")
    out = b.emit(f"phi {ty} [ {usual.text}, %{before} ], [ {chosen}, %{after} ]")
    return Value(out, lanes, u.dtype)


def _function(b: Text, u: UOp, name: str, lanes: int) -> str:
    """The function from the inputs to the rare value."""
    body = Text(b.has_half)
    body.declarations = b.declarations
    known: dict[UOp, Value] = {}
    for n in toposort([u.arg]):
        if n.op is Op.CONST:
            known[n] = body.constant(n.arg, n.dtype)
        elif n.op is Op.VAR:
            known[n] = Value(f"%x{n.arg[0]}", lanes, n.dtype)
        else:
            known[n] = alu(body, n.op, n.dtype, [known[s] for s in n.src])
    out = body.splat(known[u.arg], lanes)
    types = [vector(register_type(s.dtype), lanes) for s in u.src[2:]]
    taken = ", ".join(f"{t} %x{k}" for k, t in enumerate(types))
    lines = "\n".join(body.lines)
    ty = body.type_of(out)
    return (
        f"define internal {ty} @{name}({taken}) noinline cold #0 {{\n"
        f"{lines}\n  ret {ty} {out.text}\n}}"
    )

"""Cold paths: rare cases as functions outside the kernel.

Several vectors share one branch. If none of their lanes needs the rare value, it is not computed.
If some lane needs it, all other lanes still have their usual value, so no element depends on its
neighbors.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from kernelrt.backend.llvm.horizontal_reductions import any_lane
from kernelrt.backend.llvm.instructions import alu
from kernelrt.backend.llvm.llvm_types import Text, Value, register_type, vector
from kernelrt.ir.fingerprint import fingerprint
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import toposort

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.backend.llvm.emitter import Emitter
    from kernelrt.ir.uop import UOp

__all__ = ["rare"]


#: Branch weights: the branch is taken once in a million times.
_SELDOM = '!1 = !{!"branch_weights", i32 1, i32 1000000}'


def rare(emitter: Emitter, u: UOp, operands: Sequence[list[Value]]) -> list[Value]:
    """Emit a COLD node for several points, with one branch for all of them.

    `operands` has, for each point, the condition, the usual value and the inputs. The branch is
    part of the kernel. The rare arithmetic is one function, which is called for each point.
    """
    b = emitter.text
    b.define("!1", lambda: _SELDOM)
    aligned = [b.align(values) for values in operands]
    some = any_lane(b, [condition for (condition, *_), _ in aligned])
    chosen: list[Value] = []

    def body() -> None:
        for (condition, usual, *inputs), lanes in aligned:
            name = f"krt.rare.{fingerprint(u.arg)}.{lanes}"
            b.define(name, functools.partial(_function, b, u, name, lanes))
            passed = ", ".join(f"{b.type_of(v)} {v.text}" for v in inputs)
            call = b.emit(f"call {b.type_of(usual)} @{name}({passed})")
            found = Value(call, lanes, u.dtype)
            chosen.append(alu(b, Op.WHERE, u.dtype, [condition, found, usual]))

    before, after = emitter.frames.branch_if(some, body, ", !prof !1")
    out = []
    for ((_, usual, *_), lanes), other in zip(aligned, chosen, strict=True):
        arms = f"[ {usual.text}, %{before} ], [ {other.text}, %{after} ]"
        out.append(Value(b.emit(f"phi {b.type_of(usual)} {arms}"), lanes, u.dtype))
    return out


def _function(b: Text, u: UOp, name: str, lanes: int) -> str:
    """Return the text of a function that computes the rare value from the inputs."""
    body = Text(b.has_half, b.folds_compares, b.has_rounding, b.has_fma)
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

"""What a kernel AST does: which ranges a value depends on, how it walks memory, what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir.local import most_elements
from kernelrt.ir.ops import ALU, INSTRUCTIONS, Op
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.terms import linear
from kernelrt.ir.uop import UOp, const, toposort

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CLOSING", "Analysis", "Cost", "is_empty_load", "kernel_cost", "stride"]

#: What computes a result over RANGEs of its own.
CLOSING = frozenset({Op.REDUCE, Op.LOCAL})
#: Rough cost, in vector instructions, of ops that are more than one.
OP_COST = {**INSTRUCTIONS, Op.CONST: 0, Op.LOAD: 0, Op.RANGE: 0}


@dataclass(frozen=True, slots=True)
class Cost:
    """Arithmetic and traffic of one run of a kernel: integer expressions over Variables."""

    flops: UOp
    bytes: UOp


class Analysis:
    """Dependence of every node of a kernel on its ranges.

    Attributes
    ----------
    nodes : list of UOp
        All nodes, operands first.
    deps : dict
        Node -> ranges its value varies with (a REDUCE has closed over its own).
    reduces : list of UOp
        The REDUCE nodes, operands first.
    locals : list of UOp
        The LOCAL nodes, operands first.
    passes : dict
        RANGEs -> the REDUCEs and LOCALs that close over them, operands first: one walk of these
        loops computes them all.
    ranges : list of UOp
        The RANGE nodes.
    """

    def __init__(self, sink: UOp) -> None:
        self.sink = sink
        self.nodes = list(toposort([sink]))
        self.deps: dict[UOp, frozenset[UOp]] = {}
        self.reduces = [u for u in self.nodes if u.op is Op.REDUCE]
        self.locals = [u for u in self.nodes if u.op is Op.LOCAL]
        self.ranges = [u for u in self.nodes if u.op is Op.RANGE]
        self.passes: dict[tuple[UOp, ...], list[UOp]] = {}
        for u in self.nodes:
            self.deps[u] = self._deps_of(u)
            if u.op in CLOSING:
                self.passes.setdefault(u.src[1:], []).append(u)

    def _deps_of(self, u: UOp) -> frozenset[UOp]:
        if u.op is Op.RANGE:
            return frozenset({u})
        if u.op in CLOSING:
            return self.deps[u.src[0]] - frozenset(u.src[1:])
        out: frozenset[UOp] = frozenset()
        for s in u.src:
            out |= self.deps[s]
        return out

    def deps_of(self, roots: Iterable[UOp]) -> frozenset[UOp]:
        """Ranges that any of `roots` varies with."""
        nothing: frozenset[UOp] = frozenset()
        return nothing.union(*(self.deps[root] for root in roots))

    def order(self, roots: Iterable[UOp]) -> list[UOp]:
        """Nodes to compute for `roots`, operands first; LOAD and REDUCE see to their own."""
        return list(toposort(roots, stop=lambda u: u.op in (Op.LOAD, Op.REDUCE)))

    def loads(self, root: UOp) -> list[UOp]:
        """LOADs whose values reach `root` without passing through a REDUCE or a LOCAL."""
        found = toposort([root], stop=lambda u: u.op in CLOSING and u is not root)
        return [u for u in found if u.op is Op.LOAD]

    def closing(self, roots: Iterable[UOp]) -> list[UOp]:
        """REDUCEs and LOCALs that `roots` use, operands first, not those inside others."""
        found = toposort(roots, stop=lambda u: u.op in CLOSING or is_empty_load(u))
        return [u for u in found if u.op in CLOSING]

    def stride(self, access: UOp, r: UOp) -> int | None:
        """Elements between neighbours along `r` of a LOAD or STORE; None where not constant.

        For each place of the loops that a LOCAL varies with there is an array of its own. These
        lie side by side where its element is one vector.
        """
        step = stride(access.src[1], r)
        if access.src[0].op is Op.LOCAL and r in self.deps[access.src[0]]:
            return 1 if step == 0 else None
        return step

    def weight(self, roots: Iterable[UOp]) -> int:
        """Instructions per element of `roots`, nested REDUCEs not counted."""
        return sum(OP_COST.get(u.op, 1) for u in self.order(roots) if u.op in ALU)


def is_empty_load(u: UOp) -> bool:
    """Whether `u` reads memory without elements, so that no address is needed."""
    if u.op is not Op.LOAD:
        return False
    source = u.src[0]
    if source.op is Op.LOCAL:
        return most_elements(source.src[1:]) == 0
    return bool(source.arg[1] == 0)


def stride(index: UOp, r: UOp) -> int | None:
    """Elements between neighbours along `r`: 0 where independent, None where not constant."""
    terms, _ = linear(index)
    step = 0
    for term, factor in terms.items():
        if term is r:
            step = factor
        elif any(n is r for n in toposort([term])):
            return None
    return step


def kernel_cost(info: Analysis) -> Cost:
    """Flops of every node times how often it runs, and each byte touched once per buffer."""
    flops = const(0, dt.int64)
    for u in info.nodes:
        if u.op in ALU and u.dtype.is_float and u.op not in (Op.CAST, Op.BITCAST, Op.WHERE):
            flops = flops + _trips(info.deps[u]) * (2 if u.op is Op.FMA else 1)
        elif u.op is Op.REDUCE:
            flops = flops + _trips(info.deps[u.src[0]])
    touched: dict[tuple[UOp, bool], UOp] = {}
    for u in info.nodes:
        if u.op in (Op.LOAD, Op.STORE) and u.src[0].op is Op.PARAM:
            param = u.src[0]
            size = const(param.arg[1] * param.dtype.itemsize, dt.int64)
            walked = _trips(info.deps[u.src[1]]) * param.dtype.itemsize
            key = (param, u.op is Op.STORE)
            best = walked if walked.vmax < size.vmax else size
            if key not in touched or touched[key].vmax < best.vmax:
                touched[key] = best
    total = const(0, dt.int64)
    for amount in touched.values():
        total = total + amount
    return Cost(simplify(flops), simplify(total))


def _trips(ranges: Iterable[UOp]) -> UOp:
    total = const(1, dt.int64)
    for r in sorted(ranges, key=lambda r: r.arg):
        total = total * r.src[0]
    return simplify(total)

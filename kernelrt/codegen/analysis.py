"""What a kernel AST does: which ranges a value depends on, how it walks memory, what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir.ops import ALU, INSTRUCTIONS, Op
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.terms import linear
from kernelrt.ir.uop import UOp, const, toposort

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Analysis", "Cost", "kernel_cost", "merge_reductions", "stride"]

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
    ranges : list of UOp
        The RANGE nodes.
    """

    def __init__(self, sink: UOp) -> None:
        self.sink = sink
        self.nodes = list(toposort([sink]))
        self.deps: dict[UOp, frozenset[UOp]] = {}
        self.reduces = [u for u in self.nodes if u.op is Op.REDUCE]
        self.ranges = [u for u in self.nodes if u.op is Op.RANGE]
        for u in self.nodes:
            self.deps[u] = self._deps_of(u)

    def _deps_of(self, u: UOp) -> frozenset[UOp]:
        if u.op is Op.RANGE:
            return frozenset({u})
        if u.op is Op.REDUCE:
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
        """LOADs whose values reach `root` without passing through a REDUCE."""
        found = toposort([root], stop=lambda u: u.op is Op.REDUCE and u is not root)
        return [u for u in found if u.op is Op.LOAD]

    def weight(self, roots: Iterable[UOp]) -> int:
        """Instructions per element of `roots`, nested REDUCEs not counted."""
        return sum(OP_COST.get(u.op, 1) for u in self.order(roots) if u.op in ALU)


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


def merge_reductions(sink: UOp) -> UOp:
    """`sink` with independent REDUCEs over equal extents sharing one loop.

    Sharing ranges is what fuses: afterwards the code generator runs the REDUCEs that close over
    the same ranges in one pass, and what both read is one node.
    """
    # What is nested varies with the loops around it, so that it may match once these do.
    while shared := _shared_ranges(Analysis(sink)):
        sink = substitute([sink], shared)[0]
    return sink


class _Pass:
    """REDUCEs that will run in one loop nest."""

    def __init__(self, closed: tuple[UOp, ...]) -> None:
        self.closed = closed
        self.reduces: list[UOp] = []
        #: Passes whose results these REDUCEs use, directly or not.
        self.needs: set[_Pass] = set()


def _shared_ranges(info: Analysis) -> dict[UOp, UOp]:
    """Ranges to exchange for others, so that REDUCEs that may share a loop nest do."""
    passes: dict[tuple[UOp, ...], _Pass] = {}
    below: dict[UOp, frozenset[_Pass]] = {}
    for u in info.nodes:
        under = frozenset[_Pass]().union(*(below[s] for s in u.src))
        if u.op is Op.REDUCE:
            own = passes.setdefault(u.src[1:], _Pass(u.src[1:]))
            own.reduces.append(u)
            own.needs |= under
            under |= {own}
        below[u] = under
    for each in passes.values():
        each.needs = _all_needed(each)
    alike: dict[object, list[_Pass]] = {}
    shared: dict[UOp, UOp] = {}
    for each in passes.values():
        key = (info.deps[each.reduces[0]], tuple(r.src[0] for r in each.closed))
        kept = alike.setdefault(key, [])
        # One that needs the other comes after it; neither may, by way of any pass.
        fit = next((k for k in kept if each not in k.needs and k not in each.needs), None)
        if fit is None:
            kept.append(each)
            continue
        shared.update(zip(each.closed, fit.closed, strict=True))
        _join(fit, each, passes.values())
    return shared


def _all_needed(each: _Pass) -> set[_Pass]:
    """What a pass needs, and what that needs, where passes are joined already."""
    found: set[_Pass] = set()
    pending = list(each.needs)
    while pending:
        needed = pending.pop()
        if needed not in found:
            found.add(needed)
            pending += needed.needs
    return found


def _join(kept: _Pass, gone: _Pass, passes: Iterable[_Pass]) -> None:
    """Let `kept` do what `gone` did: whoever needed either needs both, and all that they need."""
    kept.needs |= gone.needs
    for other in passes:
        if kept in other.needs or gone in other.needs:
            other.needs |= {kept, gone} | kept.needs


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
        if u.op in (Op.LOAD, Op.STORE):
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

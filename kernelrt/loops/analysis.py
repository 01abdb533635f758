"""Analysis of a kernel AST: dependences on ranges, strides of accesses, and cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir.local import flat_index, most_elements
from kernelrt.ir.ops import ALU, ELEMENTWISE, Op, is_fused
from kernelrt.ir.reducers import IN_ORDER
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.terms import linear
from kernelrt.ir.uop import UOp, const, toposort

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kernelrt.device.costs import Costs

__all__ = [
    "CLOSING", "Analysis", "Cost", "is_empty_load", "is_of_loops", "kernel_cost", "stride",
]  # fmt: skip

#: What computes a result over RANGEs of its own.
CLOSING = frozenset({Op.REDUCE, Op.LOCAL})
#: Fractions of a cycle that symbolic costs are counted in, as integers.
_FINE = 256
#: Words so far apart are loaded one by one, or by rows.
_FAR = 64


@dataclass(frozen=True, slots=True)
class Cost:
    """Arithmetic and traffic of one run of a kernel: integer expressions over Variables.

    Attributes
    ----------
    flops : UOp
        Floating-point operations as the user wrote them.
    bytes : UOp
        Bytes read and written, each once.
    cycles : UOp
        What computing takes on one core where nothing waits for memory.
    """

    flops: UOp
    bytes: UOp
    cycles: UOp


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
    own_index : dict
        LOCAL -> the place in its array of the element that its own RANGEs are at.
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
        self.own_index = {u: flat_index(u.src[1:]) for u in self.locals}
        # Where an extent is open, this is arithmetic that the kernel itself need not have.
        for u in toposort(self.own_index.values()):
            if u not in self.deps:
                self.deps[u] = self._deps_of(u)

    @cached_property
    def users(self) -> dict[UOp, list[UOp]]:
        """Node -> the nodes that have it as a source."""
        found: dict[UOp, list[UOp]] = {}
        for u in self.nodes:
            for s in dict.fromkeys(u.src):
                found.setdefault(s, []).append(u)
        return found

    @cached_property
    def in_order(self) -> set[UOp]:
        """REDUCEs that elements of LOCALs are made of, and that add up one term after the other.

        So a row has the same bits in each kernel that computes it.
        """
        filling = {r for u in self.locals for r in u.src[1:]}
        return {
            u for u in self.reduces
            if u.dtype.is_float and not filling.isdisjoint(self.deps[u])
            and math.prod(max(1, r.src[0].vmax) for r in u.src[1:]) <= IN_ORDER
        }  # fmt: skip

    @cached_property
    def awaited(self) -> set[UOp]:
        """REDUCEs and LOCALs that are needed before what is computed under further loops."""
        roots = [u.src[0] for u in (*self.reduces, *self.locals)]
        roots += (s.src[2] for s in self.sink.src)
        return {
            u for root in roots for u in self.closing([root]) if self.deps[root] > self.deps[u]
        }

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

    def loads(self, *roots: UOp) -> list[UOp]:
        """LOADs whose values reach one of `roots` without passing through a REDUCE or a LOCAL."""
        found = toposort(roots, stop=lambda u: u.op in CLOSING and u not in roots)
        return [u for u in found if u.op is Op.LOAD]

    def closing(self, roots: Iterable[UOp]) -> list[UOp]:
        """REDUCEs and LOCALs that `roots` use, operands first, not those inside others."""
        if not self.passes:
            return []
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
        return word_step(step, access.src[0])

    def weight(self, roots: Iterable[UOp], costs: Costs) -> float:
        """Cost of an element of `roots` in plain instructions, nested REDUCEs not counted."""
        whole = sum(costs.vector(u.op, u.dtype) for u in self.order(roots) if u.op in ALU)
        return whole / costs.plain


def is_of_loops(condition: UOp) -> bool:
    """Whether `condition` follows from where the loops are: it is made of them alone."""
    nodes = toposort([condition])
    known = all(n.op in ALU or n.op in (Op.RANGE, Op.CONST, Op.VAR) for n in nodes)
    return known and any(n.op is Op.RANGE for n in nodes)


def is_empty_load(u: UOp) -> bool:
    """Whether `u` reads memory without elements, so that no address is needed."""
    if u.op is not Op.LOAD:
        return False
    source = u.src[0]
    if source.op is Op.LOCAL:
        return most_elements(source.src[1:]) == 0
    param = source.src[0] if source.op is Op.WORDS else source
    return bool(param.arg[1] == 0)


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


def word_step(step: int | None, source: UOp) -> int | None:
    """A distance between elements of `source` as one between what a LOAD reads there at once.

    Words at a distance of no whole number of them are far from each other: that counts alone.
    """
    if source.op is not Op.WORDS or step is None:
        return step
    words, rest = divmod(step, source.dtype.itemsize // source.src[0].dtype.itemsize)
    return max(_FAR, words) if rest else words


def kernel_cost(given: Analysis, written: Analysis, costs: Costs) -> Cost:
    """What one run of a kernel costs.

    Parameters
    ----------
    given : Analysis
        The kernel as it was asked for: its operations and bytes are what users are told.
    written : Analysis
        The same without transcendental ops: what is computed.
    costs : Costs
        The target's.
    """
    flops: dict[frozenset[UOp], int] = {}
    for u in given.nodes:
        if u.op in ALU and u.dtype.is_float and u.op not in (Op.CAST, Op.BITCAST, Op.WHERE):
            deps, each = given.deps[u], 2 if u.op is Op.FMA else 1
        elif u.op is Op.REDUCE:
            deps, each = given.deps[u.src[0]], 1
        else:
            continue
        flops[deps] = flops.get(deps, 0) + each
    return Cost(_total(flops), _traffic(given), _cycles(written, costs))


def _total(often: Mapping[frozenset[UOp], int], part: int = 1) -> UOp:
    """So many of something for each iteration of loops, in all; `part` of them are one."""
    fixed, total = 0, const(0, dt.int64)
    for ranges, count in often.items():
        trips = _trips(ranges)
        if trips.op is Op.CONST:
            fixed += int(trips.arg) * count
        else:
            total = total + trips * count
    if total.op is Op.CONST:
        return const(fixed // part, dt.int64)
    total = total + fixed
    return simplify(total // part if part > 1 else total)


def _traffic(info: Analysis) -> UOp:
    """Each byte touched once per buffer."""
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
    return simplify(total)


def _cycles(info: Analysis, costs: Costs) -> UOp:
    """Cycles of each value times how often it is computed, and of the loops inside."""
    often: dict[frozenset[UOp], float] = {}

    def count(deps: frozenset[UOp], cycles: float) -> None:
        often[deps] = often.get(deps, 0.0) + cycles

    seen: set[UOp] = set()
    closing = (*info.reduces, *info.locals)
    for root in (*(s.src[2] for s in info.sink.src), *(u.src[0] for u in closing)):
        for u in info.order([root]):
            if u.op in ELEMENTWISE and u not in seen:
                # What varies with no loop is computed for itself.
                alone = 1.0 if info.deps[u] else costs.lanes(u.dtype)
                count(info.deps[u], alone * costs.node(u))
            seen.add(u)
    for u in info.nodes:
        if u.op is Op.LOAD and u.src[0].op is Op.PARAM:
            if len(u.src) > 2:
                count(info.deps[u], costs.element(Op.PAD, u.dtype))
            if any(n.op is Op.LOAD for n in toposort([u.src[1]])):
                count(info.deps[u], costs.element(Op.GATHER, u.dtype))
    for u in info.reduces:
        value = u.src[0]
        # A multiply-add takes no longer than the product alone, which is counted.
        if not is_fused(u.arg, value.op, is_float=value.dtype.is_float):
            count(info.deps[value], costs.element(u.arg, u.dtype))
    # What closes over the same RANGEs runs in one loop.
    for u in {u.src[1:]: u for u in closing}.values():
        count(info.deps[u], costs.loop / costs.lanes(u.dtype))
    return _total({deps: math.ceil(_FINE * cycles) for deps, cycles in often.items()}, _FINE)


def _trips(ranges: Iterable[UOp]) -> UOp:
    fixed, total = 1, const(1, dt.int64)
    for r in sorted(ranges, key=lambda r: r.arg):
        if r.src[0].op is Op.CONST:
            fixed *= int(r.src[0].arg)
        else:
            total = total * r.src[0]
    return const(fixed, dt.int64) if total.op is Op.CONST else simplify(total * fixed)

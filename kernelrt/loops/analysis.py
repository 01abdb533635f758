"""Analysis of a kernel AST: dependences on RANGEs, strides of accesses, and cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir.local import flat_index, most_elements
from kernelrt.ir.ops import ALU, ELEMENTWISE, Op
from kernelrt.ir.reducers import IN_ORDER
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.terms import linear
from kernelrt.ir.uop import UOp, const, toposort

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kernelrt.device.costs import Costs

__all__ = [
    "CLOSING", "Analysis", "Cost", "is_empty_load", "is_of_loops", "kernel_cost", "stride",
]  # fmt: skip

#: Ops that compute a result over RANGEs of their own (they close over these RANGEs).
CLOSING = frozenset({Op.REDUCE, Op.LOCAL})
#: Symbolic costs are integers: multiples of 1 / _FINE cycle.
_FINE = 256
#: Stride, in words, at which words are loaded one by one, or by rows.
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
        Compute cycles on one core, without memory stalls.
    """

    flops: UOp
    bytes: UOp
    cycles: UOp


class Analysis:
    """Dependence of each node of a kernel on the RANGEs.

    Attributes
    ----------
    nodes : list of UOp
        All nodes, operands first.
    deps : dict
        Maps each node to the RANGEs that its value varies with. A REDUCE or LOCAL does not vary
        with its own RANGEs.
    reduces : list of UOp
        The REDUCE nodes, operands first.
    locals : list of UOp
        The LOCAL nodes, operands first.
    passes : dict
        Maps RANGEs to the REDUCEs and LOCALs that have exactly these as their own RANGEs, operands
        first. One loop nest computes all of these.
    ranges : list of UOp
        The RANGE nodes.
    own_index : dict
        Maps each LOCAL to the index of an element in the array, as an expression of the LOCAL's own
        RANGEs.
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
        # With a dynamic extent the index has arithmetic that may not occur in the kernel itself.
        for u in toposort(self.own_index.values()):
            if u not in self.deps:
                self.deps[u] = self._deps_of(u)

    @cached_property
    def users(self) -> dict[UOp, list[UOp]]:
        """Node -> the nodes that it is a source of."""
        found: dict[UOp, list[UOp]] = {}
        for u in self.nodes:
            for s in dict.fromkeys(u.src):
                found.setdefault(s, []).append(u)
        return found

    @cached_property
    def sequential(self) -> set[UOp]:
        """REDUCEs of at most IN_ORDER terms that fill LOCALs. They add one term after the other.

        So a row of an array has the same bits in every kernel that computes it.
        """
        filling = {r for u in self.locals for r in u.src[1:]}
        return {
            u for u in self.reduces
            if u.dtype.is_float and not filling.isdisjoint(self.deps[u])
            and math.prod(max(1, r.src[0].vmax) for r in u.src[1:]) <= IN_ORDER
        }  # fmt: skip

    @cached_property
    def awaited(self) -> set[UOp]:
        """REDUCEs and LOCALs whose result is used by a value that varies with further loops."""
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

    def replaced(self, root: UOp, node: UOp, value: UOp) -> UOp:
        """Return `root` with `value` in place of `node`. Add the new nodes to `deps`."""
        [found] = substitute([root], {node: value})
        for u in toposort([found], stop=lambda u: u in self.deps):
            if u not in self.deps:
                self.deps[u] = self._deps_of(u)
        return found

    def deps_of(self, roots: Iterable[UOp]) -> frozenset[UOp]:
        """Return the RANGEs that any of `roots` varies with."""
        nothing: frozenset[UOp] = frozenset()
        return nothing.union(*(self.deps[root] for root in roots))

    def order(self, roots: Iterable[UOp]) -> list[UOp]:
        """Return the nodes to compute for `roots`, operands first.

        Nodes below LOADs and below REDUCEs are left out.
        """
        return list(toposort(roots, stop=lambda u: u.op in (Op.LOAD, Op.REDUCE)))

    def loads(self, *roots: UOp) -> list[UOp]:
        """Return the LOADs below `roots` that are not below a REDUCE or LOCAL there."""
        found = toposort(roots, stop=lambda u: u.op in CLOSING and u not in roots)
        return [u for u in found if u.op is Op.LOAD]

    def closing(self, roots: Iterable[UOp]) -> list[UOp]:
        """Return the REDUCEs and LOCALs below `roots`, without those that are below another one."""
        if not self.passes:
            return []
        found = toposort(roots, stop=lambda u: u.op in CLOSING or is_empty_load(u))
        return [u for u in found if u.op in CLOSING]

    def stride(self, access: UOp, r: UOp) -> int | None:
        """Return the stride of a LOAD or STORE along `r`, in elements; None if not constant.

        A LOCAL has one array for each iteration of the loops that it varies with. If such a loop is
        vectorized, the arrays of its lanes are interleaved. So the stride along such a loop is 1,
        unless the index varies with the loop as well.
        """
        step = stride(access.src[1], r)
        if access.src[0].op is Op.LOCAL and r in self.deps[access.src[0]]:
            return 1 if step == 0 else None
        return word_step(step, access.src[0])

    def weight(self, roots: Iterable[UOp], costs: Costs) -> float:
        """Return the cost of an element of `roots` in plain instructions, without REDUCEs below."""
        whole = sum(costs.vector(u.op, u.dtype) for u in self.order(roots) if u.op in ALU)
        return whole / costs.plain


def is_of_loops(condition: UOp) -> bool:
    """Return whether `condition` contains only loop indices, constants and Variables.

    The result is False if it depends on no loop.
    """
    nodes = toposort([condition])
    known = all(n.op in ALU or n.op in (Op.RANGE, Op.CONST, Op.VAR) for n in nodes)
    return known and any(n.op is Op.RANGE for n in nodes)


def is_empty_load(u: UOp) -> bool:
    """Return whether `u` is a LOAD from memory without elements, which needs no address."""
    if u.op is not Op.LOAD:
        return False
    source = u.src[0]
    if source.op is Op.LOCAL:
        return most_elements(source.src[1:]) == 0
    param = source.src[0] if source.op is Op.WORDS else source
    return bool(param.arg[1] == 0)


def stride(index: UOp, r: UOp) -> int | None:
    """Return the stride of `index` along `r`: 0 if independent of it, None if not constant."""
    terms, _ = linear(index)
    step = 0
    for term, factor in terms.items():
        if term is r:
            step = factor
        elif any(n is r for n in toposort([term])):
            return None
    return step


def word_step(step: int | None, source: UOp) -> int | None:
    """Convert a stride in elements of `source` to the unit in which a LOAD reads it.

    If the source is a WORDS, the unit is a word of several elements; otherwise it is an element. If
    a stride is not a whole number of words, the result is at least `_FAR` words.
    """
    if source.op is not Op.WORDS or step is None:
        return step
    words, rest = divmod(step, source.dtype.itemsize // source.src[0].dtype.itemsize)
    return max(_FAR, words) if rest else words


def kernel_cost(given: Analysis, written: Analysis, costs: Costs) -> Cost:
    """Return the cost of one run of a kernel.

    Parameters
    ----------
    given : Analysis
        The kernel before lowering. Its operations and bytes are reported to users.
    written : Analysis
        The same kernel with transcendental ops lowered to arithmetic. Its cycles are counted.
    costs : Costs
        Costs of the target.
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
    """Return the sum of `often`, which maps RANGEs to a count per iteration, over `part`.

    The sum is divided by `part`.
    """
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
    """Return the bytes read and written, each byte counted once per buffer."""
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
    """Return the cycles of all values, times how often each is computed, plus those of loops."""
    often: dict[frozenset[UOp], float] = {}

    def count(deps: frozenset[UOp], cycles: float) -> None:
        often[deps] = often.get(deps, 0.0) + cycles

    seen: set[UOp] = set()
    closing = (*info.reduces, *info.locals)
    for root in (*(s.src[2] for s in info.sink.src), *(u.src[0] for u in closing)):
        for u in info.order([root]):
            if u.op in ELEMENTWISE and u not in seen:
                # A value that varies with no loop is a scalar: no lanes share its cost.
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
        # The cost of a product includes its sum if one instruction computes both.
        if u.arg is not Op.ADD or not costs.spec.adds_products(value.op, value.dtype):
            count(info.deps[value], costs.element(u.arg, u.dtype))
    # REDUCEs and LOCALs over the same RANGEs share one loop.
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

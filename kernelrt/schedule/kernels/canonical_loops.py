"""Canonical form of the loops of a kernel.

A reshape leaves divisions and remainders of a loop index in the index expressions. They vanish if
this loop is split into two loops at the divisor. Adjacent loops are merged if each access steps
through memory as if they were one loop. So an elementwise kernel is a single flat loop. Finally,
loops are numbered in the order in which the kernel's expressions use them, so that equal
computations become the same node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.ops import ALU
from kernelrt.ir.shape import as_dim, as_uop, prod, same
from kernelrt.ir.terms import factors, linear
from kernelrt.schedule.fuse.index_maps import ZERO, Indexer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["canonical_loops"]

#: Maximum number of rounds of splitting; each one removes one level of a nested division.
_ROUNDS = 8
_Coefficients = dict[UOp, "int | UOp"]


def canonical_loops(stores: Sequence[UOp], outer: Sequence[UOp], indexer: Indexer) -> list[UOp]:
    """Return STOREs over canonical RANGEs that compute the same values as the given ones.

    Parameters
    ----------
    stores : sequence of UOp
        STORE nodes.
    outer : sequence of UOp
        RANGEs of the STOREs that belong to no REDUCE, outermost first.
    indexer : Indexer
        Index arithmetic.
    """
    work = _Loops(list(stores), list(outer), indexer)
    rounds = 0
    while work.split(may=rounds < _ROUNDS):
        rounds += 1
    work.merge_and_number()
    return work.stores


class _Loops:
    def __init__(self, stores: list[UOp], outer: list[UOp], indexer: Indexer) -> None:
        self.stores = stores
        self._outer = outer
        self._indexer = indexer
        self._nodes: list[UOp] = []
        self._next = 1 + max((int(n.arg) for n in toposort(stores) if n.op is Op.RANGE), default=0)

    def _range(self, size: UOp) -> UOp:
        self._next += 1
        return UOp(Op.RANGE, dt.int64, (size,), self._next - 1)

    # Splitting

    def split(self, *, may: bool) -> bool:
        """Split loops whose index is divided by a factor of their size; return whether it did."""
        factors: dict[UOp, int] = {}
        self._nodes = list(toposort(self.stores))
        for node in self._nodes:
            if node.op in (Op.IDIV, Op.MOD) and node.src[0].op is Op.RANGE:
                loop, divisor = node.src
                size = loop.src[0]
                if size.op is Op.CONST and divisor.op is Op.CONST:
                    s, d = int(size.arg), int(divisor.arg)
                    if 1 < d < s and s % d == 0:
                        factors[loop] = max(factors.get(loop, 0), d)
        if not factors or not may:
            return False
        values: dict[UOp, UOp] = {}
        loops: dict[UOp, tuple[UOp, ...]] = {}
        for loop, d in factors.items():
            high = self._range(as_uop(int(loop.src[0].arg) // d))
            low = self._range(as_uop(d))
            values[loop] = high * d + low
            loops[loop] = (high, low)
        self._rebuild(values, loops)
        return True

    # Merging and numbering

    def merge_and_number(self) -> None:
        """Merge adjacent loops where every access allows it, and renumber all loops."""
        table = _Accesses(self._nodes)
        nests = [self._outer]
        nests += [list(n.src[1:]) for n in reversed(self._nodes) if n.op in _CLOSING]
        values: dict[UOp, UOp] = {}
        loops: dict[UOp, tuple[UOp, ...]] = {}
        count = 0
        for nest in nests:
            for run in table.runs(nest):
                size = as_uop(prod(as_dim(r.src[0]) for r in run))
                merged = UOp(Op.RANGE, dt.int64, (size,), count)
                count += 1
                for r in run[:-1]:
                    values[r], loops[r] = ZERO, ()
                values[run[-1]], loops[run[-1]] = merged, (merged,)
        self._rebuild(values, loops)

    def _rebuild(self, values: Mapping[UOp, UOp], loops: Mapping[UOp, tuple[UOp, ...]]) -> None:
        """Replace RANGEs by `values` in expressions, and by `loops` in lists of loops."""
        done: dict[UOp, UOp] = dict(values)
        pure: set[UOp] = {n for n in done.values() if _is_pure(n)}
        simplify = self._indexer.simplify
        for node in self._nodes:
            if node in done:
                continue
            if node.op in _CLOSING:
                own = [x for r in node.src[1:] for x in loops.get(r, (r,))]
                new = node.replace(src=(done[node.src[0]], *own)) if own else done[node.src[0]]
            else:
                new = node.replace(src=tuple(done[s] for s in node.src))
            if new.op is Op.LOAD:
                buffer, *index = new.src
                new = new.replace(src=(buffer, *map(simplify, index)))
            elif new.op is Op.STORE:
                buffer, at, value = new.src[:3]
                own = [x for r in node.src[3:] for x in loops.get(r, (r,))]
                new = new.replace(src=(buffer, simplify(at), value, *own))
            elif new.op in _PURE_LEAVES or (_is_index(new) and all(s in pure for s in new.src)):
                new = simplify(new)
                pure.add(new)
            done[node] = new
        self.stores = [done[s] for s in self.stores]
        self._outer = [x for r in self._outer for x in loops.get(r, (r,))]


#: Ops that have their own loops.
_CLOSING = frozenset({Op.REDUCE, Op.LOCAL})
_PURE_LEAVES = frozenset({Op.RANGE, Op.VAR})


def _is_index(node: UOp) -> bool:
    if node.op is Op.CONST:
        return not node.dtype.is_float
    return node.op in ALU and node.dtype in (dt.int64, dt.bool_)


def _is_pure(node: UOp) -> bool:
    """Return whether `node` contains only loop indices, Variables and numbers.

    Such integer arithmetic cannot wrap.
    """
    return all(n.op in _PURE_LEAVES or _is_index(n) for n in toposort([node]))


#: Number of sources before the loops, for ops whose last sources are their loops.
_OPERANDS = {Op.REDUCE: 1, Op.LOCAL: 1, Op.STORE: 3}
#: Ops that :func:`linear` and :meth:`_Accesses._product` look through.
_WITHIN_SUM = frozenset({Op.ADD, Op.SUB, Op.NEG, Op.MUL})


class _Accesses:
    """Strides of every index expression of a kernel along each loop."""

    def __init__(self, nodes: Iterable[UOp]) -> None:
        self._rows: dict[tuple[tuple[UOp, int | UOp], ...], _Coefficients] = {}
        self._opaque: set[UOp] = set()
        self._varying: dict[UOp, frozenset[UOp]] = {}
        seen: set[UOp] = set()
        for node in nodes:
            if node.dtype is dt.int64 and node.op in _WITHIN_SUM:
                continue  # part of the expression that it is a term of
            for s in node.src[: _OPERANDS.get(node.op)]:
                if s.dtype is dt.int64 and s not in seen:
                    seen.add(s)
                    self._add(s)

    def _add(self, root: UOp) -> None:
        row: _Coefficients = {}
        for term, factor in linear(root)[0].items():
            if term.op is Op.RANGE:
                _accumulate(row, term, factor)
            elif term.op is Op.MUL:
                self._product(term, factor, row)
        if row:
            key = tuple(sorted(row.items(), key=lambda item: int(item[0].arg)))
            self._rows[key] = row

    def _product(self, term: UOp, factor: int, row: _Coefficients) -> None:
        """Add the stride of the loop in the product `term` to `row`.

        If the product is not one loop times an invariant factor, its loops cannot be merged.
        """
        varying = self._ranges(term)
        if not varying:
            return
        parts = factors(term)
        loops = [f for f in parts if f.op is Op.RANGE]
        rest = [f for f in parts if f.op is not Op.RANGE]
        if len(loops) != 1 or any(self._ranges(f) for f in rest):
            self._opaque |= varying
            return
        _accumulate(row, loops[0], as_uop(prod((factor, *rest))))

    def _ranges(self, u: UOp) -> frozenset[UOp]:
        memo = self._varying
        if u not in memo:
            for node in toposort([u], stop=memo.__contains__):
                if node not in memo:
                    own = {node} if node.op is Op.RANGE else ()
                    memo[node] = frozenset(own).union(*(memo[s] for s in node.src))
        return memo[u]

    def runs(self, nest: Sequence[UOp]) -> list[list[UOp]]:
        """Group adjacent loops of `nest`, outermost first, that can be merged into one loop.

        Loops can be merged if every access steps through memory as if they were one loop.
        """
        out: list[list[UOp]] = []
        for loop in nest:
            if out and self._as_one(out[-1][-1], loop):
                out[-1].append(loop)
            else:
                out.append([loop])
        return out

    def _as_one(self, a: UOp, b: UOp) -> bool:
        if a in self._opaque or b in self._opaque:
            return False
        size = as_dim(b.src[0])
        return all(
            same(row.get(a, 0), prod((size, row.get(b, 0)))) for row in self._rows.values()
        )


def _accumulate(row: _Coefficients, loop: UOp, step: int | UOp) -> None:
    known = row.get(loop, 0)
    if isinstance(known, int) and isinstance(step, int):
        row[loop] = known + step
    else:
        row[loop] = as_dim(as_uop(known) + as_uop(step))

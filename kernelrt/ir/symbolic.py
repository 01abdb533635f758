"""Simplifies integer expressions with bounds.

Index expressions are sums of products. :func:`simplify` brings them to one canonical form, so that
equivalent index expressions become the same node. Where bounds allow, it removes the divisions and
remainders that reshapes introduce.

Sums and products that may wrap are arithmetic on data. No rule changes them; :mod:`.bounds` defines
which nodes cannot wrap.

The work is linear in the number of nodes of the graph, which may have exponentially many paths.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir.ops import Op
from kernelrt.ir.rewrite import Table, rewrite
from kernelrt.ir.terms import Linear, exact_linear, factors, fits, linear, order, ranges_of
from kernelrt.ir.uop import UOp, const

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["RULES", "in_range", "less", "simplify", "simplify_all", "upper"]

#: Maximum number of terms of a sum that is expanded, and of a sum that is sorted.
_TERMS, _LONGEST = 32, 64
_MOST = int(dt.int64.max)


def simplify(u: UOp) -> UOp:
    """Return an equal expression in canonical form."""
    return simplify_all([u])[0]


def simplify_all(roots: Iterable[UOp]) -> list[UOp]:
    """Simplify several expressions; subexpressions that they share are simplified once."""
    return rewrite(roots, RULES, _SETTLED)


class _Settled:
    """Memo of canonical forms, stored in the nodes themselves."""

    def __contains__(self, u: UOp) -> bool:
        return u.cached_simple is not None

    def __getitem__(self, u: UOp) -> UOp:
        found = u.cached_simple
        return found if isinstance(found, UOp) else u

    def __setitem__(self, u: UOp, simple: UOp) -> None:
        u.cached_simple = True if simple is u else simple

    def get(self, u: UOp, default: UOp) -> UOp:
        return default if u.cached_simple is None else self[u]


_SETTLED = _Settled()


def upper(u: UOp) -> UOp:
    """Return an upper bound of `u` as an expression without RANGEs.

    The bound is tighter than a constant only for sums of RANGEs, and of RANGEs times factors
    without RANGEs. In other terms, or in all of `u`, constant bounds replace the RANGEs.
    """
    if not u.exact:
        return const(u.vmax, dt.int64)
    terms, constant = exact_linear(u)
    total = const(constant, dt.int64)
    for node, factor in terms.items():
        if node.op is Op.RANGE and factor > 0:
            total = total + (node.src[0] - 1) * factor
        elif node.op is Op.MUL and factor > 0 and node.vmin >= 0:
            parts = [(s.src[0] - 1) if s.op is Op.RANGE else s for s in factors(node)]
            if any(ranges_of(p) for p in parts):
                return const(u.vmax, dt.int64)
            product = const(factor, dt.int64)
            for part in parts:
                product = product * part
            total = total + product
        elif ranges_of(node):
            total = total + (node.vmax * factor if factor > 0 else node.vmin * factor)
        else:
            total = total + node * factor
    return total


def less(a: UOp, b: UOp) -> bool:
    """Return whether `a < b` is provable for all values of their RANGEs and Variables."""
    if a.vmax < b.vmin:
        return True
    if b.op is Op.CONST:
        return False
    difference = upper(a) - b
    return difference.exact and simplify(_expand(difference)).vmax < 0


def in_range(index: UOp, size: UOp) -> bool:
    """Return whether `index` provably lies within an axis of `size`."""
    return index.vmin >= 0 and less(index, size)


def _expand(u: UOp) -> UOp:
    """Distribute products over sums, so that equal terms cancel."""

    def distribute(node: UOp) -> UOp | None:
        for i in (0, 1):
            a, b = node.src[i], node.src[1 - i]
            if a.op in (Op.ADD, Op.SUB) and _terms(a) * _terms(b) <= _TERMS:
                return UOp(a.op, node.dtype, (a.src[0] * b, a.src[1] * b))
        return None

    return rewrite([u], {Op.MUL: (distribute,)})[0]


def _terms(u: UOp) -> int:
    return len(linear(u)[0]) + 1


def _is_index(u: UOp) -> bool:
    """Return whether `u` is index arithmetic. Arithmetic that may wrap is arithmetic on data."""
    return u.dtype is dt.int64 and u.exact


def _build(terms: dict[UOp, int], constant: int) -> UOp:
    total: UOp | None = None
    for node in sorted(terms, key=order):
        factor = terms[node]
        term = node if factor == 1 else node * factor
        total = term if total is None else total + term
    if total is None:
        return const(constant, dt.int64)
    return total if constant == 0 else total + constant


def _sum(u: UOp) -> UOp | None:
    if not _is_index(u):
        return None
    terms, constant = linear(u)
    if len(terms) > _LONGEST:
        return None
    _recombine(terms)
    return _build(terms, constant)


def _recombine(terms: dict[UOp, int]) -> None:
    """Replace (x // c) * (c * k) + (x % c) * k by x * k."""
    for node in [n for n in terms if n.op is Op.MOD]:
        factor = terms.get(node)
        if factor is None:
            continue
        x, c = node.src
        quotient = UOp(Op.IDIV, node.dtype, (x, c))
        if c.op is Op.CONST and terms.get(quotient) == factor * int(c.arg):
            del terms[node], terms[quotient]
            more, _ = linear(x)
            if len(more) == 1 and x in more:
                terms[x] = terms.get(x, 0) + factor
            else:
                terms[x] = factor


def _mul(u: UOp) -> UOp | None:
    if not _is_index(u):
        return None
    parts = factors(u)
    constant = math.prod(int(f.arg) for f in parts if f.op is Op.CONST)
    rest = sorted((f for f in parts if f.op is not Op.CONST), key=order)
    if constant == 0 or not rest:
        return const(constant, dt.int64)
    if len(rest) == 1 and rest[0].op in (Op.ADD, Op.SUB, Op.NEG):
        terms, offset = linear(rest[0])
        return _build({n: c * constant for n, c in terms.items()}, offset * constant)
    if u in rest:
        return None
    if len(rest) > 1 and any(f.op in (Op.ADD, Op.SUB) for f in rest):
        expanded = _expand(u)
        if expanded.op is not Op.MUL:
            return expanded
    product = rest[0]
    for factor in rest[1:]:
        product = product * factor
    return product if constant == 1 else product * constant


def _split(u: UOp, divisor: int) -> tuple[Linear, Linear]:
    """Write `u` as divisor * quotient + remainder, term by term.

    The constant of the remainder lies from 0 to divisor - 1. The remainder is exact. If it could
    wrap, the quotient is 0, and the remainder is `u`.
    """
    terms, constant = exact_linear(u)
    quotient = {n: c // divisor for n, c in terms.items() if c % divisor == 0}
    remainder = {n: c for n, c in terms.items() if c % divisor}
    if not _build(remainder, constant % divisor).exact:
        return ({}, 0), ({u: 1}, 0)
    return (quotient, constant // divisor), (remainder, constant % divisor)


def _split_symbolic(u: UOp, divisor: UOp) -> tuple[Linear, UOp]:
    """Write `u` as divisor * quotient + remainder, for a divisor that is not a constant."""
    terms, constant = exact_linear(u)
    quotient: dict[UOp, int] = {}
    whole = 0
    remainder: dict[UOp, int] = {}
    for node, factor in terms.items():
        if node is divisor:
            whole += factor
            continue
        parts = factors(node) if node.exact else []
        if divisor in parts and len(parts) > 1:
            parts.remove(divisor)
            product = parts[0]
            for part in parts[1:]:
                product = product * part
            quotient[product] = quotient.get(product, 0) + factor
        else:
            remainder[node] = factor
    rest = _build(remainder, constant)
    return ((quotient, whole), rest) if rest.exact else (({}, 0), u)


def _idiv(u: UOp) -> UOp | None:
    if not _is_index(u):
        return None
    x, y = u.src
    if y.op is not Op.CONST:
        return _idiv_symbolic(x, y)
    divisor = int(y.arg)
    if divisor <= 0:
        return None
    if divisor == 1:
        return x
    if x.vmin // divisor == x.vmax // divisor:
        return const(x.vmin // divisor, dt.int64)
    if x.op is Op.IDIV and x.src[1].op is Op.CONST and 0 < int(x.src[1].arg) <= _MOST // divisor:
        return x.src[0] // (int(x.src[1].arg) * divisor)
    (quotient, whole), (remainder, offset) = _split(x, divisor)
    rest = _build(remainder, offset)
    if rest.vmin >= 0 and rest.vmax < divisor:
        return _build(quotient, whole)
    common = math.gcd(divisor, *remainder.values())
    if common > 1:
        smaller = _build({n: c // common for n, c in remainder.items()}, offset // common)
        return _build(quotient, whole) + smaller // (divisor // common)
    if quotient or whole:
        return _build(quotient, whole) + rest // divisor
    return None


def _idiv_symbolic(x: UOp, y: UOp) -> UOp | None:
    if y.vmin <= 0:
        return None
    if x.vmin >= 0 and less(x, y):
        return const(0, dt.int64)
    (quotient, whole), rest = _split_symbolic(x, y)
    if rest.vmin >= 0 and less(rest, y):
        return _build(quotient, whole)
    if quotient or whole:
        return _build(quotient, whole) + rest // y
    return None


def _mod(u: UOp) -> UOp | None:
    if not _is_index(u):
        return None
    x, y = u.src
    if y.op is not Op.CONST:
        return _mod_symbolic(x, y)
    divisor = int(y.arg)
    if divisor <= 0:
        return None
    if divisor == 1:
        return const(0, dt.int64)
    if x.vmin // divisor == x.vmax // divisor:
        return x - (x.vmin // divisor) * divisor
    inner = int(x.src[1].arg) if x.op is Op.MOD and x.src[1].op is Op.CONST else 0
    if inner and inner % divisor == 0:
        return x.src[0] % divisor
    (quotient, whole), (remainder, offset) = _split(x, divisor)
    if quotient or whole:
        return _build(remainder, offset) % divisor
    common = math.gcd(divisor, *remainder.values())
    if common > 1:
        smaller = _build({n: c // common for n, c in remainder.items()}, offset // common)
        return (smaller % (divisor // common)) * common + offset % common
    return None


def _mod_symbolic(x: UOp, y: UOp) -> UOp | None:
    if y.vmin <= 0:
        return None
    if x.vmin >= 0 and less(x, y):
        return x
    (quotient, whole), rest = _split_symbolic(x, y)
    return rest % y if quotient or whole else None


def _mod_of_div(u: UOp) -> UOp | None:
    """Replace (x % (a * b)) // a by (x // a) % b if a and b are positive."""
    x, y = u.src
    if (
        _is_index(u)
        and x.op is Op.MOD
        and y.op is Op.CONST
        and x.src[1].op is Op.CONST
        and 0 < int(y.arg) <= int(x.src[1].arg)
        and int(x.src[1].arg) % int(y.arg) == 0
    ):
        return (x.src[0] // int(y.arg)) % (int(x.src[1].arg) // int(y.arg))
    return None


def _compare(u: UOp) -> UOp | None:
    if u.bounds[0] == u.bounds[1] and not u.src[0].dtype.is_float:
        return const(bool(u.vmin), dt.bool_)
    a, b = u.src
    if not _is_index(a):
        return None
    if u.op is Op.LT and less(a, b):
        return const(True, dt.bool_)
    if u.op is Op.LT and b.op is Op.CONST:
        return _compare_scaled(a, int(b.arg))
    return None


def _compare_scaled(a: UOp, limit: int) -> UOp | None:
    """Simplify ``a < limit``: divide all terms by their common factor."""
    terms, constant = exact_linear(a)
    if not terms:
        return None
    common = math.gcd(*terms.values())
    if common == 1 and constant == 0:
        return None
    reduced = _build({n: c // common for n, c in terms.items()}, 0)
    threshold = -((constant - limit) // common)
    return reduced < threshold if reduced.exact and fits(threshold) else None


def _and(u: UOp) -> UOp | None:
    if not u.dtype.is_bool:
        return None
    for a, b in (u.src, u.src[::-1]):
        if a.op is Op.CONST:
            return b if a.arg else a
    return u.src[0] if u.src[0] is u.src[1] else None


def _or(u: UOp) -> UOp | None:
    if not u.dtype.is_bool:
        return None
    for a, b in (u.src, u.src[::-1]):
        if a.op is Op.CONST:
            return a if a.arg else b
    return u.src[0] if u.src[0] is u.src[1] else None


def _not(u: UOp) -> UOp | None:
    if u.src[0].op is Op.CONST and u.dtype.is_bool:
        return const(not u.src[0].arg, dt.bool_)
    return u.src[0].src[0] if u.src[0].op is Op.NOT else None


def _where(u: UOp) -> UOp | None:
    condition, yes, no = u.src
    if condition.op is Op.CONST:
        return yes if condition.arg else no
    return yes if yes is no else None


def _minmax(u: UOp) -> UOp | None:
    if u.dtype.is_float:
        return None
    a, b = u.src
    first, second = (a, b) if u.op is Op.MIN else (b, a)
    if first.vmax <= second.vmin:
        return a
    return b if second.vmax <= first.vmin else None


def _cast(u: UOp) -> UOp | None:
    x = u.src[0]
    if x.dtype is u.dtype:
        return x
    if x.op is Op.CONST and not u.dtype.is_float and not x.dtype.is_float and not u.dtype.is_bool:
        return const(x.arg, u.dtype)
    return None


def _fixed_range(u: UOp) -> UOp | None:
    return const(0, dt.int64) if u.src[0].op is Op.CONST and u.src[0].arg == 1 else None


def _bound(u: UOp) -> UOp | None:
    """Remove a check that can never fail."""
    index, size = u.src[0], u.src[1]
    if in_range(index, size):
        return u.src[3] if len(u.src) > 3 else index
    return None


RULES: Table = {
    Op.ADD: (_sum,),
    Op.SUB: (_sum,),
    Op.NEG: (_sum,),
    Op.MUL: (_mul,),
    Op.IDIV: (_mod_of_div, _idiv),
    Op.MOD: (_mod,),
    Op.LT: (_compare,),
    Op.LE: (_compare,),
    Op.EQ: (_compare,),
    Op.NE: (_compare,),
    Op.AND: (_and,),
    Op.OR: (_or,),
    Op.NOT: (_not,),
    Op.WHERE: (_where,),
    Op.MIN: (_minmax,),
    Op.MAX: (_minmax,),
    Op.CAST: (_cast,),
    Op.RANGE: (_fixed_range,),
    Op.BOUND: (_bound,),
}



"""Simplifies the tensor graph before scheduling.

All rewrites keep results equal bit for bit, with NaN, infinities and signed zero. So ``x * 0`` and
``x - x`` stay as they are for floats.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir import Dim, Op, UOp, const, toposort
from kernelrt.ir.constants import full, is_zeros, short_power, uniform
from kernelrt.ir.ops import ALU, COMMUTATIVE, COMPARE
from kernelrt.ir.reducers import empty_result, is_identity
from kernelrt.ir.rewrite import Rule, Table, rewrite
from kernelrt.ir.shape import total
from kernelrt.schedule.fuse.index_maps import groups_of_axes
from kernelrt.schedule.rewrite.constant_folding import fold
from kernelrt.schedule.rewrite.window_adjoint import window_of_padded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelrt.dtype import DType

__all__ = ["TABLE", "simplify_graph"]

def simplify_graph(roots: Iterable[UOp]) -> list[UOp]:
    """Return equal graphs with fewer nodes."""
    return rewrite(roots, TABLE)


def _reshaped(x: UOp, shape: tuple[Dim, ...]) -> UOp:
    return x if x.shape == shape else UOp(Op.RESHAPE, x.dtype, (x,), shape)


# Movement


def _move_constant(u: UOp) -> UOp | None:
    value = uniform(u)
    return None if value is None else full(value, u.shape)


def _move_narrow(u: UOp) -> UOp | None:
    """Apply a movement op before a widening cast, so that its result may be stored narrow."""
    x = u.src[0]
    if not _widens(x):
        return None
    return UOp(u.op, x.src[0].dtype, x.src, u.arg).cast(u.dtype)


def _widens(x: UOp) -> bool:
    """Return whether `x` casts to a larger dtype of the same kind."""
    if x.op is not Op.CAST:
        return False
    before = x.src[0].dtype
    return before.itemsize < x.dtype.itemsize and before.is_float is x.dtype.is_float


def _reshape(u: UOp) -> UOp | None:
    x = u.src[0]
    if x.op is Op.RESHAPE:
        return _reshaped(x.src[0], u.arg)
    return x if x.shape == u.arg else _move_narrow(u)


def _expand(u: UOp) -> UOp | None:
    x = u.src[0]
    if x.op is Op.EXPAND:
        return UOp(Op.EXPAND, u.dtype, x.src, u.arg)
    return x if x.shape == u.arg else None


def _permute(u: UOp) -> UOp | None:
    x = u.src[0]
    if x.op is Op.PERMUTE:
        return UOp(Op.PERMUTE, u.dtype, x.src, tuple(x.arg[a] for a in u.arg))
    return x if u.arg == tuple(range(len(u.arg))) else _move_narrow(u)


def _shrink(u: UOp) -> UOp | None:
    x = u.src[0]
    if all(lo == 0 and hi == d for (lo, hi), d in zip(u.arg, x.shape, strict=True)):
        return x
    if x.op is not Op.SHRINK:
        return None
    bounds = tuple(
        (total((a, lo)), total((a, hi)))
        for (a, _), (lo, hi) in zip(x.arg, u.arg, strict=True)
    )
    return UOp(Op.SHRINK, u.dtype, x.src, bounds)


def _pad(u: UOp) -> UOp | None:
    x = u.src[0]
    if all(lo == 0 and hi == 0 for lo, hi in u.arg):
        return x
    if x.op is Op.PAD:
        widths = tuple(
            (total((a, lo)), total((b, hi)))
            for (a, b), (lo, hi) in zip(x.arg, u.arg, strict=True)
        )
        return UOp(Op.PAD, u.dtype, x.src, widths)
    narrow = _move_narrow(u)
    if narrow is not None:
        return narrow
    return full(const(0, u.dtype), u.shape) if is_zeros(x) else None


def _flip(u: UOp) -> UOp | None:
    x = u.src[0]
    axes = set(u.arg)
    if x.op is Op.FLIP:
        axes ^= set(x.arg)
        x = x.src[0]
    axes = {a for a in axes if x.shape[a] != 1}
    return UOp(Op.FLIP, u.dtype, (x,), tuple(sorted(axes))) if axes else x


def _cat(u: UOp) -> UOp | None:
    kept = tuple(s for s in u.src if s.shape[u.arg] != 0) or u.src[:1]
    if len(kept) == 1:
        return kept[0]
    return UOp(Op.CAT, u.dtype, kept, u.arg) if len(kept) < len(u.src) else None


def _detach(u: UOp) -> UOp | None:
    return u.src[0]


def _contiguous(u: UOp) -> UOp | None:
    return u.src[0] if u.src[0].op is Op.CONTIGUOUS else None


# Reductions


def _reduce_nothing(u: UOp) -> UOp | None:
    """Drop reduced axes of size 1. For an axis of size 0, return the reducer's identity."""
    reducer, axes = u.arg
    x = u.src[0]
    if any(x.shape[a] == 0 for a in axes):
        return full(const(empty_result(reducer, u.dtype), u.dtype), u.shape)
    real = tuple(a for a in axes if x.shape[a] != 1)
    if real and len(real) == len(axes):
        return None
    kept = x if not real else UOp(Op.REDUCE_AXIS, u.dtype, (x,), (reducer, real))
    return _reshaped(kept, u.shape)


def _reduce_expanded(u: UOp) -> UOp | None:
    """Reduce an expanded axis without a loop: its elements are all the same."""
    reducer, axes = u.arg
    x = u.src[0]
    if x.op is not Op.EXPAND:
        return None
    inner = x.src[0]
    grown = [a for a in axes if inner.shape[a] == 1 and _at_least_one(x.shape[a])]
    if not grown:
        return None
    count = math.prod(x.shape[a] for a in grown if isinstance(x.shape[a], int))
    static = all(isinstance(x.shape[a], int) for a in grown)
    value = uniform(inner)
    if reducer is Op.ADD:
        if not static or not _exact_multiple(value, u.dtype, count):
            return None
    elif reducer is Op.MUL:
        return None
    shape = tuple(1 if a in grown else d for a, d in enumerate(x.shape))
    narrow = inner if inner.shape == shape else UOp(Op.EXPAND, x.dtype, (inner,), shape)
    out = UOp(Op.REDUCE_AXIS, u.dtype, (narrow,), u.arg)
    if reducer is Op.ADD:
        return UOp(Op.MUL, u.dtype, (out, full(const(count, u.dtype), out.shape)))
    return out


def _reduce_copies(u: UOp) -> UOp | None:
    """Move an EXPAND of axes that are not reduced after the reduction, so that it runs once."""
    _, axes = u.arg
    x = u.src[0]
    if x.op is not Op.EXPAND:
        return None
    inner = x.src[0]
    kept = [a for a in range(len(x.shape)) if a not in axes]
    grown = {a for a in kept if inner.shape[a] == 1 and x.shape[a] != 1}
    if not grown:
        return None
    shape = tuple(1 if a in grown else d for a, d in enumerate(x.shape))
    narrow = inner if inner.shape == shape else UOp(Op.EXPAND, x.dtype, (inner,), shape)
    out = UOp(Op.REDUCE_AXIS, u.dtype, (narrow,), u.arg)
    return UOp(Op.EXPAND, u.dtype, (out,), u.shape)


def _at_least_one(dim: Dim) -> bool:
    return (dim if isinstance(dim, int) else dim.vmin) >= 1


def _exact_multiple(value: UOp | None, dtype: DType, count: int) -> bool:
    """Return whether the sum of `count` copies of `value` equals the product, without rounding."""
    if not dtype.is_float:
        return not dtype.is_bool
    if value is None or dtype.is_narrow:
        return False
    x = float(value.arg)
    limit = 1 << dtype.digits
    return x.is_integer() and abs(x) * count <= limit and math.copysign(1.0, x) > 0


# Arithmetic


def _fold(u: UOp) -> UOp | None:
    values: list[UOp] = []
    for s in u.src:
        value = uniform(s)
        if value is None:
            return None
        values.append(value)
    found = fold(u.op, u.dtype, values)
    return None if found is None else full(found, u.shape)


def _is_checked(node: UOp) -> bool:
    """Return whether `node` checks an index. Then `node` must be computed in any case."""
    return any(n.op is Op.BOUND for n in toposort([node]))


def _add(u: UOp) -> UOp | None:
    for x, other in (u.src, u.src[::-1]):
        value = uniform(other)
        if value is not None and is_identity(value, Op.ADD):
            return x
    return None


def _sub(u: UOp) -> UOp | None:
    return u.src[0] if is_zeros(u.src[1]) else None


def _mul(u: UOp) -> UOp | None:
    for x, other in (u.src, u.src[::-1]):
        value = uniform(other)
        if value is None or u.dtype.is_bool:
            continue
        if value.arg == 1:
            return x
        if value.arg == 0 and not u.dtype.is_float and not _is_checked(x):
            return full(value, u.shape)
        if value.arg == -1 and u.dtype.is_float:
            return UOp(Op.NEG, u.dtype, (x,))
    return None


def _div(u: UOp) -> UOp | None:
    """Replace a division by a power of two by a multiplication, which gives the same bits."""
    x, other = u.src
    value = uniform(other)
    if value is None or not u.dtype.is_float or u.dtype.is_narrow:
        return None
    number = float(value.arg)
    if number == 1:
        return x
    if not math.isfinite(number) or number == 0 or abs(math.frexp(number)[0]) != 0.5:
        return None
    inverse = 1.0 / number
    if not 2.0**-120 < abs(inverse) < 2.0**120:
        return None
    return UOp(Op.MUL, u.dtype, (x, full(const(inverse, u.dtype), u.shape)))


def _idiv(u: UOp) -> UOp | None:
    value = uniform(u.src[1])
    return u.src[0] if value is not None and value.arg == 1 and u.dtype.is_int else None


def _pow(u: UOp) -> UOp | None:
    x, other = u.src
    value = uniform(other)
    if value is None or not u.dtype.is_float:
        return None
    return short_power(x, value.arg, full(const(1, u.dtype), u.shape))


def _involution(u: UOp) -> UOp | None:
    x = u.src[0]
    return x.src[0] if x.op is u.op else None


def _extremum(u: UOp) -> UOp | None:
    return u.src[0] if u.src[0] is u.src[1] else None


def _where(u: UOp) -> UOp | None:
    condition, yes, no = u.src
    if yes is no and not _is_checked(condition):
        return yes
    value = uniform(condition)
    if value is not None:
        return yes if value.arg else no
    if condition.op is Op.NOT:
        return UOp(Op.WHERE, u.dtype, (condition.src[0], no, yes))
    return None


def _compare(u: UOp) -> UOp | None:
    """Simplify a comparison of WHERE(c, number, number) with a number to c, NOT c or a constant."""
    for k, chosen in enumerate(u.src):
        third = uniform(u.src[1 - k])
        if chosen.op is not Op.WHERE or third is None:
            continue
        numbers = [uniform(s) for s in chosen.src[1:]]
        pairs = [[n, third] if k == 0 else [third, n] for n in numbers if n is not None]
        yes, no, *_ = *(fold(u.op, u.dtype, pair) for pair in pairs), None, None
        if yes is None or no is None:
            continue
        if yes.arg != no.arg:
            condition = chosen.src[0]
            return condition if yes.arg else UOp(Op.NOT, u.dtype, (condition,))
        if not _is_checked(chosen.src[0]):
            return full(yes, u.shape)
    return None


def _cast(u: UOp) -> UOp | None:
    x = u.src[0]
    if x.dtype is u.dtype:
        return x
    if x.op is not Op.CAST or not dt.contains(x.dtype, x.src[0].dtype):
        return None
    source = x.src[0].dtype
    if source is u.dtype:
        # An unstored narrow float has extra digits, which the inner and outer cast round off.
        return x.src[0] if source.accumulator is source else None
    # A cast from float to int saturates; a cast from int to int wraps.
    if x.dtype.is_float and u.dtype.is_int and not dt.contains(u.dtype, source):
        return None if not source.is_float else UOp(Op.CAST, u.dtype, x.src)
    if u.dtype.is_narrow and source.is_int and not dt.contains(u.dtype.accumulator, source):
        return None  # an integer is cast to a narrow float through a wide one, which rounds twice
    return UOp(Op.CAST, u.dtype, x.src)


def _pull_expand(u: UOp) -> UOp | None:
    """Apply an elementwise op before the EXPAND of its operands, to fewer elements."""
    inner: tuple[Dim, ...] | None = None
    for s in u.src:
        if s.op is Op.EXPAND and uniform(s) is None:
            if inner is not None and s.src[0].shape != inner:
                return None
            inner = s.src[0].shape
        elif uniform(s) is None:
            return None
    if inner is None:
        return None
    src = tuple(
        s.src[0] if (value := uniform(s)) is None else full(value, inner) for s in u.src
    )
    return UOp(Op.EXPAND, u.dtype, (UOp(u.op, u.dtype, src, u.arg),), u.shape)


def _pull_reshape(u: UOp) -> UOp | None:
    """Apply an elementwise op before a RESHAPE of an operand, if the RESHAPE merged axes.

    The separate axes show along which of them each operand varies. A widening cast stays where it
    is, because values are reshaped while they are narrow.
    """
    for s in () if _widens(u) else u.src:
        if s.op is Op.RESHAPE and _refines(s.src[0].shape, u.shape):
            shape = s.src[0].shape
            src = tuple(_reshaped(x.src[0] if x.op is Op.RESHAPE else x, shape) for x in u.src)
            return UOp(Op.RESHAPE, u.dtype, (UOp(u.op, u.dtype, src, u.arg),), u.shape)
    return None


def _refines(fine: tuple[Dim, ...], coarse: tuple[Dim, ...]) -> bool:
    """Return whether `fine` splits axes of `coarse` and merges none."""
    if len(fine) <= len(coarse) or 0 in fine:
        return False
    groups = groups_of_axes(fine, coarse)
    return all(len(b) == 1 for _, b in groups) and any(len(a) > 1 for a, _ in groups)


def _constant_last(u: UOp) -> UOp | None:
    """Put the constant of a commutative op last, so that equal computations become one node."""
    a, b = u.src
    first = uniform(a)
    if u.op in (Op.MAX, Op.MIN) and u.dtype.is_float and (first is None or first.arg == 0):
        return None  # MAX and MIN return the first of 0.0 and -0.0
    if first is not None and uniform(b) is None:
        return UOp(u.op, u.dtype, (b, a))
    return None


_ALGEBRA: dict[Op, tuple[Rule, ...]] = {
    Op.ADD: (_add,), Op.SUB: (_sub,), Op.MUL: (_mul,), Op.DIV: (_div,),
    Op.IDIV: (_idiv,), Op.POW: (_pow,), Op.NEG: (_involution,), Op.NOT: (_involution,),
    Op.MAX: (_extremum,), Op.MIN: (_extremum,), Op.WHERE: (_where,), Op.CAST: (_cast,),
}  # fmt: skip


def _table() -> Table:
    table: dict[Op, tuple[Rule, ...]] = {
        Op.DETACH: (_detach,),
        Op.RESHAPE: (_reshape, _move_constant),
        Op.EXPAND: (_expand, _move_constant),
        Op.PERMUTE: (_permute, _move_constant),
        Op.SHRINK: (_shrink, _move_constant),
        Op.FLIP: (_flip, _move_constant),
        Op.IM2COL: (_move_constant,),
        Op.COL2IM: (window_of_padded,),
        Op.PAD: (_pad,),
        Op.CAT: (_cat,),
        Op.CONTIGUOUS: (_contiguous,),
        Op.REDUCE_AXIS: (_reduce_nothing, _reduce_expanded, _reduce_copies),
    }
    for op in ALU:
        ordered = (_constant_last,) if op in COMMUTATIVE else ()
        algebra = (_compare,) if op in COMPARE else _ALGEBRA.get(op, ())
        table[op] = (_fold, *ordered, *algebra, _pull_expand, _pull_reshape)
    return table


TABLE = _table()

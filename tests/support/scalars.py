"""Every scalar op, reduction and update of the IR in NumPy: one table for all evaluators.

bfloat16 values are held in float32. Every op rounds once, including FMA.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from support.math_truth import NUMPY

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, toposort

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["UPDATES", "Array", "compute", "evaluate", "fused_multiply_add", "numpy_type", "reduce"]

Array = np.ndarray[Any, Any]


def numpy_type(dtype: dt.DType, *, wide: bool = False) -> np.dtype[Any]:
    """Return the NumPy type that holds values of `dtype`; float64 for all floats if `wide`."""
    if wide and dtype.is_float:
        return np.dtype(np.float64)
    return np.dtype(np.float32) if dtype is dt.bfloat16 else dt.to_numpy(dtype)


def compute(node: UOp, operands: Sequence[Array], *, wide: bool = False) -> Array:
    """Apply one scalar op to the elements of arrays, in the type of its result.

    A cast to bfloat16 rounds; the other ops keep float32's digits. If `wide`, floats are float64,
    and a cast between floats changes nothing.
    """
    kind = numpy_type(node.dtype, wide=wide)
    with np.errstate(all="ignore"):
        if node.op is Op.CAST:
            return _cast(operands[0], node.dtype, kind)
        if node.op is Op.BITCAST:
            # Bits are those of the type itself, not of the NumPy type that holds its values.
            narrow = operands[0].astype(numpy_type(node.src[0].dtype), copy=False)
            found = np.ascontiguousarray(narrow).view(numpy_type(node.dtype))
            return found.reshape(narrow.shape).astype(kind, copy=False)
        # A mistyped graph must not pass because NumPy promotes.
        assert node.op is Op.WHERE or len({s.dtype for s in node.src}) == 1, node
        return np.asarray(_OPS[node.op](*operands)).astype(kind, copy=False)


def reduce(node: UOp, x: Array, axes: tuple[int, ...], reducer: Op, **options: Any) -> Array:
    """Reduce in the type of `x`; floats accumulate in float64.

    `options` are those of :meth:`numpy.ufunc.reduce`.
    """
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    first = {Op.MAX: node.dtype.min, Op.MIN: node.dtype.max}.get(reducer)
    if first is not None:
        options["initial"] = first
    elif x.dtype.kind != "f":
        options["dtype"] = x.dtype
    with np.errstate(all="ignore"):
        return np.asarray(UPDATES[reducer].reduce(wide, axis=axes, **options)).astype(x.dtype)


def evaluate(node: UOp, env: Mapping[UOp, Array]) -> Array:
    """Return the value of a kernel-stage expression, bit for bit, without a compiler.

    It supports plain arithmetic only: it fails on functions, which decompositions replace.

    Parameters
    ----------
    node : UOp
        An expression of scalar ops over constants and the nodes of `env`.
    env : mapping of UOp to array
        Arrays of one shape, of the NumPy type of their node.

    Returns
    -------
    array
        Shape of the arrays in `env`, or () if `node` depends on none.
    """
    values: dict[UOp, Array] = dict(env)
    for u in toposort([node], stop=values.__contains__):
        if u in values:
            continue
        assert u.op not in NUMPY, f"no decomposition replaced {u.op}"
        operands = [values[s] for s in u.src]
        if u.op is Op.CONST:
            out = np.array(u.arg, numpy_type(u.dtype))
        elif u.op is Op.COLD:
            out = _rare(u, *operands)
        else:
            out = compute(u, operands)
        values[u] = _to_bfloat16(out) if u.dtype is dt.bfloat16 else out
    return values[node]


def _rare(u: UOp, condition: Array, usual: Array, *inputs: Array) -> Array:
    """Return the value of a COLD node: the rare value where the condition holds."""
    leaves = [n for n in toposort([u.arg]) if n.op is Op.VAR]
    return np.where(condition, evaluate(u.arg, {n: inputs[n.arg[0]] for n in leaves}), usual)


def _to_bfloat16(x: Array) -> Array:
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), np.float32(np.nan), rounded.view(np.float32))


def _cast(x: Array, to: dt.DType, kind: np.dtype[Any]) -> Array:
    if to is dt.bfloat16 and kind == np.float32:
        return _to_bfloat16(x)
    if x.dtype.kind != "f" or not to.is_int:
        return x.astype(kind)
    # Powers of two are exact in every float; the greatest integer is not.
    low, limit = float(to.min), 2.0 ** (to.bits - (not to.is_unsigned))
    out = np.where((x > low) & (x < limit), x, 0).astype(kind)
    out = np.where(x >= limit, kind.type(to.max), out)
    out = np.where(x <= low, kind.type(to.min), out)
    return np.where(np.isnan(x), kind.type(to.max if to.is_unsigned else to.min), out)


def _shift(left: bool) -> Callable[[Array, Array], Array]:
    def shift(x: Array, by: Array) -> Array:
        width = 8 * x.dtype.itemsize
        inside = (by >= 0) & (by < width)
        amount = np.where(inside, by, 0).astype(by.dtype)
        beyond = np.where(x < 0, -1, 0) if not left and x.dtype.kind == "i" else 0
        moved = np.left_shift(x, amount) if left else np.right_shift(x, amount)
        return np.where(inside, moved, np.asarray(beyond).astype(x.dtype))

    return shift


def _floored(quotient: bool) -> Callable[[Array, Array], Array]:
    def divide(x: Array, y: Array) -> Array:
        if x.dtype.kind == "f":
            return np.floor_divide(x, y) if quotient else np.remainder(x, y)
        divisor = np.where(y == 0, 1, y).astype(y.dtype)
        out = np.floor_divide(x, divisor) if quotient else np.remainder(x, divisor)
        return np.where(y == 0, 0, out)

    return divide


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """Return ``a * b + c`` rounded once."""
    if a.dtype == np.float64:
        return _fma_double(*np.broadcast_arrays(a, b, c))
    if a.dtype.kind != "f":
        return a * b + c
    # The product of two narrow floats is exact in float64, so only the sum rounds there.
    wide = _add_to_odd(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
    return wide.astype(a.dtype)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _add_to_odd(a: Array, b: Array) -> Array:
    """Return ``a + b`` rounded to odd: inexact sums go to the neighbor with an odd last bit.

    Rounding that to a narrower format then equals rounding the exact sum.
    """
    total, error = _two_sum(a, b)
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    toward = np.copysign(np.inf, error)
    return np.where((error != 0) & np.isfinite(error) & even, np.nextafter(total, toward), total)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the product and its error; exact for exponents around 0 (Veltkamp, Dekker)."""

    def halves(x: Array) -> tuple[Array, Array]:
        big = x * 134217729.0
        high = big - (big - x)
        return high, x - high

    product = a * b
    (ah, al), (bh, bl) = halves(a), halves(b)
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def _fma_double(a: Array, b: Array, c: Array) -> Array:
    plain = a * b + c
    exact = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0) & (c != 0)
    # With a zero product or term, or an infinity, the plain sequence rounds once.
    out = np.where(exact, 0.0, plain)
    if not exact.any():
        return out
    (ma, ea), (mb, eb), (mc, ec) = (np.frexp(v[exact]) for v in (a, b, c))
    base = ea + eb
    # If one part is below every bit of the other, only its sign matters.
    base = np.where(ec - base > 200, ec - 200, base)
    scaled = np.ldexp(mc, np.maximum(ec - base, -200))
    high, low = _two_product(ma, mb)
    th, tl = _two_sum(scaled, low)
    vh, vl = _two_sum(high, th)
    # Correct by Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008.
    result = np.ldexp(vh + _add_to_odd(tl, vl), base)
    small = (np.abs(result) < 2.0**-1020) & (result != 0)
    for i in np.flatnonzero(small | ((result == 0) & (vh != 0))):
        x, y, z = (Fraction(float(v[exact][i])) for v in (a, b, c))
        result[i] = math.copysign(float(abs(x * y + z)), float(vh[i]))
    out[exact] = result
    return out


_OPS: dict[Op, Callable[..., Any]] = {
    Op.NEG: np.negative, Op.ABS: np.abs, Op.NOT: np.invert, Op.SQRT: np.sqrt, **NUMPY,
    Op.FLOOR: np.floor, Op.CEIL: np.ceil, Op.TRUNC: np.trunc, Op.ROUND: np.rint, Op.ADD: np.add,
    Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide, Op.IDIV: _floored(True),
    Op.MOD: _floored(False), Op.MAX: np.maximum, Op.MIN: np.minimum, Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor, Op.SHL: _shift(True), Op.SHR: _shift(False),
    Op.LT: np.less, Op.LE: np.less_equal, Op.EQ: np.equal, Op.NE: np.not_equal,
    Op.WHERE: np.where, Op.FMA: fused_multiply_add,
}  # fmt: skip

#: Ufuncs of reductions, of SCATTER and of updating stores.
UPDATES: dict[Op, np.ufunc] = {
    Op.ADD: np.add, Op.MUL: np.multiply, Op.MAX: np.maximum, Op.MIN: np.minimum,
}  # fmt: skip

"""Constant folding: computes exactly the results that kernels would compute."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, const
from kernelrt.ir.integers import RING, exact

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.dtype import DType

__all__ = ["fold"]

_Number = Any


def fold(op: Op, dtype: DType, operands: list[UOp]) -> UOp | None:
    """Apply `op` to CONSTs. Return a CONST of `dtype`, or None if the exact result is not known.

    Transcendental functions are evaluated in float64 and rounded once. Narrow floats are left
    to the kernels, which decide where to round.
    """
    if op is Op.WHERE:
        return operands[1] if operands[0].arg else operands[2]
    if op is Op.CAST:
        return _cast(operands[0], dtype)
    kind = operands[0].dtype
    values = [o.arg for o in operands]
    if kind.is_float:
        if kind.is_narrow:
            return None
        found = _fold_float(op, kind, values)
    else:
        found = _fold_int(op, kind, values)
    if found is None:
        return None
    return const(bool(found) if dtype.is_bool else found, dtype)


def _cast(x: UOp, dtype: DType) -> UOp | None:
    if dtype.is_narrow:
        return None
    cuts_off = x.dtype.is_float and dtype.is_int
    return const(dt.truncated(x.arg, dtype) if cuts_off else x.arg, dtype)


def _power(base: float, exponent: float) -> float:
    """Compute a power as C's pow does. NumPy's power of -0.0 and -inf by 0.5 differs."""
    odd = abs(exponent) < 2.0**53 and exponent % 2 == 1
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.copysign(math.inf, base) if odd else math.inf
    except ValueError:
        if base:
            return math.nan
        return math.copysign(math.inf, base) if odd else math.inf


def _extremum(better: Callable[[_Number, _Number], bool]) -> Callable[..., _Number]:
    """Return a function of two numbers that returns the second if it is better or NaN."""
    return lambda a, b: b if better(b, a) or b != b else a


_FLOAT: dict[Op, Callable[..., _Number]] = {
    Op.NEG: operator.neg, Op.ABS: np.abs, Op.SQRT: np.sqrt, Op.FLOOR: np.floor,
    Op.CEIL: np.ceil, Op.TRUNC: np.trunc, Op.ROUND: np.rint, Op.ADD: operator.add,
    Op.SUB: operator.sub, Op.MUL: operator.mul, Op.DIV: np.divide, Op.MAX: _extremum(operator.gt),
    Op.MIN: _extremum(operator.lt), Op.LT: operator.lt, Op.LE: operator.le, Op.EQ: operator.eq,
    Op.NE: operator.ne,
}  # fmt: skip
_ROUNDED_ONCE: dict[Op, Callable[..., _Number]] = {
    Op.EXP: np.exp, Op.EXP2: np.exp2, Op.EXPM1: np.expm1, Op.LOG: np.log, Op.LOG2: np.log2,
    Op.LOG10: np.log10, Op.LOG1P: np.log1p, Op.POW: _power, Op.SIN: np.sin, Op.COS: np.cos,
    Op.TAN: np.tan, Op.ASIN: np.arcsin, Op.ACOS: np.arccos, Op.ATAN: np.arctan,
    Op.ATAN2: np.arctan2, Op.SINH: np.sinh, Op.COSH: np.cosh, Op.TANH: np.tanh,
    Op.ASINH: np.arcsinh, Op.ACOSH: np.arccosh, Op.ATANH: np.arctanh,
}  # fmt: skip


def _fold_float(op: Op, kind: DType, values: list[_Number]) -> _Number | None:
    with np.errstate(all="ignore"):
        if op in _FLOAT:
            number = dt.to_numpy(kind).type
            return _FLOAT[op](*(number(v) for v in values)).item()
        if op in _ROUNDED_ONCE:
            return dt.nearest(_ROUNDED_ONCE[op](*(np.float64(v) for v in values)), kind)
    return None


def _fold_int(op: Op, kind: DType, values: list[_Number]) -> _Number | None:
    if kind.is_bool and op in RING:
        return None
    return exact(op, kind, values)

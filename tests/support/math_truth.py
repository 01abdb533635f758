"""True values of functions, and the error of approximations in units in the last place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt.ir import Op
from kernelrt.ir.ops import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BINARY", "HAS_WIDE", "NUMPY", "TRUTH", "UNARY", "promised", "same_special",
           "ulps"]  # fmt: skip

Array = np.ndarray[Any, Any]

#: Whether long double holds more than float64, so that it can judge float64.
HAS_WIDE = np.finfo(np.longdouble).nmant > np.finfo(np.float64).nmant


def erf(x: Array) -> Array:
    """Return the error function in the type of `x`, to a few units in its last place.

    It is 2 x / sqrt(pi) exp(-x**2) (1 + 2 x**2 / 3 (1 + 2 x**2 / 5 (1 + ...))), a series without
    negative terms.
    """
    wide = np.minimum(np.abs(x), 7)
    square = 2 * wide * wide
    total = np.ones_like(wide)
    for k in range(401, 1, -2):
        total = 1 + square / k * total
    pi = wide.dtype.type("3.14159265358979323846264338327950288")
    out = 2 * wide / np.sqrt(pi) * np.exp(-wide * wide) * total
    return np.where(np.isnan(x), x, np.copysign(np.minimum(out, 1), x))


def erfc(x: Array) -> Array:
    """Return 1 - erf(x) in the type of `x`, to a few units in its last place.

    For x of at least 1, it is the continued fraction
    exp(-x**2) / sqrt(pi) / (x + 1/2 / (x + 1 / (x + 3/2 / ...))).
    """
    wide = np.clip(x, 1, 120)
    fraction = np.zeros_like(wide)
    for k in range(400, 0, -1):
        fraction = (wide.dtype.type(k) / 2) / (wide + fraction)
    pi = wide.dtype.type("3.14159265358979323846264338327950288")
    # Split the square into a short part and a rest, since exp amplifies rounding of large numbers.
    part = wide.astype(np.float16).astype(wide.dtype)
    power = np.exp(-part * part) * np.exp(-(wide - part) * (wide + part))
    far = power / np.sqrt(pi) / (wide + fraction)
    return np.where(np.isnan(x), x, np.where(x < 1, 1 - erf(x), far))


def lgamma(x: Array) -> Array:
    """Return log(abs(gamma(x))) in the type of `x`, relatively accurate for positive x.

    By its series around 1, with the zeta function by Euler-Maclaurin; by Stirling's series from 30
    on; by recurrence and by reflection.
    """
    kind = x.dtype.type
    pi = kind("3.14159265358979323846264338327950288")
    a = np.abs(x)
    low = np.clip(np.where(a < 0.5, a, a - np.clip(np.floor(a + 0.5), 1, 30)), -0.5, 0.5)
    around = -kind("0.57721566490153286060651209008240243104") * low
    for k in range(2, 70):
        terms = np.arange(1000, 0, -1).astype(x.dtype) ** -k
        last, third = kind(1000), k * (k + 1) * (k + 2)
        tail = last / (k - 1) - kind(0.5) + k / (12 * last) - third / (720 * last**3)
        around += (terms.sum() + tail * last**-k) / k * (-low) ** k
    near = np.where(a < 0.5, around - np.log(a), around)
    # gamma(a) = (a - 1) ... (1 + low) gamma(1 + low)
    product = np.ones_like(a)
    for k in range(2, 30):
        product = np.where(a >= k + 0.5, product * (a - k + 1), product)
    near = np.where(a >= 1.5, near + np.log1p(low) + np.log(product), near)
    inverse = 1 / np.maximum(a, 30)
    terms = (1 / kind(12), -1 / kind(360), 1 / kind(1260), -1 / kind(1680), 1 / kind(1188),
             -691 / kind(360360), 1 / kind(156))
    series = sum(c * inverse ** (2 * k + 1) for k, c in enumerate(terms))
    far = (a - kind(0.5)) * (np.log(a) - 1) + (np.log(2 * pi) - 1) / 2 + series
    positive = np.where(a < 30, near, np.where(a == np.inf, a, far))
    rest = a - np.round(a)
    turned = np.log(pi) - np.log(np.abs(np.sin(pi * rest))) - np.log(a) - positive
    return np.where(x < 0, np.where((rest == 0) | (a == np.inf), np.inf, turned), positive)


def promised(op: Op, x: Array) -> Array:
    """Return `x`, with numbers replaced for which the op promises no relative accuracy."""
    return np.abs(x) if op is Op.LGAMMA and x.dtype == np.float64 else x


#: The function of each op, in the type of its arguments.
TRUTH: dict[Op, Callable[..., Array]] = {
    Op.EXP: np.exp, Op.EXP2: np.exp2, Op.EXPM1: np.expm1, Op.LOG: np.log, Op.LOG2: np.log2,
    Op.LOG10: np.log10, Op.LOG1P: np.log1p, Op.SIN: np.sin, Op.COS: np.cos, Op.TAN: np.tan,
    Op.ASIN: np.arcsin, Op.ACOS: np.arccos, Op.ATAN: np.arctan, Op.SINH: np.sinh,
    Op.COSH: np.cosh, Op.TANH: np.tanh, Op.ASINH: np.arcsinh, Op.ACOSH: np.arccosh,
    Op.ATANH: np.arctanh, Op.ERF: erf, Op.ERFC: erfc, Op.LGAMMA: lgamma,
    Op.POW: np.power, Op.ATAN2: np.arctan2,
}  # fmt: skip

#: Unary ops, and binary ones.
UNARY = [op for op in TRUTH if op in FUNCTIONS]
BINARY = [op for op in TRUTH if op not in FUNCTIONS]


def _library(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Return a function of the C library that takes arrays."""
    return lambda x: np.vectorize(function, otypes=[np.float64])(x).astype(x.dtype)


#: The functions of NumPy or the C library.
NUMPY: dict[Op, Callable[..., Array]] = {
    **TRUTH, Op.ERF: _library(math.erf), Op.ERFC: _library(math.erfc),
}  # fmt: skip


def ulps(got: Array, truth: Array) -> Array:
    """Return the distance of `got` and `truth`, in units in the last place of `truth`.

    The unit is that of the type of `got`. The distance is 0 where both are infinite or both NaN. It
    is small where `got` is infinite and `truth` is close to the greatest finite number, since both
    are right then. It is infinite where a NaN or an infinity is in the wrong place.
    """
    kind = np.finfo(got.dtype)
    wide = truth.dtype.type
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.abs(truth))[1]
        exponent = np.clip(exponent, kind.minexp + 1, kind.maxexp)
        unit = np.ldexp(wide(1), exponent - kind.nmant - 1)
        limit = np.ldexp(wide(1), kind.maxexp)
        # Treat infinity as the number after the greatest finite one.
        finite = np.where(np.isinf(got), np.copysign(limit, got), got.astype(wide))
        bounded = np.clip(truth, -limit, limit)
        distance = np.abs(finite - bounded) / unit
    both = np.isnan(got) & np.isnan(truth)
    return np.where(both, 0.0, np.where(np.isnan(distance), np.inf, distance)).astype(np.float64)


def same_special(got: Array, expected: Array) -> Array:
    """Return, for each element, whether it is NaN, infinity or zero where that is expected.

    The signs of infinities and zeros count, too.
    """
    special = ~np.isfinite(expected) | (expected == 0)
    equal = (got == expected) & (np.signbit(got) == np.signbit(expected))
    return np.where(special, equal | (np.isnan(got) & np.isnan(expected)), np.isfinite(got))

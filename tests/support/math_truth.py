"""The true values that approximations are measured against, and the measure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt.ir import Op

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HAS_WIDE", "NUMPY", "TRUTH", "same_special", "ulps"]

Array = np.ndarray[Any, Any]

#: Whether long double holds more than float64, so that it can judge float64.
HAS_WIDE = np.finfo(np.longdouble).nmant > np.finfo(np.float64).nmant


def erf(x: Array) -> Array:
    """The error function in the type of `x`, to a few units in its last place.

    2 x / sqrt(pi) exp(-x**2) (1 + 2 x**2 / 3 (1 + 2 x**2 / 5 (1 + ...))): no term is negative.
    """
    wide = np.minimum(np.abs(x), 7)
    square = 2 * wide * wide
    total = np.ones_like(wide)
    for k in range(401, 1, -2):
        total = 1 + square / k * total
    pi = wide.dtype.type("3.14159265358979323846264338327950288")
    out = 2 * wide / np.sqrt(pi) * np.exp(-wide * wide) * total
    return np.where(np.isnan(x), x, np.copysign(np.minimum(out, 1), x))


#: What an op means, in whatever type its arguments have.
TRUTH: dict[Op, Callable[..., Array]] = {
    Op.EXP: np.exp, Op.LOG: np.log, Op.SIN: np.sin, Op.COS: np.cos, Op.TANH: np.tanh, Op.ERF: erf,
    Op.POW: np.power,
}  # fmt: skip

#: What NumPy (for erf the C library) gives.
NUMPY: dict[Op, Callable[..., Array]] = {
    **TRUTH,
    Op.ERF: lambda x: np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype),
}


def ulps(got: Array, truth: Array) -> Array:
    """Distance in units of the last place that `truth` has in the type of `got`.

    Where both are infinite, or NaN, or where `truth` lies so close to the greatest finite number
    that either side of it is right, the distance is as small as that; a NaN or an infinity in
    the wrong place is infinitely far.
    """
    kind = np.finfo(got.dtype)
    wide = truth.dtype.type
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.abs(truth))[1]
        exponent = np.clip(exponent, kind.minexp + 1, kind.maxexp)
        unit = np.ldexp(wide(1), exponent - kind.nmant - 1)
        limit = np.ldexp(wide(1), kind.maxexp)
        # Infinity is where the next number would be.
        finite = np.where(np.isinf(got), np.copysign(limit, got), got.astype(wide))
        bounded = np.clip(truth, -limit, limit)
        distance = np.abs(finite - bounded) / unit
    both = np.isnan(got) & np.isnan(truth)
    return np.where(both, 0.0, np.where(np.isnan(distance), np.inf, distance)).astype(np.float64)


def same_special(got: Array, expected: Array) -> Array:
    """Whether NaN, infinities and zeros stand where expected, with the sign expected."""
    special = ~np.isfinite(expected) | (expected == 0)
    equal = (got == expected) & (np.signbit(got) == np.signbit(expected))
    return np.where(special, equal | (np.isnan(got) & np.isnan(expected)), np.isfinite(got))

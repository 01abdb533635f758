"""The logarithm of the gamma function."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import const
from kernelrt.loops.math.log import log
from kernelrt.loops.math.pow import log_sum
from kernelrt.loops.math.primitives import (
    exact_product,
    exact_sum,
    floats,
    fma,
    negated,
    polynomial,
    rarely,
)
from kernelrt.loops.math.trig import near_sin

if TYPE_CHECKING:
    from kernelrt.ir.uop import UOp

__all__ = ["lgamma"]

# lgamma(1 + y) / y for abs(y) <= 1/4, and lgamma(2 + y) / y from -1/4 to 3/4: minimax of the
# relative error.
_AROUND_ONE: Final = floats(
    "-0x1.2788cfc6fb619p-1 0x1.a51a6625307d3p-1 -0x1.9a4d55beab190p-2 0x1.151322ac7d80ep-2"
    " -0x1.a8b9c17aedfb3p-3 0x1.5b40cb1037621p-3 -0x1.2703a1ae0ab67p-3 0x1.010b368bfc7f8p-3"
    " -0x1.c8068ea38e9ffp-4 0x1.9a01fce5aeff3p-4 -0x1.7486c644c48aep-4 0x1.556604cd59f9ep-4"
    " -0x1.3baeec10c301fp-4 0x1.251c3e3026e88p-4 -0x1.08508bbf855acp-4 0x1.ef9d8a729914fp-5"
    " -0x1.37f6ed65b4d05p-4 0x1.26b813f4dac96p-4"
)
_AROUND_TWO: Final = floats(
    "0x1.b0ee6072093cep-2 0x1.4a34cc4a60fa6p-2 -0x1.13e001a557515p-4 0x1.51322ac7d8639p-6"
    " -0x1.e404fc21f9202p-8 0x1.7add6eae86d50p-9 -0x1.38ac5be821918p-10 0x1.0b36ae5ae93b4p-11"
    " -0x1.d3fd712422e64p-13 0x1.a128b60bf4f29p-14 -0x1.78db43377d0d3p-15 0x1.57e16a08a34f0p-16"
    " -0x1.3c79cb1f3838ep-17 0x1.27f22428b7687p-18 -0x1.1c22daf0876fap-19 0x1.071145cb1b082p-20"
    " -0x1.7a2db4da174ccp-22 0x1.18353ed0ab437p-24"
)
# (lgamma(l + y) - lgamma(l)) / y**2 from 5/4 to 7/4, where lgamma has its minimum at l: minimax of
# the relative error of lgamma. The minimum is an unevaluated sum of two.
_AROUND_LEAST: Final = floats(
    "0x1.ef72bc8ee38acp-2 -0x1.2e4278dc6c440p-3 0x1.08b4294d512cdp-4 -0x1.0c9a8df3a3d99p-5"
    " 0x1.266e797577fc2p-6 -0x1.51f9fb1adf506p-7 0x1.8fce0a9e23721p-8 -0x1.e2f07ec46f62ep-9"
    " 0x1.282de68b486f1p-9 -0x1.6fc8aa9576e26p-10 0x1.cdca24302c785p-11 -0x1.1eaf03bff8ed1p-11"
    " 0x1.4d5686505c55ap-12 -0x1.f9d17692174bfp-13 0x1.56501eef13bffp-12 -0x1.01be981388c68p-12"
)
_LEAST_AT: Final = float.fromhex("0x1.762d86356be3fp+0")
_LEAST: Final = floats("-0x1.f19b9bcc38a42p-4 0x1.f095c88d5a6c1p-59")
# lgamma(x) - (x - 1/2) (log x - 1) - (log(2 pi) - 1) / 2, times x, in powers of x**-2, from 7 on:
# minimax of the absolute error.
_STIRLING: Final = floats(
    "0x1.5555555555555p-4 -0x1.6c16c16c109c3p-9 0x1.a01a015e097ecp-11 -0x1.3813317680149p-11"
    " 0x1.b91ec58769d24p-11 -0x1.ed5b7bc13aab9p-10 0x1.27e3bd8270e99p-8 0x1.9652ca744d1bdp-6"
    " -0x1.feec0c8d5c792p-2"
)
_LEAST_GREAT: Final = 7
#: Below, sin(pi x) is pi x.
_TINY: Final = 2.0**-100
_LOG_ROOT: Final = (math.log(2 * math.pi) - 1) / 2


def lgamma(x: UOp) -> UOp:
    """Return log(abs(gamma(x))) for a float32 or float64 node.

    float32 is computed in float64. In float64, close to a zero at a negative number, the error is
    that of the terms that cancel.
    """
    if x.dtype is dt.float32:
        return _at_any(x.cast(dt.float64), fine=False).cast(dt.float32)
    return _at_any(x, fine=True)


def _at_any(x: UOp, *, fine: bool) -> UOp:
    return rarely(
        x < 0.0, _of_positive(x.alu(Op.ABS), fine=fine), lambda y: _of_negative(y, fine=fine), x
    )


def _of_negative(x: UOp, *, fine: bool) -> UOp:
    """Return lgamma of a negative number: by gamma(-a) gamma(1 + a) = -pi / sin(pi a)."""
    a = x.alu(Op.ABS)
    rest = (a - a.alu(Op.ROUND)).alu(Op.ABS)
    # The product with pi of a subnormal number would round to few bits.
    tiny = rest < _TINY
    height = log(tiny.where(rest, near_sin(rest * math.pi)))
    log_pi = tiny.where(height.const_like(0.0), height.const_like(math.log(math.pi)))
    out = (log_pi - height) - _of_positive(a + 1.0, fine=fine)
    # All large floats are integers, which are poles.
    pole = rest.eq(0.0) | a.eq(math.inf)
    return pole.where(const(math.inf, a.dtype), out)


def _of_positive(a: UOp, *, fine: bool) -> UOp:
    """Return lgamma of a positive number: Stirling's series from 7 on, else by recurrence.

    gamma(a) = (a - 1) (a - 2) ... gamma(2 + y), or gamma(a) = gamma(1 + a) / a.
    """
    great = a >= float(_LEAST_GREAT)
    low = a < 0.75
    product = low.where(a, a.const_like(1.0))
    for k in range(1, _LEAST_GREAT - 1):
        product = (a >= k + 1.75).where(product * (a - float(k)), product)
    main, rest = log_sum(great.where(a, product)) if fine else (log(great.where(a, product)), None)
    rest = a.const_like(0.0) if rest is None else rest
    # An `a` from 1/4 to 3/4 is like `a + 1`, except for the factor.
    base = low.where(a + 1.0, a)
    whole = low.where(a.const_like(0.0), a.const_like(1.0))
    offset = low.where(a.const_like(_LEAST_AT - 1.0), a.const_like(_LEAST_AT))
    y = a - whole
    one = y * polynomial(y, _AROUND_ONE)
    y = a - offset
    least = fma(y * y, polynomial(y, _AROUND_LEAST), _LEAST[1]) + _LEAST[0]
    y = a - (a + 0.25).alu(Op.FLOOR)
    two = y * polynomial(y, _AROUND_TWO)
    around = (base <= 1.25).where(one, (base < 1.75).where(least, two))
    signed, signed_rest = low.where(negated(main), main), low.where(negated(rest), rest)
    near = signed + (around + signed_rest)
    less, less_low = exact_sum(main, a.const_like(-1.0))
    step = a - 0.5
    far, far_low = exact_product(step, less)
    inverse = a.const_like(1.0) / a
    series = fma(inverse, polynomial(inverse * inverse, _STIRLING), _LOG_ROOT)
    sum_ = far + fma(step, less_low + rest, far_low + series)
    out = great.where(far.eq(math.inf).where(far, sum_), near)
    edge = a.eq(0.0) | a.eq(math.inf)
    return edge.where(const(math.inf, a.dtype), out)

"""The error function erf and its complement erfc."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import const
from kernelrt.loops.math.exp import expm1_parts
from kernelrt.loops.math.primitives import (
    FUSES,
    at_most,
    either_polynomial,
    exact_product,
    exact_sum,
    floats,
    fma,
    negated,
    ordered_sum,
    polynomial,
    residue,
    with_sign_of,
)

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.ir.uop import UOp

__all__ = ["erf", "erfc"]


@dataclass(frozen=True, slots=True)
class _Constants:
    """Constants of both functions in one format.

    Attributes
    ----------
    near : tuple of float
        Coefficients of (erf(a) - a) / a in powers of a**2, for a <= :data:`_FAR`.
    far : tuple of float
        Coefficients of (1 - erf(a))**(1/8) in powers of ``a - centre``, from there to saturated.
    centre : float
        Center of the polynomial `far`, chosen such that rounding its coefficients matters little.
    saturated : float
        Number from which on erf is 1.
    vanished : float
        Number from which on erfc is 0.
    scaled : tuple of float
        Coefficients of erfc(a) e**(a**2) (a + 2) in powers of (a - 2) / (a + 2), from
        :data:`_JOIN` to ``vanished``; the first as an unevaluated sum of two.
    """

    near: tuple[float, ...]
    far: tuple[float, ...]
    centre: float
    saturated: float
    vanished: float
    scaled: tuple[float, ...]


_CONSTANTS: Final[dict[DType, _Constants]] = {
    # Minimax fits of erf, coefficients rounded in turn: relative errors 2**-26.0 and 2**-27.8.
    dt.float32: _Constants(
        near=floats(
            "0x1.06eba6p-3 -0x1.8127p-2 0x1.ce232p-4 -0x1.b76688p-6 0x1.50288cp-8"
            " -0x1.8bce88p-11 0x1.10710cp-14"
        ),
        far=floats(
            "0x1.05d54p-1 -0x1.21349ep-2 0x1.3641f4p-6 0x1.19e294p-6 -0x1.6de408p-9"
            " -0x1.562b22p-11 0x1.6178b6p-13"
        ),
        centre=2.0,
        saturated=float.fromhex("0x1.f5c28ep+1"),
        vanished=10.2,
        scaled=floats(
            "0x1.058672p+0 -0x1.068fe6p-26 -0x1.5fd384p-1 0x1.1e2ddcp-2 -0x1.2a8e2cp-5"
            " -0x1.6055fcp-6 0x1.aa24c6p-8 0x1.8f8dbep-9 -0x1.e19b80p-11 -0x1.18986cp-11"
            " 0x1.25cf9cp-13"
        ),
    ),
    # Chebyshev interpolation in 300-bit arithmetic: relative errors 2**-54.4 and 2**-54.6.
    dt.float64: _Constants(
        near=floats(
            "0x1.06eba8214db69p-3 -0x1.812746b0379e5p-2 0x1.ce2f21a042adcp-4"
            " -0x1.b82ce3128428cp-6 0x1.565bcd0dc104cp-8 -0x1.c02db3e2b8938p-11"
            " 0x1.f9a323a223e2ep-14 -0x1.f4d21a637ded6p-17 0x1.b9e33f02ce978p-20"
            " -0x1.5f51aba1d821fp-23 0x1.faea3ef3006edp-27 -0x1.48f47b126e480p-30"
            " 0x1.6567a683bdbcdp-34 -0x1.e7535a14b9ee8p-39"
        ),
        far=floats(
            "0x1.05d540b4dd09cp-1 -0x1.2134811d0d8dbp-2 0x1.3647ddf8a8e3dp-6"
            " 0x1.19d72f2d5e404p-6 -0x1.6f8e3aa1fc2ffp-9 -0x1.57d969457b199p-11"
            " 0x1.86f8ba6e0679dp-13 0x1.dead77cf01386p-18 -0x1.90de1dfcb5ff8p-18"
            " 0x1.7967fbb296cf8p-23 0x1.e83bcce80c18ap-24 -0x1.79cb2e502be0cp-30"
            " -0x1.15d13ca53f773p-28 0x1.028a7377e7e97p-31 0x1.2ba4be3a28466p-35"
            " -0x1.20015e191e444p-36 0x1.2078f0c514a7dp-38 -0x1.3a83e03298af5p-40"
            " 0x1.188d4869569fep-42 -0x1.65996a1a01506p-45 0x1.401bad8b20480p-48"
            " -0x1.8789f519c4db1p-52 0x1.2a3923df99ea3p-56 -0x1.adc01ced3e2bap-62"
        ),
        centre=2.0,
        saturated=5.93,
        vanished=27.3,
        scaled=floats(
            "0x1.058671b52c776p+0 -0x1.cceec81385be8p-56 -0x1.5fd386754eff7p-1 0x1.1e2deea6b11b9p-2"
            " -0x1.2a88e6107e985p-5 -0x1.606e41553eba2p-6 0x1.a89eaffa7d2fbp-8 0x1.9517bb83aff9ap-9"
            " -0x1.b6fbfb2e696f7p-11 -0x1.5ba43c8e7880fp-11 0x1.205569310373ep-15"
            " 0x1.2efaa99ba3a8ap-13 0x1.1e6b58520637bp-15 -0x1.6c1058a6e2843p-16"
            " -0x1.0e064a56f91f3p-16 -0x1.2d4622cf63785p-20 0x1.dd968ac3e68bcp-19"
            " 0x1.106b8e557c884p-19 0x1.6fb8ef7757859p-23 -0x1.70f736e23140dp-21"
            " -0x1.0fdff3ed3342fp-21 0x1.913cb51a84a90p-23 0x1.8c4e6c0560de6p-23"
            " -0x1.32e25ad2ef053p-24"
        ),
    ),
}


#: Up to this argument erf uses the coefficients `near`, beyond it `far`.
_FAR: Final = 1.2
#: Up to this argument erfc is computed as 1 - erf.
_JOIN: Final = 0.47


def erf(x: UOp) -> UOp:
    """Return the error function of a float32 or float64 node.

    There are two polynomials; each element selects its coefficients. The polynomial for elements
    far from 0 approximates ``(1 - erf)**(1/8)``. This function is so flat that a polynomial of
    modest degree is enough from :data:`_FAR` to where erf rounds to 1. It needs no exponential and
    no division.
    """
    k = _CONSTANTS[x.dtype]
    a = x.alu(Op.ABS)
    is_far = a > _FAR
    variable = is_far.where(at_most(a, k.saturated) - k.centre, a * a)
    if x.dtype is dt.float32 and not FUSES.get():
        # The last steps in float32 would round too much.
        p = either_polynomial(is_far, variable, k.far[1:], k.near[1:]).cast(dt.float64)
        first = is_far.where(const(k.far[0], p.dtype), const(k.near[0], p.dtype))
        p, a = fma(p, variable.cast(p.dtype), first), a.cast(p.dtype)
    else:
        p = either_polynomial(is_far, variable, k.far, k.near)
    fourth = p * p
    fourth = fourth * fourth
    far = fma(negated(fourth), fourth, 1.0)
    return with_sign_of(is_far.where(far, fma(p, a, a)).cast(x.dtype), x)


def erfc(x: UOp) -> UOp:
    """Return the complement 1 - erf(x) of a float32 or float64 node, without cancellation.

    Beyond _JOIN, erfc(a) = e**(-a**2) Q(t) / (a + 2) with t = (a - 2) / (a + 2). The rounding
    errors of the square, the inverse and the product are compensated. For negative arguments it is
    2 - erfc(a).
    """
    k = _CONSTANTS[x.dtype]
    size = x.alu(Op.ABS)
    near = fma(polynomial(size * size, k.near), size, size)
    a = at_most(size, k.vanished)
    one, two = x.const_like(1.0), x.const_like(2.0)
    whole, whole_low = exact_sum(two, a)
    w = one / whole
    w_low = fma(negated(whole_low), w, residue(one, whole, w)) * w
    t = fma(w, -4.0, one)
    t_low = fma(w, -4.0, one - t) - w_low * 4.0
    first, second, third = k.scaled[1], k.scaled[2], k.scaled[3]
    line, line_low = exact_product(t, second)
    q, rest = ordered_sum(x.const_like(k.scaled[0]), line)
    rest = rest + fma(t_low, fma(t, 2 * third, second), line_low + first)
    square, square_low = exact_product(t, t)
    curve = polynomial(t, k.scaled[3:])
    q, q_low = ordered_sum(q, fma(square, curve, fma(square_low, curve, rest)))
    g, g_low = exact_product(w, q)
    g_low = fma(w, q_low, fma(w_low, q, g_low))
    square, square_low = exact_product(a, a)
    # Subnormal results are scaled twice.
    scale, r, rest = expm1_parts(negated(square), negated(square_low), _LIFT)
    p = r + rest
    far = (g + fma(g, p, fma(g_low, p, g_low))) * scale * 2.0**-_LIFT
    negative = x < 0.0
    joined = (one - near, one + near), (far, two - far)
    inner, outer = (negative.where(below, above) for above, below in joined)
    return (size > _JOIN).where(outer, inner)


_LIFT: Final = 64

"""erf and erfc."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.codegen.math_exp import expm1_parts
from kernelrt.codegen.math_parts import (
    at_most,
    exact_product,
    exact_sum,
    floats,
    fma,
    negated,
    ordered_sum,
    polynomial,
    with_sign_of,
)
from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.ir.uop import UOp

__all__ = ["erf", "erfc"]


@dataclass(frozen=True, slots=True)
class _Constants:
    """Both functions in one format.

    Attributes
    ----------
    near : tuple of float
        Coefficients of (erf(a) - a) / a in powers of a**2, for a <= 1.
    far : tuple of float
        Coefficients of erf(a) in powers of ``a - centre``, for 1 <= a <= saturated.
    centre : float
        Chosen such that the first of them needs next to no rounding.
    saturated : float
        erf is 1 from here on.
    vanished : float
        erfc is 0 from here on.
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
    # Minimax fits, coefficients rounded in turn: relative errors 2**-24.6 and 2**-24.9.
    dt.float32: _Constants(
        near=floats(
            "0x1.06eba2p-3 -0x1.812672p-2 0x1.ce08fcp-4 -0x1.b5a154p-6 0x1.424194p-8"
            " -0x1.2738dep-11"
        ),
        far=floats(
            "0x1.ffed16p-1 0x1.afb67ep-11 -0x1.21f6aap-9 0x1.e41598p-9 -0x1.1540a8p-8"
            " 0x1.c04c58p-9 -0x1.f87228p-10 0x1.709d1ep-11 -0x1.206ec4p-14 -0x1.1c34d8p-13"
            " 0x1.608050p-14 0x1.275938p-21 -0x1.3181e6p-17"
        ),
        centre=2.6875,
        saturated=float.fromhex("0x1.f5c28ep+1"),
        vanished=10.2,
        scaled=floats(
            "0x1.058672p+0 -0x1.068fe6p-26 -0x1.5fd384p-1 0x1.1e2ddcp-2 -0x1.2a8e2cp-5"
            " -0x1.6055fcp-6 0x1.aa24c6p-8 0x1.8f8dbep-9 -0x1.e19b80p-11 -0x1.18986cp-11"
            " 0x1.25cf9cp-13"
        ),
    ),
    # Chebyshev interpolation in 260-bit arithmetic: relative errors 2**-56.0 and 2**-57.4.
    dt.float64: _Constants(
        near=floats(
            "0x1.06eba8214db68p-3 -0x1.812746b0379c1p-2 0x1.ce2f21a040fbfp-4"
            " -0x1.b82ce31204d17p-6 0x1.565bccfa6f4bep-8 -0x1.c02db06ca928fp-11"
            " 0x1.f9a2bee1b1f05p-14 -0x1.f4ca8c11f4161p-17 0x1.b982295083cfcp-20"
            " -0x1.5c14fc0842667p-23 0x1.d777c51831224p-27 -0x1.acbabf57ef501p-31"
        ),
        far=floats(
            "0x1.ffffb73dc71a7p-1 0x1.fb8aa9e8739b7p-17 -0x1.a9043e080a761p-15"
            " 0x1.c566202e63f4dp-14 -0x1.58426007761b7p-13 0x1.893e69d5a974fp-13"
            " -0x1.5b44c0e52bc0ap-13 0x1.dd6f4e75c778cp-14 -0x1.f5f3854b72f00p-15"
            " 0x1.77eca06d91471p-16 -0x1.25793695479b6p-18 -0x1.0d5034b9c6664p-20"
            " 0x1.483639a04d862p-20 -0x1.064fbccc6e996p-21 0x1.37ab735150a71p-24"
            " 0x1.e27b792cd28d1p-26 -0x1.5b75e545bfe93p-26 0x1.4ecbab5f00672p-28"
            " 0x1.4bccb29d3db02p-32 -0x1.449400541255cp-31 0x1.7403ddc6a52dbp-33"
            " -0x1.86c48cac59098p-41 -0x1.fbb687ab92687p-37 0x1.2f189e1585bc8p-38"
            " -0x1.f2dfe95572914p-45 -0x1.7016a349d858fp-42 0x1.92fb779d45080p-44"
            " 0x1.d4ffd5c17de4fp-49 -0x1.03a2575862682p-47 0x1.49d56fb339786p-50"
            " 0x1.246d2b04fd5e1p-52 -0x1.b84b50b1fad54p-54 -0x1.57a7c2e002ab6p-61"
            " 0x1.0a55595c1a507p-58 -0x1.478842691c119p-62 -0x1.136c8ab4d2420p-64"
            " 0x1.19ccf1d4c992fp-67"
        ),
        centre=3.349609375,
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


#: Up to here erfc is 1 - erf.
_JOIN: Final = 0.47


def erf(x: UOp) -> UOp:
    """The error function of a float32 or float64 node.

    Two polynomials, chosen at 1. Beyond it erf is so flat that a polynomial of modest degree
    reaches from there to where it rounds to 1, without an exponential or a division.
    """
    k = _CONSTANTS[x.dtype]
    a = x.alu(Op.ABS)
    near = fma(polynomial(a * a, k.near), a, a)
    far = polynomial(at_most(a, k.saturated) - k.centre, k.far)
    return with_sign_of((a > 1.0).where(far, near), x)


def erfc(x: UOp) -> UOp:
    """The complement 1 - erf(x) of a float32 or float64 node, without cancellation.

    Beyond _JOIN it is e**(-a**2) Q(t) / (a + 2) with t = (a - 2) / (a + 2); what a square, an
    inverse and a product round off is carried along. 2 less that for negative arguments.
    """
    k = _CONSTANTS[x.dtype]
    size = x.alu(Op.ABS)
    near = fma(polynomial(size * size, k.near), size, size)
    a = at_most(size, k.vanished)
    one, two = x.const_like(1.0), x.const_like(2.0)
    whole, whole_low = exact_sum(two, a)
    w = one / whole
    w_low = fma(negated(whole_low), w, fma(negated(whole), w, one)) * w
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
    scale, p = expm1_parts(negated(square), negated(square_low), _LIFT)
    far = (g + fma(g, p, fma(g_low, p, g_low))) * scale * 2.0**-_LIFT
    negative = x < 0.0
    joined = (one - near, one + near), (far, two - far)
    inner, outer = (negative.where(below, above) for above, below in joined)
    return (size > _JOIN).where(outer, inner)


_LIFT: Final = 64

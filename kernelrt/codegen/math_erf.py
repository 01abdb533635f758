"""erf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.codegen.math_parts import at_most, floats, fma, polynomial, with_sign_of
from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.ir.uop import UOp

__all__ = ["erf"]


@dataclass(frozen=True, slots=True)
class _Constants:
    """erf in one format.

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
    """

    near: tuple[float, ...]
    far: tuple[float, ...]
    centre: float
    saturated: float


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
    ),
}


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

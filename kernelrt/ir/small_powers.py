"""Powers that are a few roundings of arithmetic: one list, for users, graphs and kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from kernelrt.ir.uop import UOp

__all__ = ["short_power"]


def short_power(x: UOp, exponent: float, one: UOp) -> UOp | None:
    """``x ** exponent`` as products or a quotient; None where it takes more.

    Special cases come out as those of C's pow: 1 for NaN to the power 0, too.

    Parameters
    ----------
    x : UOp
        Floats, of any stage.
    exponent : float
        A number.
    one : UOp
        1 in the type and shape of `x`.
    """
    if exponent == 0:
        return one
    if exponent == 1:
        return x
    if exponent == 2:
        return x.alu(Op.MUL, x)
    if exponent == 3:
        return x.alu(Op.MUL, x).alu(Op.MUL, x)
    return one.alu(Op.DIV, x) if exponent == -1 else None

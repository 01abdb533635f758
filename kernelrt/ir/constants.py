"""Constants in graphs: uniform tensors, signed zeros, powers with constant exponents."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp

if TYPE_CHECKING:
    from collections.abc import Collection

    from kernelrt.ir.uop import Dim

__all__ = [
    "SAME_VALUES", "full", "is_plus_zero", "is_zeros", "short_power", "uniform",
]  # fmt: skip

#: Ops whose result contains only values of their operand.
SAME_VALUES: Final = frozenset(
    {Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.SHRINK, Op.FLIP, Op.IM2COL, Op.DETACH}
)


def uniform(node: UOp, through: Collection[Op] = SAME_VALUES) -> UOp | None:
    """Return the CONST that all elements of `node` equal; None if `node` is not such a tensor.

    Parameters
    ----------
    node : UOp
        Tensor-stage node.
    through : collection of Op
        Ops with one operand to look through.
    """
    while node.op in through:
        node = node.src[0]
    return node if node.op is Op.CONST else None


def full(value: UOp, shape: tuple[Dim, ...]) -> UOp:
    """Broadcast a scalar node to `shape`."""
    if not shape:
        return value
    ones = UOp(Op.RESHAPE, value.dtype, (value,), (1,) * len(shape))
    if all(d == 1 for d in shape):
        return ones
    return UOp(Op.EXPAND, value.dtype, (ones,), shape)


def is_plus_zero(value: UOp) -> bool:
    """Return whether `value` is the CONST 0, False or 0.0 (not -0.0)."""
    return value.op is Op.CONST and not value.arg and math.copysign(1.0, value.arg) > 0


def is_zeros(node: UOp) -> bool:
    """Return whether `node` is a uniform tensor of 0 or 0.0 (not -0.0)."""
    value = uniform(node)
    return value is not None and is_plus_zero(value)


def short_power(x: UOp, exponent: float, one: UOp) -> UOp | None:
    """Return ``x ** exponent`` as products or a quotient; None if `exponent` allows neither.

    Special cases agree with C's pow: NaN to the power 0 is 1, too.

    Parameters
    ----------
    x : UOp
        Float node of any stage.
    exponent : float
        Exponent.
    one : UOp
        1 with the dtype and shape of `x`.
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

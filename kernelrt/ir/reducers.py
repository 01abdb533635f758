"""Identities of reductions, and operands that change nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.ir.uop import UOp

__all__ = [
    "IN_ORDER",
    "depends_on_order",
    "is_identity",
    "of_nothing",
    "start",
    "starts_with_nothing",
]

#: A sum of at most so many terms of which an array's element is made adds up one term after the
#: other, whatever the kernel: those that compute a row again have the same bits.
IN_ORDER: Final = 256


def of_nothing(reducer: Op, dtype: DType) -> int | float:
    """What a reduction of no elements gives."""
    return {Op.ADD: 0, Op.MUL: 1, Op.MAX: dtype.min, Op.MIN: dtype.max}[reducer]


def start(reducer: Op, dtype: DType) -> int | float:
    """What leaves any element as it is.

    For sums of floats that is -0.0: 0.0 would turn a sum of -0.0 into 0.0.
    """
    return -0.0 if reducer is Op.ADD and dtype.is_float else of_nothing(reducer, dtype)


def starts_with_nothing(reducer: Op, dtype: DType) -> bool:
    """Whether a loop that is never gone through leaves what a reduction of no elements gives."""
    return _same_number(start(reducer, dtype), of_nothing(reducer, dtype))


def depends_on_order(node: UOp) -> bool:
    """Return whether `node` is a reduction that rounds differently in another order."""
    return (
        node.op is Op.REDUCE_AXIS and node.dtype.is_float and node.arg[0] in (Op.ADD, Op.MUL)
    )


def is_identity(value: UOp, reducer: Op) -> bool:
    """Whether a CONST leaves any element as it is."""
    return _same_number(value.arg, start(reducer, value.dtype))


def _same_number(a: float, b: float) -> bool:
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)

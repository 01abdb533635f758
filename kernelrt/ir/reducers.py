"""Identity elements of reductions."""

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
    "empty_result",
    "is_identity",
    "start",
    "start_is_empty_result",
]

#: A sum of at most this many terms that an element of a larger array depends on is always added
#: sequentially. So kernels that recompute a row of the array get bitwise equal results.
IN_ORDER: Final = 256


def empty_result(reducer: Op, dtype: DType) -> int | float:
    """Return the result of a reduction over no elements."""
    return {Op.ADD: 0, Op.MUL: 1, Op.MAX: dtype.min, Op.MIN: dtype.max}[reducer]


def start(reducer: Op, dtype: DType) -> int | float:
    """Return the identity element of a reduction.

    For sums of floats it is -0.0, because 0.0 would turn the sum of elements that are -0.0 into
    0.0.
    """
    return -0.0 if reducer is Op.ADD and dtype.is_float else empty_result(reducer, dtype)


def start_is_empty_result(reducer: Op, dtype: DType) -> bool:
    """Return whether the identity element equals the result of a reduction over no elements."""
    return _same_number(start(reducer, dtype), empty_result(reducer, dtype))


def depends_on_order(node: UOp) -> bool:
    """Return whether `node` is a reduction that rounds differently in another order."""
    return (
        node.op is Op.REDUCE_AXIS and node.dtype.is_float and node.arg[0] in (Op.ADD, Op.MUL)
    )


def is_identity(value: UOp, reducer: Op) -> bool:
    """Return whether a CONST is the identity element of a reduction."""
    return _same_number(value.arg, start(reducer, value.dtype))


def _same_number(a: float, b: float) -> bool:
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)

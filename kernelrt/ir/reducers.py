"""Where reductions begin, and what is left of no elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from kernelrt.dtype import DType

__all__ = ["IN_ORDER", "of_nothing", "start"]

#: A sum of at most so many terms of which an array's element is made adds up one term after the
#: other, whatever the kernel: those that compute a row again have the same bits.
IN_ORDER: Final = 128


def of_nothing(reducer: Op, dtype: DType) -> int | float:
    """What a reduction of no elements gives."""
    return {Op.ADD: 0, Op.MUL: 1, Op.MAX: dtype.min, Op.MIN: dtype.max}[reducer]


def start(reducer: Op, dtype: DType) -> int | float:
    """What leaves any element as it is.

    For sums of floats that is -0.0: 0.0 would turn a sum of -0.0 into 0.0.
    """
    return -0.0 if reducer is Op.ADD and dtype.is_float else of_nothing(reducer, dtype)

"""Rewrites gradients of windows so that no access needs a condition.

The gradient of windows is a fold (col2im): it adds up, for each position, the elements of all
windows that cover the position. In the direct form, the inner loop checks for each tap (position in
a window) whether there is such a window.
"""

from __future__ import annotations

from kernelrt.ir import Op, UOp
from kernelrt.ir.shape import is_static

__all__ = ["window_of_padded"]


def window_of_padded(u: UOp) -> UOp | None:
    """Rewrite a fold whose taps all read the same values as windows of a padded copy.

    Element [i, k] of the fold (position i, tap k) is y[(i - k * dilation) / stride], or 0 if there
    is no such element. So the fold can take plain windows of a copy of y, with the taps in reverse
    order. The copy has stride - 1 zeros between neighbors, and (taps - 1) * dilation zeros at the
    ends. Then no access needs a check. The input gradient of a convolution becomes a convolution.
    """
    y = u.src[0]
    shape, windows = u.arg
    taps = len(windows)
    if y.op is not Op.EXPAND or any(d != 1 for d in y.src[0].shape[-taps:]):
        return None
    base = y.src[0]
    dims = base.shape[: len(base.shape) - taps]
    fixed = [size for axis, *_ in windows for size in (dims[axis], shape[axis])]
    if not is_static((*fixed, *(kernel for _, kernel, _, _ in windows))):
        return None
    value = UOp(Op.RESHAPE, u.dtype, (base,), dims)
    plain = []
    for axis, kernel, stride, dilation in windows:
        if dims[axis] == 1:
            return None
        value = _spread(value, axis, stride)
        reach = dilation * (kernel - 1)
        rest = shape[axis] - (value.shape[axis] + reach)
        if rest < 0:
            return None
        value = _pad_axis(value, axis, reach, reach + rest)
        plain.append((axis, kernel, 1, dilation))
    value = UOp(Op.IM2COL, u.dtype, (value,), tuple(plain))
    rank = len(value.shape)
    value = UOp(Op.FLIP, u.dtype, (value,), tuple(range(rank - taps, rank)))
    return value if value.shape == u.shape else UOp(Op.EXPAND, u.dtype, (value,), u.shape)


def _pad_axis(x: UOp, axis: int, low: int, high: int) -> UOp:
    amounts = tuple((low, high) if a == axis else (0, 0) for a in range(len(x.shape)))
    return UOp(Op.PAD, x.dtype, (x,), amounts)


def _spread(x: UOp, axis: int, stride: int) -> UOp:
    """Insert `stride` - 1 zeros between neighbors along `axis`."""
    if stride == 1:
        return x
    shape = x.shape
    count = shape[axis]
    assert isinstance(count, int)
    split = UOp(Op.RESHAPE, x.dtype, (x,), (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    padded = _pad_axis(split, axis + 1, 0, stride - 1)
    joined = UOp(
        Op.RESHAPE, x.dtype, (padded,), (*shape[:axis], count * stride, *shape[axis + 1 :])
    )
    bounds = tuple(
        (0, (count - 1) * stride + 1 if a == axis else d) for a, d in enumerate(shape)
    )
    return UOp(Op.SHRINK, x.dtype, (joined,), bounds)

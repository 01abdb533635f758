"""Gradients of views, rewritten so that no access needs a condition.

The adjoint of a window reads each element only where a window covers it; the adjoint of a part
is that part among zeros. Written out they are full of checks in the inner loop.
"""

from __future__ import annotations

from kernelrt.ir import Op, UOp, const
from kernelrt.ir.constants import full, is_zeros
from kernelrt.ir.shape import is_static

__all__ = ["joined_pads", "window_of_padded"]

#: Part of an axis: first element, end, and what lies there.
_Piece = tuple[int, int, UOp]


def joined_pads(u: UOp) -> UOp | None:
    """A sum of parts among zeros, none over another, is the parts side by side.

    Zeros are still added to each part, so that -0.0 becomes 0.0 as it did in the sum.
    """
    left = _pieces(u.src[0])
    right = _pieces(u.src[1]) if left is not None else None
    if left is None or right is None or left[0] != right[0]:
        return None
    axis = left[0]
    pieces = sorted([*left[1], *right[1]], key=lambda piece: piece[:2])
    size = u.shape[axis]
    assert isinstance(size, int)
    parts: list[UOp] = []
    end = 0
    for start, stop, x in pieces:
        if start < end:
            return None
        if start > end:
            parts.append(_zeros(u, axis, start - end))
        parts.append(_plus_zero(x))
        end = stop
    if end < size:
        parts.append(_zeros(u, axis, size - end))
    return UOp(Op.CAT, u.dtype, tuple(parts), axis)


def _pieces(u: UOp) -> tuple[int, list[_Piece]] | None:
    """The axis along which `u` is parts among zeros, and the parts."""
    if u.op is Op.PAD:
        axes = [a for a, (lo, hi) in enumerate(u.arg) if lo != 0 or hi != 0]
        if len(axes) != 1:
            return None
        axis = axes[0]
        low, size = u.arg[axis][0], u.src[0].shape[axis]
        if not isinstance(low, int) or not isinstance(size, int):
            return None
        if not isinstance(u.shape[axis], int):
            return None
        return axis, [(low, low + size, u.src[0])]
    if u.op is not Op.CAT or not isinstance(u.shape[u.arg], int):
        return None
    out: list[_Piece] = []
    start = 0
    for s in u.src:
        size = s.shape[u.arg]
        assert isinstance(size, int)
        if not is_zeros(s):
            out.append((start, start + size, s))
        start += size
    return u.arg, out


def _zeros(u: UOp, axis: int, size: int) -> UOp:
    shape = tuple(size if a == axis else d for a, d in enumerate(u.shape))
    return full(const(0, u.dtype), shape)


def _plus_zero(x: UOp) -> UOp:
    if not x.dtype.is_float or (x.op is Op.ADD and any(map(is_zeros, x.src))):
        return x
    return UOp(Op.ADD, x.dtype, (x, full(const(0, x.dtype), x.shape)))


def window_of_padded(u: UOp) -> UOp | None:
    """Where every tap sees the same values, gather from a padded copy instead.

    Element [i, k] is y[(i - k * dilation) / stride]. With stride - 1 zeros between neighbours
    and (taps - 1) * dilation zeros at the ends it is a plain window, its taps in reverse, and no
    access needs a check: this is the input gradient of a convolution as a convolution.
    """
    y = u.src[0]
    shape, windows = u.arg
    taps = len(windows)
    if y.op is not Op.EXPAND or any(d != 1 for d in y.src[0].shape[-taps:]):
        return None
    base = y.src[0]
    dims = base.shape[: len(base.shape) - taps]
    if not is_static([size for axis, *_ in windows for size in (dims[axis], shape[axis])]):
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
    value = UOp(Op.WINDOW, u.dtype, (value,), tuple(plain))
    rank = len(value.shape)
    value = UOp(Op.FLIP, u.dtype, (value,), tuple(range(rank - taps, rank)))
    return value if value.shape == u.shape else UOp(Op.EXPAND, u.dtype, (value,), u.shape)


def _pad_axis(x: UOp, axis: int, low: int, high: int) -> UOp:
    amounts = tuple((low, high) if a == axis else (0, 0) for a in range(len(x.shape)))
    return UOp(Op.PAD, x.dtype, (x,), amounts)


def _spread(x: UOp, axis: int, stride: int) -> UOp:
    """`stride` - 1 zeros between neighbours along `axis`."""
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

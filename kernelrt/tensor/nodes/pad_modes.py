"""Padding modes that use elements of the tensor: reflect, replicate, circular."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir.shape import dim_span, format_shape, format_size
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import index_of, lacking, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.ir import Dim, UOp

__all__ = ["MODES", "padded"]


def padded(x: UOp, pad: Sequence[object], mode: str) -> UOp:
    """Pad the last axes of `x` with its own elements.

    Parameters
    ----------
    x : UOp
        Tensor with one or two more axes than are padded.
    pad : sequence of int
        Pairs (before, after) for the last one, two or three axes, the last axis first. Negative
        numbers remove elements.
    mode : "reflect", "replicate" or "circular"
        Pad with elements mirrored at the first and last element (these are not repeated), with
        the first and last element, or with the elements of the other end.
    """
    axes = len(pad) // 2
    if len(pad) % 2 or not 1 <= axes <= 3 or len(x.shape) - axes not in (1, 2):
        raise ShapeError(
            f"pad: mode {mode!r} expects one to three pairs, for a tensor with one or two more "
            f"axes than pairs, not {len(pad)} numbers for shape {format_shape(x.shape)}"
        )
    widths = []
    for width in pad:
        number = whole(index_of(width, "pad"))
        if number is None:
            raise DTypeError(f"pad: mode {mode!r} expects ints, not {type(width).__name__}")
        widths.append(number)
    for k in range(axes):
        axis = len(x.shape) - 1 - k
        x = MODES[mode](x, axis, *widths[2 * k : 2 * k + 2])
    return x


def _reflected(x: UOp, axis: int, low: int, high: int) -> UOp:
    _check(x, axis, max(low, high, 0) + 1, "reflect", low, high)
    size = x.shape[axis]
    parts = [x]
    if low > 0:
        parts.insert(0, build.flip(_part(x, axis, 1, low + 1), [axis]))
    if high > 0:
        first, last = (build.total((size, -1 - n)) for n in (high, 0))
        parts.append(build.flip(_part(x, axis, first, last), [axis]))
    return _cut(build.cat(parts, axis), axis, low, high)


def _replicated(x: UOp, axis: int, low: int, high: int) -> UOp:
    _check(x, axis, 1, "replicate", low, high)
    size = x.shape[axis]
    parts = [x]
    if low > 0:
        parts.insert(0, _again(_part(x, axis, 0, 1), axis, low))
    if high > 0:
        parts.append(_again(_part(x, axis, build.total((size, -1)), size), axis, high))
    return _cut(build.cat(parts, axis), axis, low, high)


def _circular(x: UOp, axis: int, low: int, high: int) -> UOp:
    _check(x, axis, 0, "circular", low, high)
    x = _cut(x, axis, low, high)
    _check(x, axis, max(low, high, 0), "circular", low, high)
    size = x.shape[axis]
    parts = [x]
    if low > 0:
        parts.insert(0, _part(x, axis, build.total((size, -low)), size))
    if high > 0:
        parts.append(_part(x, axis, 0, high))
    return build.cat(parts, axis)


MODES: Final[dict[str, Callable[[UOp, int, int, int], UOp]]] = {
    "reflect": _reflected, "replicate": _replicated, "circular": _circular,
}  # fmt: skip


def _check(x: UOp, axis: int, need: int, mode: str, low: int, high: int) -> None:
    """Raise ShapeError if `axis` has fewer than `need` elements or too many are removed."""
    size = x.shape[axis]
    if (end := lacking(size, need)) is not None:
        raise ShapeError(
            f"pad: mode {mode!r} with ({low}, {high}) needs an axis of at least {need} elements, "
            f"not {format_size(size)}{end}"
        )
    if dim_span(build.total((size, min(low, 0), min(high, 0))))[0] < 0:
        raise ShapeError(
            f"pad: ({low}, {high}) removes more than the {format_size(size)} elements of the axis"
        )


def _part(x: UOp, axis: int, start: Dim, end: Dim) -> UOp:
    bounds: list[tuple[Dim, Dim]] = [(0, d) for d in x.shape]
    bounds[axis] = (start, end)
    return build.shrink(x, bounds)


def _cut(x: UOp, axis: int, low: int, high: int) -> UOp:
    """Remove the elements at the ends of `axis` that negative widths cut off."""
    return _part(x, axis, max(-low, 0), build.total((x.shape[axis], min(high, 0))))


def _again(x: UOp, axis: int, times: int) -> UOp:
    return build.expand(x, (*x.shape[:axis], times, *x.shape[axis + 1 :]))

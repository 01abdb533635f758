"""Functions on grids: sampling grids, finite differences, powers and multi-dimensional indices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.free_functions.creation import arange, ones
from kernelrt.tensor.free_functions.joining import cat, meshgrid, stack
from kernelrt.tensor.nodes.arguments import axes_of, flag, integer, real, take_by_value, tensor_of
from kernelrt.tensor.nodes.positions import checked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.dtype import DType
    from kernelrt.tensor.tensor import Tensor

__all__ = ["affine_grid", "gradient", "unravel_index", "vander"]


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool = False) -> Tensor:
    """Return the sampling grids for :meth:`Tensor.grid_sample` given by affine maps.

    Parameters
    ----------
    theta : Tensor, shape (batch, 2, 3) or (batch, 3, 4)
        Affine maps of coordinates from -1 to 1. The last axis of the image comes first.
    size : sequence of int
        Shape of the output image: (batch, channels, rows, columns), or with a depth.
    align_corners : bool
        Whether -1 and 1 are the centers of the outermost elements instead of their outer edges.

    Returns
    -------
    Tensor, shape (batch, rows, columns, 2) or (batch, depth, rows, columns, 3)
        Coordinates in the dtype of `theta`.

    Raises
    ------
    DTypeError
        `theta` does not hold floats.
    ShapeError
        `size` has neither 4 nor 5 numbers, or `theta` has a shape that does not fit it.

    Examples
    --------
    >>> same = krt.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> krt.nn.functional.affine_grid(same, (1, 1, 2, 2)).tolist()
    [[[[-0.5, -0.5], [0.5, -0.5]], [[-0.5, 0.5], [0.5, 0.5]]]]
    """
    maps = tensor_of(theta, "theta", floats=True)
    sizes = [integer(n, "size", 1) for n in size]
    n = len(sizes) - 2
    if n not in (2, 3):
        raise ShapeError(f"size: expected 4 or 5 numbers, not {len(sizes)}")
    if maps.shape != (sizes[0], n, n + 1):
        raise ShapeError(
            f"theta: expected shape {(sizes[0], n, n + 1)} for the size {tuple(sizes)}, not "
            f"{format_shape(maps.dims)}"
        )
    kind = maps.dtype.accumulator
    ends = [_even(k, kind, flag(align_corners, "align_corners")) for k in sizes[2:]]
    base = stack([*meshgrid(*ends, indexing="ij")[::-1], ones(*sizes[2:], dtype=kind)], -1)
    flat = base.reshape(1, -1, n + 1) @ maps.cast(kind).mT
    return flat.reshape(sizes[0], *sizes[2:], n).cast(maps.dtype)


def _even(count: int, kind: DType, align: bool) -> Tensor:
    """Return coordinates of one axis from -1 to 1; for one element, the middle."""
    return (2 * arange(count, dtype=kind) - (count - 1)) / max(count - 1 if align else count, 1)


def gradient(
    input: Tensor, *, spacing: Any = None, dim: int | Sequence[int] | None = None,  # noqa: A002
    edge_order: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return derivatives along axes: central differences, one-sided at the ends.

    Parameters
    ----------
    input : Tensor
        Function values.
    spacing : number, or sequence of numbers or of Tensors, optional
        Distance between neighbors: one number for all axes, or one for each axis. Or, for each
        axis, a tensor of coordinates. 1 by default.
    dim : int or sequence of int, optional
        Axes to differentiate along; by default all.
    edge_order : 1 or 2
        Order of accuracy of the differences at the ends.

    Returns
    -------
    tuple of Tensor
        One derivative per axis, with the shape of `input`; integers give float32.

    Raises
    ------
    ShapeError
        An axis has fewer than ``edge_order + 1`` elements, or `spacing` does not fit the axes.

    Examples
    --------
    >>> (slope,) = krt.gradient(krt.tensor([1.0, 4.0, 9.0, 16.0]))
    >>> slope.tolist()
    [3.0, 4.0, 6.0, 7.0]
    """
    values = tensor_of(input, "input")
    axes = axes_of(dim, values.ndim)
    order = integer(edge_order, "edge_order", 1)
    if order > 2:
        raise DomainError(f"edge_order: expected 1 or 2, not {order}")
    spacing = 1 if spacing is None else take_by_value(spacing)
    given = list(spacing) if isinstance(spacing, tuple | list) else [spacing] * len(axes)
    if isinstance(spacing, TensorBase) or len(given) != len(axes):
        came = "one Tensor" if isinstance(spacing, TensorBase) else f"{len(given)} items"
        raise ShapeError(
            "spacing: expected one number, or a sequence with a number or a Tensor for each of the "
            f"{len(axes)} axes, not {came}"
        )
    return tuple(
        _slopes(values, axis, apart, order) for axis, apart in zip(axes, given, strict=True)
    )


def _slopes(x: Tensor, axis: int, spacing: Any, order: int) -> Tensor:
    size = x._static_size(axis, "gradient")
    if size < order + 1:
        raise ShapeError(
            f"input: expected at least {order + 1} values along axis {axis}, not {size}"
        )
    x = x if x.dtype.is_float else x.float()
    if isinstance(spacing, TensorBase):
        places = tensor_of(spacing, "spacing")
        if places.shape != (size,):
            raise ShapeError(
                f"spacing: expected {size} coordinates for axis {axis}, not shape "
                f"{format_shape(places.dims)}"
            )
        shape = [1] * x.ndim
        shape[axis] = size - 1
        x = x.to(dt.promote(x.dtype, places.dtype) if places.dtype.is_float else x.dtype)
        gaps = places.to(x.dtype).diff().reshape(shape)
    else:
        gaps = None
        step = real(spacing, "spacing")

    def part(start: int, length: int) -> Tensor:
        return x.narrow(axis, start, length)

    def gap(start: int, length: int) -> Any:
        return step if gaps is None else gaps.narrow(axis, start, length)

    def at_end(near: int, middle: int, far: int, first: Any, second: Any) -> Tensor:
        """Return the derivative at `near` of a line or parabola through two or three values."""
        if order == 1:
            return cast("Tensor", (part(middle, 1) - part(near, 1)) / first)
        both = first + second
        return cast("Tensor", (
            part(near, 1) * (-(first + both) / (first * both))
            + part(middle, 1) * (both / (first * second))
            - part(far, 1) * (first / (second * both))
        ))  # fmt: skip

    left = at_end(0, 1, 2, gap(0, 1), gap(1, 1) if order == 2 else None)
    right = at_end(
        size - 1, size - 2, size - 3, -gap(size - 2, 1), -gap(size - 3, 1) if order == 2 else None
    )
    if size == 2:
        return cat([left, right], axis)
    inner = size - 2
    if gaps is None:
        middle = (part(2, inner) - part(0, inner)) / (2 * step)
    else:
        a, b = gap(0, inner), gap(1, inner)
        middle = (
            part(2, inner) * (a / (b * (a + b)))
            + part(1, inner) * ((b - a) / (a * b))
            - part(0, inner) * (b / (a * (a + b)))
        )
    return cat([left, middle, right], axis)


def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Convert flat row-major indices to one index tensor per axis.

    Parameters
    ----------
    indices : Tensor
        Flat indices, from 0.
    shape : int or sequence of int
        Shape of the indexed tensor.

    Returns
    -------
    tuple of Tensor
        One int64 tensor for each axis, with the shape of `indices`.

    Raises
    ------
    DTypeError
        `indices` are not integers.
    IndexBoundsError
        At run time: an index is out of range for the shape.

    Examples
    --------
    >>> rows, columns = krt.unravel_index(krt.tensor([1, 5]), (2, 3))
    >>> rows.tolist(), columns.tolist()
    ([0, 1], [1, 2])
    """
    given = tensor_of(indices, "indices")
    if not given.dtype.is_int:
        raise DTypeError(f"indices: expected integers, not {given.dtype.name}")
    listed = shape if isinstance(shape, tuple | list) else [shape]
    sizes = [integer(n, "shape", 0) for n in listed]
    rest = given._of(checked(given.uop, math.prod(sizes)))
    found = []
    for n in sizes[::-1]:
        found.append(rest % n)
        rest = rest // n
    return tuple(found[::-1])


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803
    """Return the Vandermonde matrix: each row holds the powers of one element.

    Parameters
    ----------
    x : Tensor, shape (n,)
        Base of each row.
    N : int, optional
        Number of powers; n by default.
    increasing : bool
        Whether the powers increase from 0 instead of decreasing to 0.

    Returns
    -------
    Tensor
        Tensor of shape (n, N), in the dtype of `x`; integers and bools give int64.

    Raises
    ------
    ShapeError
        `x` is no vector, or `N` is negative.

    Examples
    --------
    >>> krt.vander(krt.tensor([1, 2, 3])).tolist()
    [[1, 1, 1], [4, 2, 1], [9, 3, 1]]
    """
    values = tensor_of(x, "x")
    if values.ndim != 1:
        raise ShapeError(f"x: expected a vector, not shape {format_shape(values.dims)}")
    count = values._static_size(0, "vander") if N is None else integer(N, "N", 0)
    column = values.cast(values.dtype if values.dtype.is_float else dt.int64).unsqueeze(-1)
    first = ones(values.dims[0], min(count, 1), dtype=column.dtype)
    rest = column.expand(values.dims[0], max(count - 1, 0)).cumprod(-1)
    powers = cat([first, rest], -1)
    return powers if flag(increasing, "increasing") else powers.flip(-1)

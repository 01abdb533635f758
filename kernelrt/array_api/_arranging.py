"""Shape manipulation, with the standard's parameter names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kernelrt as krt
from kernelrt.errors import ShapeError
from kernelrt.ir.shape import format_shape, same
from kernelrt.tensor.nodes.arguments import axes_of, axis_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt import Tensor

__all__ = ["broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flat_or_along", "flip",
           "matrix_transpose", "moveaxis", "permute_dims", "repeat", "reshape", "roll", "squeeze",
           "stack", "take", "take_along_axis", "tile", "unstack"]  # fmt: skip


def flat_or_along(x: Tensor, axis: int | None) -> tuple[Tensor, int]:
    """Return `x` and `axis`, or, if `axis` is None, the flattened `x` and 0."""
    return (x.flatten(), 0) if axis is None else (x, axis)


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Broadcast tensors to their common shape.

    Parameters
    ----------
    *arrays : Tensor
        Tensors of shapes that broadcast.

    Returns
    -------
    list of Tensor
        Tensors of the common shape, in their own types.

    Raises
    ------
    ShapeError
        The shapes do not broadcast.

    Examples
    --------
    >>> [x.shape for x in krt.array_api.broadcast_arrays(krt.ones(3), krt.ones(2, 1))]
    [(2, 3), (2, 3)]
    """
    return list(krt.broadcast_tensors(*arrays)) if arrays else []


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """Broadcast `x` to `shape`.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.
    shape : sequence of int
        Shape that `x` broadcasts to.

    Returns
    -------
    Tensor
        Elements of `x` in that shape and its type.

    Raises
    ------
    ShapeError
        `x` does not broadcast to `shape`.

    Examples
    --------
    >>> krt.array_api.broadcast_to(krt.tensor([1, 2]), (2, 2)).tolist()
    [[1, 2], [1, 2]]
    """
    return x.broadcast_to(tuple(shape))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Concatenate tensors along an axis; if `axis` is None, flatten the tensors first.

    Parameters
    ----------
    arrays : sequence of Tensor
        Tensors of equal sizes along all axes but `axis`.
    axis : int, optional
        Axis to concatenate along; None flattens the tensors first.

    Returns
    -------
    Tensor
        Tensor in the promoted type.

    Raises
    ------
    ShapeError
        Sizes along another axis differ.

    Examples
    --------
    >>> x = krt.tensor([[1, 2]])
    >>> krt.array_api.concat([x, x]).tolist(), krt.array_api.concat([x, x], axis=None).tolist()
    ([[1, 2], [1, 2]], [1, 2, 1, 2])
    """
    parts = [x.flatten() for x in arrays] if axis is None else list(arrays)
    return krt.cat(parts, axis or 0)


def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """Add an axis of size 1 at `axis`.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.
    axis : int
        Position of the new axis in the result.

    Returns
    -------
    Tensor
        Elements of `x` with one more axis.

    Raises
    ------
    AxisError
        `axis` is out of range.

    Examples
    --------
    >>> krt.array_api.expand_dims(krt.ones(2, 3), axis=1).shape
    (2, 1, 3)
    """
    return x.unsqueeze(axis)


def flip(x: Tensor, /, *, axis: int | Sequence[int] | None = None) -> Tensor:
    """Reverse the order along some axes, or along all.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.
    axis : int or sequence of int, optional
        Axes to reverse; by default all.

    Returns
    -------
    Tensor
        The shape and type of `x`.

    Examples
    --------
    >>> krt.array_api.flip(krt.tensor([[1, 2], [3, 4]]), axis=1).tolist()
    [[2, 1], [4, 3]]
    """
    return x.flip(axes_of(axis, x.ndim, "axis"))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """Swap the last two axes.

    Parameters
    ----------
    x : Tensor, shape (..., n, m)
        Tensor of at least two axes.

    Returns
    -------
    Tensor
        Tensor of shape (..., m, n).

    Examples
    --------
    >>> krt.array_api.matrix_transpose(krt.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]
    """
    return x.mT


def moveaxis(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    """Move axes to other positions; the other axes keep their order.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.
    source, destination : int or sequence of int
        Present and new positions of the axes.

    Returns
    -------
    Tensor
        Elements of `x` with the axes moved.

    Examples
    --------
    >>> krt.array_api.moveaxis(krt.ones(2, 3, 4), 0, 2).shape
    (3, 4, 2)
    """
    return x.movedim(source, destination)


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """Permute the axes.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.
    axes : sequence of int
        Axis of `x` for each axis of the result.

    Returns
    -------
    Tensor
        Elements of `x` with the axes permuted.

    Examples
    --------
    >>> krt.array_api.permute_dims(krt.ones(2, 3, 4), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return x.permute(tuple(axes))


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Repeat each element `repeats` times, along an axis or in the flattened `x`.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.
    repeats : int or Tensor of integers
        Number of repetitions, for all elements or one for each along the axis.
    axis : int, optional
        Axis to repeat along; by default the flattened `x`.

    Returns
    -------
    Tensor
        Repeated elements in the type of `x`.

    Examples
    --------
    >>> x = krt.tensor([3, 1, 2])
    >>> krt.array_api.repeat(x, 2).tolist(), krt.array_api.repeat(x, krt.tensor([1, 0, 2])).tolist()
    ([3, 3, 1, 1, 2, 2], [3, 2, 2])
    """
    source, along = flat_or_along(x, axis)
    return source.repeat_interleave(repeats, along)


def reshape(x: Tensor, /, shape: Sequence[int], *, copy: bool | None = None) -> Tensor:
    """Return the elements in another shape, in row-major order.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.
    shape : sequence of int
        New shape; one size may be -1 and follows from the others.
    copy : bool, optional
        Whether the result must have memory of its own. By default it may share that of `x`.

    Returns
    -------
    Tensor
        Elements of `x` in the new shape.

    Raises
    ------
    ShapeError
        The new shape has another number of elements.

    Examples
    --------
    >>> krt.array_api.reshape(krt.tensor([1, 2, 3, 4]), (2, -1)).tolist()
    [[1, 2], [3, 4]]
    """
    out = x.reshape(tuple(shape))
    return out.clone() if copy else out


def roll(
    x: Tensor, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None
) -> Tensor:
    """Shift elements cyclically along axes, or in the flattened order.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.
    shift : int or sequence of int
        Number of places by which elements move to higher indices, for each axis.
    axis : int or sequence of int, optional
        Axes to roll along; by default the flattened `x`, whose shape is then restored.

    Returns
    -------
    Tensor
        The shape and type of `x`.

    Examples
    --------
    >>> krt.array_api.roll(krt.tensor([1, 2, 3]), 1).tolist()
    [3, 1, 2]
    """
    if isinstance(shift, int) and isinstance(axis, tuple | list):
        shift = (shift,) * len(axis)
    return x.roll(shift, axis)


def squeeze(x: Tensor, /, axis: int | Sequence[int]) -> Tensor:
    """Remove axes of size 1.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.
    axis : int or sequence of int
        Axes to remove.

    Returns
    -------
    Tensor
        Elements of `x` without these axes.

    Raises
    ------
    ShapeError
        An axis has another size.

    Examples
    --------
    >>> krt.array_api.squeeze(krt.ones(1, 3, 1), axis=(0, 2)).shape
    (3,)
    """
    axes = axes_of(axis, x.ndim, "axis")
    for a in axes:
        if not same(x.dims[a], 1):
            raise ShapeError(
                f"axis: squeeze removes only axes of size 1, but axis {a} of shape "
                f"{format_shape(x.dims)} has another size; leave this axis out"
            )
    return x.squeeze(axes)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Stack tensors of one shape along a new axis.

    Parameters
    ----------
    arrays : sequence of Tensor
        Tensors of one shape.
    axis : int
        Position of the new axis in the result.

    Returns
    -------
    Tensor
        Tensor with one more axis, in the promoted type.

    Raises
    ------
    ShapeError
        Shapes differ.

    Examples
    --------
    >>> krt.array_api.stack([krt.tensor([1, 2]), krt.tensor([3, 4])], axis=1).tolist()
    [[1, 3], [2, 4]]
    """
    return krt.stack(list(arrays), axis)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return the slices at the given indices along an axis; negative indices count from the end.

    Parameters
    ----------
    x : Tensor
        Tensor of at least one axis.
    indices : Tensor of integers, shape (n,)
        Indices along the axis.
    axis : int, optional
        Axis to take along; required if `x` has more than one.

    Returns
    -------
    Tensor
        Slices of `x`, with size n along the axis.

    Raises
    ------
    IndexBoundsError
        When the result is computed: an index is out of range.
    ShapeError
        `axis` is missing and `x` has not exactly one axis.

    Examples
    --------
    >>> krt.array_api.take(krt.tensor([[1, 2], [3, 4]]), krt.tensor([1, -2]), axis=1).tolist()
    [[2, 1], [4, 3]]
    """
    place = only_axis(x, axis, "take")
    taken: Tensor = x[(*(slice(None),) * place, indices)]
    return taken


def only_axis(x: Tensor, axis: int | None, name: str) -> int:
    """Return `axis`; it may be None if `x` has one axis."""
    if axis is None and x.ndim != 1:
        raise ShapeError(
            f"axis: {name} needs an axis for a tensor of shape {format_shape(x.dims)}; axis may be "
            "None only for a tensor with one axis"
        )
    return axis_of(axis or 0, x.ndim, "axis")


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the elements at the given indices along an axis.

    `indices` has an index for each element of the result. Negative indices count from the end.

    Parameters
    ----------
    x : Tensor
        Tensor of at least one axis.
    indices : Tensor of integers
        Indices, of a shape that broadcasts with that of `x` along all other axes.
    axis : int
        Axis along which the indices count.

    Returns
    -------
    Tensor
        Elements in the type of `x`.

    Raises
    ------
    IndexBoundsError
        When the result is computed: an index is out of range.

    Examples
    --------
    >>> x = krt.tensor([[1, 2], [3, 4]])
    >>> krt.array_api.take_along_axis(x, krt.tensor([[1], [0]])).tolist()
    [[2], [3]]
    """
    return x.take_along_dim(indices, axis)


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """Repeat `x` along each axis.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.
    repetitions : sequence of int
        Number of repetitions along each axis; axes of size 1 are added in front where needed.

    Returns
    -------
    Tensor
        Repeated elements in the type of `x`.

    Examples
    --------
    >>> krt.array_api.tile(krt.tensor([1, 2]), (2, 2)).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    return x.tile(tuple(repetitions))


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Any, ...]:
    """Return the slices along an axis.

    Parameters
    ----------
    x : Tensor
        Tensor of at least one axis.
    axis : int
        Axis to remove.

    Returns
    -------
    tuple of Tensor
        One slice for each index along the axis.

    Examples
    --------
    >>> [row.tolist() for row in krt.array_api.unstack(krt.tensor([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    return x.unbind(axis)

"""Join and combine tensors."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir.shape import broadcast, format_shape, same
from kernelrt.tensor.methods.movement import MovementMethods
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import axis_of, integer
from kernelrt.tensor.nodes.promotion import joint_type
from kernelrt.tensor.operation import operation
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.methods import masked
    from kernelrt.tensor.tensor import Tensor
else:
    masked = Module("kernelrt.tensor.methods.masked")

__all__ = ["atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_tensors",
           "cartesian_prod", "cat", "column_stack", "combinations", "concat", "concatenate",
           "dstack", "hstack", "meshgrid", "row_stack", "stack", "vstack"]  # fmt: skip


def _promoted(tensors: Sequence[TensorBase], name: str) -> list[MovementMethods]:
    if not isinstance(tensors, tuple | list) or not tensors:
        given = "an empty one" if isinstance(tensors, tuple | list) else type(tensors).__name__
        raise ShapeError(f"tensors: {name} expects a sequence of at least one Tensor, not {given}")
    for i, t in enumerate(tensors):
        if not isinstance(t, MovementMethods):
            masked.refuse_part(t)
            raise DTypeError(f"tensors[{i}]: expected a Tensor, not {type(t).__name__}")
    dtype = joint_type(t.uop for t in tensors)
    return [t.cast(dtype) for t in tensors if isinstance(t, MovementMethods)]


@operation
def cat(tensors: Sequence[TensorBase], dim: int = 0) -> Tensor:
    """Concatenate `tensors` along `dim`; all other axes must agree.

    Parameters
    ----------
    tensors : sequence of Tensor
        At least one tensor. As in PyTorch, vectors without elements are left out.
    dim : int
        Axis along which to join.

    Returns
    -------
    Tensor
        New tensor in the promoted dtype.

    Raises
    ------
    ShapeError
        The shapes differ along another axis, there are no tensors, or a tensor has no axes.
    DTypeError
        An element of `tensors` is no Tensor.

    Examples
    --------
    >>> x, y = krt.tensor([[1, 2]]), krt.tensor([[3, 4]])
    >>> krt.cat([x, y]).tolist(), krt.cat([x, y], 1).tolist()
    ([[1, 2], [3, 4]], [[1, 2, 3, 4]])
    """
    parts = _promoted(tensors, "cat")
    if any(p.ndim != 1 for p in parts):  # empty vectors are dropped, as in PyTorch
        parts = [p for p in parts if p.dims != (0,)] or parts
    first = parts[0]
    if first.ndim == 0:
        raise ShapeError("tensors: scalars cannot be concatenated; use stack")
    axis = axis_of(dim, first.ndim)
    for i, part in enumerate(parts):
        if part.ndim != first.ndim or not all(
            a == axis or same(d, e)
            for a, (d, e) in enumerate(zip(part.dims, first.dims, strict=True))
        ):
            raise ShapeError(
                f"tensors[{i}]: shape {format_shape(part.dims)} does not fit the shape "
                f"{format_shape(first.dims)} of tensors[0]; all axes except {axis} must agree"
            )
    joined = first._of(build.cat([p.uop for p in parts], axis))
    return cast("Tensor", joined)


@operation
def stack(tensors: Sequence[TensorBase], dim: int = 0) -> Tensor:
    """Stack `tensors` of the same shape along a new axis `dim`.

    Parameters
    ----------
    tensors : sequence of Tensor
        At least one tensor.
    dim : int
        Position of the new axis in the result.

    Returns
    -------
    Tensor
        New tensor in the promoted dtype.

    Raises
    ------
    ShapeError
        The shapes differ, or there are no tensors.
    DTypeError
        An element of `tensors` is no Tensor.

    Examples
    --------
    >>> x, y = krt.tensor([1, 2]), krt.tensor([3, 4])
    >>> krt.stack([x, y]).tolist(), krt.stack([x, y], 1).tolist()
    ([[1, 2], [3, 4]], [[1, 3], [2, 4]])
    """
    parts = _promoted(tensors, "stack")
    first = parts[0]
    axis = axis_of(dim, first.ndim + 1)
    for i, part in enumerate(parts):
        if not build.same_shape(part.dims, first.dims):
            raise ShapeError(
                f"tensors[{i}]: expected shape {format_shape(first.dims)}, like tensors[0], not "
                f"{format_shape(part.dims)}"
            )
    return cat([p.unsqueeze(axis) for p in parts], axis)


def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """Return the coordinates of a grid from vectors: result `i` varies along axis `i`.

    Parameters
    ----------
    *tensors : Tensor
        Vectors, or scalars (treated as vectors of one element); or one sequence of them.
    indexing : "ij" or "xy"
        "xy" swaps the first two axes.

    Returns
    -------
    tuple of Tensor
        One tensor for each vector, all of the same shape: views of the vectors.

    Raises
    ------
    DomainError
        `indexing` is unknown.
    ShapeError
        A tensor has more than one axis.
    DTypeError
        An argument is no Tensor.

    Examples
    --------
    >>> rows, columns = krt.meshgrid(krt.tensor([1, 2]), krt.tensor([3, 4, 5]))
    >>> rows.tolist(), columns.tolist()
    ([[1, 1, 1], [2, 2, 2]], [[3, 4, 5], [3, 4, 5]])
    """
    lines = _several(tensors, "meshgrid")
    if indexing not in ("ij", "xy"):
        raise DomainError(f"indexing: expected 'ij' or 'xy', not {indexing!r}")
    for i, t in enumerate(lines):
        if t.ndim > 1:
            raise ShapeError(
                f"tensors[{i}]: expected a vector or a scalar, not shape {format_shape(t.dims)}"
            )
    shape = tuple(t.dims[0] if t.ndim else 1 for t in lines)
    grids = [
        t.reshape(tuple(d if k == i else 1 for k, d in enumerate(shape))).expand(shape)
        for i, t in enumerate(lines)
    ]
    if indexing == "xy" and len(grids) > 1:
        grids = [g.transpose(0, 1) for g in grids]
    return tuple(grids)


def _several(given: tuple[Any, ...], name: str) -> list[Tensor]:
    """Return tensors given as separate arguments or as one sequence; check their types."""
    tensors = given[0] if len(given) == 1 and isinstance(given[0], tuple | list) else given
    for i, t in enumerate(tensors):
        if not isinstance(t, MovementMethods):
            raise DTypeError(
                f"tensors[{i}]: {name} expects Tensors, not {type(t).__name__}"
            )
    return list(tensors)


concat = concatenate = cat


def broadcast_tensors(*tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Expand all `tensors` to the shape that they broadcast to.

    Parameters
    ----------
    *tensors : Tensor
        Tensors, or one sequence of them.

    Returns
    -------
    tuple of Tensor
        Views of the tensors; see :meth:`Tensor.expand`.

    Raises
    ------
    ShapeError
        The shapes are not compatible.
    DTypeError
        An argument is no Tensor.

    Examples
    --------
    >>> x, y = krt.broadcast_tensors(krt.tensor([1, 2]), krt.tensor([[3], [4]]))
    >>> x.tolist(), y.tolist()
    ([[1, 2], [1, 2]], [[3, 3], [4, 4]])
    """
    given = _several(tensors, "broadcast_tensors")
    shape = broadcast(*(t.dims for t in given))
    return tuple(t.expand(shape) for t in given)


def _lifted(tensors: tuple[Any, ...], rank: int) -> Any:
    given = _several(tensors, f"atleast_{rank}d")
    out = []
    for t in given:
        if rank > 1 and t.ndim == 1:
            t = t.unsqueeze(0)  # noqa: PLW2901 - a vector is a row
        while t.ndim < rank:
            t = t.unsqueeze(-1)  # noqa: PLW2901 - axes of one element
        out.append(t)
    single = len(tensors) == 1 and not isinstance(tensors[0], tuple | list)
    return out[0] if single else tuple(out)


def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Return a scalar as a vector; other tensors unchanged. Several tensors give a tuple.

    Parameters
    ----------
    *tensors : Tensor
        Tensors, or one sequence of them.

    Returns
    -------
    Tensor or tuple of Tensor
        One tensor for a single argument that is a tensor; otherwise a tuple.

    Raises
    ------
    DTypeError
        An argument is no Tensor.

    Examples
    --------
    >>> krt.atleast_1d(krt.tensor(3)).tolist()
    [3]
    """
    return _lifted(tensors, 1)


def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Return a vector as a row and a scalar as a matrix. Several tensors give a tuple.

    Parameters
    ----------
    *tensors : Tensor
        Tensors, or one sequence of them.

    Returns
    -------
    Tensor or tuple of Tensor
        One tensor for a single argument that is a tensor; otherwise a tuple.

    Raises
    ------
    DTypeError
        An argument is no Tensor.

    Examples
    --------
    >>> krt.atleast_2d(krt.tensor([3, 4])).tolist()
    [[3, 4]]
    """
    return _lifted(tensors, 2)


def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Return a tensor with at least 3 axes. Several tensors give a tuple.

    A matrix gets a last axis of size 1. A vector gets a first and a last axis of size 1.

    Parameters
    ----------
    *tensors : Tensor
        Tensors, or one sequence of them.

    Returns
    -------
    Tensor or tuple of Tensor
        One tensor for a single argument that is a tensor; otherwise a tuple.

    Raises
    ------
    DTypeError
        An argument is no Tensor.

    Examples
    --------
    >>> krt.atleast_3d(krt.zeros(2, 3)).shape, krt.atleast_3d(krt.zeros(2)).shape
    ((2, 3, 1), (1, 2, 1))
    """
    return _lifted(tensors, 3)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate `tensors` along the second axis, or vectors along the first axis.

    Parameters
    ----------
    tensors : sequence of Tensor
        Tensors whose other axes agree. Scalars count as vectors.

    Returns
    -------
    Tensor
        New tensor in the promoted dtype.

    Raises
    ------
    ShapeError, DTypeError
        As for :func:`cat`.

    Examples
    --------
    >>> krt.hstack([krt.tensor([1, 2]), krt.tensor([3])]).tolist()
    [1, 2, 3]
    >>> krt.hstack([krt.zeros(2, 1), krt.zeros(2, 3)]).shape
    (2, 4)
    """
    parts = [_lifted((t,), 1) for t in _several((tensors,), "hstack")]
    return cat(parts, 0 if not parts or parts[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate `tensors` along the first axis; vectors count as rows.

    Parameters
    ----------
    tensors : sequence of Tensor
        Tensors whose other axes agree.

    Returns
    -------
    Tensor
        New tensor in the promoted dtype, with at least two axes.

    Raises
    ------
    ShapeError, DTypeError
        As for :func:`cat`.

    Examples
    --------
    >>> krt.vstack([krt.tensor([1, 2]), krt.tensor([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """
    return cat([_lifted((t,), 2) for t in _several((tensors,), "vstack")], 0)


row_stack = vstack


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate `tensors` along the third axis, after :func:`atleast_3d`.

    Parameters
    ----------
    tensors : sequence of Tensor
        Tensors whose other axes agree.

    Returns
    -------
    Tensor
        New tensor in the promoted dtype, with at least three axes.

    Raises
    ------
    ShapeError, DTypeError
        As for :func:`cat`.

    Examples
    --------
    >>> krt.dstack([krt.tensor([1, 2]), krt.tensor([3, 4])]).tolist()
    [[[1, 3], [2, 4]]]
    """
    return cat([_lifted((t,), 3) for t in _several((tensors,), "dstack")], 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate `tensors` along the second axis; vectors and scalars count as columns.

    Parameters
    ----------
    tensors : sequence of Tensor
        Tensors whose other axes agree.

    Returns
    -------
    Tensor
        New tensor in the promoted dtype, with at least two axes.

    Raises
    ------
    ShapeError, DTypeError
        As for :func:`cat`.

    Examples
    --------
    >>> krt.column_stack([krt.tensor([1, 2]), krt.tensor([3, 4])]).tolist()
    [[1, 3], [2, 4]]
    """
    parts = [t if t.ndim > 1 else t.reshape(-1, 1) for t in _several((tensors,), "column_stack")]
    return cat(parts, 1)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Return the Cartesian product of vectors as rows; the last vector varies fastest.

    Parameters
    ----------
    *tensors : Tensor
        Vectors.

    Returns
    -------
    Tensor
        Tensor of shape (product of the sizes, number of vectors), in the promoted dtype. A single
        vector is returned as it is.

    Raises
    ------
    ShapeError
        A tensor is no vector.

    Examples
    --------
    >>> krt.cartesian_prod(krt.tensor([1, 2]), krt.tensor([3, 4])).tolist()
    [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    given = _several(tensors, "cartesian_prod")
    for i, t in enumerate(given):
        if t.ndim != 1:
            raise ShapeError(
                f"tensors[{i}]: expected a vector, not shape {format_shape(t.dims)}"
            )
    if len(given) == 1:
        return given[0]
    return stack([g.reshape(-1) for g in meshgrid(*given)], 1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:  # noqa: A002
    """Return all combinations of `r` elements of a vector as rows, in order of position.

    Parameters
    ----------
    input : Tensor
        Vector of n elements.
    r : int
        Number of elements per combination.
    with_replacement : bool
        Whether a combination may contain an element several times.

    Returns
    -------
    Tensor
        Tensor of shape (count, r), in the dtype of `input`; no elements, of shape (0,), if `r` is
        0.

    Raises
    ------
    ShapeError
        `input` is no vector, or `r` is negative.

    Examples
    --------
    >>> krt.combinations(krt.tensor([1, 2, 3])).tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    (x,) = _several((input,), "combinations")
    count = integer(r, "r", 0)
    if x.ndim != 1:
        raise ShapeError(f"input: expected a vector, not shape {format_shape(x.dims)}")
    if count == 0:
        return x[:0]
    ways = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(ways(range(x._static_size(0, "combinations")), count)), np.int64)
    return x[rows.reshape(-1, count)]


def block_diag(*tensors: Tensor) -> Tensor:
    """Return a block-diagonal matrix of `tensors`; vectors count as rows.

    Parameters
    ----------
    *tensors : Tensor
        Matrices, vectors or scalars.

    Returns
    -------
    Tensor
        Matrix in the promoted dtype, whose sizes are the sums of the sizes of the blocks.

    Raises
    ------
    ShapeError
        A tensor has more than two axes, or there are no tensors.
    DTypeError
        An argument is no Tensor.

    Examples
    --------
    >>> krt.block_diag(krt.tensor([[1, 2]]), krt.tensor([3])).tolist()
    [[1, 2, 0], [0, 0, 3]]
    """
    blocks = [_lifted((t,), 2) for t in _promoted(_several(tensors, "block_diag"), "block_diag")]
    for i, b in enumerate(blocks):
        if b.ndim > 2:
            raise ShapeError(f"tensors[{i}]: expected at most 2 axes, not {b.ndim}")
    widths = [b.dims[1] for b in blocks]
    rows = [
        b.pad((build.total(widths[:i]), build.total(widths[i + 1 :])))
        for i, b in enumerate(blocks)
    ]
    return cat(rows, 0)

"""Norms of vectors and matrices, as functions of tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from kernelrt.errors import DomainError, ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.tensor.nodes import matrix_ops
from kernelrt.tensor.nodes.arguments import axes_of, real, take_by_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.tensor.methods.reduction import Dims, ReductionMethods

    _T = TypeVar("_T", bound=ReductionMethods)

__all__ = ["any_norm", "matrix_norm", "singular_values", "vector_norm"]


def vector_norm(
    x: _T, ord: float = 2, dim: Dims = None, keepdim: bool = False, *,  # noqa: A002
    dtype: object = None,
) -> _T:  # fmt: skip
    """Return the norm of order `ord` over `dim`, or over all elements; see ``Tensor.norm``.

    Parameters
    ----------
    x : Tensor
        Tensor of floats.
    ord : float
        Order of the norm, also infinite.
    dim : int or sequence of int, optional
        Axes to reduce; all by default.
    keepdim : bool
        Whether to keep the reduced axes with size 1.
    dtype : DType, optional
        Dtype to convert `x` to first.

    Returns
    -------
    Tensor
        Tensor of the remaining axes, in the dtype of `x`.

    Raises
    ------
    DTypeError
        `x` does not hold floats.

    Examples
    --------
    >>> x = krt.tensor([3.0, -4.0])
    >>> krt.linalg.vector_norm(x).item(), krt.linalg.vector_norm(x, 1).item()
    (5.0, 7.0)
    """
    return x.norm(real(ord, "ord"), dim, keepdim, dtype=dtype)


def matrix_norm(
    A: _T, ord: float | str = "fro", dim: Sequence[int] = (-2, -1),  # noqa: A002, N803 - torch's
    keepdim: bool = False, *, dtype: object = None,
) -> _T:  # fmt: skip
    """Return the norms of the matrices along two axes.

    Parameters
    ----------
    A : Tensor
        Floating tensor with at least two axes.
    ord : "fro", "nuc", inf, -inf, 1, -1, 2 or -2
        Order of the norm. "fro": Frobenius norm. "nuc": sum of the singular values. inf and -inf:
        greatest and least sum of absolute values of a row. 1 and -1: greatest and least sum of
        absolute values of a column. 2 and -2: greatest and least singular value.
    dim : sequence of two int
        Axes of the rows and columns.
    keepdim : bool
        Whether the result keeps the two axes with size 1.
    dtype : DType, optional
        Dtype to convert `A` to first.

    Returns
    -------
    Tensor
        Tensor of the remaining axes, in the dtype of `A`.

    Raises
    ------
    DTypeError
        `A` does not hold floats.
    DomainError
        `ord` is unknown.
    ShapeError
        `A` has fewer than two axes, or `dim` does not name two.

    Examples
    --------
    >>> A = krt.tensor([[3.0, -4.0], [1.0, 2.0]])
    >>> krt.linalg.matrix_norm(A, 1).item(), krt.linalg.matrix_norm(A, krt.inf).item()
    (6.0, 7.0)
    """
    x = A if dtype is None else A.cast(dtype)
    if not isinstance(dim, tuple | list) or len(dim) != 2 or x.ndim < 2:
        raise ShapeError(
            f"dim: expected two axes, of a tensor with at least 2 axes, not {dim!r} for shape "
            f"{format_shape(x.dims)}"
        )
    rows, columns = (axes_of(d, x.ndim)[0] for d in dim)
    if rows == columns:
        raise ShapeError(f"dim: {dim!r} names an axis twice; give two different axes")
    ord = take_by_value(ord)  # noqa: A001 - torch's name
    if ord in ("fro", "nuc"):
        return x.norm(ord, (rows, columns), keepdim)
    order = real(ord, "ord")
    if order in (2, -2):
        values = singular_values(x, (rows, columns))
        out = _greatest(values, -1) if order > 0 else values.amin(-1)
        kept = tuple(1 if a in (rows, columns) else d for a, d in enumerate(x.dims))
        return out.reshape(kept) if keepdim else out
    if order not in (1, -1, math.inf, -math.inf):
        raise DomainError(f"ord: expected 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, not {ord!r}")
    along, across = (columns, rows) if abs(order) == math.inf else (rows, columns)
    sums = x.norm(1, along, True)
    out = _greatest(sums, across, True) if order > 0 else sums.amin(across, True)
    return out if keepdim else out.squeeze((rows, columns))


def _greatest(x: _T, dim: int, keepdim: bool = False) -> _T:
    """Return the greatest norm along an axis; 0 if the axis is empty."""
    return x.sum(dim, keepdim) if x.dims[dim] == 0 else x.amax(dim, keepdim)


def any_norm(
    A: _T, ord: float | str | None = None, dim: Dims = None,  # noqa: A002, N803 - torch's
    keepdim: bool = False, *, dtype: object = None,
) -> _T:  # fmt: skip
    """Return the vector norm over one axis, or the matrix norm over two axes.

    Without `ord`, return the 2-norm of all elements along `dim` (all axes by default). With `ord`
    but without `dim`, the tensor must have one or two axes.

    Parameters
    ----------
    A : Tensor
        Tensor of floats.
    ord : float or str, optional
        Order, as for :func:`vector_norm` or :func:`matrix_norm`.
    dim : int or sequence of int, optional
        Axes to reduce.
    keepdim : bool
        Whether to keep the reduced axes with size 1.
    dtype : DType, optional
        Dtype to convert `A` to first.

    Returns
    -------
    Tensor
        Tensor of the remaining axes, in the dtype of `A`.

    Raises
    ------
    DTypeError
        `A` does not hold floats.
    ShapeError
        `ord` needs another number of axes.

    Examples
    --------
    >>> A = krt.tensor([[3.0, -4.0], [0.0, 0.0]])
    >>> krt.linalg.norm(A).item(), krt.linalg.norm(A, 1).item(), krt.linalg.norm(A, 1, 1).tolist()
    (5.0, 4.0, [7.0, 0.0])
    """
    if ord is None:
        return A.norm(2, dim, keepdim, dtype=dtype)
    axes = axes_of(dim, A.ndim)
    if dim is None and A.ndim > 2:
        raise ShapeError(
            f"ord: the norm of order {ord} of a tensor with {A.ndim} axes needs dim; pass one or "
            "two axes as dim"
        )
    if len(axes) == 2:
        pair = (0, 1) if dim is None else dim
        assert not isinstance(pair, int)
        return matrix_norm(A, ord, pair, keepdim, dtype=dtype)
    if isinstance(ord, str):
        raise ShapeError(f"ord: {ord!r} is a matrix norm; expected two axes, not {len(axes)}")
    return vector_norm(A, ord, dim, keepdim, dtype=dtype)


def singular_values(x: _T, axes: Sequence[int]) -> _T:
    """Return the singular values of the matrices along two axes, in a new last axis."""
    rest = [a for a in range(x.ndim) if a not in axes]
    moved = x.permute(*rest, *axes)
    return moved._of(matrix_ops.svd(moved.uop)[1])

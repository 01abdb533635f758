"""The standard's linear algebra, on top of ``kernelrt.linalg``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kernelrt as krt
from kernelrt import linalg
from kernelrt.array_api._arranging import matrix_transpose
from kernelrt.array_api._elementwise import of_one_type
from kernelrt.array_api._reducing import total_type
from kernelrt.errors import DomainError, ShapeError
from kernelrt.ir.shape import format_shape, same
from kernelrt.linalg import cholesky, det, eigh, eigvalsh, inv, matrix_power, slogdet, svdvals
from kernelrt.tensor.nodes.arguments import axis_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt import Tensor
    from kernelrt.tensor.methods.matrix_decompositions import QR, SVD

__all__ = ["cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul",
           "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr",
           "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot",
           "vector_norm"]  # fmt: skip


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return cross products of vectors along an axis of size 3; other axes broadcast.

    Parameters
    ----------
    x1, x2 : Tensor
        Vectors of size 3 along the axis.
    axis : int
        Axis of the vectors.

    Returns
    -------
    Tensor
        The broadcast shape, in the promoted type.

    Raises
    ------
    ShapeError
        The axis does not have size 3.

    Examples
    --------
    >>> x, y = krt.tensor([1, 0, 0]), krt.tensor([0, 1, 0])
    >>> krt.array_api.linalg.cross(x, y).tolist()
    [0, 0, 1]
    """
    first, second = krt.broadcast_tensors(*of_one_type(x1, x2))
    return first.cross(second, dim=axis)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Return a diagonal of the matrices in the last two axes.

    Parameters
    ----------
    x : Tensor, shape (..., n, m)
        Matrices.
    offset : int
        Diagonal: 0 is the main one, positive numbers are above it.

    Returns
    -------
    Tensor
        The other axes, followed by the axis of the diagonal.

    Examples
    --------
    >>> krt.array_api.linalg.diagonal(krt.tensor([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    return x.diagonal(offset, -2, -1)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the matrix product.

    Parameters
    ----------
    x1, x2 : Tensor
        Matrices of shapes (..., n, k) and (..., k, m); or vectors, of shape (k,).

    Returns
    -------
    Tensor
        Products of shape (..., n, m), without the axis of a vector, in the promoted type.

    Raises
    ------
    ShapeError
        The sizes of the axes that are summed over differ.

    Examples
    --------
    >>> krt.array_api.matmul(krt.tensor([[1, 2], [3, 4]]), krt.tensor([1, 1])).tolist()
    [3, 7]
    """
    return x1 @ x2


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Tensor:
    """Return norms of the matrices in the last two axes; see ``kernelrt.linalg.matrix_norm``.

    Parameters
    ----------
    x : Tensor of floats, shape (..., n, m)
        Matrices.
    keepdims : bool
        Whether the two axes stay, with size 1.
    ord : "fro", "nuc", 1, -1, 2, -2, inf, -inf or None
        Norm; None is "fro", the root of the sum of squares.

    Returns
    -------
    Tensor of floats
        One number for each matrix.

    Examples
    --------
    >>> x = krt.tensor([[3.0, 0.0], [0.0, 4.0]])
    >>> krt.array_api.linalg.matrix_norm(x).item()
    5.0
    >>> krt.array_api.linalg.matrix_norm(x, ord=1).item()
    4.0
    """
    return linalg.matrix_norm(x, "fro" if ord is None else ord, keepdim=keepdims)


def matrix_rank(x: Tensor, /, *, rtol: linalg.Tolerance = None) -> Tensor:
    """Return the number of singular values above `rtol` times the greatest.

    Parameters
    ----------
    x : Tensor of float32 or float64, shape (..., n, m)
        Matrices.
    rtol : float or Tensor, optional
        Tolerance, for all matrices or one for each; by default max(n, m) times the machine epsilon.

    Returns
    -------
    Tensor of int64
        One number for each matrix.

    Examples
    --------
    >>> krt.array_api.linalg.matrix_rank(krt.ones(3, 3)).item()
    1
    """
    return linalg.matrix_rank(x, rtol=rtol)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the outer product of two vectors.

    Parameters
    ----------
    x1, x2 : Tensor, shapes (n,) and (m,)
        Vectors.

    Returns
    -------
    Tensor
        Matrix of shape (n, m), in the promoted type.

    Raises
    ------
    ShapeError
        `x1` or `x2` is not a vector.

    Examples
    --------
    >>> krt.array_api.linalg.outer(krt.tensor([1, 2]), krt.tensor([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    first, second = of_one_type(x1, x2)
    out: Tensor = first.outer(second)
    return out


def pinv(x: Tensor, /, *, rtol: linalg.Tolerance = None) -> Tensor:
    """Return pseudo-inverses; singular values up to `rtol` times the greatest count as 0.

    Parameters
    ----------
    x : Tensor of float32 or float64, shape (..., n, m)
        Matrices.
    rtol : float or Tensor, optional
        Tolerance, for all matrices or one for each; by default max(n, m) times the machine epsilon.

    Returns
    -------
    Tensor
        Matrices of shape (..., m, n).

    Examples
    --------
    >>> x = krt.tensor([[2.0, 0.0], [0.0, 4.0]])
    >>> krt.array_api.linalg.pinv(x).round(decimals=4).abs().tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return linalg.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QR[Tensor]:
    """Return Q and R of ``x = Q @ R``; if `mode` is "complete", Q is square.

    Parameters
    ----------
    x : Tensor of float32 or float64, shape (..., n, m)
        Matrices.
    mode : "reduced" or "complete"
        Whether Q has min(n, m) or n columns.

    Returns
    -------
    QR of (Q, R)
        Q with orthonormal columns, and upper triangular R.

    Raises
    ------
    DomainError
        `mode` is neither of the two.

    Examples
    --------
    >>> q, r = krt.array_api.linalg.qr(krt.ones(3, 2), mode="complete")
    >>> q.shape, r.shape
    ((3, 3), (3, 2))
    """
    if mode not in ("reduced", "complete"):
        raise DomainError(f"mode: expected 'reduced' or 'complete', not {mode!r}")
    return linalg.qr(x, mode)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Solve ``x1 @ X = x2`` for X; `x2` is a vector if it has one axis, else matrices.

    Parameters
    ----------
    x1 : Tensor of float32 or float64, shape (..., n, n)
        Matrices.
    x2 : Tensor, shape (..., n, k) or (n,)
        Right-hand sides.

    Returns
    -------
    Tensor
        X, of the shape of `x2` with the batch axes broadcast.

    Raises
    ------
    LinAlgError
        When the result is computed: a matrix is singular.
    ShapeError
        The sizes of `x1` and `x2` do not match.

    Examples
    --------
    >>> x1 = krt.tensor([[2.0, 0.0], [0.0, 4.0]])
    >>> krt.array_api.linalg.solve(x1, krt.tensor([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    x1, x2 = of_one_type(x1, x2)
    if x2.ndim == 1:
        return linalg.solve(x1, x2.unsqueeze(-1)).squeeze(-1)
    # kernelrt.linalg, like PyTorch, reads an x2 with one axis less than x1 as vectors.
    right = x2.unsqueeze(0) if x2.ndim == x1.ndim - 1 else x2
    return linalg.solve(x1, right)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVD[Tensor]:
    """Return U, the descending singular values, and Vh, of ``x = U @ diag(S) @ Vh``.

    Parameters
    ----------
    x : Tensor of float32 or float64, shape (..., n, m)
        Matrices.
    full_matrices : bool
        Whether U has n columns and Vh m rows; otherwise both have min(n, m).

    Returns
    -------
    SVD of (U, S, Vh)
        Tensors in the type of `x`.

    Examples
    --------
    >>> u, s, vh = krt.array_api.linalg.svd(krt.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> s.round(decimals=4).tolist()
    [4.0, 3.0]
    """
    return linalg.svd(x, full_matrices)


def tensordot(
    x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Return sums of products over some axes of both tensors.

    Parameters
    ----------
    x1, x2 : Tensor
        Tensors of any shapes.
    axes : int or pair of sequences of int
        Number n of axes to sum over: the last n of `x1` and the first n of `x2`. Or the axes of
        each.

    Returns
    -------
    Tensor
        The other axes of `x1`, followed by those of `x2`, in the promoted type.

    Examples
    --------
    >>> x = krt.tensor([[1, 2], [3, 4]])
    >>> krt.array_api.tensordot(x, x, axes=1).tolist(), krt.array_api.tensordot(x, x).item()
    ([[7, 10], [15, 22]], 30)
    """
    first, second = of_one_type(x1, x2)
    out: Tensor = krt.tensordot(first, second, axes)
    return out


def trace(x: Tensor, /, *, offset: int = 0, dtype: object = None) -> Tensor:
    """Return the sum of a diagonal of each matrix in the last two axes.

    Parameters
    ----------
    x : Tensor, shape (..., n, m)
        Matrices.
    offset : int
        Diagonal: 0 is the main one, positive numbers are above it.
    dtype : DType, optional
        Type of the result. By default floats keep theirs, unsigned integers become uint64, and
        bools and other integers int64.

    Returns
    -------
    Tensor
        One number for each matrix.

    Examples
    --------
    >>> krt.array_api.linalg.trace(krt.tensor([[1, 2], [3, 4]])).item()
    5
    """
    return diagonal(x, offset=offset).sum(-1, dtype=total_type(x, dtype))


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return dot products along an axis of equal size; other axes broadcast.

    Parameters
    ----------
    x1, x2 : Tensor
        Vectors of equal size along the axis.
    axis : int
        Axis of the vectors.

    Returns
    -------
    Tensor
        The broadcast shape without the axis, in the promoted type.

    Raises
    ------
    ShapeError
        Sizes along the axis differ.

    Examples
    --------
    >>> krt.array_api.vecdot(krt.tensor([[1, 2], [3, 4]]), krt.tensor([1, 10])).tolist()
    [21, 43]
    """
    first, second = of_one_type(x1, x2)
    sizes = [x.dims[axis_of(axis, x.ndim, "axis")] if x.ndim else 0 for x in (first, second)]
    if not (first.ndim and second.ndim and same(*sizes)):
        raise ShapeError(
            f"axis: expected the same size along axis {axis}, not the shapes "
            f"{format_shape(first.dims)} and {format_shape(second.dims)}"
        )
    out: Tensor = (first.movedim(axis, -1) * second.movedim(axis, -1)).sum(-1, dtype=first.dtype)
    return out


def vector_norm(
    x: Tensor, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False,
    ord: float = 2,
) -> Any:  # fmt: skip
    """Return norms over some axes, or of all elements; see ``kernelrt.linalg.vector_norm``.

    Parameters
    ----------
    x : Tensor of floats
        Numbers of any shape.
    axis : int or sequence of int, optional
        Axes to reduce; by default all.
    keepdims : bool
        Whether reduced axes stay, with size 1.
    ord : float
        Order of the norm: the root of order `ord` of the sum of ``|x|**ord``; inf is the maximum.

    Returns
    -------
    Tensor of floats
        The shape of `x` without the reduced axes.

    Raises
    ------
    DTypeError
        `x` does not hold floats.

    Examples
    --------
    >>> krt.array_api.linalg.vector_norm(krt.tensor([3.0, 4.0])).item()
    5.0
    """
    return linalg.vector_norm(x, ord, axis, keepdims)

"""The standard's linear algebra, on top of ``kernelrt.linalg``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kernelrt as krt
from kernelrt import linalg
from kernelrt.array_api._arranging import matrix_transpose
from kernelrt.array_api._elementwise import of_one_type
from kernelrt.array_api._reducing import total_type
from kernelrt.errors import ShapeError
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
    """Return cross products of vectors along an axis of size 3; other axes broadcast."""
    first, second = krt.broadcast_tensors(*of_one_type(x1, x2))
    return first.cross(second, dim=axis)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Return a diagonal of the matrices in the last two axes."""
    return x.diagonal(offset, -2, -1)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the matrix product."""
    return x1 @ x2


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Tensor:
    """Return norms of the matrices in the last two axes; see ``kernelrt.linalg.matrix_norm``."""
    return linalg.matrix_norm(x, "fro" if ord is None else ord, keepdim=keepdims)


def matrix_rank(x: Tensor, /, *, rtol: linalg.Tolerance = None) -> Tensor:
    """Return the number of singular values above `rtol` times the greatest."""
    return linalg.matrix_rank(x, rtol=rtol)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the outer product of two vectors."""
    first, second = of_one_type(x1, x2)
    out: Tensor = first.outer(second)
    return out


def pinv(x: Tensor, /, *, rtol: linalg.Tolerance = None) -> Tensor:
    """Return pseudo-inverses; singular values up to `rtol` times the greatest count as 0."""
    return linalg.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QR[Tensor]:
    """Return Q and R of ``x = Q @ R``; for "complete" Q is square."""
    if mode not in ("reduced", "complete"):
        raise ShapeError(f"mode: expected 'reduced' or 'complete', not {mode!r}")
    return linalg.qr(x, mode)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Solve ``x1 @ X = x2`` for X; `x2` is a vector if it has one axis, else matrices."""
    x1, x2 = of_one_type(x1, x2)
    if x2.ndim == 1:
        return linalg.solve(x1, x2.unsqueeze(-1)).squeeze(-1)
    # kernelrt.linalg, like PyTorch, reads an x2 with one axis less than x1 as vectors.
    right = x2.unsqueeze(0) if x2.ndim == x1.ndim - 1 else x2
    return linalg.solve(x1, right)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVD[Tensor]:
    """Return U, the descending singular values, and Vh, of ``x = U @ diag(S) @ Vh``."""
    return linalg.svd(x, full_matrices)


def tensordot(
    x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Return sums of products over some axes of both tensors."""
    first, second = of_one_type(x1, x2)
    out: Tensor = krt.tensordot(first, second, axes)
    return out


def trace(x: Tensor, /, *, offset: int = 0, dtype: object = None) -> Tensor:
    """Return the sums of diagonals of the matrices in the last two axes."""
    return diagonal(x, offset=offset).sum(-1, dtype=total_type(x, dtype))


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return dot products along an axis of equal size; other axes broadcast."""
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
    """Return norms over some axes, or of all elements; see ``kernelrt.linalg.vector_norm``."""
    return linalg.vector_norm(x, ord, axis, keepdims)

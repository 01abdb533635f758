"""Linear algebra for small matrices, with the names of ``torch.linalg``.

Matrices are the last two axes of float32 or float64 tensors; other axes are batch axes. The
algorithms are made for matrices of up to a few hundred rows. A matrix without a result (singular,
not positive definite) raises LinAlgError when the result is computed; all state stays unchanged.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from kernelrt.errors import LinAlgError, ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.tensor import Tensor
from kernelrt.tensor.free_functions.creation import arange, zeros
from kernelrt.tensor.methods.einsum import multi_dot
from kernelrt.tensor.methods.matrix_decompositions import QR, SVD, Decomposition, Eigen, SignedLog
from kernelrt.tensor.nodes import matrix_ops as nodes
from kernelrt.tensor.nodes.arguments import flag, integer, take_by_value, tensor_of
from kernelrt.tensor.nodes.vector_norms import any_norm as norm
from kernelrt.tensor.nodes.vector_norms import matrix_norm, vector_norm
from kernelrt.tensor.operation import operation
from kernelrt.util.unsupported_names import LINALG, of_module

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal",
           "eigh", "eigvalsh", "inv", "inv_ex", "lstsq", "lu", "lu_factor", "lu_solve",
           "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot",
           "norm", "pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd",
           "svdvals", "vander", "vecdot", "vector_norm"]  # fmt: skip

_T = TypeVar("_T")
#: A number for all matrices, or a tensor with a number for each matrix.
Tolerance: TypeAlias = float | Tensor | None
_DRIVERS: Final = ("gels", "gelsy", "gelsd", "gelss")


class Checked(NamedTuple, Generic[_T]):
    """A result, and for each matrix `info`: 0 if the result is valid, else 1."""

    result: _T
    info: _T


class Factors(NamedTuple, Generic[_T]):
    """L and U in one matrix, and the pivots: the row swapped with in each step, from 1."""

    LU: _T
    pivots: _T


class LeastSquares(NamedTuple, Generic[_T]):
    """A solution, the residual sums of squares, the ranks, and the singular values."""

    solution: _T
    residuals: _T
    rank: _T
    singular_values: _T


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:  # noqa: N803 - torch's name
    """Return L of ``A = L @ L.mT`` for symmetric positive definite matrices.

    Only the lower triangle is read. The gradient follows Murray, arXiv:1602.07527. See
    ``Tensor.cholesky``.
    """
    return tensor_of(A, "A").cholesky(upper)


def cholesky_ex(
    A: Tensor, *, upper: bool = False, check_errors: bool = False  # noqa: N803
) -> Checked[Tensor]:
    """Return the Cholesky factors, with `info` 1 for matrices that have none."""
    x = tensor_of(A, "A")
    if check_errors:
        out = x.cholesky(upper)
    else:
        out = _of(x, functools.partial(nodes.cholesky, checked=False))
        out = out.mT if upper else out
    # If the checked factorization would raise, the unchecked factor has a non-positive diagonal.
    positive = (out.detach().diagonal(0, -2, -1) > 0).all(-1)
    return Checked(out, (~positive).int())


def _faults(out: Tensor) -> Tensor:
    return (~out.detach().isfinite().all((-2, -1))).int()


@operation
def _of(x: Tensor, rule: Callable[..., Any]) -> Tensor:
    return x._of(rule(x.uop))  # noqa: SLF001 - one layer above the methods of Tensor


def det(A: Tensor) -> Tensor:  # noqa: N803
    """Return the determinants; see ``Tensor.det``."""
    return tensor_of(A, "A").det()


def slogdet(A: Tensor) -> SignedLog[Tensor]:  # noqa: N803
    """Return the signs of the determinants and the logarithms of their absolute values."""
    return tensor_of(A, "A").slogdet()


def inv(A: Tensor) -> Tensor:  # noqa: N803
    """Return the inverse matrices; raise LinAlgError if one is singular."""
    return tensor_of(A, "A").inverse()


def inv_ex(A: Tensor, *, check_errors: bool = False) -> Checked[Tensor]:  # noqa: N803
    """Return the inverse matrices, with `info` 1 for singular ones (the result is not finite)."""
    out = tensor_of(A, "A")._inverted(checked=bool(check_errors))  # noqa: SLF001
    return Checked(out, _faults(out))


def pinv(
    A: Tensor, rcond: Tolerance = None, hermitian: bool = False, *,  # noqa: N803
    atol: Tolerance = None, rtol: Tolerance = None,
) -> Tensor:  # fmt: skip
    """Return the pseudo-inverses.

    Parameters
    ----------
    A : Tensor, shape (..., m, n)
        Matrices.
    rcond : float or Tensor, optional
        NumPy's name of `rtol`.
    hermitian : bool
        Whether the matrices are symmetric; only the lower triangle is read then.
    atol, rtol : float or Tensor, optional
        Singular values up to max(`atol`, `rtol` * largest singular value) count as 0. Tensors have
        one number per matrix. If both are omitted, rtol is max(m, n) times the machine epsilon; if
        only `atol` is given, rtol is 0.
    """
    rtol = _either("rcond", rcond, "rtol", rtol)
    return _symmetric(A, hermitian)._pseudo_inverse(atol, rtol)  # noqa: SLF001


def _symmetric(A: Tensor, hermitian: bool) -> Tensor:  # noqa: N803
    """Return the matrices; if `hermitian`, fill the upper triangle from the lower one."""
    x = tensor_of(A, "A")
    return x.tril() + x.tril(-1).mT if flag(hermitian, "hermitian") else x


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:  # noqa: N803
    """Solve ``A @ X = B`` for X, or ``X @ A = B`` if `left` is false.

    Parameters
    ----------
    A : Tensor, shape (..., n, n)
        Matrices.
    B : Tensor, shape (..., n, k), (..., n) or (n,)
        Right-hand sides. They are vectors if `B` has one axis less than `A` and the shape of
        its rows.
    left : bool
        Whether A is the left factor.

    Raises
    ------
    LinAlgError
        When the result is computed: a matrix is singular.

    Examples
    --------
    >>> import kernelrt as krt
    >>> krt.linalg.solve(krt.tensor([[2.0, 0.0], [0.0, 4.0]]), krt.tensor([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    return tensor_of(A, "A")._solved(B, left=left, checked=True)  # noqa: SLF001


def solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False  # noqa: N803
) -> Checked[Tensor]:
    """Solve as :func:`solve` does, with `info` 1 for singular matrices (X is not finite)."""
    x = tensor_of(A, "A")
    out = x._solved(B, left=left, checked=bool(check_errors))  # noqa: SLF001
    whole = out if out.ndim == max(x.ndim, 2) else out.unsqueeze(-1)
    return Checked(out, _faults(whole))


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True,  # noqa: N803
    unitriangular: bool = False,
) -> Tensor:  # fmt: skip
    """Solve ``A @ X = B`` for triangular A; the other triangle is not read.

    A zero on the diagonal gives infinities and NaN.
    """
    return tensor_of(A, "A")._substituted(  # noqa: SLF001
        B, upper=bool(upper), left=bool(left), unit=bool(unitriangular)
    )


def qr(A: Tensor, mode: str = "reduced") -> QR[Tensor]:  # noqa: N803
    """Return Q and R of ``A = Q @ R``.

    Parameters
    ----------
    A : Tensor, shape (..., m, n)
        Matrices.
    mode : "reduced", "complete" or "r"
        Q has min(m, n) columns ("reduced"), m columns ("complete"), or is empty ("r").
    """
    if mode not in ("reduced", "complete", "r"):
        raise ShapeError(f"mode: expected 'reduced', 'complete' or 'r', not {mode!r}")
    q, r = tensor_of(A, "A").qr(some=mode != "complete")
    return QR(zeros(0, dtype=A.dtype) if mode == "r" else q, r)


def eigh(A: Tensor, UPLO: str = "L") -> Eigen[Tensor]:  # noqa: N803
    """Return the ascending eigenvalues of symmetric matrices, and the eigenvectors as columns.

    Parameters
    ----------
    A : Tensor, shape (..., n, n)
        Symmetric matrices.
    UPLO : "L" or "U"
        Whether the lower or the upper triangle is read.
    """
    if UPLO not in ("L", "U", "l", "u"):
        raise ShapeError(f"UPLO: expected 'L' or 'U', not {UPLO!r}")
    return tensor_of(A, "A")._eigen(upper=UPLO in "Uu")  # noqa: SLF001


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:  # noqa: N803
    """Return the eigenvalues of symmetric matrices; see :func:`eigh`."""
    return eigh(A, UPLO).eigenvalues


def svd(A: Tensor, full_matrices: bool = True) -> SVD[Tensor]:  # noqa: N803
    """Return U, descending singular values S, and Vh of ``A = U @ diag(S) @ Vh``.

    With `full_matrices`, U and V are square; no gradient flows into the additional columns.
    Gradients follow Townsend, 2016, and do not exist for equal singular values.
    """
    return SVD(*tensor_of(A, "A")._singular(full=bool(full_matrices)))  # noqa: SLF001


def svdvals(A: Tensor) -> Tensor:  # noqa: N803
    """Return the singular values; see :func:`svd`."""
    return svd(A, False).S


def lstsq(
    A: Tensor, B: Tensor, rcond: Tolerance = None, *,  # noqa: N803
    driver: str | None = None,
) -> LeastSquares[Tensor]:  # fmt: skip
    """Return the least-squares solution X of ``A @ X = B`` with the smallest norm.

    Parameters
    ----------
    A : Tensor, shape (..., m, n)
        Matrices.
    B : Tensor, shape (..., m, k) or (..., m)
        Right-hand sides; vectors if B has one axis less than A.
    rcond : float or Tensor, optional
        Relative tolerance of :func:`pinv`, which computes the solution.
    driver : {"gels", "gelsy", "gelsd", "gelss"}, optional
        Name of a LAPACK routine, as in PyTorch. All give the same result if A has full rank. With
        "gelsd" and "gelss" the singular values are returned too.

    Returns
    -------
    LeastSquares of (solution, residuals, rank, singular_values)
        X with shape (..., n, k) or (..., n); the sums of squares of ``A @ X - B`` if m is greater
        than n, else empty; the rank of each matrix; the singular values, or empty.
    """
    if driver not in (None, *_DRIVERS):
        raise ShapeError(f"driver: expected one of {', '.join(_DRIVERS)}, not {driver!r}")
    x, b = tensor_of(A, "A"), tensor_of(B, "B")
    single = b.ndim == x.ndim - 1 and b.shape == x.shape[:-1]
    b = b.unsqueeze(-1) if single else b
    if b.ndim < 2 or x.ndim < 2 or b.shape[-2] != x.shape[-2]:
        raise ShapeError(
            "B: expected as many rows as A, not shapes "
            f"{format_shape(x.dims)} for A and {format_shape(b.dims)} for B"
        )
    solution = x.pinverse(rcond) @ b
    rank = matrix_rank(x, rtol=rcond)
    over = int(x.shape[-2]) > int(x.shape[-1])
    none = zeros(0, dtype=x.dtype)
    rest = (x @ solution - b).square().sum(-2) if over else none
    values = svdvals(x.detach()) if driver in ("gelsd", "gelss") else none
    return LeastSquares(solution.squeeze(-1) if single else solution, rest, rank, values)


def _either(name: str, value: Tolerance, other: str, given: Tolerance) -> Tolerance:
    """Return the value of an option with two names; raise TypeError if both are given."""
    if value is not None and given is not None:
        raise TypeError(f"{name} is an alias of {other}; pass one of the two")
    return given if value is None else value


def matrix_rank(
    A: Tensor, tol: Tolerance = None, hermitian: bool = False, *,  # noqa: N803
    atol: Tolerance = None, rtol: Tolerance = None,
) -> Tensor:  # fmt: skip
    """Return the rank: the number of singular values above a limit, as int64.

    Parameters
    ----------
    A : Tensor, shape (..., m, n)
        Matrices.
    tol : float or Tensor, optional
        NumPy's name of `atol`.
    hermitian : bool
        Whether the matrices are symmetric; only the lower triangle is read then.
    atol, rtol : float or Tensor, optional
        The limit is max(`atol`, `rtol` * largest singular value). Tensors have one number per
        matrix. If both are omitted, rtol is max(m, n) times the machine epsilon; if only `atol` is
        given, rtol is 0.
    """
    atol = _either("tol", tol, "atol", atol)
    x = _symmetric(A, hermitian).detach()
    values = svdvals(x)
    if not int(values.shape[-1]):
        return values.sum(-1).long()
    limit = x._rank_limit(values.uop, atol, rtol)  # noqa: SLF001
    return (values > limit.unsqueeze(-1)).sum(-1)


def cond(A: Tensor, p: float | str | None = None) -> Tensor:  # noqa: N803
    """Return the condition number: the norm of the matrix times the norm of its inverse."""
    p = take_by_value(p)
    if p is None or p in (2, -2):
        values = svdvals(A)
        if not int(values.shape[-1]):
            return values.sum(-1)
        ends = values[..., 0], values[..., -1]
        return ends[0] / ends[1] if p != -2 else ends[1] / ends[0]
    return matrix_norm(A, p) * matrix_norm(inv(A), p)


def matrix_power(A: Tensor, n: int) -> Tensor:  # noqa: N803
    """Return matrices raised to the power `n`; see ``Tensor.matrix_power``."""
    return tensor_of(A, "A").matrix_power(n)


def matrix_exp(A: Tensor) -> Tensor:  # noqa: N803
    """Return the matrix exponentials; see ``Tensor.matrix_exp``."""
    return tensor_of(A, "A").matrix_exp()


def lu(A: Tensor, *, pivot: bool = True) -> Decomposition[Tensor]:  # noqa: N803
    """Return P, L and U of ``A = P @ L @ U``; see ``Tensor.lu``.

    Rows are pivoted; as in PyTorch on a CPU, `pivot` must be True.
    """
    _check_pivot(pivot, "lu")
    return tensor_of(A, "A").lu()


def _check_pivot(pivot: bool, name: str) -> None:
    if not flag(pivot, "pivot"):
        raise LinAlgError(
            f"{name}: pivot: expected True; factorization without pivoting is not implemented"
        )


@operation
def lu_factor(A: Tensor, *, pivot: bool = True) -> Factors[Tensor]:  # noqa: N803
    """Return L and U in one matrix, and the pivots, for :func:`lu_solve`; see :func:`lu`."""
    _check_pivot(pivot, "lu_factor")
    packed, _, taken = nodes.lu(tensor_of(A, "A").uop)
    return Factors(A._of(packed), A._of(taken).int())  # noqa: SLF001


def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False  # noqa: N803
) -> Tensor:
    """Solve ``A @ X = B`` for X, given the factors of A from :func:`lu_factor`.

    Parameters
    ----------
    LU, pivots : Tensor
        Factors of shape (..., n, n), and pivots of shape (..., n).
    B : Tensor, shape (..., n, k)
        Right-hand sides.
    left : bool
        If false, solve ``X @ A = B`` instead.
    adjoint : bool
        Whether to use the transpose of A instead of A.
    """
    packed, taken, right = tensor_of(LU, "LU"), tensor_of(pivots, "pivots"), tensor_of(B, "B")
    if not left:
        return lu_solve(packed, taken, right.mT, adjoint=not adjoint).mT
    if adjoint:
        half = solve_triangular(packed.mT, right, upper=False)
        half = solve_triangular(packed.mT, half, upper=True, unitriangular=True)
        return half._exchanged(taken, back=True)  # noqa: SLF001
    return right.lu_solve(packed, taken)


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:  # noqa: A002
    """Return the cross products of vectors along an axis of 3 elements."""
    return tensor_of(input, "input").cross(other, dim=dim)


def matmul(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """Return the matrix product; see ``Tensor.matmul``."""
    return tensor_of(input, "input").matmul(other)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Return the dot products along an axis."""
    return (tensor_of(x, "x") * y).sum(dim)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:  # noqa: N803
    """Return powers 0 to N - 1 of each element along a new last axis.

    N defaults to the size of the last axis of `x`.
    """
    x = x.reshape(1) if x.ndim == 0 else x
    count = int(x.shape[-1]) if N is None else integer(N, "N", 2)
    return x.unsqueeze(-1) ** arange(count)


def diagonal(
    A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1  # noqa: N803
) -> Tensor:
    """Return the diagonals of matrices in two axes; see ``Tensor.diagonal``."""
    return tensor_of(A, "A").diagonal(offset, dim1, dim2)


if not TYPE_CHECKING:  # type checkers would accept any name if they saw __getattr__
    __getattr__ = of_module(__name__, LINALG, __all__)

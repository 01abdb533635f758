"""Linear algebra of small matrices, by the names of ``torch.linalg``.

Matrices lie in the last two axes of tensors of float32 or float64; any axes before are a batch. Up
to a few hundred rows are what it is for. A matrix for which there is no result (singular, not
positive definite) raises LinAlgError when it is computed, and all state is as before.
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
#: A number for all matrices, or a tensor of one for each.
Tolerance: TypeAlias = float | Tensor | None
_DRIVERS: Final = ("gels", "gelsy", "gelsd", "gelss")


class Checked(NamedTuple, Generic[_T]):
    """A result, and for each matrix 0, or 1 where there is none."""

    result: _T
    info: _T


class Factors(NamedTuple, Generic[_T]):
    """L and U in one, and which row each step exchanged its own with, counted from 1."""

    LU: _T
    pivots: _T


class LeastSquares(NamedTuple, Generic[_T]):
    """A solution, the squares that are left, the ranks, and no singular values."""

    solution: _T
    residuals: _T
    rank: _T
    singular_values: _T


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:  # noqa: N803 - torch's name
    """Give L of ``A = L @ L.mT`` of symmetric positive definite matrices; see ``Tensor.cholesky``.

    Only the lower triangle is read. The gradient is that of Murray, arXiv:1602.07527.
    """
    return tensor_of(A, "A").cholesky(upper)


def cholesky_ex(
    A: Tensor, *, upper: bool = False, check_errors: bool = False  # noqa: N803
) -> Checked[Tensor]:
    """Give what :func:`cholesky` does, and 1 where there is none."""
    x = tensor_of(A, "A")
    if check_errors:
        out = x.cholesky(upper)
    else:
        out = _of(x, functools.partial(nodes.cholesky, checked=False))
        out = out.mT if upper else out
    # An unchecked factor has a diagonal that is not positive where the checked one raises an error.
    positive = (out.detach().diagonal(0, -2, -1) > 0).all(-1)
    return Checked(out, (~positive).int())


def _faults(out: Tensor) -> Tensor:
    return (~out.detach().isfinite().all((-2, -1))).int()


@operation
def _of(x: Tensor, rule: Callable[..., Any]) -> Tensor:
    return x._of(rule(x.uop))  # noqa: SLF001 - one floor above the methods of Tensor


def det(A: Tensor) -> Tensor:  # noqa: N803
    """Give the determinants; see ``Tensor.det``."""
    return tensor_of(A, "A").det()


def slogdet(A: Tensor) -> SignedLog[Tensor]:  # noqa: N803
    """Give signs of determinants and logarithms of their magnitudes."""
    return tensor_of(A, "A").slogdet()


def inv(A: Tensor) -> Tensor:  # noqa: N803
    """Give the inverse matrices; LinAlgError where one is singular."""
    return tensor_of(A, "A").inverse()


def inv_ex(A: Tensor, *, check_errors: bool = False) -> Checked[Tensor]:  # noqa: N803
    """Give the inverse matrices, and 1 where there is none, which then are not finite."""
    out = tensor_of(A, "A")._inverted(checked=bool(check_errors))  # noqa: SLF001
    return Checked(out, _faults(out))


def pinv(
    A: Tensor, rcond: Tolerance = None, hermitian: bool = False, *,  # noqa: N803
    atol: Tolerance = None, rtol: Tolerance = None,
) -> Tensor:  # fmt: skip
    """Give the pseudo-inverses.

    Parameters
    ----------
    A : Tensor, shape (..., m, n)
        The matrices.
    rcond : float or Tensor, optional
        NumPy's name of `rtol`.
    hermitian : bool
        Whether matrices are symmetric, of which the lower triangle is read then.
    atol, rtol : float or Tensor, optional
        Singular values up to the greater of `atol` and `rtol` times the greatest one count as 0.
        Tensors have a number for each matrix. Without both, rtol is the greater of the sizes
        times the distance from 1 to the next number; with `atol` alone it is 0.
    """
    rtol = _either("rcond", rcond, "rtol", rtol)
    return _symmetric(A, hermitian)._pseudo_inverse(atol, rtol)  # noqa: SLF001


def _symmetric(A: Tensor, hermitian: bool) -> Tensor:  # noqa: N803
    """The matrices, made symmetric by their lower triangles where they are to be so."""
    x = tensor_of(A, "A")
    return x.tril() + x.tril(-1).mT if flag(hermitian, "hermitian") else x


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:  # noqa: N803
    """Give X of ``A @ X = B``, or of ``X @ A = B`` unless `left`.

    Parameters
    ----------
    A : Tensor, shape (..., n, n)
        The matrices.
    B : Tensor, shape (..., n, k), (..., n) or (n,)
        Right sides; vectors where they have an axis less and the shape of rows of `A`.
    left : bool
        On which side A stands.

    Raises
    ------
    LinAlgError
        When it is computed: a matrix is singular.

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
    """Give what :func:`solve` does, and 1 where it is none, which then is not finite."""
    x = tensor_of(A, "A")
    out = x._solved(B, left=left, checked=bool(check_errors))  # noqa: SLF001
    whole = out if out.ndim == max(x.ndim, 2) else out.unsqueeze(-1)
    return Checked(out, _faults(whole))


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True,  # noqa: N803
    unitriangular: bool = False,
) -> Tensor:  # fmt: skip
    """Give X of ``A @ X = B`` for triangular A, of which the other triangle is not read.

    A zero on the diagonal gives infinities and NaN.
    """
    return tensor_of(A, "A")._substituted(  # noqa: SLF001
        B, upper=bool(upper), left=bool(left), unit=bool(unitriangular)
    )


def qr(A: Tensor, mode: str = "reduced") -> QR[Tensor]:  # noqa: N803
    """Give Q and R of ``A = Q @ R``.

    Parameters
    ----------
    A : Tensor, shape (..., m, n)
        The matrices.
    mode : "reduced", "complete" or "r"
        Q has min(m, n) columns, or m, or is not wanted (and empty).
    """
    if mode not in ("reduced", "complete", "r"):
        raise ShapeError(f"mode: expected 'reduced', 'complete' or 'r', not {mode!r}")
    q, r = tensor_of(A, "A").qr(some=mode != "complete")
    return QR(zeros(0, dtype=A.dtype) if mode == "r" else q, r)


def eigh(A: Tensor, UPLO: str = "L") -> Eigen[Tensor]:  # noqa: N803
    """Give ascending eigenvalues of symmetric matrices, and vectors in columns.

    Parameters
    ----------
    A : Tensor, shape (..., n, n)
        Of which the lower triangle is read.
    UPLO : "L" or "U"
        The upper one instead.
    """
    if UPLO not in ("L", "U", "l", "u"):
        raise ShapeError(f"UPLO: expected 'L' or 'U', not {UPLO!r}")
    return tensor_of(A, "A")._eigen(upper=UPLO in "Uu")  # noqa: SLF001


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:  # noqa: N803
    """Give the eigenvalues of :func:`eigh`."""
    return eigh(A, UPLO).eigenvalues


def svd(A: Tensor, full_matrices: bool = True) -> SVD[Tensor]:  # noqa: N803
    """Give U, descending singular values and the transpose of V of ``A = U @ diag(S) @ Vh``.

    With `full_matrices` U and V are square; no gradient flows into the columns beyond. Gradients
    are those of Townsend, 2016, which equal singular values have not.
    """
    return SVD(*tensor_of(A, "A")._singular(full=bool(full_matrices)))  # noqa: SLF001


def svdvals(A: Tensor) -> Tensor:  # noqa: N803
    """Give the singular values of :func:`svd`."""
    return svd(A, False).S


def lstsq(
    A: Tensor, B: Tensor, rcond: Tolerance = None, *,  # noqa: N803
    driver: str | None = None,
) -> LeastSquares[Tensor]:  # fmt: skip
    """Give X that makes ``A @ X - B`` least, the shortest one where several do.

    Parameters
    ----------
    A : Tensor, shape (..., m, n)
        The matrices.
    B : Tensor, shape (..., m, k) or (..., m)
        Right sides; one for each matrix where B has one axis less than A.
    rcond : float or Tensor, optional
        As of :func:`pinv`, which this is made of.
    driver : {"gels", "gelsy", "gelsd", "gelss"}, optional
        PyTorch's name of a routine, all of which give this result where A has full rank. With
        "gelsd" and "gelss" the singular values come, too.

    Returns
    -------
    LeastSquares of (solution, residuals, rank, singular_values)
        X in the shape (..., n, k), or (..., n); the sums of squares of ``A @ X - B`` where m is
        greater than n, else nothing; the rank of each matrix; singular values, or nothing.
    """
    if driver not in (None, *_DRIVERS):
        raise ShapeError(f"driver: expected one of {', '.join(_DRIVERS)}, not {driver!r}")
    x, b = tensor_of(A, "A"), tensor_of(B, "B")
    single = b.ndim == x.ndim - 1 and b.shape == x.shape[:-1]
    b = b.unsqueeze(-1) if single else b
    if b.ndim < 2 or x.ndim < 2 or b.shape[-2] != x.shape[-2]:
        raise ShapeError(
            f"B: expected right sides of as many rows as A has, not shapes {format_shape(x.dims)} "
            f"and {format_shape(b.dims)}"
        )
    solution = x.pinverse(rcond) @ b
    rank = matrix_rank(x, rtol=rcond)
    over = int(x.shape[-2]) > int(x.shape[-1])
    none = zeros(0, dtype=x.dtype)
    rest = (x @ solution - b).square().sum(-2) if over else none
    values = svdvals(x.detach()) if driver in ("gelsd", "gelss") else none
    return LeastSquares(solution.squeeze(-1) if single else solution, rest, rank, values)


def _either(name: str, value: Tolerance, other: str, given: Tolerance) -> Tolerance:
    """What an option that has two names was set to."""
    if value is not None and given is not None:
        raise TypeError(f"{name} is another name of {other}; pass one of the two")
    return given if value is None else value


def matrix_rank(
    A: Tensor, tol: Tolerance = None, hermitian: bool = False, *,  # noqa: N803
    atol: Tolerance = None, rtol: Tolerance = None,
) -> Tensor:  # fmt: skip
    """Give how many singular values are above a limit, in int64.

    Parameters
    ----------
    A : Tensor, shape (..., m, n)
        The matrices.
    tol : float or Tensor, optional
        NumPy's name of `atol`.
    hermitian : bool
        Whether matrices are symmetric, of which the lower triangle is read then.
    atol, rtol : float or Tensor, optional
        The limit is the greater of `atol` and `rtol` times the greatest value. Tensors have a
        number for each matrix. Without both, rtol is the greater of the sizes times the distance
        from 1 to the next number; with `atol` alone it is 0.
    """
    atol = _either("tol", tol, "atol", atol)
    x = _symmetric(A, hermitian).detach()
    values = svdvals(x)
    if not int(values.shape[-1]):
        return values.sum(-1).long()
    limit = x._rank_limit(values.uop, atol, rtol)  # noqa: SLF001
    return (values > limit.unsqueeze(-1)).sum(-1)


def cond(A: Tensor, p: float | str | None = None) -> Tensor:  # noqa: N803
    """Give how much matrices enlarge errors: the norm times that of the inverse."""
    p = take_by_value(p)
    if p is None or p in (2, -2):
        values = svdvals(A)
        if not int(values.shape[-1]):
            return values.sum(-1)
        ends = values[..., 0], values[..., -1]
        return ends[0] / ends[1] if p != -2 else ends[1] / ends[0]
    return matrix_norm(A, p) * matrix_norm(inv(A), p)


def matrix_power(A: Tensor, n: int) -> Tensor:  # noqa: N803
    """Give the product of `n` equal factors; see ``Tensor.matrix_power``."""
    return tensor_of(A, "A").matrix_power(n)


def matrix_exp(A: Tensor) -> Tensor:  # noqa: N803
    """Give the exponential of each matrix; see ``Tensor.matrix_exp``."""
    return tensor_of(A, "A").matrix_exp()


def lu(A: Tensor, *, pivot: bool = True) -> Decomposition[Tensor]:  # noqa: N803
    """Give P, L and U of ``A = P @ L @ U``; see ``Tensor.lu``.

    Rows are exchanged: another `pivot` than True is refused, as PyTorch does on a CPU.
    """
    _check_pivot(pivot, "lu")
    return tensor_of(A, "A").lu()


def _check_pivot(pivot: bool, name: str) -> None:
    if not flag(pivot, "pivot"):
        raise LinAlgError(f"{name}: pivot: expected True; there are no factors without exchanges")


@operation
def lu_factor(A: Tensor, *, pivot: bool = True) -> Factors[Tensor]:  # noqa: N803
    """Give L and U in one, and the exchanges of rows, for :func:`lu_solve`; see :func:`lu`."""
    _check_pivot(pivot, "lu_factor")
    packed, _, taken = nodes.lu(tensor_of(A, "A").uop)
    return Factors(A._of(packed), A._of(taken).int())  # noqa: SLF001


def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False  # noqa: N803
) -> Tensor:
    """Give X of ``A @ X = B`` from the factors of A that :func:`lu_factor` gives.

    Parameters
    ----------
    LU, pivots : Tensor
        The factors, of shape (..., n, n), and the exchanges, of shape (..., n).
    B : Tensor, shape (..., n, k)
        Right sides.
    left : bool
        Or X of ``X @ A = B``.
    adjoint : bool
        The transpose of A in the place of A.
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
    """Give the cross products of vectors along an axis of 3 elements."""
    return tensor_of(input, "input").cross(other, dim=dim)


def matmul(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """Give the matrix product; see ``Tensor.matmul``."""
    return tensor_of(input, "input").matmul(other)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Give the sums of products along an axis."""
    return (tensor_of(x, "x") * y).sum(dim)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:  # noqa: N803
    """Give powers 0 to N - 1 of each element, in a last axis; N is the size of the last one."""
    x = x.reshape(1) if x.ndim == 0 else x
    count = int(x.shape[-1]) if N is None else integer(N, "N", 2)
    return x.unsqueeze(-1) ** arange(count)


def diagonal(
    A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1  # noqa: N803
) -> Tensor:
    """Give the diagonals of matrices in two axes; see ``Tensor.diagonal``."""
    return tensor_of(A, "A").diagonal(offset, dim1, dim2)


if not TYPE_CHECKING:  # else any name would pass for one that is there
    __getattr__ = of_module(__name__, LINALG, __all__)

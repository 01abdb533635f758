"""Linear algebra for small matrices, with the names of ``torch.linalg``.

Matrices are the last two axes of float32 or float64 tensors; other axes are batch axes. The
algorithms are made for matrices of up to a few hundred rows. A matrix without a result (singular,
not positive definite) raises LinAlgError when the result is computed; all state stays unchanged.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from kernelrt.errors import DomainError, LinAlgError, ShapeError
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
    """A result, and for each matrix `info`: 0 if the result is valid, else 1.

    Attributes
    ----------
    result : Tensor
        Result for all matrices.
    info : Tensor
        int32 of the batch shape.
    """

    result: _T
    info: _T


class CheckedInverse(NamedTuple, Generic[_T]):
    """Inverses, and for each matrix `info`: 0 if its inverse is valid, else 1.

    Attributes
    ----------
    inverse : Tensor
        Inverses of all matrices.
    info : Tensor
        int32 of the batch shape.
    """

    inverse: _T
    info: _T


class CheckedCholesky(NamedTuple, Generic[_T]):
    """Cholesky factors, and for each matrix `info`: 0 if its factor is valid, else 1.

    Attributes
    ----------
    L : Tensor
        Factors of all matrices.
    info : Tensor
        int32 of the batch shape.
    """

    L: _T
    info: _T


class Factors(NamedTuple, Generic[_T]):
    """L and U in one matrix, and the pivots: step i swapped row i with row ``pivots[i]``.

    Attributes
    ----------
    LU : Tensor
        L without its unit diagonal below, U on and above the diagonal, shape (..., m, n).
    pivots : Tensor
        int32 of shape (..., min(m, n)). Steps and rows are counted from 1.
    """

    LU: _T
    pivots: _T


class LeastSquares(NamedTuple, Generic[_T]):
    """A solution, the residual sums of squares, the ranks, and the singular values.

    Attributes
    ----------
    solution : Tensor
        Solution, shape (..., n, k) or (..., n).
    residuals : Tensor
        Sums of squares of ``A @ X - B``, or an empty tensor.
    rank : Tensor
        int64 of the batch shape.
    singular_values : Tensor
        Singular values, or an empty tensor.
    """

    solution: _T
    residuals: _T
    rank: _T
    singular_values: _T


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:  # noqa: N803 - torch's name
    """Return L of ``A = L @ L.mT`` for symmetric positive definite matrices.

    Only the lower triangle is read. The gradient follows Murray (Differentiation of the Cholesky
    decomposition, arXiv:1602.07527, 2016). See ``Tensor.cholesky``.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., n, n)
        Matrices.
    upper : bool
        Whether to return the upper triangular ``L.mT`` instead.

    Returns
    -------
    Tensor
        Triangular matrices of the shape and dtype of `A`.

    Raises
    ------
    DTypeError
        `A` is not float32 or float64.
    ShapeError
        `A` does not hold square matrices.
    LinAlgError
        When the result is computed: a matrix is not positive definite, or holds NaN.

    Examples
    --------
    >>> a = krt.tensor([[4.0, 2.0], [2.0, 2.0]])
    >>> krt.linalg.cholesky(a).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    return tensor_of(A, "A").cholesky(upper)


def cholesky_ex(
    A: Tensor, *, upper: bool = False, check_errors: bool = False  # noqa: N803
) -> CheckedCholesky[Tensor]:
    """Return the Cholesky factors, and `info`: 1 for a matrix without a factor, else 0.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., n, n)
        Symmetric matrices; only the lower triangle is read.
    upper : bool
        Whether to return upper triangular factors.
    check_errors : bool
        Whether to raise LinAlgError as :func:`cholesky` does.

    Returns
    -------
    CheckedCholesky of (L, info)
        Factors of the shape and dtype of `A`, and int32 of the batch shape.

    Examples
    --------
    >>> krt.linalg.cholesky_ex(krt.tensor([[4.0]])).L.tolist()
    [[2.0]]
    >>> krt.linalg.cholesky_ex(krt.tensor([[-4.0]])).info.item()
    1
    """
    x = tensor_of(A, "A")
    if check_errors:
        out = x.cholesky(upper)
    else:
        out = _of(x, functools.partial(nodes.cholesky, checked=False))
        out = out.mT if upper else out
    # If the checked factorization would raise, the unchecked factor has a non-positive diagonal.
    positive = (out.detach().diagonal(0, -2, -1) > 0).all(-1)
    return CheckedCholesky(out, (~positive).int())


def _faults(out: Tensor) -> Tensor:
    return (~out.detach().isfinite().all((-2, -1))).int()


@operation
def _of(x: Tensor, rule: Callable[..., Any]) -> Tensor:
    return x._of(rule(x.uop))  # noqa: SLF001 - one layer above the methods of Tensor


def det(A: Tensor) -> Tensor:  # noqa: N803
    """Return the determinants; see ``Tensor.det``.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., n, n)
        Matrices.

    Returns
    -------
    Tensor
        One number for each matrix: the batch shape, in the dtype of `A`.

    Raises
    ------
    DTypeError
        `A` is not float32 or float64.
    ShapeError
        `A` does not hold square matrices.

    Examples
    --------
    >>> krt.linalg.det(krt.tensor([[4.0, 2.0], [2.0, 2.0]])).item()
    4.0
    """
    return tensor_of(A, "A").det()


def slogdet(A: Tensor) -> SignedLog[Tensor]:  # noqa: N803
    """Return the signs of the determinants and the logarithms of their absolute values.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., n, n)
        Matrices.

    Returns
    -------
    SignedLog of (sign, logabsdet)
        -1, 0 or 1, and natural logarithms (``-inf`` for a determinant of 0), of the batch shape.

    Raises
    ------
    DTypeError
        `A` is not float32 or float64.
    ShapeError
        `A` does not hold square matrices.

    Examples
    --------
    >>> sign, size = krt.linalg.slogdet(krt.tensor([[0.0, 2.0], [2.0, 0.0]]))
    >>> sign.item(), round(size.exp().item(), 4)
    (-1.0, 4.0)
    """
    return tensor_of(A, "A").slogdet()


def inv(A: Tensor) -> Tensor:  # noqa: N803
    """Return the inverse matrices.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., n, n)
        Matrices.

    Returns
    -------
    Tensor
        Inverses of the shape and dtype of `A`.

    Raises
    ------
    DTypeError
        `A` is not float32 or float64.
    ShapeError
        `A` does not hold square matrices.
    LinAlgError
        When the result is computed: a matrix is singular, or holds NaN.

    Examples
    --------
    >>> krt.linalg.inv(krt.tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return tensor_of(A, "A").inverse()


def inv_ex(A: Tensor, *, check_errors: bool = False) -> CheckedInverse[Tensor]:  # noqa: N803
    """Return the inverses, and `info`: 1 for a singular matrix (its result is not finite), else 0.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., n, n)
        Matrices.
    check_errors : bool
        Whether to raise LinAlgError as :func:`inv` does.

    Returns
    -------
    CheckedInverse of (inverse, info)
        Inverses of the shape and dtype of `A`, and int32 of the batch shape.

    Examples
    --------
    >>> krt.linalg.inv_ex(krt.tensor([[[2.0]], [[0.0]]])).info.tolist()
    [0, 1]
    """
    out = tensor_of(A, "A")._inverted(checked=bool(check_errors))  # noqa: SLF001
    return CheckedInverse(out, _faults(out))


def pinv(
    A: Tensor, rcond: Tolerance = None, hermitian: bool = False, *,  # noqa: N803
    atol: Tolerance = None, rtol: Tolerance = None,
) -> Tensor:  # fmt: skip
    """Return the pseudo-inverses.

    The pseudo-inverse (Moore-Penrose) comes from the singular value decomposition.

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

    Returns
    -------
    Tensor
        Pseudo-inverses of shape (..., n, m), in the dtype of `A`.

    Raises
    ------
    TypeError
        Both `rcond` and `rtol` are given.

    Examples
    --------
    >>> a = krt.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 4.0]])
    >>> (krt.linalg.pinv(a) @ a).round(decimals=4).abs().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
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

    Returns
    -------
    Tensor
        X, of the shape of `B` with the batch axes broadcast, in the dtype of `A`.

    Raises
    ------
    DTypeError
        `A` or `B` is not float32 or float64, or their dtypes differ.
    ShapeError
        `A` does not hold square matrices, or sizes of `A` and `B` differ.
    LinAlgError
        When the result is computed: a matrix is singular.

    Examples
    --------
    >>> krt.linalg.solve(krt.tensor([[2.0, 0.0], [0.0, 4.0]]), krt.tensor([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    return tensor_of(A, "A")._solved(B, left=left, checked=True)  # noqa: SLF001


def solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False  # noqa: N803
) -> Checked[Tensor]:
    """Return X of :func:`solve`, and `info`: 1 for a singular matrix (X is not finite), else 0.

    Parameters
    ----------
    A, B : Tensor of float32 or float64
        Matrices and right-hand sides, as in :func:`solve`.
    left : bool
        Whether A is the left factor.
    check_errors : bool
        Whether to raise LinAlgError as :func:`solve` does.

    Returns
    -------
    Checked of (result, info)
        X, and int32 of the batch shape.

    Examples
    --------
    >>> a = krt.tensor([[[2.0]], [[0.0]]])
    >>> x, info = krt.linalg.solve_ex(a, krt.tensor([[[4.0]], [[4.0]]]))
    >>> x[0].tolist(), info.tolist()
    ([[2.0]], [0, 1])
    """
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

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., n, n)
        Triangular matrices.
    B : Tensor of float32 or float64, shape (..., n, k)
        Right-hand sides; (..., k, n) if `left` is false.
    upper : bool
        Whether the upper triangle of `A` is read.
    left : bool
        If false, solve ``X @ A = B`` instead.
    unitriangular : bool
        Whether the diagonal counts as ones, and is not read.

    Returns
    -------
    Tensor
        X, of the shape of `B` with the batch axes broadcast.

    Raises
    ------
    DTypeError, ShapeError
        As in :func:`solve`.

    Examples
    --------
    >>> a = krt.tensor([[2.0, 0.0], [1.0, 4.0]])
    >>> krt.linalg.solve_triangular(a, krt.tensor([[2.0], [9.0]]), upper=False).tolist()
    [[1.0], [2.0]]
    """
    return tensor_of(A, "A")._substituted(  # noqa: SLF001
        B, upper=bool(upper), left=bool(left), unit=bool(unitriangular)
    )


def qr(A: Tensor, mode: str = "reduced") -> QR[Tensor]:  # noqa: N803
    """Return Q and R of ``A = Q @ R``.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., m, n)
        Matrices.
    mode : "reduced", "complete" or "r"
        Q has min(m, n) columns ("reduced"), m columns ("complete"), or is empty ("r").

    Returns
    -------
    QR of (Q, R)
        Q with orthonormal columns, and upper triangular R.

    Raises
    ------
    DomainError
        `mode` is not one of the three.

    Examples
    --------
    >>> a = krt.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> q, r = krt.linalg.qr(a)
    >>> q.shape, r.shape, (q @ r).round(decimals=4).tolist()
    ((3, 2), (2, 2), [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    """
    if mode not in ("reduced", "complete", "r"):
        raise DomainError(f"mode: expected 'reduced', 'complete' or 'r', not {mode!r}")
    q, r = tensor_of(A, "A").qr(some=mode != "complete")
    return QR(zeros(0, dtype=A.dtype) if mode == "r" else q, r)


def eigh(A: Tensor, UPLO: str = "L") -> Eigen[Tensor]:  # noqa: N803
    """Return the ascending eigenvalues of symmetric matrices, and the eigenvectors as columns.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., n, n)
        Symmetric matrices.
    UPLO : "L" or "U"
        Whether the lower or the upper triangle is read.

    Returns
    -------
    Eigen of (eigenvalues, eigenvectors)
        Tensors of shape (..., n) and (..., n, n), in the dtype of `A`.

    Raises
    ------
    DTypeError
        `A` is not float32 or float64.
    ShapeError
        `A` does not hold square matrices.
    LinAlgError
        When the result is computed: a matrix holds numbers that are not finite.

    Examples
    --------
    >>> values, vectors = krt.linalg.eigh(krt.tensor([[2.0, 0.0], [0.0, 1.0]]))
    >>> values.tolist(), vectors.abs().tolist()
    ([1.0, 2.0], [[0.0, 1.0], [1.0, 0.0]])
    """
    if UPLO not in ("L", "U", "l", "u"):
        raise DomainError(f"UPLO: expected 'L' or 'U', not {UPLO!r}")
    return tensor_of(A, "A")._eigen(upper=UPLO in "Uu")  # noqa: SLF001


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:  # noqa: N803
    """Return the ascending eigenvalues of symmetric matrices; see :func:`eigh`.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., n, n)
        Symmetric matrices.
    UPLO : "L" or "U"
        Whether the lower or the upper triangle is read.

    Returns
    -------
    Tensor
        Eigenvalues of shape (..., n), in the dtype of `A`.

    Examples
    --------
    >>> krt.linalg.eigvalsh(krt.tensor([[1.0, 2.0], [2.0, 1.0]])).round(decimals=4).tolist()
    [-1.0, 3.0]
    """
    return eigh(A, UPLO).eigenvalues


def svd(A: Tensor, full_matrices: bool = True) -> SVD[Tensor]:  # noqa: N803
    """Return U, descending singular values S, and Vh of ``A = U @ diag(S) @ Vh``.

    With `full_matrices`, U and V are square; no gradient flows into the additional columns.
    Gradients follow Townsend (Differentiating the Singular Value Decomposition, 2016), and do not
    exist for equal singular values.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., m, n)
        Matrices.
    full_matrices : bool
        Whether U has m columns and Vh n rows; otherwise both have min(m, n).

    Returns
    -------
    SVD of (U, S, Vh)
        Tensors in the dtype of `A`; S has shape (..., min(m, n)).

    Raises
    ------
    LinAlgError
        When the result is computed: a matrix holds numbers that are not finite.

    Examples
    --------
    >>> u, s, vh = krt.linalg.svd(krt.tensor([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]]))
    >>> u.shape, s.round(decimals=4).tolist(), vh.shape
    ((3, 3), [4.0, 3.0], (2, 2))
    """
    return SVD(*tensor_of(A, "A")._singular(full=bool(full_matrices)))  # noqa: SLF001


def svdvals(A: Tensor) -> Tensor:  # noqa: N803
    """Return the descending singular values; see :func:`svd`.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., m, n)
        Matrices.

    Returns
    -------
    Tensor
        Singular values of shape (..., min(m, n)), in the dtype of `A`.

    Examples
    --------
    >>> krt.linalg.svdvals(krt.tensor([[3.0, 0.0], [0.0, -4.0]])).round(decimals=4).tolist()
    [4.0, 3.0]
    """
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
        X has shape (..., n, k) or (..., n). The residuals are the sums of squares of ``A @ X - B``
        if m is greater than n, else an empty tensor. The rank is one number for each matrix. The
        singular values are an empty tensor unless `driver` asks for them.

    Raises
    ------
    DomainError
        `driver` is unknown.
    ShapeError
        `A` and `B` have different numbers of rows.

    Examples
    --------
    A line through the points (0, 1), (1, 3) and (2, 5):

    >>> a = krt.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> found = krt.linalg.lstsq(a, krt.tensor([1.0, 3.0, 5.0]))
    >>> found.solution.round(decimals=4).tolist(), found.rank.item()
    ([1.0, 2.0], 2)
    """
    if driver not in (None, *_DRIVERS):
        raise DomainError(f"driver: expected one of {', '.join(_DRIVERS)}, not {driver!r}")
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
        raise TypeError(f"{name} is an alias of {other}, but both are given; pass one of the two")
    return given if value is None else value


def matrix_rank(
    A: Tensor, tol: Tolerance = None, hermitian: bool = False, *,  # noqa: N803
    atol: Tolerance = None, rtol: Tolerance = None,
) -> Tensor:  # fmt: skip
    """Return the ranks of matrices: the numbers of singular values above a limit.

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

    Returns
    -------
    Tensor
        int64 of the batch shape.

    Raises
    ------
    TypeError
        Both `tol` and `atol` are given.

    Examples
    --------
    >>> krt.linalg.matrix_rank(krt.ones(3, 3)).item()
    1
    """
    atol = _either("tol", tol, "atol", atol)
    x = _symmetric(A, hermitian).detach()
    values = svdvals(x)
    if not int(values.shape[-1]):
        return values.sum(-1).long()
    limit = x._rank_limit(values.uop, atol, rtol)  # noqa: SLF001
    return (values > limit.unsqueeze(-1)).sum(-1)


def cond(A: Tensor, p: float | str | None = None) -> Tensor:  # noqa: N803
    """Return the condition number: the norm of the matrix times the norm of its inverse.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., m, n)
        Matrices; square, unless `p` is None, 2 or -2.
    p : None, 1, -1, 2, -2, inf, -inf, "fro" or "nuc"
        Norm, as in :func:`matrix_norm`. None is 2: the largest singular value divided by the
        smallest.

    Returns
    -------
    Tensor
        One number for each matrix: the batch shape, in the dtype of `A`.

    Raises
    ------
    LinAlgError
        When the result is computed: a matrix is singular, for a `p` other than None, 2 and -2.

    Examples
    --------
    >>> round(krt.linalg.cond(krt.tensor([[4.0, 0.0], [0.0, 2.0]])).item(), 4)
    2.0
    """
    p = take_by_value(p)
    if p is None or p in (2, -2):
        values = svdvals(A)
        if not int(values.shape[-1]):
            return values.sum(-1)
        ends = values[..., 0], values[..., -1]
        return ends[0] / ends[1] if p != -2 else ends[1] / ends[0]
    return matrix_norm(A, p) * matrix_norm(inv(A), p)


def matrix_power(A: Tensor, n: int) -> Tensor:  # noqa: N803
    """Return matrices raised to the power `n`; see ``Tensor.matrix_power``.

    Parameters
    ----------
    A : Tensor, shape (..., m, m)
        Matrices.
    n : int
        Exponent. For a negative one, the inverses are raised to the power ``-n``.

    Returns
    -------
    Tensor
        Matrices of the shape and dtype of `A`; identity matrices for 0.

    Raises
    ------
    LinAlgError
        When the result is computed: `n` is negative and a matrix is singular.

    Examples
    --------
    >>> krt.linalg.matrix_power(krt.tensor([[1.0, 1.0], [0.0, 1.0]]), 3).tolist()
    [[1.0, 3.0], [0.0, 1.0]]
    """
    return tensor_of(A, "A").matrix_power(n)


def matrix_exp(A: Tensor) -> Tensor:  # noqa: N803
    """Return the matrix exponentials; see ``Tensor.matrix_exp``.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., n, n)
        Matrices.

    Returns
    -------
    Tensor
        Matrices of the shape and dtype of `A`.

    Examples
    --------
    >>> krt.linalg.matrix_exp(krt.tensor([[0.0, 3.0], [0.0, 0.0]])).round(decimals=4).tolist()
    [[1.0, 3.0], [0.0, 1.0]]
    """
    return tensor_of(A, "A").matrix_exp()


def lu(A: Tensor, *, pivot: bool = True) -> Decomposition[Tensor]:  # noqa: N803
    """Return P, L and U of ``A = P @ L @ U``; see ``Tensor.lu``.

    Rows are pivoted; as in PyTorch on a CPU, `pivot` must be True.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., m, n)
        Matrices.
    pivot : bool
        Must be True.

    Returns
    -------
    Decomposition of (P, L, U)
        Permutation matrices of shape (..., m, m), lower triangular matrices of shape (..., m, k)
        with ones on the diagonal, and upper triangular matrices of shape (..., k, n), where k is
        min(m, n).

    Raises
    ------
    LinAlgError
        `pivot` is False.

    Examples
    --------
    >>> p, l, u = krt.linalg.lu(krt.tensor([[2.0, 2.0], [4.0, 2.0]]))
    >>> p.tolist(), l.tolist(), u.tolist()
    ([[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.5, 1.0]], [[4.0, 2.0], [0.0, 1.0]])
    """
    _check_pivot(pivot, "lu")
    return tensor_of(A, "A").lu()


def _check_pivot(pivot: bool, name: str) -> None:
    if not flag(pivot, "pivot"):
        raise LinAlgError(
            f"{name}: pivot: expected True, not False; factorization without pivoting is not "
            "implemented"
        )


@operation
def lu_factor(A: Tensor, *, pivot: bool = True) -> Factors[Tensor]:  # noqa: N803
    """Return L and U in one matrix, and the pivots, for :func:`lu_solve`; see :func:`lu`.

    Parameters
    ----------
    A : Tensor of float32 or float64, shape (..., m, n)
        Matrices.
    pivot : bool
        Must be True.

    Returns
    -------
    Factors of (LU, pivots)
        Matrices of the shape of `A`, and int32 of shape (..., min(m, n)): element i is the row that
        step i swapped with row i, both counted from 1.

    Raises
    ------
    LinAlgError
        `pivot` is False.

    Examples
    --------
    >>> packed, pivots = krt.linalg.lu_factor(krt.tensor([[2.0, 2.0], [4.0, 2.0]]))
    >>> packed.tolist(), pivots.tolist()
    ([[4.0, 2.0], [0.5, 1.0]], [2, 2])
    """
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

    Returns
    -------
    Tensor
        X, of the shape and dtype of `B`.

    Examples
    --------
    >>> packed, pivots = krt.linalg.lu_factor(krt.tensor([[2.0, 2.0], [4.0, 2.0]]))
    >>> krt.linalg.lu_solve(packed, pivots, krt.tensor([[4.0], [6.0]])).tolist()
    [[1.0], [1.0]]
    """
    packed, taken, right = tensor_of(LU, "LU"), tensor_of(pivots, "pivots"), tensor_of(B, "B")
    if not left:
        return lu_solve(packed, taken, right.mT, adjoint=not adjoint).mT
    if adjoint:
        packed._batched(packed, right, "lu_solve")  # noqa: SLF001
        half = solve_triangular(packed.mT, right, upper=False)
        half = solve_triangular(packed.mT, half, upper=True, unitriangular=True)
        return half._exchanged(taken, back=True)  # noqa: SLF001
    return right.lu_solve(packed, taken)


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:  # noqa: A002
    """Return the cross products of vectors along an axis of 3 elements.

    Parameters
    ----------
    input, other : Tensor
        Vectors, of shapes that broadcast.
    dim : int
        Axis of size 3.

    Returns
    -------
    Tensor
        Vectors of the broadcast shape.

    Raises
    ------
    ShapeError
        The axis does not have size 3.

    Examples
    --------
    >>> x, y = krt.tensor([1.0, 0.0, 0.0]), krt.tensor([0.0, 1.0, 0.0])
    >>> krt.linalg.cross(x, y).tolist()
    [0.0, 0.0, 1.0]
    """
    return tensor_of(input, "input").cross(other, dim=dim)


def matmul(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """Return the matrix product; see ``Tensor.matmul``.

    Parameters
    ----------
    input, other : Tensor
        Matrices of shapes (..., n, k) and (..., k, m); or vectors, of shape (k,).

    Returns
    -------
    Tensor
        Products of shape (..., n, m), without the axis of a vector.

    Raises
    ------
    ShapeError
        The sizes of the axes that are summed over differ.

    Examples
    --------
    >>> krt.linalg.matmul(krt.tensor([[1.0, 2.0], [3.0, 4.0]]), krt.tensor([1.0, 1.0])).tolist()
    [3.0, 7.0]
    """
    return tensor_of(input, "input").matmul(other)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Return the dot products along an axis.

    Parameters
    ----------
    x, y : Tensor
        Vectors, of shapes that broadcast.
    dim : int
        Axis of the vectors.

    Returns
    -------
    Tensor
        The broadcast shape without the axis.

    Examples
    --------
    >>> krt.linalg.vecdot(krt.tensor([[1.0, 2.0], [3.0, 4.0]]), krt.tensor([1.0, 10.0])).tolist()
    [21.0, 43.0]
    """
    return (tensor_of(x, "x") * y).sum(dim)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:  # noqa: N803
    """Return powers 0 to N - 1 of each element along a new last axis.

    Parameters
    ----------
    x : Tensor, shape (..., n)
        Numbers.
    N : int, optional
        Number of powers, at least 2; by default the size of the last axis of `x`.

    Returns
    -------
    Tensor
        Powers of shape (..., n, N).

    Raises
    ------
    ShapeError
        `N` is below 2.

    Examples
    --------
    >>> krt.linalg.vander(krt.tensor([2.0, 3.0]), N=3).tolist()
    [[1.0, 2.0, 4.0], [1.0, 3.0, 9.0]]
    """
    x = x.reshape(1) if x.ndim == 0 else x
    count = int(x.shape[-1]) if N is None else integer(N, "N", 2)
    return x.unsqueeze(-1) ** arange(count)


def diagonal(
    A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1  # noqa: N803
) -> Tensor:
    """Return a diagonal of the matrices in axes `dim1` and `dim2`; see ``Tensor.diagonal``.

    Parameters
    ----------
    A : Tensor
        Tensor of at least two axes.
    offset : int
        Diagonal: 0 is the main one, positive numbers are above it.
    dim1, dim2 : int
        Axes of rows and of columns.

    Returns
    -------
    Tensor
        The other axes, followed by the axis of the diagonal; a view if possible.

    Examples
    --------
    >>> krt.linalg.diagonal(krt.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [1.0, 4.0]
    """
    return tensor_of(A, "A").diagonal(offset, dim1, dim2)


if not TYPE_CHECKING:  # type checkers would accept any name if they saw __getattr__
    __getattr__ = of_module(__name__, LINALG, __all__)

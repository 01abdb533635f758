"""Matrix decompositions, inverses, determinants and solvers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Self, TypeVar

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.origin import spread
from kernelrt.ir.shape import broadcast, format_shape
from kernelrt.tensor import views
from kernelrt.tensor.free_functions import joining
from kernelrt.tensor.nodes import build, composite_ops, matrix_ops
from kernelrt.tensor.nodes.arguments import flag, integer
from kernelrt.tensor.operation import operation, operations

if TYPE_CHECKING:
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.methods.conversion import ConversionMethods as _Below
    from kernelrt.tensor.tensor import Tensor
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["QR", "SVD", "Decomposition", "Eigen", "LinalgMethods", "SVDFactors", "SignedLog",
           "lu_unpack"]  # fmt: skip

_T = TypeVar("_T")


class SignedLog(NamedTuple, Generic[_T]):
    """Result of slogdet: signs of determinants, and logarithms of their absolute values.

    Attributes
    ----------
    sign : Tensor
        -1, 0 or 1 for each matrix.
    logabsdet : Tensor
        Logarithm of the absolute value; minus infinity for a determinant of 0.

    Examples
    --------
    >>> sign, size = krt.tensor([[0.0, 1.0], [1.0, 0.0]]).slogdet()
    >>> sign.item(), size.item()
    (-1.0, 0.0)
    """

    sign: _T
    logabsdet: _T


class QR(NamedTuple, Generic[_T]):
    """Result of a QR decomposition: orthonormal columns, and an upper triangular matrix.

    Attributes
    ----------
    Q : Tensor
        Matrices with orthonormal columns.
    R : Tensor
        Upper triangular matrices.

    Examples
    --------
    >>> q, r = krt.linalg.qr(krt.ones(3, 2))
    >>> q.shape, r.shape
    ((3, 2), (2, 2))
    """

    Q: _T
    R: _T


class Eigen(NamedTuple, Generic[_T]):
    """Result of an eigendecomposition: ascending eigenvalues, and eigenvectors as columns.

    Attributes
    ----------
    eigenvalues : Tensor
        Vectors of shape (..., n).
    eigenvectors : Tensor
        Matrices of shape (..., n, n); column i belongs to eigenvalue i.

    Examples
    --------
    >>> krt.linalg.eigh(krt.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """

    eigenvalues: _T
    eigenvectors: _T


class SVD(NamedTuple, Generic[_T]):
    """Result of a singular value decomposition; the singular values are in descending order.

    Attributes
    ----------
    U : Tensor
        Matrices with orthonormal columns.
    S : Tensor
        Singular values, of shape (..., k) for k the lesser matrix size.
    Vh : Tensor
        Matrices with orthonormal rows; :class:`SVDFactors` has their transposes.

    Examples
    --------
    >>> krt.linalg.svd(krt.tensor([[3.0, 0.0], [0.0, 4.0]])).S.tolist()
    [4.0, 3.0]
    """

    U: _T
    S: _T
    Vh: _T


class SVDFactors(NamedTuple, Generic[_T]):
    """Result of :meth:`LinalgMethods.svd`, with V instead of its transpose.

    Attributes
    ----------
    U : Tensor
        Matrices with orthonormal columns.
    S : Tensor
        Singular values, of shape (..., k) for k the lesser matrix size; they descend.
    V : Tensor
        Matrices with orthonormal columns: ``A = U @ S.diag_embed() @ V.mT``.

    Examples
    --------
    >>> krt.tensor([[3.0, 0.0], [0.0, 4.0]]).svd().V.abs().tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    U: _T
    S: _T
    V: _T


class Decomposition(NamedTuple, Generic[_T]):
    """Result of an LU decomposition: the factors of ``A = P @ L @ U``.

    Attributes
    ----------
    P : Tensor
        Permutation matrices.
    L : Tensor
        Lower triangular matrices with ones on the diagonal.
    U : Tensor
        Upper triangular matrices.

    Examples
    --------
    >>> p, lower, upper = krt.tensor([[4.0, 2.0], [2.0, 3.0]]).lu()
    >>> (p @ lower @ upper).tolist()
    [[4.0, 2.0], [2.0, 3.0]]
    """

    P: _T
    L: _T
    U: _T


#: Coefficients of the numerators of Pade approximants of exp, and the norms up to which their error
#: is below the rounding of float32 and of float64 (Higham, SIAM J. Matrix Anal. Appl. 26, 2005).
_PADE: Final = {
    dt.float32: ((17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0),
                 3.925724783138660),
    dt.float64: ((64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
                  129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0,
                  1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0), 5.371920351148152),
}  # fmt: skip
#: Limit of squarings. Beyond it, for norms above some 20,000, powers of e are infinite, or no digit
#: of the result is correct.
_SQUARINGS: Final = 12


@operations()
class LinalgMethods(_Below):
    """Linear algebra of small matrices in the last two axes; leading axes are a batch."""

    __slots__ = ()

    # ---- determinants and inverses

    def det(self) -> Self:
        """Return the determinants; beyond size 3 x 3, the gradient of a determinant of 0 is NaN.

        Returns
        -------
        Tensor
            Shape (...) for square matrices of shape (..., n, n); float32 or float64, as this
            tensor.

        Raises
        ------
        ShapeError
            The matrices are not square.
        DTypeError
            This tensor is neither float32 nor float64.

        Examples
        --------
        >>> krt.tensor([[4.0, 2.0], [2.0, 3.0]]).det().item()
        8.0
        """
        return self._of(matrix_ops.determinant(self.uop))

    def slogdet(self) -> SignedLog[Self]:
        """Return the sign of each determinant, and the logarithm of its absolute value.

        The sign is 0 where the absolute value is 0 or NaN.

        Returns
        -------
        SignedLog of (sign, logabsdet)
            Both of shape (...) for square matrices of shape (..., n, n); float32 or float64, as
            this tensor.

        Raises
        ------
        ShapeError
            The matrices are not square.
        DTypeError
            This tensor is neither float32 nor float64.

        Examples
        --------
        >>> sign, size = krt.tensor([[4.0, 2.0], [2.0, 3.0]], dtype="float64").slogdet()
        >>> sign.item(), size.round(decimals=4).item()
        (1.0, 2.0794)
        """
        sign, size = matrix_ops.log_determinant(self.uop)
        return SignedLog(self._of(sign), self._of(size))

    def logdet(self) -> Self:
        """Return the logarithms of the determinants; NaN for negative determinants.

        Returns
        -------
        Tensor
            Shape (...) for square matrices of shape (..., n, n); float32 or float64, as this
            tensor.

        Raises
        ------
        ShapeError
            The matrices are not square.
        DTypeError
            This tensor is neither float32 nor float64.

        Examples
        --------
        >>> x = krt.tensor([[4.0, 2.0], [2.0, 3.0]], dtype="float64")
        >>> x.logdet().round(decimals=4).item()
        2.0794
        """
        sign, size = matrix_ops.log_determinant(self.uop)
        return self._of(build.where(sign.alu(Op.LT, build.zeros_like(sign)), math.nan, size))

    def inverse(self) -> Self:
        """Return the inverse matrices.

        Returns
        -------
        Tensor
            Same shape, (..., n, n), and dtype, float32 or float64.

        Raises
        ------
        ShapeError
            The matrices are not square.
        DTypeError
            This tensor is neither float32 nor float64.
        LinAlgError
            At run time, if a matrix is singular.

        Examples
        --------
        >>> krt.tensor([[4.0, 2.0], [2.0, 3.0]]).inverse().tolist()
        [[0.375, -0.25], [-0.25, 0.5]]
        """
        return self._inverted(checked=True)

    def _inverted(self, *, checked: bool) -> Self:
        node = self.uop
        matrix_ops.matrices(node, "inv", square=True)
        return self._of(matrix_ops.solve(node, matrix_ops.eye_like(node), checked=checked))

    def pinverse(self, rcond: float | TensorBase | None = None) -> Self:
        """Return the pseudo-inverses of the matrices.

        Parameters
        ----------
        rcond : float or Tensor, optional
            Relative tolerance: singular values up to `rcond` times the greatest one count as 0. The
            default is the greater of the two matrix sizes times the distance from 1 to the next
            number of the dtype. A tensor gives one tolerance for each matrix.

        Returns
        -------
        Tensor
            Shape (..., n, m) for shape (..., m, n); same dtype, float32 or float64.

        Raises
        ------
        DTypeError
            This tensor is neither float32 nor float64, or `rcond` is a bool.

        Examples
        --------
        >>> x = krt.tensor([[2.0, 0.0], [0.0, 0.0]], dtype="float64")
        >>> x.pinverse().round(decimals=4).tolist()
        [[0.5, 0.0], [0.0, 0.0]]
        """
        return self._pseudo_inverse(None, rcond)

    def _pseudo_inverse(
        self, atol: float | TensorBase | None, rtol: float | TensorBase | None
    ) -> Self:
        matrix_ops.matrices(self.uop, "pinv")
        if build.has_zero(self.dims):
            return self._of(matrix_ops.transposed(self.uop))
        limit = self._rank_limit(matrix_ops.svd(self.detach().uop)[1], atol, rtol)
        shape = broadcast(limit.dims, self.dims[:-2])
        node = build.broadcast_to(self.uop, (*shape, *self.dims[-2:]))
        return self._of(matrix_ops.pseudo_inverse(node, build.broadcast_to(limit.uop, shape)))

    def _rank_limit(
        self, values: UOp, atol: float | TensorBase | None, rtol: float | TensorBase | None
    ) -> Self:
        """Return the limit up to which singular values count as 0.

        It is the greater of `atol` and a share of the greatest singular value. The share is `rtol`.
        Without `rtol` it is the usual tolerance, or 0 if `atol` is above 0.
        """
        top = self._of(build.reduce(values, Op.MAX, (len(values.shape) - 1,)))
        least, share = self._tolerance(atol, "atol"), self._tolerance(rtol, "rtol")
        usual = matrix_ops.usual_tolerance(self.uop)
        if share is not None:
            limit = top * share
        else:
            limit = top * (usual if least is None else self._select(least > 0, 0.0, usual))
        return limit if least is None else limit.maximum(least)

    def _tolerance(self, value: float | TensorBase | None, name: str) -> Self | None:
        if value is None:
            return None
        given = self._lift(value, name)
        if given.dtype.is_bool:
            raise DTypeError(f"{name}: expected a number or a Tensor of numbers, not bools")
        return given.detach().cast(self.dtype)

    def matrix_power(self, n: int) -> Self:
        """Return the `n`-th power of each matrix; a negative `n` uses the inverse.

        Parameters
        ----------
        n : int
            Power.

        Returns
        -------
        Tensor
            Same shape, (..., m, m), and dtype.

        Raises
        ------
        ShapeError
            The matrices are not square.
        DTypeError
            `n` is negative, and this tensor is neither float32 nor float64.
        LinAlgError
            At run time, if `n` is negative and a matrix is singular.

        Examples
        --------
        >>> krt.tensor([[1, 1], [1, 0]]).matrix_power(10).tolist()
        [[89, 55], [55, 34]]
        """
        power = integer(n, "n")
        base = self.inverse() if power < 0 else self
        if self.ndim < 2 or not build.same_shape(self.dims[-2:-1], self.dims[-1:]):
            raise ShapeError(
                f"matrix_power: expected square matrices, not shape {format_shape(self.dims)}"
            )
        power = abs(power)
        if power == 0:
            return self._of(composite_ops.settled(matrix_ops.eye_like(self.uop), self.uop))
        out: Self | None = None
        while power:
            if power & 1:
                out = base if out is None else out @ base
            power >>= 1
            base = base @ base if power else base
        assert out is not None
        return views.unshared(out, self)

    def matrix_exp(self) -> Self:
        """Return the exponential of each matrix, by scaling, a Pade approximant, and squaring.

        Returns
        -------
        Tensor
            Same shape, (..., n, n), and dtype, float32 or float64.

        Raises
        ------
        ShapeError
            The matrices are not square.
        DTypeError
            This tensor is neither float32 nor float64.

        Notes
        -----
        From Higham, "The Scaling and Squaring Method for the Matrix Exponential Revisited", 2005.

        Examples
        --------
        >>> x = krt.tensor([[0.0, 1.0], [0.0, 0.0]], dtype="float64")
        >>> x.matrix_exp().round(decimals=4).tolist()
        [[1.0, 1.0], [0.0, 1.0]]
        """
        node = self.uop
        matrix_ops.matrices(node, "matrix_exp", square=True)
        if build.has_zero(node.shape):
            return self
        coefficients, limit = _PADE[node.dtype]
        size = self.detach().abs().sum(-2).amax(-1)
        squarings = (size / limit).log2().ceil().clamp(0, _SQUARINGS)
        squarings = squarings.where(size.isfinite(), 0)[..., None, None]
        a = self * (-squarings).exp2()
        eye = self._of(matrix_ops.eye_like(node))
        odd, even = eye * coefficients[1], eye * coefficients[0]
        square = a @ a
        power = square
        for k in range(2, len(coefficients), 2):
            even = even + power * coefficients[k]
            if k + 1 < len(coefficients):
                odd = odd + power * coefficients[k + 1]
            power = power @ square if k + 2 < len(coefficients) else power
        odd = a @ odd
        out = self._of(matrix_ops.solve((even - odd).uop, (even + odd).uop, checked=False))
        # Stored and read row by row: a comparison with its own number would make each squaring a
        # different kernel.
        rows = (_SQUARINGS, *squarings.dims)
        numbers = self._of(build.iota_along(rows, 0)).cast(self.dtype)
        more = (numbers < squarings).contiguous()
        for k in range(_SQUARINGS):
            out = (out @ out).where(more[k], out)
        return out

    # ---- factors

    def cholesky(self, upper: bool = False) -> Self:
        """Return the lower factor L of ``A = L @ L.mT``, or with `upper` U of ``A = U.mT @ U``.

        Parameters
        ----------
        upper : bool, default False
            Whether to return the upper factor.

        Returns
        -------
        Tensor
            Same shape, (..., n, n), and dtype, float32 or float64.

        Raises
        ------
        ShapeError
            The matrices are not square.
        DTypeError
            This tensor is neither float32 nor float64.
        LinAlgError
            At run time, if a matrix is not positive definite.

        Examples
        --------
        >>> krt.tensor([[4.0, 2.0], [2.0, 5.0]]).cholesky().tolist()
        [[2.0, 0.0], [1.0, 2.0]]
        """
        out = self._of(matrix_ops.cholesky(self.uop))
        return out.mT if flag(upper, "upper") else out

    def cholesky_solve(self, input2: TensorBase, upper: bool = False) -> Self:
        """Solve ``A @ X = self`` for X, given the factor `input2` of A from :meth:`cholesky`.

        Parameters
        ----------
        input2 : Tensor
            Factors of shape (..., n, n). This tensor has shape (..., n, k); leading axes broadcast.
        upper : bool, default False
            Whether `input2` is the upper factor.

        Returns
        -------
        Tensor
            Shape (..., n, k), float32 or float64.

        Raises
        ------
        ShapeError
            Shapes do not match.
        DTypeError
            The dtypes differ, or are not float32 or float64.

        Examples
        --------
        >>> factor = krt.tensor([[4.0, 2.0], [2.0, 5.0]]).cholesky()
        >>> krt.tensor([[8.0], [12.0]]).cholesky_solve(factor).tolist()
        [[1.0], [2.0]]
        """
        a, b = self._batched(self._lift(input2, "input2"), self, "cholesky_solve")
        first = matrix_ops.transposed(a) if flag(upper, "upper") else a
        half = matrix_ops.triangular(first, b, is_upper=False)
        return self._of(matrix_ops.triangular(matrix_ops.transposed(first), half, is_upper=True))

    def cholesky_inverse(self, upper: bool = False) -> Self:
        """Return the inverse of A, given this tensor as the factor of A from :meth:`cholesky`.

        Parameters
        ----------
        upper : bool, default False
            Whether this tensor is the upper factor.

        Returns
        -------
        Tensor
            Same shape, (..., n, n), and dtype, float32 or float64.

        Raises
        ------
        ShapeError
            The matrices are not square.

        Examples
        --------
        >>> krt.tensor([[2.0, 0.0], [1.0, 1.0]]).cholesky_inverse().tolist()
        [[0.5, -0.5], [-0.5, 1.0]]
        """
        matrix_ops.matrices(self.uop, "cholesky_inverse", square=True)
        return self._of(matrix_ops.eye_like(self.uop)).cholesky_solve(self, upper)

    def lu(self) -> Decomposition[Self]:
        """Return the factors P, L and U: permutation, unit lower and upper triangular matrix.

        Returns
        -------
        Decomposition of (P, L, U)
            Shapes (..., m, m), (..., m, k) and (..., k, n) for shape (..., m, n), where k is the
            lesser of m and n; float32 or float64, as this tensor.

        Raises
        ------
        DTypeError
            This tensor is neither float32 nor float64.

        Examples
        --------
        >>> _, lower, upper = krt.tensor([[4.0, 2.0], [2.0, 3.0]]).lu()
        >>> lower.tolist(), upper.tolist()
        ([[1.0, 0.0], [0.5, 1.0]], [[4.0, 2.0], [0.0, 2.0]])
        """
        node = self.uop
        packed, order, _ = matrix_ops.lu(node)
        left, right = _triangles(packed)
        return Decomposition(
            self._of(_rows_back(order, node.dtype)), self._of(left), self._of(right)
        )

    def qr(self, some: bool = True) -> QR[Self]:
        """Return Q with orthonormal columns and upper triangular R, whose product is this tensor.

        Parameters
        ----------
        some : bool, default True
            Whether Q has only as many columns as the lesser matrix size. If False, Q is square.

        Returns
        -------
        QR of (Q, R)
            Float32 or float64, as this tensor; ``Q @ R`` is this tensor.

        Raises
        ------
        DTypeError
            This tensor is neither float32 nor float64.

        Examples
        --------
        >>> q, r = krt.ones(3, 2).qr()
        >>> q.shape, r.shape, (q @ r).allclose(krt.ones(3, 2))
        ((3, 2), (2, 2), True)
        """
        q, r = matrix_ops.qr(self.uop, complete=not flag(some, "some"))
        return QR(self._of(q), self._of(r))

    def svd(self, some: bool = True, compute_uv: bool = True) -> SVDFactors[Self]:
        """Return U, descending singular values and V.

        This is PyTorch's older function. :func:`kernelrt.linalg.svd` returns the transpose of V
        instead of V.

        Parameters
        ----------
        some : bool, default True
            Whether U and V have only as many columns as there are singular values; otherwise they
            are square.
        compute_uv : bool, default True
            Whether to compute U and V; otherwise they are zeros.

        Returns
        -------
        SVDFactors of (U, S, V)
            Float32 or float64, as this tensor.

        Raises
        ------
        DTypeError
            This tensor is neither float32 nor float64.

        Examples
        --------
        >>> u, s, v = krt.tensor([[3.0, 0.0], [0.0, 4.0]]).svd()
        >>> s.tolist()
        [4.0, 3.0]
        >>> krt.tensor([[3.0, 0.0], [0.0, 4.0]]).svd()._fields
        ('U', 'S', 'V')
        """
        u, s, vt = self._singular(full=not flag(some, "some"))
        if not flag(compute_uv, "compute_uv"):
            return SVDFactors(u * 0, s, vt.mT * 0)
        return SVDFactors(u, s, vt.mT)

    def _singular(self, *, full: bool) -> tuple[Self, Self, Self]:
        node = self.uop
        m, n = matrix_ops.matrices(node, "svd")
        u, s, vt = self._parts_of_routine(*matrix_ops.svd(node))
        if full and m > n:
            u = u._completed()
        elif full and n > m:
            vt = vt.mT._completed().mT
        return u, s, vt

    def _completed(self) -> Self:
        """Complete these orthonormal columns to a square matrix."""
        whole = self._of(matrix_ops.qr(self.detach().uop, complete=True)[0])
        made = joining.cat([self, whole[..., self.dims[-1] :]], -1)
        return self._of(made.uop)

    def _eigen(self, *, upper: bool) -> Eigen[Self]:
        node = self.uop
        matrix_ops.matrices(node, "eigh", square=True)
        values, vectors = matrix_ops.eigh(matrix_ops.transposed(node) if upper else node)
        return Eigen(*self._parts_of_routine(values, vectors))

    def _parts_of_routine(self, *parts: UOp) -> tuple[Self, ...]:
        """Return a routine's results as tensors, and give their origin to the routine's nodes."""
        found = tuple(self._of(part) for part in parts)
        spread(list(toposort(parts, stop=lambda node: node is self.uop)))
        return found

    # ---- solutions

    def lu_solve(self, LU_data: TensorBase, LU_pivots: TensorBase) -> Self:  # noqa: N803
        """Solve ``A @ X = self`` for X, given :func:`kernelrt.linalg.lu_factor` of A.

        Parameters
        ----------
        LU_data : Tensor
            Both triangles in one matrix, of shape (..., n, n). This tensor has shape (..., n, k).
        LU_pivots : Tensor of integers
            Row exchanges, of shape (..., n).

        Returns
        -------
        Tensor
            Shape (..., n, k), float32 or float64.

        Raises
        ------
        ShapeError
            Shapes do not match.
        DTypeError
            Dtypes do not match, or `LU_pivots` does not hold integers.

        Examples
        --------
        >>> packed, pivots = krt.linalg.lu_factor(krt.tensor([[4.0, 2.0], [2.0, 3.0]]))
        >>> krt.tensor([[8.0], [8.0]]).lu_solve(packed, pivots).tolist()
        [[1.0], [2.0]]
        """
        packed, taken = self._lift(LU_data, "LU_data"), self._lift(LU_pivots, "LU_pivots")
        packed._batched(packed, self, "lu_solve")
        half = packed._substituted(
            self._exchanged(taken, back=False), upper=False, left=True, unit=True
        )
        return packed._substituted(half, upper=True, left=True, unit=False)

    def _exchanged(self, taken: TensorBase, *, back: bool) -> Self:
        """Apply the row exchanges of an LU decomposition, or with `back` undo them."""
        if taken.dtype.is_float or not taken.ndim:
            raise DTypeError(
                f"LU_pivots: expected integers of shape (..., n), not {taken.dtype.name} of shape "
                f"{format_shape(taken.dims)}"
            )
        matrix_ops.matrices(self.uop, "lu_solve")
        batch = broadcast(taken.dims[:-1], self.dims[:-2])
        rows = build.broadcast_to(taken.uop, (*batch, *taken.dims[-1:]))
        node = build.broadcast_to(self.uop, (*batch, *self.dims[-2:]))
        return self._of(matrix_ops.exchanged(rows, node, back=back))

    def _solved(self, other: object, *, left: bool, checked: bool) -> Self:
        """Solve ``self @ X = other``, or ``X @ self = other``; `other` may hold vectors."""
        b = self._lift(other, "B")
        vector = b.ndim == 1 or (
            b.ndim == self.ndim - 1 and build.same_shape(b.dims, self.dims[:-1])
        )
        right = b.unsqueeze(-1) if vector else b
        if not left:
            return self.mT._solved(right.mT, left=True, checked=checked).mT
        first, second = self._batched(self, right, "solve")
        out = self._of(matrix_ops.solve(first, second, checked=checked))
        return out.squeeze(-1) if vector else out

    def _substituted(self, other: object, *, upper: bool, left: bool, unit: bool) -> Self:
        b = self._lift(other, "B")
        if not left:
            return self.mT._substituted(b.mT, upper=not upper, left=True, unit=unit).mT
        first, second = self._batched(self, b, "solve_triangular")
        return self._of(matrix_ops.triangular(first, second, is_upper=upper, unit=unit))

    def _batched(self, a: Self, b: Self, name: str) -> tuple[UOp, UOp]:
        """Broadcast matrices and right-hand sides to one batch, after checks."""
        n, _ = matrix_ops.matrices(a.uop, name, square=True)
        matrix_ops.matrices(b.uop, name)
        if a.dtype is not b.dtype:
            raise DTypeError(
                f"{name}: expected right-hand sides of {a.dtype.name}, as the matrices are, not of "
                f"{b.dtype.name}; cast them, as in b.cast('{a.dtype.name}')"
            )
        if not build.same_shape(b.dims[-2:-1], (n,)):
            raise ShapeError(
                f"{name}: expected right-hand sides of {n} rows for matrices of shape "
                f"{format_shape(a.dims)}, not right-hand sides of shape {format_shape(b.dims)}"
            )
        batch = broadcast(a.dims[:-2], b.dims[:-2])
        first, second = (
            build.broadcast_to(x.uop, (*batch, *x.dims[-2:])) for x in (a, b)
        )
        return first, second


@operation
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True,  # noqa: N803 - torch's names
    unpack_pivots: bool = True,
) -> Decomposition[Tensor]:  # fmt: skip
    """Return P, L and U from the result of :func:`kernelrt.linalg.lu_factor`.

    Parameters
    ----------
    LU_data, LU_pivots : Tensor
        Both triangles in one matrix, of shape (..., m, n), and the row exchanges.
    unpack_data, unpack_pivots : bool, default True
        `unpack_data` requests L and U, and `unpack_pivots` requests P. Factors that are not
        requested are empty.

    Returns
    -------
    Decomposition of (P, L, U)
        Shapes as in ``Tensor.lu``, dtype of `LU_data`.

    Raises
    ------
    DTypeError
        `LU_pivots` does not hold integers.

    Examples
    --------
    >>> packed, pivots = krt.linalg.lu_factor(krt.tensor([[4.0, 2.0], [2.0, 3.0]]))
    >>> krt.lu_unpack(packed, pivots).U.tolist()
    [[4.0, 2.0], [0.0, 2.0]]
    """
    node = LU_data.uop
    m, _ = matrix_ops.matrices(node, "lu_unpack")
    nothing = LU_data._of(build.full(0, node.dtype, (0,)))
    out = Decomposition(nothing, nothing, nothing)
    if flag(unpack_data, "unpack_data"):
        left, right = _triangles(node)
        out = out._replace(L=LU_data._of(left), U=LU_data._of(right))
    if flag(unpack_pivots, "unpack_pivots"):
        eye = matrix_ops.eye_like(build.full(0, node.dtype, (*node.shape[:-2], m, m)))
        out = out._replace(P=LU_data._of(eye)._exchanged(LU_pivots, back=True))
    return out


def _triangles(packed: UOp) -> tuple[UOp, UOp]:
    """Split packed factors into L, with ones on its diagonal, and U."""
    m, n = matrix_ops.matrices(packed, "lu")
    k = min(m, n)
    batch = [(0, d) for d in packed.shape[:-2]]
    tall = build.shrink(packed, [*batch, (0, m), (0, k)])
    wide = build.shrink(packed, [*batch, (0, k), (0, n)])
    return matrix_ops.lower(tall, -1).alu(Op.ADD, matrix_ops.eye_like(tall)), matrix_ops.upper(wide)


def _rows_back(order: UOp, dtype: dt.DType) -> UOp:
    """Return the permutation matrix that undoes an order of rows."""
    return matrix_ops.transposed(matrix_ops.permutation(order, dtype))



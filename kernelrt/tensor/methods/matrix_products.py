"""Matrix products.

There is no op for a matrix product: it is a sum over the product of two expanded operands. The
compiler recognizes such a sum by the indices at which it reads each operand. The gradients of a
matrix product have the same form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.ir.shape import broadcast, broadcasts_to, format_shape, same
from kernelrt.tensor.eager.diagnostics import tell_widening
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import real
from kernelrt.tensor.nodes.promotion import joint_type
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.base import Operand, TensorBase
    from kernelrt.tensor.methods.operators import Number
    from kernelrt.tensor.methods.setitem import PartMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["ContractionMethods", "matrix_product"]


@operations()
class ContractionMethods(_Below):
    """Matrix products."""

    __slots__ = ()

    def matmul(self, other: Operand) -> Self:
        """Return the matrix product over the last two axes; leading axes broadcast.

        A vector is a row on the left and a column on the right. Products and sums have the dtype of
        the operands, so integers wrap. To add narrow integers in a wider dtype, cast them first.
        The cast makes no wider copy. If the processor has an instruction that multiplies bytes and
        adds in 32 bits (such as VNNI), the product uses this instruction. float16 and bfloat16 are
        summed in float32 and rounded once.

        Parameters
        ----------
        other : Tensor
            Matrices of shape (..., k, n), or a vector of k elements, for this tensor's (..., m, k).

        Returns
        -------
        Tensor
            Shape (..., m, n), without the axis of a vector; promoted dtype.

        Raises
        ------
        ShapeError
            An operand has no axes, or the inner sizes differ.
        DTypeError
            The operands are bools.

        Examples
        --------
        >>> a, b = krt.tensor([[1.0, 2.0], [3.0, 4.0]]), krt.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> a.matmul(b).tolist(), (a @ a[0]).tolist()
        ([[1.0, 4.0], [3.0, 8.0]], [5.0, 11.0])
        >>> x, w = krt.full((2, 100), 100, dtype="int8"), krt.full((100, 1), -128, dtype="int8")
        >>> (x.cast("int32") @ w.cast("int32")).tolist()
        [[-1280000], [-1280000]]
        """
        right = self._lift(other, "other")
        a, b = self._factors(right, "matmul")
        if not a.shape or not b.shape:
            raise ShapeError(
                "matmul: expected at least 1 axis each, not input of shape "
                f"{format_shape(a.shape)} and other of shape {format_shape(b.shape)}; use * to "
                "multiply by a scalar"
            )
        inner = b.shape[-2] if len(b.shape) > 1 else b.shape[0]
        if not same(a.shape[-1], inner):
            raise ShapeError(
                f"matmul: shapes {format_shape(a.shape)} and {format_shape(b.shape)} do not fit: "
                f"the last axis of the first has {a.shape[-1]} elements, but the "
                f"{'second to last' if len(b.shape) > 1 else 'only'} axis of the second has {inner}"
            )
        return self._of(matrix_product(a, b))

    def mm(self, other: Operand) -> Self:
        """Return the product of two matrices; see :meth:`matmul`.

        Parameters
        ----------
        other : Tensor
            Matrix of shape (k, n) for this tensor's (m, k).

        Returns
        -------
        Tensor
            Shape (m, n), promoted dtype.

        Raises
        ------
        ShapeError
            An operand is not a matrix, or the inner sizes differ.

        Examples
        --------
        >>> krt.ones(2, 3).mm(krt.ones(3, 1)).tolist()
        [[3.0], [3.0]]
        """
        return self._ranked_product(self._lift(other, "mat2"), (2, 2), "mm")

    def bmm(self, other: Operand) -> Self:
        """Return the products of two batches of matrices, of shapes (b, n, k) and (b, k, m).

        Parameters
        ----------
        other : Tensor
            Batch of shape (b, k, m).

        Returns
        -------
        Tensor
            Shape (b, n, m), promoted dtype.

        Raises
        ------
        ShapeError
            An operand does not have 3 axes, or sizes differ.

        Examples
        --------
        >>> krt.ones(2, 1, 3).bmm(krt.ones(2, 3, 1)).tolist()
        [[[3.0]], [[3.0]]]
        """
        return self._ranked_product(self._lift(other, "mat2"), (3, 3), "bmm")

    def mv(self, vec: Operand) -> Self:
        """Return the product of a matrix and a vector.

        Parameters
        ----------
        vec : Tensor
            Vector of k elements for this tensor's shape (m, k).

        Returns
        -------
        Tensor
            Vector of m elements, promoted dtype.

        Raises
        ------
        ShapeError
            The operands are not a matrix and a vector, or the inner sizes differ.

        Examples
        --------
        >>> krt.tensor([[1.0, 2.0], [3.0, 4.0]]).mv(krt.tensor([1.0, 10.0])).tolist()
        [21.0, 43.0]
        """
        return self._ranked_product(self._lift(vec, "vec"), (2, 1), "mv")

    def _ranked_product(self, other: Self, ranks: tuple[int, int], name: str) -> Self:
        """Return the matrix product of tensors with these numbers of axes, without broadcasting."""
        if (self.ndim, other.ndim) != ranks:
            raise ShapeError(
                f"{name}: expected {ranks[0]} and {ranks[1]} axes, not shapes "
                f"{format_shape(self.dims)} and {format_shape(other.dims)}; use matmul"
            )
        if ranks[0] == 3 and not same(self.dims[0], other.dims[0]):
            raise ShapeError(
                f"{name}: expected equal numbers of matrices, not shapes {format_shape(self.dims)} "
                f"and {format_shape(other.dims)}; use matmul, which broadcasts"
            )
        return self.matmul(other)

    # ---- sums with products

    def addmm(
        self, mat1: Operand, mat2: Operand, *, beta: Number = 1, alpha: Number = 1
    ) -> Self:
        """Return ``beta * self + alpha * (mat1 @ mat2)``; a `beta` of 0 ignores this tensor.

        Parameters
        ----------
        mat1, mat2 : Tensor
            Matrices of shapes (m, k) and (k, n). This tensor broadcasts to (m, n).
        beta, alpha : number, default 1
            Factors of this tensor and of the product; ints for integer tensors.

        Returns
        -------
        Tensor
            Shape (m, n), promoted dtype.

        Raises
        ------
        ShapeError
            Shapes do not match.
        DTypeError
            The operands are bools, or `beta` or `alpha` is a float for integer tensors.

        Examples
        --------
        >>> a = krt.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> krt.ones(2).addmm(a, a, beta=10).tolist()
        [[17.0, 20.0], [25.0, 32.0]]
        """
        a = self._lift(mat1, "mat1")
        return self._plus(a._ranked_product(self._lift(mat2, "mat2"), (2, 2), "addmm"), beta, alpha)

    def addmv(self, mat: Operand, vec: Operand, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """Return ``beta * self + alpha * (mat @ vec)``; see :meth:`addmm`.

        Parameters
        ----------
        mat, vec : Tensor
            Matrix of shape (m, k) and vector of k elements. This tensor broadcasts to (m,).
        beta, alpha : number, default 1
            Factors of this tensor and of the product; ints for integer tensors.

        Returns
        -------
        Tensor
            Vector of m elements, promoted dtype.

        Raises
        ------
        ShapeError, DTypeError
            As in :meth:`addmm`.

        Examples
        --------
        >>> mat, vec = krt.tensor([[1.0, 2.0], [3.0, 4.0]]), krt.tensor([1.0, 10.0])
        >>> krt.ones(2).addmv(mat, vec).tolist()
        [22.0, 44.0]
        """
        a = self._lift(mat, "mat")
        return self._plus(a._ranked_product(self._lift(vec, "vec"), (2, 1), "addmv"), beta, alpha)

    def addr(self, vec1: Operand, vec2: Operand, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """Return ``beta * self + alpha * vec1.outer(vec2)``; see :meth:`addmm`.

        Parameters
        ----------
        vec1, vec2 : Tensor
            Vectors of m and n elements. This tensor broadcasts to (m, n).
        beta, alpha : number, default 1
            Factors of this tensor and of the product; ints for integer tensors.

        Returns
        -------
        Tensor
            Shape (m, n), promoted dtype.

        Raises
        ------
        ShapeError
            An operand is not a vector, or this tensor does not broadcast.
        DTypeError
            `beta` or `alpha` is a float for integer tensors.

        Examples
        --------
        >>> krt.ones(2, 2).addr(krt.tensor([1.0, 2.0]), krt.tensor([3.0, 4.0])).tolist()
        [[4.0, 5.0], [7.0, 9.0]]
        """
        return self._plus(self._lift(vec1, "vec1").outer(vec2), beta, alpha)

    def baddbmm(
        self, batch1: Operand, batch2: Operand, *, beta: Number = 1, alpha: Number = 1
    ) -> Self:
        """Return ``beta * self + alpha * batch1.bmm(batch2)``; see :meth:`addmm`.

        Parameters
        ----------
        batch1, batch2 : Tensor
            Batches of shapes (b, n, k) and (b, k, m). This tensor broadcasts to (b, n, m).
        beta, alpha : number, default 1
            Factors of this tensor and of the product; ints for integer tensors.

        Returns
        -------
        Tensor
            Shape (b, n, m), promoted dtype.

        Raises
        ------
        ShapeError, DTypeError
            As in :meth:`addmm`.

        Examples
        --------
        >>> krt.ones(1).baddbmm(krt.ones(2, 1, 3), krt.ones(2, 3, 1)).tolist()
        [[[4.0]], [[4.0]]]
        """
        a, b = self._lift(batch1, "batch1"), self._lift(batch2, "batch2")
        return self._plus(a._ranked_product(b, (3, 3), "baddbmm"), beta, alpha)

    def addbmm(
        self, batch1: Operand, batch2: Operand, *, beta: Number = 1, alpha: Number = 1
    ) -> Self:
        """Return ``beta * self + alpha * batch1.bmm(batch2).sum(0)``; see :meth:`addmm`.

        Parameters
        ----------
        batch1, batch2 : Tensor
            Batches of shapes (b, n, k) and (b, k, m). This tensor broadcasts to (n, m).
        beta, alpha : number, default 1
            Factors of this tensor and of the sum; ints for integer tensors.

        Returns
        -------
        Tensor
            Shape (n, m), promoted dtype.

        Raises
        ------
        ShapeError, DTypeError
            As in :meth:`addmm`.

        Examples
        --------
        >>> krt.ones(1).addbmm(krt.ones(2, 1, 3), krt.ones(2, 3, 1)).tolist()
        [[7.0]]
        """
        a, b = self._lift(batch1, "batch1"), self._lift(batch2, "batch2")
        if a.ndim != 3 or b.ndim != 3 or not same(a.dims[0], b.dims[0]):
            a._ranked_product(b, (3, 3), "addbmm")  # raises the error
        # One product of long rows and long columns includes the sum over the batch.
        rows = a.transpose(0, 1).reshape(a.dims[1], build.volume((a.dims[0], a.dims[2])))
        if not same(a.dims[2], b.dims[1]):
            a.bmm(b)
        columns = b.reshape(build.volume(b.dims[:2]), b.dims[2])
        return self._plus(rows.matmul(columns), beta, alpha)

    def _plus(self, product: Self, beta: Number, alpha: Number) -> Self:
        """Return ``beta * self + alpha * product`` in the shape of the product."""
        for name, value in (("beta", beta), ("alpha", alpha)):
            number = real(value, name)
            floats = product.dtype.is_float and self.dtype.is_float
            if not (floats or isinstance(number, int)):
                raise DTypeError(f"{name}: expected an int for integer tensors, not {number!r}")
        if beta != 0 and not broadcasts_to(self.dims, product.dims):
            raise ShapeError(
                f"self: shape {format_shape(self.dims)} does not broadcast to the shape "
                f"{format_shape(product.dims)} of the product"
            )
        dtype = dt.promote(self.dtype, product.dtype)
        wide = dtype.accumulator if dtype.is_float else dtype
        scaled = build.mul(product.uop.cast(wide), alpha)
        if beta == 0:
            return self._of(scaled.cast(dtype))
        given = build.broadcast_to(self.uop.cast(wide), product.dims)
        return self._of(build.mul(given, beta).alu(Op.ADD, scaled).cast(dtype))
    def dot(self, other: Operand) -> Self:
        """Return the inner product of two vectors.

        Parameters
        ----------
        other : Tensor
            Vector of the same length.

        Returns
        -------
        Tensor
            Scalar, promoted dtype.

        Raises
        ------
        ShapeError
            An operand is not a vector, or the lengths differ.
        DTypeError
            The operands are bools.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0]).dot(krt.tensor([3.0, 4.0])).item()
        11.0
        """
        right = self._lift(other, "other")
        if self.ndim != 1 or right.ndim != 1:
            raise ShapeError(
                f"dot: expected two vectors, not input with {self.ndim} axes and other with "
                f"{right.ndim} axes"
            )
        return self.matmul(right)

    def outer(self, other: Operand) -> Self:
        """Return the outer product: each element of this vector times each element of the other.

        Parameters
        ----------
        other : Tensor
            Vector of n elements for this vector of m.

        Returns
        -------
        Tensor
            Shape (m, n), promoted dtype.

        Raises
        ------
        ShapeError
            An operand is not a vector.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0]).outer(krt.tensor([3.0, 4.0, 5.0])).tolist()
        [[3.0, 4.0, 5.0], [6.0, 8.0, 10.0]]
        """
        right = self._lift(other, "other")
        if self.ndim != 1 or right.ndim != 1:
            raise ShapeError(
                f"outer: expected two vectors, not input with {self.ndim} axes and other with "
                f"{right.ndim} axes"
            )
        return self.unsqueeze(1) * right

    def __matmul__(self, other: Operand) -> Self:
        return self.matmul(other)

    def __rmatmul__(self, other: Operand) -> Self:
        return self._lift(other, "other").matmul(self)

    def linear(self, weight: TensorBase, bias: TensorBase | None = None) -> Self:
        """Return ``self @ weight.T + bias`` for a weight of shape (out, in).

        Parameters
        ----------
        weight : Tensor
            Matrix of shape (out, in); this tensor has shape (..., in).
        bias : Tensor, optional
            Vector of shape (out,).

        Returns
        -------
        Tensor
            Shape (..., out), promoted dtype.

        Raises
        ------
        ShapeError
            The shape of `weight` does not match.
        DTypeError
            The operands are bools.

        Examples
        --------
        >>> weight, bias = krt.tensor([[1.0, 1.0]]), krt.tensor([10.0])
        >>> krt.tensor([[1.0, 2.0], [3.0, 4.0]]).linear(weight, bias).tolist()
        [[13.0], [17.0]]
        """
        w = self._lift(weight, "weight")
        if w.ndim != 2 or self.ndim == 0 or not same(self.dims[-1], w.dims[1]):
            raise ShapeError(
                f"weight: expected shape (out, {self.dims[-1] if self.ndim else 'in'}) for an "
                f"input of shape {format_shape(self.dims)}, not {format_shape(w.dims)}"
            )
        a, b = self._factors(w, "linear")
        rows = build.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
        product = row_products(rows, b)
        out = self._of(build.reshape(product, (*a.shape[:-1], b.shape[0])))
        return out if bias is None else out + bias

    def _factors(self, other: Self, name: str) -> tuple[UOp, UOp]:
        a, b = self.uop, other.uop
        if a.dtype is not b.dtype:
            tell_widening(self, other)
        dtype = joint_type((a, b))
        if dtype.is_bool:
            raise DTypeError(f"{name}: products of bools cannot be summed; cast them to integers")
        return a.cast(dtype), b.cast(dtype)


def matrix_product(a: UOp, b: UOp) -> UOp:
    """Multiply rows of `a` by columns of `b`; a vector is one row, or one column."""
    row, column = len(a.shape) == 1, len(b.shape) == 1
    if row:
        a = build.reshape(a, (1, *a.shape))
    rank = len(b.shape)
    b = build.reshape(b, (1, *b.shape)) if column else build.permute(
        b, (*range(rank - 2), rank - 1, rank - 2)
    )  # fmt: skip
    out = row_products(a, b)
    (*lead, m, n) = out.shape
    return build.reshape(out, (*lead, *(() if row else (m,)), *(() if column else (n,))))


def row_products(a: UOp, b: UOp) -> UOp:
    """Return ``a @ b.mT``: multiply each row of `a` by each row of `b`, and sum the products."""
    (*lead_a, m, k), (*lead_b, n, _) = a.shape, b.shape
    lead = broadcast(tuple(lead_a), tuple(lead_b)) if lead_a and lead_b else (*lead_a, *lead_b)
    shape = (*lead, m, n, k)
    left = build.broadcast_to(build.reshape(a, (*lead_a, m, 1, k)), shape)
    right = build.broadcast_to(build.reshape(b, (*lead_b, 1, n, k)), shape)
    return build.reshape(
        build.reduce(left.alu(Op.MUL, right), Op.ADD, (len(shape) - 1,)), (*lead, m, n)
    )

"""Elementwise operators, such as ``+`` and ``**``, and their named forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.ir.constants import short_power
from kernelrt.ir.shape import dim_span, format_size
from kernelrt.ir.size import plain
from kernelrt.native.fast_paths import _name_types, quicken
from kernelrt.tensor.nodes import build, composite_ops
from kernelrt.tensor.nodes.promotion import as_scalar
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.dtype import DType
    from kernelrt.tensor.base import Operand
    from kernelrt.tensor.methods.comparison import ComparisonMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["Number", "OperatorMethods"]

Number: TypeAlias = bool | int | float


@operations()
class OperatorMethods(_Below):
    """Elementwise arithmetic operators."""

    __slots__ = ()

    def _binary(self, op: Op, other: Operand) -> Self:
        a, b = self._unify(("other", other), exact=True)
        return self._of(a.alu(op, b))

    def _computed(self, rule: Callable[[UOp, UOp], UOp], other: Operand) -> Self:
        """Apply `rule` to this tensor and `other`; a Python number keeps its full precision.

        A number in float16 or bfloat16 could be rounded, or become infinite as 1e5 in float16. In
        that case compute in float32 and round the result.
        """
        a, b = self._unify(("other", other))
        narrow, wide = a.dtype, a.dtype.accumulator
        if wide is not narrow:
            left, right = (self._as_number(v, "other") for v in (self, other))
            if _has_digits(left, narrow) or _has_digits(right, narrow):
                a = a.cast(wide) if left is None else build.full(left, wide, a.shape)
                b = b.cast(wide) if right is None else build.full(right, wide, b.shape)
        return self._of(rule(a, b).cast(narrow))

    def add(self, other: Operand, *, alpha: Number = 1) -> Self:
        """Return ``self + alpha * other``; the sum of bools is their logical OR.

        Parameters
        ----------
        other : Tensor or number
            Second operand; shapes broadcast.
        alpha : number, default 1
            Factor of `other`.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype; integers wrap.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0]).add(krt.tensor([10.0, 20.0]), alpha=2).tolist()
        [21.0, 42.0]
        """
        if alpha == 1:
            return self._computed(composite_ops.total, other)
        return self._with_multiple(composite_ops.total, other, alpha)

    def sub(self, other: Operand, *, alpha: Number = 1) -> Self:
        """Return ``self - alpha * other``.

        Parameters
        ----------
        other : Tensor or number
            Second operand; shapes broadcast.
        alpha : number, default 1
            Factor of `other`.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype; integers wrap.

        Raises
        ------
        DTypeError
            Both operands are bools.

        Examples
        --------
        >>> krt.tensor([10.0, 20.0]).sub(3.0, alpha=2).tolist()
        [4.0, 14.0]
        """
        if alpha == 1:
            return self._computed(composite_ops.difference, other)
        return self._with_multiple(composite_ops.difference, other, alpha)

    def _with_multiple(
        self, rule: Callable[[UOp, UOp], UOp], other: Operand, alpha: Number
    ) -> Self:
        a, b, c = self._unify(("other", other), ("alpha", alpha))
        narrow, wide = a.dtype, a.dtype.accumulator
        if not dt.holds(narrow, alpha):
            a, b, c = a.cast(wide), b.cast(wide), build.full(alpha, wide, c.shape)
        return self._of(rule(a, composite_ops.product(b, c)).cast(narrow))

    def mul(self, other: Operand) -> Self:
        """Return ``self * other``; the product of bools is their logical AND.

        Parameters
        ----------
        other : Tensor or number
            Second operand; shapes broadcast.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype; integers wrap.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0]).mul(krt.tensor([[1.0], [10.0]])).tolist()
        [[1.0, 2.0], [10.0, 20.0]]
        """
        return self._computed(composite_ops.product, other)

    def div(self, other: Operand, *, rounding_mode: str | None = None) -> Self:
        """Return ``self / other`` as floats; integers give float32.

        Parameters
        ----------
        other : Tensor or number
            Divisor; shapes broadcast.
        rounding_mode : None, "floor" or "trunc"
            How to round the quotient. With a mode the dtypes promote as in a sum.

        Returns
        -------
        Tensor
            Broadcast shape.

        Raises
        ------
        DomainError
            `rounding_mode` is another string.

        Examples
        --------
        >>> x = krt.tensor([7, -7])
        >>> x.div(2).tolist(), x.div(2, rounding_mode="trunc").tolist()
        ([3.5, -3.5], [3, -3])
        """
        if rounding_mode == "floor":
            return self // other
        if rounding_mode not in (None, "trunc"):
            raise DomainError(
                f"rounding_mode: expected None, 'floor' or 'trunc', not {rounding_mode!r}"
            )
        quotient = self._divide(other, reverse=False)
        if rounding_mode is None:
            return quotient
        a, b = self._unify(("other", other), exact=True)
        if a.dtype.is_float:
            return self._of(composite_ops.step(quotient.uop.alu(Op.TRUNC), a, b))
        # Floor division is one too low where it rounded a negative quotient down.
        q = a.alu(Op.IDIV, b)
        inexact = q.alu(Op.MUL, b).ne(a).alu(Op.AND, q.alu(Op.LT, build.zeros_like(q)))
        return self._of(q.alu(Op.ADD, inexact.cast(q.dtype)))

    def _divide(self, other: Operand, *, reverse: bool) -> Self:
        x = self
        if not self._unify(("other", other))[0].dtype.is_float:
            x = self.cast(dt.float32)
        rule = composite_ops.reversed_quotient if reverse else composite_ops.quotient
        return x._computed(rule, other)

    def __add__(self, other: Operand) -> Self:
        return self._computed(composite_ops.total, other)

    def __radd__(self, other: Operand) -> Self:
        return self._computed(composite_ops.total, other)

    def __sub__(self, other: Operand) -> Self:
        return self._computed(composite_ops.difference, other)

    def __rsub__(self, other: Operand) -> Self:
        return self._computed(lambda a, b: composite_ops.difference(b, a), other)

    def __mul__(self, other: Operand) -> Self:
        return self._computed(composite_ops.product, other)

    def __rmul__(self, other: Operand) -> Self:
        return self._computed(composite_ops.product, other)

    def __truediv__(self, other: Operand) -> Self:
        return self._divide(other, reverse=False)

    def __rtruediv__(self, other: Operand) -> Self:
        return self._divide(other, reverse=True)

    def __floordiv__(self, other: Operand) -> Self:
        return self._of(composite_ops.floor_divide(*self._unify(("other", other), exact=True)))

    def __rfloordiv__(self, other: Operand) -> Self:
        a, b = self._unify(("other", other), exact=True)
        return self._of(composite_ops.floor_divide(b, a))

    def __mod__(self, other: Operand) -> Self:
        return self._of(composite_ops.remainder(*self._unify(("other", other), exact=True)))

    def __rmod__(self, other: Operand) -> Self:
        a, b = self._unify(("other", other), exact=True)
        return self._of(composite_ops.remainder(b, a))

    def __divmod__(self, other: Operand) -> tuple[Self, Self]:
        return self // other, self % other

    def __rdivmod__(self, other: Operand) -> tuple[Self, Self]:
        return self.__rfloordiv__(other), self.__rmod__(other)

    def remainder(self, other: Operand) -> Self:
        """Return ``self % other``, with the sign of `other`; 0 where an integer divisor is 0.

        Parameters
        ----------
        other : Tensor or number
            Divisor; shapes broadcast.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Raises
        ------
        DTypeError
            Both operands are bools.

        Examples
        --------
        >>> krt.tensor([7, -7]).remainder(3).tolist()
        [1, 2]
        """
        return self % other

    def floor_divide(self, other: Operand) -> Self:
        """Return ``self // other``, the exact quotient rounded down; 0 for an integer divisor 0.

        Parameters
        ----------
        other : Tensor or number
            Divisor; shapes broadcast.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Raises
        ------
        DTypeError
            Both operands are bools.

        Examples
        --------
        >>> krt.tensor([7, -7]).floor_divide(2).tolist()
        [3, -4]
        """
        return self // other

    def fmod(self, other: Operand) -> Self:
        """Return the remainder with the sign of `self`; 0 where an integer divisor is 0.

        Parameters
        ----------
        other : Tensor or number
            Divisor; shapes broadcast.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Raises
        ------
        DTypeError
            Both operands are bools.

        Examples
        --------
        >>> krt.tensor([7, -7]).fmod(3).tolist()
        [1, -1]
        """
        a, b = self._unify(("other", other), exact=True)
        return self._of(composite_ops.truncated_remainder(a, b))

    def __pow__(self, other: Operand) -> Self:
        return self.pow(other)

    def __rpow__(self, other: Operand) -> Self:
        a, b = self._unify(("other", other))
        return self._of(composite_ops.power(b, a))

    def pow(self, exponent: Operand) -> Self:
        """Return ``self ** exponent``; powers of small integer exponents are computed as products.

        Parameters
        ----------
        exponent : Tensor or number
            Exponents; shapes broadcast. If integers have negative exponents in a tensor, the powers
            are rounded toward zero.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype; integers wrap.

        Raises
        ------
        DTypeError
            An integer tensor is raised to a number that is a negative integer, or both operands are
            bools.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0, 3.0]).pow(2).tolist()
        [1.0, 4.0, 9.0]
        >>> krt.tensor([2.0, 3.0]).pow(krt.tensor([3.0, 2.0])).tolist()
        [8.0, 9.0]
        """
        if isinstance(exponent, np.generic):
            exponent = exponent.item()
        if isinstance(exponent, int | float) and not isinstance(exponent, bool):
            return self._pow_number(exponent)
        count = plain(exponent)
        if isinstance(count, UOp) and count.dtype.is_int and not self.dtype.is_float:
            low = dim_span(count)[0]
            if low < 0:
                raise DTypeError(
                    f"exponent: integers to the power {format_size(count)}, which may be {low}, "
                    "are not integers; cast the tensor to a floating type first"
                )
        a, b = self._unify(("exponent", exponent), exact=True)
        return self._of(composite_ops.power(a, b))

    def _pow_number(self, exponent: Number) -> Self:
        if not self.dtype.is_float and exponent < 0 and isinstance(exponent, int):
            raise DTypeError(
                f"exponent: integers to the power {exponent} are not integers; cast the tensor "
                "to a floating type first"
            )
        x, _ = self._unify(("exponent", exponent))
        if not x.dtype.is_float:
            return self._of(composite_ops.whole_power(x, int(exponent)))
        if exponent == 0.5:  # as in PyTorch; C's pow, used for tensors, differs at infinity
            return self._of(x).sqrt()
        # The power 0 has a gradient, which is 0.
        one = build.full(1, x.dtype, x.shape)
        short = short_power(x, exponent, one) if exponent else None
        if short is None:
            short = composite_ops.power(x, build.full(exponent, x.dtype, x.shape))
        return self._of(short)

    def __neg__(self) -> Self:
        return self.neg()

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self.abs()

    def neg(self) -> Self:
        """Return ``-self``.

        Returns
        -------
        Tensor
            Same shape and dtype; unsigned integers wrap, and bools raise DTypeError.

        Examples
        --------
        >>> krt.tensor([1.0, -2.0]).neg().tolist()
        [-1.0, 2.0]
        """
        if self.dtype.is_bool:
            raise DTypeError("self: a tensor of bools has no negative; use ~x or x.logical_not()")
        return self._of(self.uop.alu(Op.NEG))

    def abs(self) -> Self:
        """Return the absolute value; that of the least signed integer wraps to itself.

        Returns
        -------
        Tensor
            Same shape and dtype.

        Examples
        --------
        >>> krt.tensor([1.0, -2.0]).abs().tolist()
        [1.0, 2.0]
        """
        return self if self.dtype.is_bool or self.dtype.is_unsigned else self._unary(Op.ABS)

    def sign(self) -> Self:
        """Return the sign of each element: -1, 0 or 1; 0 for NaN.

        Returns
        -------
        Tensor
            Same shape and dtype.

        Examples
        --------
        >>> krt.tensor([-3.0, 0.0, 5.0]).sign().tolist()
        [-1.0, 0.0, 1.0]
        """
        return self._of(composite_ops.sign(self.uop))

    def atan2(self, other: Operand) -> Self:
        """Return the angle of the point (other, self) from -pi to pi; the sign of zeros counts.

        Parameters
        ----------
        other : Tensor or number
            First coordinates of the points; shapes broadcast. This tensor holds the second ones.

        Returns
        -------
        Tensor of floats
            Angles in radians: broadcast shape, promoted dtype; integers and bools give float32.

        Examples
        --------
        >>> y, x = krt.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype="float64")
        >>> y.atan2(x).rad2deg().tolist()
        [180.0, 90.0]
        """
        x = self if self._unify(("other", other))[0].dtype.is_float else self.cast(dt.float32)
        return x._computed(lambda a, b: a.alu(Op.ATAN2, b), other)

    def maximum(self, other: Operand) -> Self:
        """Return the greater of two elements; NaN if one of them is NaN.

        Parameters
        ----------
        other : Tensor or number
            Second operand; shapes broadcast.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Examples
        --------
        >>> krt.tensor([1.0, 4.0]).maximum(krt.tensor([3.0, 2.0])).tolist()
        [3.0, 4.0]
        """
        return self._binary(Op.MAX, other)

    def minimum(self, other: Operand) -> Self:
        """Return the lesser of two elements; NaN if one of them is NaN.

        Parameters
        ----------
        other : Tensor or number
            Second operand; shapes broadcast.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Examples
        --------
        >>> krt.tensor([1.0, 4.0]).minimum(krt.tensor([3.0, 2.0])).tolist()
        [1.0, 2.0]
        """
        return self._binary(Op.MIN, other)

    def clamp(self, min: Operand | None = None, max: Operand | None = None) -> Self:  # noqa: A002
        """Raise elements below `min` to `min`, and lower those above `max` to `max`.

        NaN stays NaN, and a limit that is NaN gives NaN. The gradient of this tensor is 1 between
        the limits, both included, and 0 outside and for NaN. Where a limit is the result, the
        gradient goes to the limit. For an integer dtype, an upper limit above the greatest value
        of the dtype has no effect, nor has a lower limit below the least.

        Parameters
        ----------
        min, max : Tensor or number, optional
            Limits; shapes broadcast. Where `min` is greater than `max` the result is `max`.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Raises
        ------
        ShapeError
            Both limits are missing.
        DTypeError
            A limit is a number beyond the range of an integer dtype, so that every element would
            become it.

        Examples
        --------
        >>> krt.tensor([-2.0, 0.5, 3.0]).clamp(0.0, 1.0).tolist()
        [0.0, 0.5, 1.0]
        """
        if min is None and max is None:
            raise ShapeError("clamp: expected min, max, or both, but neither is given")
        least = None if min is None or self._is_beyond(min, below=True) else min
        most = None if max is None or self._is_beyond(max, below=False) else max
        return self._limited(("min", least), ("max", most), closed=True)

    def _limited(
        self, least: tuple[str, Operand | None], most: tuple[str, Operand | None], *, closed: bool
    ) -> Self:
        """Clamp this tensor to limits, given with their names for errors."""
        node, low, high = self.uop, None, None
        x = self
        if least[1] is not None:
            node, low = self._unify(least, exact=True)
            x = self if node is self.uop else self._of(node)
        if most[1] is not None:
            node, high = x._unify(most, exact=True)
            if low is not None:
                low = build.broadcast_to(low.cast(node.dtype), node.shape)
        return self._of(composite_ops.clamped(node, low, high, closed=closed))

    clip = clamp
    absolute, negative, multiply, subtract = abs, neg, mul, sub  # noqa: A003
    divide = true_divide = div
    arctan2 = atan2

    def positive(self) -> Self:
        """Return this tensor; raise DTypeError for bools.

        Examples
        --------
        >>> krt.tensor([1.0, -2.0]).positive().tolist()
        [1.0, -2.0]
        """
        if self.dtype.is_bool:
            raise DTypeError("self: bools have no sign; cast the tensor to integers")
        return +self

    def lerp(self, end: Operand, weight: Operand) -> Self:
        """Return ``self + weight * (end - self)``; exactly `end` where `weight` is 1.

        Parameters
        ----------
        end : Tensor or number
            Result for a weight of 1; shapes broadcast.
        weight : Tensor or number
            Share of `end`.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0]).lerp(krt.tensor([3.0, 6.0]), 0.5).tolist()
        [2.0, 4.0]
        """
        way = self._computed(lambda a, b: composite_ops.difference(b, a), end)
        number = as_scalar(weight)
        # Start from the nearer end: a small distance added to a large far end may be lost.
        if number is not None:
            return self + way * weight if abs(number) < 0.5 else way * (number - 1) + end
        near = self._lift(weight, "weight").abs() < 0.5
        less: Any = weight
        return self._select(near, self + way * weight, way * (less - 1) + end)

    def addcmul(self, tensor1: Operand, tensor2: Operand, *, value: Number = 1) -> Self:
        """Return ``self + value * tensor1 * tensor2``; floats are rounded once, when added.

        Parameters
        ----------
        tensor1, tensor2 : Tensor or number
            Factors; shapes broadcast.
        value : number, default 1
            Factor of the product.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Examples
        --------
        >>> krt.tensor([1.0]).addcmul(krt.tensor([2.0]), krt.tensor([3.0]), value=10).tolist()
        [61.0]
        """
        named = ("self", self), ("tensor1", tensor1), ("tensor2", tensor2), ("value", value)
        nodes = self._unify(*named[1:])
        narrow, wide = nodes[0].dtype, nodes[0].dtype.accumulator
        if wide is not narrow:
            numbers = [self._as_number(operand, name) for name, operand in named]
            nodes = [
                x.cast(wide) if number is None else build.full(number, wide, x.shape)
                for x, number in zip(nodes, numbers, strict=True)
            ]
        total, a, b, factor = nodes
        return self._of(build.multiply_add(build.mul(a, factor), b, total).cast(narrow))


def _has_digits(number: UOp | float | None, narrow: DType) -> bool:
    """Return whether this is a number that the narrow dtype may not represent exactly."""
    return number is not None and (isinstance(number, UOp) or not dt.holds(narrow, number))


_name_types(
    dt.float32, dt.float64,
    tuple(d for d in (dt.float32, dt.float64, dt.int32, dt.int64) if d.accumulator is d),
    {d.code: d for d in dt.ALL},
)  # fmt: skip
for _name, _op, _swapped in (
    ("add", Op.ADD, False), ("__add__", Op.ADD, False), ("__radd__", Op.ADD, False),
    ("sub", Op.SUB, False), ("__sub__", Op.SUB, False), ("__rsub__", Op.SUB, True),
    ("mul", Op.MUL, False), ("__mul__", Op.MUL, False), ("__rmul__", Op.MUL, False),
    ("div", Op.DIV, False), ("__truediv__", Op.DIV, False), ("__rtruediv__", Op.DIV, True),
):  # fmt: skip
    quicken(vars(OperatorMethods)[_name], _op, _swapped, whole=_op is not Op.DIV)

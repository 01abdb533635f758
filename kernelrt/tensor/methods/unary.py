"""Elementwise functions of one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError
from kernelrt.ir import Op, UOp
from kernelrt.tensor.nodes import build, composite_ops, special
from kernelrt.tensor.nodes.arguments import integer
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.tensor.methods.operands import OperandMethods as _Below
else:  # at run time a mixin without bases: freeing a tensor visits each base class of Tensor
    _Below = object

__all__ = ["FunctionMethods"]


@operations()
class FunctionMethods(_Below):
    """Elementwise functions of one tensor that keep the shape."""

    __slots__ = ()

    def cast(self, dtype: object) -> Self:
        """Convert this tensor to `dtype`.

        Integers wrap. Floats lose their fraction in integer dtypes, and are clamped to the least or
        greatest integer. NaN becomes an integer that is out of range for any axis: the least one of
        a signed dtype, the greatest one of an unsigned dtype.

        A cast from a wider dtype to float16 or bfloat16 rounds every number. Results of operations
        on these dtypes are rounded where they are stored (see :mod:`kernelrt.dtype`), or by
        ``x.float().cast(x.dtype)``.

        Examples
        --------
        >>> import kernelrt as krt
        >>> a, b = krt.tensor([3.0, 0.001], dtype="bfloat16")
        >>> x = a + b
        >>> (x.float().cast(x.dtype) - a).item()
        0.0
        """
        wanted = dt.parse(dtype)
        if wanted is self.dtype:
            return self
        if wanted.is_bool:
            node = self.uop
            return self._of(node.ne(build.full(0, node.dtype, node.shape)))
        return self._of(self.uop.cast(wanted))

    def _unary(self, op: Op) -> Self:
        return self._of(self.uop.alu(op))

    def _as_float(self) -> UOp:
        node = self.uop
        return node if node.dtype.is_float else node.cast(dt.float32)

    def _function(self, op: Op) -> Self:
        return self._of(self._as_float().alu(op))

    def _widely(self, rule: Callable[[UOp], UOp]) -> Self:
        """Apply a function of several ops in the accumulation dtype, rounded once."""
        x = self._as_float()
        return self._of(rule(x.cast(x.dtype.accumulator)).cast(x.dtype))

    def _rounding(self, op: Op) -> Self:
        return self._unary(op) if self.dtype.is_float else self

    def exp(self) -> Self:
        """Return ``e ** self``."""
        return self._function(Op.EXP)

    def exp2(self) -> Self:
        """Return ``2 ** self``."""
        return self._function(Op.EXP2)

    def expm1(self) -> Self:
        """Return ``exp(self) - 1``, precise near zero."""
        return self._function(Op.EXPM1)

    def log(self) -> Self:
        """Return the natural logarithm."""
        return self._function(Op.LOG)

    def log2(self) -> Self:
        """Return the logarithm to base 2."""
        return self._function(Op.LOG2)

    def log10(self) -> Self:
        """Return the logarithm to base 10."""
        return self._function(Op.LOG10)

    def log1p(self) -> Self:
        """Return ``log(1 + self)``, precise near zero."""
        return self._function(Op.LOG1P)

    def sqrt(self) -> Self:
        """Return the square root."""
        return self._function(Op.SQRT)

    def rsqrt(self) -> Self:
        """Return ``1 / sqrt(self)``."""
        return self._widely(composite_ops.rsqrt)

    def reciprocal(self) -> Self:
        """Return ``1 / self``."""
        x = self._as_float()
        return self._of(build.full(1, x.dtype, x.shape).alu(Op.DIV, x))

    def square(self) -> Self:
        """Return the square of each element; bools give int64."""
        x = self.uop.cast(dt.int64) if self.dtype is dt.bool_ else self.uop
        return self._of(composite_ops.product(x, x))

    def sin(self) -> Self:
        """Return the sine of angles in radians."""
        return self._function(Op.SIN)

    def cos(self) -> Self:
        """Return the cosine of angles in radians."""
        return self._function(Op.COS)

    def tan(self) -> Self:
        """Return the tangent of angles in radians."""
        return self._function(Op.TAN)

    def asin(self) -> Self:
        """Return the arc sine in radians, from -pi/2 to pi/2; NaN outside of [-1, 1]."""
        return self._function(Op.ASIN)

    def acos(self) -> Self:
        """Return the arc cosine in radians, from 0 to pi; NaN outside of [-1, 1]."""
        return self._function(Op.ACOS)

    def atan(self) -> Self:
        """Return the arc tangent in radians, from -pi/2 to pi/2."""
        return self._function(Op.ATAN)

    def sinh(self) -> Self:
        """Return the hyperbolic sine."""
        return self._function(Op.SINH)

    def cosh(self) -> Self:
        """Return the hyperbolic cosine."""
        return self._function(Op.COSH)

    def tanh(self) -> Self:
        """Return the hyperbolic tangent."""
        return self._function(Op.TANH)

    def asinh(self) -> Self:
        """Return the inverse hyperbolic sine."""
        return self._function(Op.ASINH)

    def acosh(self) -> Self:
        """Return the inverse hyperbolic cosine; NaN below 1."""
        return self._function(Op.ACOSH)

    def atanh(self) -> Self:
        """Return the inverse hyperbolic tangent; NaN outside of [-1, 1]."""
        return self._function(Op.ATANH)

    def erf(self) -> Self:
        """Return the error function."""
        return self._function(Op.ERF)

    def erfc(self) -> Self:
        """Return ``1 - erf(self)``, precise where that is small."""
        return self._function(Op.ERFC)

    def lgamma(self) -> Self:
        """Return the logarithm of the absolute value of the gamma function."""
        return self._function(Op.LGAMMA)

    def digamma(self) -> Self:
        """Return the logarithmic derivative of the gamma function."""
        return self._widely(special.digamma)

    def polygamma(self, n: int) -> Self:
        """Return the derivative of order `n` of :meth:`digamma`.

        Parameters
        ----------
        n : int
            Order, at least 0.
        """
        order = integer(n, "n", least=0)
        if order == 0:
            return self.digamma()
        return self._widely(lambda x: special.polygamma(order, x))

    def floor(self) -> Self:
        """Round each element down to an integer."""
        return self._rounding(Op.FLOOR)

    def ceil(self) -> Self:
        """Round each element up to an integer."""
        return self._rounding(Op.CEIL)

    def trunc(self) -> Self:
        """Round each element towards zero to an integer."""
        return self._rounding(Op.TRUNC)

    def round(self, *, decimals: int = 0) -> Self:
        """Round to the nearest integer, or to `decimals` decimal places; halves round to even."""
        places = integer(decimals, "decimals")
        if places == 0:
            return self._rounding(Op.ROUND)
        if not self.dtype.is_float:
            raise DTypeError(
                f"decimals: expected 0 for {self.dtype.name}, not {places}; cast the tensor to "
                "floats"
            )
        scale = 10.0 ** abs(places)

        def rule(x: UOp) -> UOp:
            if places > 0:
                return build.div(build.mul(x, scale).alu(Op.ROUND), scale)
            return build.mul(build.div(x, scale).alu(Op.ROUND), scale)

        return self._widely(rule)

    def __round__(self) -> Self:
        return self.round()

    arcsin, arccos, arctan = asin, acos, atan
    arcsinh, arccosh, arctanh = asinh, acosh, atanh

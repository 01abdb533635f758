"""Elementwise functions, by name."""

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
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object

__all__ = ["FunctionMethods"]


@operations()
class FunctionMethods(_Below):
    """Functions of one element that keep the shape."""

    __slots__ = ()

    def cast(self, dtype: object) -> Self:
        """This tensor converted to `dtype`.

        Integers wrap. Floats become integers without their fraction, and the least or greatest one
        where they lie beyond it. NaN becomes an integer that is no index of any axis: the least one
        of a signed type, the greatest one of an unsigned type.

        From a wider type to float16 or bfloat16 every number is rounded; their own results are
        where they are stored (see :mod:`kernelrt.dtype`), or by ``x.float().cast(x.dtype)``.

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
        """A function of several ops, done in the type of sums and rounded once."""
        x = self._as_float()
        return self._of(rule(x.cast(x.dtype.accumulator)).cast(x.dtype))

    def _rounding(self, op: Op) -> Self:
        return self._unary(op) if self.dtype.is_float else self

    def exp(self) -> Self:
        """The exponential function."""
        return self._function(Op.EXP)

    def exp2(self) -> Self:
        """2 to the power of each element."""
        return self._function(Op.EXP2)

    def expm1(self) -> Self:
        """``exp(self) - 1``, precise near zero."""
        return self._function(Op.EXPM1)

    def log(self) -> Self:
        """Natural logarithm."""
        return self._function(Op.LOG)

    def log2(self) -> Self:
        """Logarithm to base 2."""
        return self._function(Op.LOG2)

    def log10(self) -> Self:
        """Logarithm to base 10."""
        return self._function(Op.LOG10)

    def log1p(self) -> Self:
        """``log(1 + self)``, precise near zero."""
        return self._function(Op.LOG1P)

    def sqrt(self) -> Self:
        """Square root."""
        return self._function(Op.SQRT)

    def rsqrt(self) -> Self:
        """One over the square root."""
        return self._widely(composite_ops.rsqrt)

    def reciprocal(self) -> Self:
        """One over each element."""
        x = self._as_float()
        return self._of(build.full(1, x.dtype, x.shape).alu(Op.DIV, x))

    def square(self) -> Self:
        """Return the square of each element; of bools as int64."""
        x = self.uop.cast(dt.int64) if self.dtype is dt.bool_ else self.uop
        return self._of(composite_ops.product(x, x))

    def sin(self) -> Self:
        """Sine of radians."""
        return self._function(Op.SIN)

    def cos(self) -> Self:
        """Cosine of radians."""
        return self._function(Op.COS)

    def tan(self) -> Self:
        """Tangent of radians."""
        return self._function(Op.TAN)

    def asin(self) -> Self:
        """Arc sine in radians, from -pi/2 to pi/2; NaN beyond -1 and 1."""
        return self._function(Op.ASIN)

    def acos(self) -> Self:
        """Arc cosine in radians, from 0 to pi; NaN beyond -1 and 1."""
        return self._function(Op.ACOS)

    def atan(self) -> Self:
        """Arc tangent in radians, from -pi/2 to pi/2."""
        return self._function(Op.ATAN)

    def sinh(self) -> Self:
        """Hyperbolic sine."""
        return self._function(Op.SINH)

    def cosh(self) -> Self:
        """Hyperbolic cosine."""
        return self._function(Op.COSH)

    def tanh(self) -> Self:
        """Hyperbolic tangent."""
        return self._function(Op.TANH)

    def asinh(self) -> Self:
        """Inverse hyperbolic sine."""
        return self._function(Op.ASINH)

    def acosh(self) -> Self:
        """Inverse hyperbolic cosine; NaN below 1."""
        return self._function(Op.ACOSH)

    def atanh(self) -> Self:
        """Inverse hyperbolic tangent; NaN beyond -1 and 1."""
        return self._function(Op.ATANH)

    def erf(self) -> Self:
        """The error function."""
        return self._function(Op.ERF)

    def erfc(self) -> Self:
        """``1 - erf(self)``, precise where that is small."""
        return self._function(Op.ERFC)

    def lgamma(self) -> Self:
        """Logarithm of the absolute value of the gamma function."""
        return self._function(Op.LGAMMA)

    def digamma(self) -> Self:
        """Logarithmic derivative of the gamma function."""
        return self._widely(special.digamma)

    def polygamma(self, n: int) -> Self:
        """Derivative of order `n` of :meth:`digamma`.

        Parameters
        ----------
        n : int
            At least 0.
        """
        order = integer(n, "n", least=0)
        if order == 0:
            return self.digamma()
        return self._widely(lambda x: special.polygamma(order, x))

    def floor(self) -> Self:
        """The next whole number below or equal."""
        return self._rounding(Op.FLOOR)

    def ceil(self) -> Self:
        """The next whole number above or equal."""
        return self._rounding(Op.CEIL)

    def trunc(self) -> Self:
        """The next whole number towards zero."""
        return self._rounding(Op.TRUNC)

    def round(self, *, decimals: int = 0) -> Self:
        """The nearest whole number, or one of so many `decimals`; halves to the even one."""
        places = integer(decimals, "decimals")
        if places == 0:
            return self._rounding(Op.ROUND)
        if not self.dtype.is_float:
            raise DTypeError(f"decimals: {self.dtype.name} has none; cast the tensor to floats")
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

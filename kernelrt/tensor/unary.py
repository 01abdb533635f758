"""Functions of each element, by name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp
from kernelrt.tensor import build, functions
from kernelrt.tensor.base import TensorBase

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FunctionMethods"]


class FunctionMethods(TensorBase):
    """Functions of one element that keep the shape."""

    __slots__ = ()

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
        x = self._as_float()
        return self._of(build.full(2, x.dtype, x.shape).alu(Op.POW, x))

    def log(self) -> Self:
        """Natural logarithm."""
        return self._function(Op.LOG)

    def log2(self) -> Self:
        """Logarithm to base 2."""
        return self._widely(lambda x: build.mul(x.alu(Op.LOG), 1 / math.log(2)))

    def log10(self) -> Self:
        """Logarithm to base 10."""
        return self._widely(lambda x: build.mul(x.alu(Op.LOG), 1 / math.log(10)))

    def sqrt(self) -> Self:
        """Square root."""
        return self._function(Op.SQRT)

    def rsqrt(self) -> Self:
        """One over the square root."""
        return self._widely(functions.rsqrt)

    def reciprocal(self) -> Self:
        """One over each element."""
        x = self._as_float()
        return self._of(build.full(1, x.dtype, x.shape).alu(Op.DIV, x))

    def square(self) -> Self:
        """Each element times itself."""
        return self._of(functions.product(self.uop, self.uop))

    def sin(self) -> Self:
        """Sine of radians."""
        return self._function(Op.SIN)

    def cos(self) -> Self:
        """Cosine of radians."""
        return self._function(Op.COS)

    def tan(self) -> Self:
        """Tangent of radians."""
        return self._widely(lambda x: x.alu(Op.SIN).alu(Op.DIV, x.alu(Op.COS)))

    def tanh(self) -> Self:
        """Hyperbolic tangent."""
        return self._function(Op.TANH)

    def erf(self) -> Self:
        """The error function."""
        return self._function(Op.ERF)

    def floor(self) -> Self:
        """The next whole number below or equal."""
        return self._rounding(Op.FLOOR)

    def ceil(self) -> Self:
        """The next whole number above or equal."""
        return self._rounding(Op.CEIL)

    def trunc(self) -> Self:
        """The next whole number towards zero."""
        return self._rounding(Op.TRUNC)

    def round(self) -> Self:
        """The nearest whole number, halves to the even one."""
        return self._rounding(Op.ROUND)

    def __round__(self) -> Self:
        return self.round()

    def log1p(self) -> Self:
        """``log(1 + self)``, precise near zero."""
        return self._widely(functions.log1p)

    def expm1(self) -> Self:
        """``exp(self) - 1``, precise near zero."""
        return self._widely(functions.expm1)

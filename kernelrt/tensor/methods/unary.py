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
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
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
        a signed dtype, the greatest one of an unsigned dtype. In bool, each number but 0 is True.

        A cast from a wider dtype to float16 or bfloat16 rounds every number. A result of operations
        on these two dtypes is rounded only where it is stored (see :mod:`kernelrt.dtype`);
        ``x.float().cast(x.dtype)`` rounds it in any case.

        Parameters
        ----------
        dtype : DType or str
            Dtype of the result, such as ``krt.int8`` or ``"int8"``; types of NumPy and Python, such
            as ``np.int8`` and ``float``, are also accepted.

        Returns
        -------
        Tensor
            Tensor of this shape; this tensor itself if it has the dtype already.

        Examples
        --------
        >>> krt.tensor([1.9, -1.9, 300.0]).cast("int8").tolist()
        [1, -1, 127]
        >>> krt.tensor([300]).cast("int8").tolist()
        [44]
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
        """Return ``e ** self``.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.0, 1.0]).exp().tolist()
        [1.0, 2.718...]
        """
        return self._function(Op.EXP)

    def exp2(self) -> Self:
        """Return ``2 ** self``.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([-1.0, 0.0, 3.0]).exp2().tolist()
        [0.5, 1.0, 8.0]
        """
        return self._function(Op.EXP2)

    def expm1(self) -> Self:
        """Return ``exp(self) - 1``, precise near zero.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> x = krt.tensor([0.0, 1e-10])
        >>> x.expm1().tolist(), (x.exp() - 1).tolist()
        ([0.0, 1.00...e-10], [0.0, 0.0])
        """
        return self._function(Op.EXPM1)

    def log(self) -> Self:
        """Return the natural logarithm; -inf at 0, NaN below 0.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([1.0, 0.0, -1.0]).log().tolist()
        [0.0, -inf, nan]
        """
        return self._function(Op.LOG)

    def log2(self) -> Self:
        """Return the logarithm to base 2; -inf at 0, NaN below 0.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.5, 1.0, 8.0]).log2().tolist()
        [-1.0, 0.0, 3.0]
        """
        return self._function(Op.LOG2)

    def log10(self) -> Self:
        """Return the logarithm to base 10; -inf at 0, NaN below 0.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([1.0, 10.0, 1000.0]).log10().tolist()
        [0.0, 1.0, 3.0]
        """
        return self._function(Op.LOG10)

    def log1p(self) -> Self:
        """Return ``log(1 + self)``, precise near zero; -inf at -1, NaN below -1.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> x = krt.tensor([0.0, 1e-10])
        >>> x.log1p().tolist(), (1 + x).log().tolist()
        ([0.0, 1.00...e-10], [0.0, 0.0])
        """
        return self._function(Op.LOG1P)

    def sqrt(self) -> Self:
        """Return the square root; NaN below 0. The gradient at 0 is infinite.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.0, 4.0, 9.0]).sqrt().tolist()
        [0.0, 2.0, 3.0]
        """
        return self._function(Op.SQRT)

    def rsqrt(self) -> Self:
        """Return ``1 / sqrt(self)``; infinity at 0, NaN below 0.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([4.0, 0.25, 0.0]).rsqrt().tolist()
        [0.5, 2.0, inf]
        """
        return self._widely(composite_ops.rsqrt)

    def reciprocal(self) -> Self:
        """Return ``1 / self``; infinity at 0.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([1, 2, -4]).reciprocal().tolist()
        [1.0, 0.5, -0.25]
        """
        x = self._as_float()
        return self._of(build.full(1, x.dtype, x.shape).alu(Op.DIV, x))

    def square(self) -> Self:
        """Return the square of each element.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; bools give int64. Integers wrap.

        Examples
        --------
        >>> krt.tensor([3, -4]).square().tolist()
        [9, 16]
        """
        x = self.uop.cast(dt.int64) if self.dtype is dt.bool_ else self.uop
        return self._of(composite_ops.product(x, x))

    def sin(self) -> Self:
        """Return the sine of angles in radians; NaN for infinities.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.0, krt.pi / 2]).sin().tolist()
        [0.0, 1.0]
        """
        return self._function(Op.SIN)

    def cos(self) -> Self:
        """Return the cosine of angles in radians; NaN for infinities.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.0, krt.pi]).cos().tolist()
        [1.0, -1.0]
        """
        return self._function(Op.COS)

    def tan(self) -> Self:
        """Return the tangent of angles in radians; NaN for infinities.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.0, 1.0]).tan().tolist()
        [0.0, 1.557...]
        """
        return self._function(Op.TAN)

    def asin(self) -> Self:
        """Return the arc sine in radians, from -pi/2 to pi/2; NaN outside of [-1, 1].

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.0, 1.0, 2.0]).asin().tolist()
        [0.0, 1.570..., nan]
        """
        return self._function(Op.ASIN)

    def acos(self) -> Self:
        """Return the arc cosine in radians, from 0 to pi; NaN outside of [-1, 1].

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([1.0, -1.0, 2.0]).acos().tolist()
        [0.0, 3.141..., nan]
        """
        return self._function(Op.ACOS)

    def atan(self) -> Self:
        """Return the arc tangent in radians, from -pi/2 to pi/2.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.0, 1.0, krt.inf]).atan().tolist()
        [0.0, 0.785..., 1.570...]
        """
        return self._function(Op.ATAN)

    def sinh(self) -> Self:
        """Return the hyperbolic sine, ``(exp(self) - exp(-self)) / 2``.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.0, 1.0]).sinh().tolist()
        [0.0, 1.175...]
        """
        return self._function(Op.SINH)

    def cosh(self) -> Self:
        """Return the hyperbolic cosine, ``(exp(self) + exp(-self)) / 2``.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.0, 1.0]).cosh().tolist()
        [1.0, 1.543...]
        """
        return self._function(Op.COSH)

    def tanh(self) -> Self:
        """Return the hyperbolic tangent, ``sinh(self) / cosh(self)``.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.0, 1.0, krt.inf]).tanh().tolist()
        [0.0, 0.761..., 1.0]
        """
        return self._function(Op.TANH)

    def asinh(self) -> Self:
        """Return the inverse hyperbolic sine.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.0, 1.0]).asinh().tolist()
        [0.0, 0.881...]
        """
        return self._function(Op.ASINH)

    def acosh(self) -> Self:
        """Return the inverse hyperbolic cosine, at least 0; NaN below 1.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0, 0.5]).acosh().tolist()
        [0.0, 1.316..., nan]
        """
        return self._function(Op.ACOSH)

    def atanh(self) -> Self:
        """Return the inverse hyperbolic tangent; infinite at -1 and 1, NaN outside of [-1, 1].

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.0, 0.5, 1.0]).atanh().tolist()
        [0.0, 0.549..., inf]
        """
        return self._function(Op.ATANH)

    def erf(self) -> Self:
        """Return the error function.

        It is the integral of ``2 / sqrt(pi) * exp(-t ** 2)`` over t from 0 to the element.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.0, 1.0, krt.inf]).erf().tolist()
        [0.0, 0.842..., 1.0]
        """
        return self._function(Op.ERF)

    def erfc(self) -> Self:
        """Return ``1 - erf(self)``, precise where that is small.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> x = krt.tensor([0.0, 6.0])
        >>> x.erfc().tolist(), (1 - x.erf()).tolist()
        ([1.0, 2.151...e-17], [1.0, 0.0])
        """
        return self._function(Op.ERFC)

    def lgamma(self) -> Self:
        """Return the logarithm of the absolute value of the gamma function.

        It is infinite at 0 and at negative integers.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([1.0, 5.0, 0.0]).lgamma().tolist()  # gamma(5) = 24
        [0.0, 3.178..., inf]
        """
        return self._function(Op.LGAMMA)

    def digamma(self) -> Self:
        """Return the derivative of the logarithm of the gamma function.

        It is -inf at 0 and NaN at negative integers.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0, 0.0]).digamma().tolist()
        [-0.577..., 0.422..., -inf]
        """
        return self._widely(special.digamma)

    def polygamma(self, n: int) -> Self:
        """Return the derivative of order `n` of :meth:`digamma`.

        Parameters
        ----------
        n : int
            Order, at least 0; 0 is digamma itself. The function ``krt.polygamma(n, x)`` takes it as
            its first argument.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give float32.

        Raises
        ------
        ShapeError
            `n` is negative.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0]).polygamma(1).tolist()  # pi ** 2 / 6, and that minus 1
        [1.644..., 0.644...]
        """
        order = integer(n, "n", least=0)
        if order == 0:
            return self.digamma()
        return self._widely(lambda x: special.polygamma(order, x))

    def floor(self) -> Self:
        """Round each element down to an integer. The gradient is 0.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype. Integers and bools stay as they are.

        Examples
        --------
        >>> krt.tensor([1.5, -1.5, 2.0]).floor().tolist()
        [1.0, -2.0, 2.0]
        """
        return self._rounding(Op.FLOOR)

    def ceil(self) -> Self:
        """Round each element up to an integer. The gradient is 0.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype. Integers and bools stay as they are.

        Examples
        --------
        >>> krt.tensor([1.5, -1.5, 2.0]).ceil().tolist()
        [2.0, -1.0, 2.0]
        """
        return self._rounding(Op.CEIL)

    def trunc(self) -> Self:
        """Round each element towards zero to an integer. The gradient is 0.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype. Integers and bools stay as they are.

        Examples
        --------
        >>> krt.tensor([1.5, -1.5, 2.0]).trunc().tolist()
        [1.0, -1.0, 2.0]
        """
        return self._rounding(Op.TRUNC)

    def round(self, *, decimals: int = 0) -> Self:
        """Round to the nearest integer, or to `decimals` decimal places; halves round to even.

        The gradient is 0.

        Parameters
        ----------
        decimals : int
            Number of decimal places. A negative number rounds to tens, hundreds and so on.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype. Integers and bools stay as they are.

        Raises
        ------
        DTypeError
            `decimals` is not 0, and the elements are not floats.

        Examples
        --------
        >>> krt.tensor([0.5, 1.5, 2.7]).round().tolist()
        [0.0, 2.0, 3.0]
        >>> krt.tensor([1.25, 37.0]).round(decimals=-1).tolist()
        [0.0, 40.0]
        """
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

"""Elementwise functions that consist of several ops or take several operands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Self, TypeVar

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError
from kernelrt.ir import Op, UOp
from kernelrt.tensor.nodes import build, composite_ops, float_parts, special
from kernelrt.tensor.nodes.arguments import integer, real
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.tensor.base import Operand, TensorBase
    from kernelrt.tensor.methods.operators import Number
    from kernelrt.tensor.methods.statistics import StatisticsMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["ElementwiseMethods", "Split"]

_T = TypeVar("_T")
#: The greatest finite number of each dtype.
_GREATEST: Final = {
    dt.float16: 65504.0, dt.bfloat16: float.fromhex("0x1.fep127"),
    dt.float32: float.fromhex("0x1.fffffep127"),
    dt.float64: float.fromhex("0x1.fffffffffffffp1023"),
}  # fmt: skip


class Split(NamedTuple, Generic[_T]):
    """Result of :meth:`~ElementwiseMethods.frexp`.

    Attributes
    ----------
    mantissa : Tensor of floats
        Numbers of magnitude in [1/2, 1).
    exponent : Tensor of int32
        Exponents of 2.

    Examples
    --------
    >>> mantissa, exponent = krt.tensor([8.0]).frexp()
    >>> mantissa.item(), exponent.item()
    (0.5, 4)
    """

    mantissa: _T
    exponent: _T


@operations()
class ElementwiseMethods(_Below):
    """Elementwise arithmetic that is composed of several ops."""

    __slots__ = ()

    def _jointly(
        self, rule: Callable[[UOp, UOp], UOp], other: Operand, name: str = "other"
    ) -> Self:
        """Apply `rule` in the accumulation dtype and round once; integers become float32."""
        x = self if self._unify((name, other))[0].dtype.is_float else self.cast(dt.float32)
        a, b = x._unify((name, other))
        narrow, wide = a.dtype, a.dtype.accumulator
        if wide is not narrow:
            left, right = (self._as_number(v, name) for v in (self, other))
            a = a.cast(wide) if left is None else build.full(left, wide, a.shape)
            b = b.cast(wide) if right is None else build.full(right, wide, b.shape)
        return self._of(rule(a, b).cast(narrow))

    # ---- signs and parts

    def copysign(self, other: Operand) -> Self:
        """Return the magnitude of each element with the sign of `other`, also the sign of a zero.

        Parameters
        ----------
        other : Tensor or number
            Numbers whose sign to take; shapes broadcast.

        Returns
        -------
        Tensor of floats
            Broadcast shape, promoted dtype; integers and bools give float32.


        Examples
        --------
        >>> krt.tensor([1.0, 2.0]).copysign(krt.tensor([-3.0, -0.0])).tolist()
        [-1.0, -2.0]
        """
        return self._jointly(float_parts.copysign, other)

    def signbit(self) -> Self:
        """Return whether the sign bit is set, also for -0.0 and NaN.

        Returns
        -------
        Tensor of bools
            Same shape.


        Examples
        --------
        >>> krt.tensor([1.0, -0.0, -2.0]).signbit().tolist()
        [False, True, True]
        """
        x = self.uop
        return self._of(float_parts.signbit(x.cast(x.dtype.accumulator)))

    def sgn(self) -> Self:
        """Return the sign of each element: -1, 0 or 1; 0 for NaN.

        Returns
        -------
        Tensor
            Same shape and dtype.


        Examples
        --------
        >>> krt.tensor([-3.0, 0.0, 5.0]).sgn().tolist()
        [-1.0, 0.0, 1.0]
        """
        return self.sign()

    def fix(self) -> Self:
        """Round each element toward zero.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools stay unchanged.


        Examples
        --------
        >>> krt.tensor([-1.5, 1.5]).fix().tolist()
        [-1.0, 1.0]
        """
        return self.trunc()

    def frac(self) -> Self:
        """Return the fractional part, ``self - trunc(self)``, with the sign of the element.

        Returns
        -------
        Tensor of floats
            Same shape and dtype; integers and bools raise DTypeError.


        Examples
        --------
        >>> krt.tensor([-2.5, 1.25]).frac().tolist()
        [-0.5, 0.25]
        """
        x = self._floats("frac")
        return self._of(x.alu(Op.SUB, x.alu(Op.TRUNC)))

    def frexp(self) -> Split[Self]:
        """Return the mantissa, of magnitude in [1/2, 1), and the binary exponent of each element.

        ``mantissa * 2**exponent`` is the element. The mantissa of zeros, infinities and NaN is the
        element itself, and their exponent is 0.

        Returns
        -------
        Split of (mantissa, exponent)
            Same shape: floats of this dtype, and int32. Integers and bools raise DTypeError.


        Examples
        --------
        >>> krt.tensor([1.0, -2.5]).frexp().mantissa.tolist()
        [0.5, -0.625]
        """
        x = self._floats("frexp")
        mantissa, exponent = float_parts.frexp(x.cast(x.dtype.accumulator))
        return Split(self._of(mantissa.cast(x.dtype)), self._of(exponent))

    def ldexp(self, other: Operand) -> Self:
        """Return ``self * 2**other``; the power is computed as a float.

        Parameters
        ----------
        other : Tensor or number
            Exponents of 2, which may have fractions; shapes broadcast.

        Returns
        -------
        Tensor of floats
            Broadcast shape, promoted dtype; integers and bools give float32.


        Examples
        --------
        >>> krt.tensor([1.0, -2.5]).ldexp(3).tolist()
        [8.0, -20.0]
        """
        return self._jointly(lambda a, b: a.alu(Op.MUL, b.alu(Op.EXP2)), other)

    def nextafter(self, other: Operand) -> Self:
        """Return the next representable number after each element in the direction of `other`.

        The gradient goes to this tensor; it is 0 where the two elements are equal.

        Parameters
        ----------
        other : Tensor or number
            Numbers to go toward; shapes broadcast.

        Returns
        -------
        Tensor of floats
            Broadcast shape, promoted dtype; integers and bools raise DTypeError.


        Examples
        --------
        >>> krt.tensor([1.0], dtype="float64").nextafter(2.0).tolist()
        [1.0000000000000002]
        """
        a, b = self._unify(("other", other))
        if not a.dtype.is_float:
            raise DTypeError(
                f"nextafter: expected a floating type, not {a.dtype.name}; cast the tensors first, "
                "as in x.float()"
            )
        return self._of(float_parts.neighbour(a, b))

    def nan_to_num(
        self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> Self:
        """Replace NaN by `nan`, and infinities by `posinf` and `neginf`.

        Parameters
        ----------
        nan : float, default 0.0
            Replacement of NaN.
        posinf, neginf : float, optional
            Replacements of infinities; by default the greatest and the least number of the dtype.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools stay unchanged.

        Examples
        --------
        >>> x = krt.tensor([float("nan"), float("inf"), 2.0])
        >>> x.nan_to_num(posinf=100.0).tolist()
        [0.0, 100.0, 2.0]
        """
        x = self.uop
        numbers = {"nan": nan, "posinf": posinf, "neginf": neginf}
        zero, most, least = (None if v is None else real(v, k) for k, v in numbers.items())
        if not x.dtype.is_float:
            return self
        most = _GREATEST[x.dtype] if most is None else most
        least = -_GREATEST[x.dtype] if least is None else least
        out = build.where(x.eq(build.full(math.inf, x.dtype, x.shape)), most, x)
        out = build.where(x.eq(build.full(-math.inf, x.dtype, x.shape)), least, out)
        return self._of(build.where(x.ne(x), 0.0 if zero is None else zero, out))

    def isposinf(self) -> Self:
        """Return whether each element is positive infinity.

        Returns
        -------
        Tensor of bools
            Same shape; False for integers and bools.


        Examples
        --------
        >>> krt.tensor([1.0, float("inf"), float("-inf")]).isposinf().tolist()
        [False, True, False]
        """
        return self._is_number(math.inf)

    def isneginf(self) -> Self:
        """Return whether each element is negative infinity.

        Returns
        -------
        Tensor of bools
            Same shape; False for integers and bools.


        Examples
        --------
        >>> krt.tensor([1.0, float("inf"), float("-inf")]).isneginf().tolist()
        [False, False, True]
        """
        return self._is_number(-math.inf)

    def _is_number(self, number: float) -> Self:
        x = self.uop
        if not x.dtype.is_float:
            return self._of(build.full(False, dt.bool_, x.shape))
        return self._of(x.eq(build.full(number, x.dtype, x.shape)))

    def isreal(self) -> Self:
        """Return True for each element, as there are no complex dtypes.

        Returns
        -------
        Tensor of bools
            Same shape.


        Examples
        --------
        >>> krt.tensor([1.0, 2.0]).isreal().tolist()
        [True, True]
        """
        return self._of(build.full(True, dt.bool_, self.dims))

    # ---- of two numbers

    def hypot(self, other: Operand) -> Self:
        """Return ``sqrt(self**2 + other**2)``, also where the squares overflow or underflow.

        Parameters
        ----------
        other : Tensor or number
            Second leg of the right triangle; shapes broadcast.

        Returns
        -------
        Tensor of floats
            Broadcast shape, promoted dtype; integers and bools give float32.


        Examples
        --------
        >>> krt.tensor([3.0, 3e30], dtype="float64").hypot(4.0).tolist()
        [5.0, 3e+30]
        """
        return self._jointly(special.hypot, other)

    def logaddexp(self, other: Operand) -> Self:
        """Return ``log(exp(self) + exp(other))``, computed without overflow.

        Parameters
        ----------
        other : Tensor or number
            Second logarithm; shapes broadcast.

        Returns
        -------
        Tensor of floats
            Broadcast shape, promoted dtype; integers and bools give float32.


        Examples
        --------
        >>> x = krt.tensor([0.0, 1000.0], dtype="float64")
        >>> x.logaddexp(x).round(decimals=4).tolist()
        [0.6931, 1000.6931]
        """
        return self._jointly(special.log_add, other)

    def logaddexp2(self, other: Operand) -> Self:
        """Return ``log2(2**self + 2**other)``, computed without overflow.

        Parameters
        ----------
        other : Tensor or number
            Second logarithm to base 2; shapes broadcast.

        Returns
        -------
        Tensor of floats
            Broadcast shape, promoted dtype; integers and bools give float32.


        Examples
        --------
        >>> krt.tensor([2.0, 1000.0]).logaddexp2(krt.tensor([2.0, 1000.0])).tolist()
        [3.0, 1001.0]
        """
        return self._jointly(lambda a, b: special.log_add(a, b, base_2=True), other)

    def xlogy(self, other: Operand) -> Self:
        """Return ``self * log(other)``; 0 where this tensor is 0, unless `other` is NaN.

        Parameters
        ----------
        other : Tensor or number
            Numbers whose logarithm to take; shapes broadcast.

        Returns
        -------
        Tensor of floats
            Broadcast shape, promoted dtype; integers and bools give float32.


        Examples
        --------
        >>> x, y = krt.tensor([[0.0, 3.0], [0.0, 4.0]], dtype="float64")
        >>> x.xlogy(y).round(decimals=4).tolist()
        [0.0, 4.1589]
        """
        return self._jointly(special.xlogy, other)

    def xlog1py(self, other: Operand) -> Self:
        """Return ``self * log(1 + other)``; 0 where this tensor is 0, unless `other` is NaN.

        Parameters
        ----------
        other : Tensor or number
            Numbers above -1; shapes broadcast.

        Returns
        -------
        Tensor of floats
            Broadcast shape, promoted dtype; integers and bools give float32.


        Examples
        --------
        >>> x, y = krt.tensor([[0.0, 3.0], [-1.0, 3.0]], dtype="float64")
        >>> x.xlog1py(y).round(decimals=4).tolist()
        [0.0, 4.1589]
        """
        return self._jointly(special.xlog1py, other)

    def heaviside(self, values: Operand) -> Self:
        """Return 0 for negative elements and NaN, 1 for positive elements, and `values` for zeros.

        Parameters
        ----------
        values : Tensor or number
            Values at 0; shapes broadcast.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.


        Examples
        --------
        >>> krt.tensor([-1.0, 0.0, 2.0]).heaviside(0.5).tolist()
        [0.0, 0.5, 1.0]
        """
        a, b = self._unify(("values", values), exact=True)
        zero = build.zeros_like(a)
        step = zero.alu(Op.LT, a).cast(a.dtype)
        return self._of(build.where(a.eq(zero), b, step))

    def fmax(self, other: Operand) -> Self:
        """Return the elementwise maximum; if one of two elements is NaN, return the other.

        The gradient of equal elements goes to this tensor.

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
        >>> krt.tensor([float("nan"), 1.0]).fmax(krt.tensor([2.0, 3.0])).tolist()
        [2.0, 3.0]
        """
        return self._known(Op.LE, other)

    def fmin(self, other: Operand) -> Self:
        """Return the elementwise minimum, with NaN and gradients as in :meth:`fmax`.

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
        >>> krt.tensor([float("nan"), 1.0]).fmin(krt.tensor([2.0, 3.0])).tolist()
        [2.0, 1.0]
        """
        return self._known(Op.LT, other)

    def _known(self, op: Op, other: Operand) -> Self:
        a, b = self._unify(("other", other), exact=True)
        own = b.alu(Op.LE, a) if op is Op.LE else a.alu(Op.LE, b)
        if b.dtype.is_float:
            own = own.alu(Op.OR, b.ne(b))
        return self._of(build.where(own, a, b))

    def float_power(self, exponent: Operand) -> Self:
        """Return ``self ** exponent`` in float64.

        Parameters
        ----------
        exponent : Tensor or number
            Exponents; shapes broadcast.

        Returns
        -------
        Tensor of float64
            Broadcast shape.


        Examples
        --------
        >>> krt.tensor([2, 4]).float_power(-1).tolist()
        [0.5, 0.25]
        """
        power = self._lift(exponent, "exponent").cast(dt.float64)
        number = self._as_number(exponent, "exponent")
        wide = self.cast(dt.float64)
        return wide.pow(power if number is None or isinstance(number, UOp) else float(number))

    def rsub(self, other: Operand, *, alpha: Number = 1) -> Self:
        """Return ``other - alpha * self``.

        Parameters
        ----------
        other : Tensor or number
            Minuend; shapes broadcast.
        alpha : number, default 1
            Factor of this tensor.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0]).rsub(10.0, alpha=2).tolist()
        [8.0, 6.0]
        """
        if alpha == 1:
            return self.__rsub__(other)
        a, b, c = self._unify(("other", other), ("alpha", alpha))
        return self._of(composite_ops.difference(b, composite_ops.product(a, c)))

    def addcdiv(self, tensor1: Operand, tensor2: Operand, *, value: Number = 1) -> Self:
        """Return ``self + value * tensor1 / tensor2``.

        Parameters
        ----------
        tensor1, tensor2 : Tensor or number
            Dividend and divisor; shapes broadcast. At least one of them holds floats.
        value : number, default 1
            Factor of the quotient.

        Returns
        -------
        Tensor of floats
            Broadcast shape, promoted dtype.

        Raises
        ------
        DTypeError
            Neither `tensor1` nor `tensor2` holds floats.

        Examples
        --------
        >>> krt.tensor([1.0]).addcdiv(krt.tensor([3.0]), krt.tensor([4.0]), value=2).tolist()
        [2.5]
        """
        a, b = self._lift(tensor1, "tensor1"), self._lift(tensor2, "tensor2")
        if not a.dtype.is_float and not b.dtype.is_float:
            raise DTypeError(
                "addcdiv: neither tensor1 nor tensor2 holds floats; cast one to floats, or use div "
                "with a rounding_mode"
            )
        total, first, second, factor = self._unify(
            ("tensor1", tensor1), ("tensor2", tensor2), ("value", value)
        )
        narrow, wide = total.dtype, total.dtype.accumulator
        total, first, second = (u.cast(wide) for u in (total, first, second))
        scaled = build.mul(first, build.full(real(value, "value"), wide, factor.shape))
        return self._of(total.alu(Op.ADD, scaled.alu(Op.DIV, second)).cast(narrow))

    # ---- comparison of all elements

    def allclose(
        self, other: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Return whether all elements are close to those of `other`; see :meth:`isclose`.

        Parameters
        ----------
        other : Tensor or number
            Values to compare with; shapes broadcast.
        rtol, atol : float, default 1e-5 and 1e-8
            Relative and absolute tolerance, at least 0.
        equal_nan : bool, default False
            Whether two NaNs are close.

        Returns
        -------
        bool
            Computed immediately, so not available in a traced function.

        Raises
        ------
        DomainError
            A tolerance is negative.
        JitError
            A function is being traced.

        Examples
        --------
        >>> krt.tensor([100.0, 200.0]).allclose(krt.tensor([100.0001, 200.0]))
        True
        """
        return bool(self.isclose(other, rtol, atol, equal_nan).all().item())

    def equal(self, other: TensorBase) -> bool:
        """Return whether `other` has the same shape and the same elements.

        Parameters
        ----------
        other : Tensor
            Tensor of any dtype; only values count.

        Returns
        -------
        bool
            Computed immediately, so not available in a traced function.

        Raises
        ------
        JitError
            A function is being traced.

        Examples
        --------
        >>> krt.tensor([1, 2]).equal(krt.tensor([1.0, 2.0]))
        True
        """
        theirs = self._lift(other, "other")
        return build.same_shape(self.dims, theirs.dims) and bool((self == theirs).all().item())

    # ---- integers

    def gcd(self, other: Operand) -> Self:
        """Return the elementwise greatest common divisor of integers; that of two zeros is 0.

        Parameters
        ----------
        other : Tensor or number
            Integers; shapes broadcast.

        Returns
        -------
        Tensor of integers
            Broadcast shape, promoted dtype; floats and bools raise DTypeError.


        Examples
        --------
        >>> krt.tensor([12, -4]).gcd(krt.tensor([18, 6])).tolist()
        [6, 2]
        """
        return self._divisors(float_parts.common_divisor, other, "gcd")

    def lcm(self, other: Operand) -> Self:
        """Return the elementwise least common multiple of integers; 0 where one of them is 0.

        Parameters
        ----------
        other : Tensor or number
            Integers; shapes broadcast.

        Returns
        -------
        Tensor of integers
            Broadcast shape, promoted dtype; floats and bools raise DTypeError.


        Examples
        --------
        >>> krt.tensor([4, 6]).lcm(krt.tensor([6, 0])).tolist()
        [12, 0]
        """
        return self._divisors(float_parts.common_multiple, other, "lcm")

    def _divisors(self, rule: Callable[[UOp, UOp], UOp], other: Operand, name: str) -> Self:
        a, b = self._unify(("other", other), exact=True)
        if not a.dtype.is_int:
            raise DTypeError(f"{name}: expected integers, not {a.dtype.name}")
        return self._of(rule(a, b))

    # ---- functions of one element

    def deg2rad(self) -> Self:
        """Convert degrees to radians.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.


        Examples
        --------
        >>> krt.tensor([0.0, 180.0], dtype="float64").deg2rad().tolist()
        [0.0, 3.141592653589793]
        """
        return self._widely(lambda x: build.mul(x, math.pi / 180))

    def rad2deg(self) -> Self:
        """Convert radians to degrees.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.


        Examples
        --------
        >>> krt.tensor([0.0, np.pi], dtype="float64").rad2deg().tolist()
        [0.0, 180.0]
        """
        return self._widely(lambda x: build.mul(x, 180 / math.pi))

    def logit(self, eps: float | None = None) -> Self:
        """Return ``log(self / (1 - self))``, the inverse of :meth:`sigmoid`.

        Parameters
        ----------
        eps : float, optional
            If given, clamp the elements to ``[eps, 1 - eps]`` first. Otherwise elements outside of
            [0, 1] give NaN.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([0.25, 0.5, 1.0], dtype="float64").logit().round(decimals=4).tolist()
        [-1.0986, 0.0, inf]
        """
        edge = None if eps is None else real(eps, "eps")
        return self._widely(lambda x: special.logit(x, edge))

    def sinc(self) -> Self:
        """Return ``sin(pi * self) / (pi * self)``, and 1 at 0.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.


        Examples
        --------
        >>> krt.tensor([0.0, 0.5], dtype="float64").sinc().round(decimals=4).tolist()
        [1.0, 0.6366]
        """
        return self._widely(special.sinc)

    def erfinv(self) -> Self:
        """Return the inverse of :meth:`erf`: infinite at -1 and 1, NaN outside of [-1, 1].

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.


        Examples
        --------
        >>> krt.tensor([0.0, 0.5, 1.0], dtype="float64").erfinv().round(decimals=4).tolist()
        [0.0, 0.4769, inf]
        """
        return self._widely(special.erfinv)

    def i0(self) -> Self:
        """Return the modified Bessel function of the first kind of order 0.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.


        Examples
        --------
        >>> krt.tensor([0.0, 1.0], dtype="float64").i0().round(decimals=4).tolist()
        [1.0, 1.2661]
        """
        return self._widely(lambda x: special.bessel_i(x, 0, scaled=False))

    def i0e(self) -> Self:
        """Return :meth:`i0` times ``exp(-|self|)``; the product never overflows.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.


        Examples
        --------
        >>> krt.tensor([0.0, 1.0], dtype="float64").i0e().round(decimals=4).tolist()
        [1.0, 0.4658]
        """
        return self._widely(lambda x: special.bessel_i(x, 0, scaled=True))

    def i1(self) -> Self:
        """Return the modified Bessel function of the first kind of order 1.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.


        Examples
        --------
        >>> krt.tensor([0.0, 1.0], dtype="float64").i1().round(decimals=4).tolist()
        [0.0, 0.5652]
        """
        return self._widely(lambda x: special.bessel_i(x, 1, scaled=False))

    def i1e(self) -> Self:
        """Return :meth:`i1` times ``exp(-|self|)``; the product never overflows.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.


        Examples
        --------
        >>> krt.tensor([0.0, 1.0], dtype="float64").i1e().round(decimals=4).tolist()
        [0.0, 0.2079]
        """
        return self._widely(lambda x: special.bessel_i(x, 1, scaled=True))

    def mvlgamma(self, p: int) -> Self:
        """Return the logarithm of the multivariate gamma function of dimension `p`.

        This is the sum of ``lgamma(self - j / 2)`` for j from 0 to p - 1, plus
        ``p * (p - 1) / 4 * log(pi)`` (DLMF 35.3.4). The result is infinite where one of the
        arguments of :meth:`lgamma` is 0 or a negative integer.

        Parameters
        ----------
        p : int
            Dimension, at least 1.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.

        Raises
        ------
        ShapeError
            `p` is below 1.

        Examples
        --------
        >>> krt.tensor([3.0], dtype="float64").mvlgamma(2).round(decimals=4).tolist()
        [1.5502]
        """
        count = integer(p, "p", least=1)

        def rule(x: UOp) -> UOp:
            shape = (*x.shape, count)
            wide = build.expand(build.reshape(x, (*x.shape, 1)), shape)
            halves = build.mul(build.iota_along(shape, len(x.shape)).cast(x.dtype), 0.5)
            terms = build.sub(wide, halves).alu(Op.LGAMMA)
            total = build.reduce(terms, Op.ADD, (len(x.shape),))
            return build.add(total, count * (count - 1) / 4 * math.log(math.pi))

        return self._widely(rule)

    # ---- limits

    def clamp_min(self, min: Operand) -> Self:  # noqa: A002 - torch's name
        """Raise elements below `min` to `min`; see :meth:`clamp`.

        Parameters
        ----------
        min : Tensor or number
            Lower limit; shapes broadcast.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Examples
        --------
        >>> krt.tensor([-2.0, 3.0]).clamp_min(0.0).tolist()
        [0.0, 3.0]
        """
        return self.clamp(min=min)

    def clamp_max(self, max: Operand) -> Self:  # noqa: A002 - torch's name
        """Lower elements above `max` to `max`; see :meth:`clamp`.

        Parameters
        ----------
        max : Tensor or number
            Upper limit; shapes broadcast.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Examples
        --------
        >>> krt.tensor([-2.0, 3.0]).clamp_max(1.0).tolist()
        [-2.0, 1.0]
        """
        return self.clamp(max=max)

    def renorm(self, p: float, dim: int, maxnorm: float) -> Self:
        """Scale each slice along `dim` so that its `p`-norm is at most `maxnorm`.

        Parameters
        ----------
        p : float
            Order of the norm, above 0.
        dim : int
            Axis whose slices are scaled.
        maxnorm : float
            Greatest norm of a slice, at least 0.

        Returns
        -------
        Tensor
            Same shape and dtype.

        Raises
        ------
        DomainError
            `p` or `maxnorm` is out of range.
        ShapeError
            This tensor has fewer than 2 axes.
        DTypeError
            This tensor holds integers or bools.

        Examples
        --------
        >>> x = krt.tensor([[3.0, 4.0], [0.0, 1.0]], dtype="float64")
        >>> x.renorm(2, 0, 2.5).round(decimals=4).tolist()
        [[1.5, 2.0], [0.0, 1.0]]
        """
        if not real(p, "p") > 0:
            raise DomainError(f"p: expected a number above 0, not {p}")
        if not real(maxnorm, "maxnorm") >= 0:
            raise DomainError(f"maxnorm: expected a number of at least 0, not {maxnorm}")
        return self._renormed(p, dim, maxnorm)

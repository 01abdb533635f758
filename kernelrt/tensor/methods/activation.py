"""Activation functions of neural networks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Self

from kernelrt.errors import DomainError, DTypeError
from kernelrt.ir import Op, UOp
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import check_floats, real
from kernelrt.tensor.nodes.composite_ops import clamped, sigmoid, softplus
from kernelrt.tensor.nodes.promotion import element
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.methods.operators import OperatorMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["ActivationMethods"]


@operations()
class ActivationMethods(_Below):
    """Activation functions. Gradients are computed from the output where that is possible."""

    __slots__ = ()

    def _floats(self, name: str) -> UOp:
        node = self.uop
        check_floats(node.dtype, name)
        return node

    def relu(self) -> Self:
        """Return ``max(self, 0)``; NaN stays NaN, and the gradient at 0 is 0.

        Returns
        -------
        Tensor
            Same shape and dtype.

        Examples
        --------
        >>> krt.tensor([-1.0, 0.0, 2.0]).relu().tolist()
        [0.0, 0.0, 2.0]
        """
        x = self.uop
        zero = build.zeros_like(x)
        return self._of(build.where(x.alu(Op.LE, zero), zero, x))

    def relu6(self) -> Self:
        """Return ``min(max(self, 0), 6)``; the gradient is 0 where the input is 0, 6 or NaN.

        Returns
        -------
        Tensor
            Same shape and dtype; bools give int64.

        Examples
        --------
        >>> krt.tensor([-1.0, 2.0, 9.0]).relu6().tolist()
        [0.0, 2.0, 6.0]
        """
        return self.hardtanh(0, 6)

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """Return x where x is positive, and ``negative_slope * x`` elsewhere.

        Parameters
        ----------
        negative_slope : float, default 0.01
            Factor of the elements that are not positive.

        Returns
        -------
        Tensor of floats
            Same shape and dtype; integers and bools raise DTypeError.

        Notes
        -----
        From Maas et al., "Rectifier Nonlinearities Improve Neural Network Acoustic Models", 2013.

        Examples
        --------
        >>> krt.tensor([-4.0, 0.0, 2.0]).leaky_relu(0.25).tolist()
        [-1.0, 0.0, 2.0]
        """
        self._floats("leaky_relu")

        def rule(x: UOp) -> UOp:
            positive = build.zeros_like(x).alu(Op.LT, x)
            return build.where(positive, x, build.mul(x, negative_slope))

        return self._widely(rule)

    def elu(self, alpha: float = 1.0) -> Self:
        """Return x where x is positive, and ``alpha * (exp(x) - 1)`` elsewhere.

        Parameters
        ----------
        alpha : float, default 1.0
            Scale of the negative part, which approaches ``-alpha``.

        Returns
        -------
        Tensor of floats
            Same shape and dtype; integers and bools raise DTypeError.

        Notes
        -----
        From Clevert et al., "Fast and Accurate Deep Network Learning by Exponential Linear Units
        (ELUs)", 2015 (arXiv:1511.07289).

        Examples
        --------
        >>> x = krt.tensor([-1.0, 0.0, 2.0], dtype="float64")
        >>> x.elu().round(decimals=4).tolist()
        [-0.6321, 0.0, 2.0]
        """
        self._floats("elu")

        def rule(x: UOp) -> UOp:
            zero = build.zeros_like(x)
            positive = zero.alu(Op.LT, x)
            # Positive elements are replaced by 0, as their exponential could overflow.
            below = build.mul(build.where(positive, zero, x).alu(Op.EXPM1), alpha)
            return build.where(positive, x, below)

        return self._widely(rule)

    def sigmoid(self) -> Self:
        """Return ``1 / (1 + exp(-self))``.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([-2.0, 0.0, 2.0], dtype="float64").sigmoid().round(decimals=4).tolist()
        [0.1192, 0.5, 0.8808]
        """
        return self._widely(sigmoid)

    def logsigmoid(self) -> Self:
        """Return ``log(sigmoid(self))``, computed without overflow.

        Returns
        -------
        Tensor of floats
            Same shape and dtype; integers and bools raise DTypeError.

        Examples
        --------
        >>> krt.tensor([-1000.0, 0.0], dtype="float64").logsigmoid().round(decimals=4).tolist()
        [-1000.0, -0.6931]
        """
        self._floats("logsigmoid")
        return self._widely(lambda x: build.neg(softplus(build.neg(x))))

    def silu(self) -> Self:
        """Return ``self * sigmoid(self)``, also known as swish.

        Returns
        -------
        Tensor of floats
            Same shape and dtype; integers and bools raise DTypeError.

        Notes
        -----
        From Elfwing et al., "Sigmoid-Weighted Linear Units for Neural Network Function
        Approximation in Reinforcement Learning", 2017 (arXiv:1702.03118).

        Examples
        --------
        >>> krt.tensor([-1.0, 0.0, 1.0], dtype="float64").silu().round(decimals=4).tolist()
        [-0.2689, 0.0, 0.7311]
        """
        self._floats("silu")
        return self._widely(lambda x: x.alu(Op.MUL, sigmoid(x)))

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """Clamp this tensor to [min_val, max_val]; the gradient is 0 at the limits and at NaN.

        Parameters
        ----------
        min_val, max_val : float, default -1.0 and 1.0
            Limits of the result. For an integer tensor, their fractions are dropped.

        Returns
        -------
        Tensor
            Same shape and dtype; a bool tensor gets the dtype that bool and the limits promote to.

        Raises
        ------
        DTypeError
            This tensor is unsigned, and a limit is negative.

        Examples
        --------
        >>> krt.tensor([-3.0, 0.5, 3.0]).hardtanh().tolist()
        [-1.0, 0.5, 1.0]
        >>> krt.tensor([-3, 0, 3]).hardtanh(-2, 2).tolist()
        [-2, 0, 2]
        """
        kind = self.dtype
        if not (kind.is_float or kind.is_bool):
            min_val, max_val = int(min_val), int(max_val)
            if kind.is_unsigned and min(min_val, max_val) < 0:
                raise DTypeError(
                    f"min_val, max_val: {kind.name} cannot represent the limits {min_val} and "
                    f"{max_val}; cast the tensor to a signed type, or use clamp()"
                )
        return self._limited(("min_val", min_val), ("max_val", max_val), closed=False)

    def gelu(self, approximate: str = "none") -> Self:
        """Return the Gaussian error linear unit, ``self * (1 + erf(self / sqrt(2))) / 2``.

        Parameters
        ----------
        approximate : {"none", "tanh"}
            "none" for the definition by erf, "tanh" for its approximation by tanh.

        Returns
        -------
        Tensor of floats
            Same shape and dtype.

        Raises
        ------
        DTypeError
            This tensor holds integers or bools.
        DomainError
            `approximate` is another string.

        Notes
        -----
        From Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)", 2016 (arXiv:1606.08415).

        Examples
        --------
        >>> x = krt.tensor([-1.0, 0.0, 1.0], dtype="float64")
        >>> x.gelu().round(decimals=4).tolist()
        [-0.1587, 0.0, 0.8413]
        >>> x.gelu("tanh").round(decimals=4).tolist()
        [-0.1588, 0.0, 0.8412]
        """
        self._floats("gelu")
        rule = {"none": _gelu, "tanh": _gelu_by_tanh}.get(approximate)
        if rule is None:
            raise DomainError(f"approximate: expected 'none' or 'tanh', not {approximate!r}")
        return self._widely(rule)

    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Self:
        """Return x where ``beta * x > threshold``, and ``log(1 + exp(beta * x)) / beta`` elsewhere.

        Parameters
        ----------
        beta : float, default 1.0
            Sharpness of the bend at 0.
        threshold : float, default 20.0
            Value of ``beta * x`` above which the element is returned unchanged.

        Returns
        -------
        Tensor of floats
            Same shape and dtype; integers and bools raise DTypeError.

        Examples
        --------
        >>> krt.tensor([-1.0, 0.0, 30.0], dtype="float64").softplus().round(decimals=4).tolist()
        [0.3133, 0.6931, 30.0]
        """
        self._floats("softplus")

        def rule(x: UOp) -> UOp:
            scaled = build.mul(x, beta)
            beyond = build.full(threshold, x.dtype, x.shape).alu(Op.LT, scaled)
            return build.where(beyond, x, build.div(softplus(scaled), beta))

        return self._widely(rule)

    def mish(self) -> Self:
        """Return ``self * tanh(softplus(self))``.

        Returns
        -------
        Tensor of floats
            Same shape and dtype; integers and bools raise DTypeError.

        Notes
        -----
        From Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019
        (arXiv:1908.08681).

        Examples
        --------
        >>> krt.tensor([-1.0, 0.0, 1.0], dtype="float64").mish().round(decimals=4).tolist()
        [-0.3034, 0.0, 0.8651]
        """
        self._floats("mish")
        return self._widely(lambda x: x.alu(Op.MUL, softplus(x).alu(Op.TANH)))

    def softsign(self) -> Self:
        """Return ``self / (1 + |self|)``.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([-3.0, 0.0, 1.0]).softsign().tolist()
        [-0.75, 0.0, 0.5]
        """
        return self._widely(lambda x: x.alu(Op.DIV, build.add(x.alu(Op.ABS), 1)))

    def hardsigmoid(self) -> Self:
        """Return ``clamp(self + 3, 0, 6) / 6``; the gradient is 0 where the input is -3, 3 or NaN.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([-4.0, 0.0, 1.5]).hardsigmoid().tolist()
        [0.0, 0.5, 0.75]
        """
        return self._widely(_hardsigmoid)

    def hardswish(self) -> Self:
        """Return ``self * hardsigmoid(self)``.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.

        Notes
        -----
        From Howard et al., "Searching for MobileNetV3", 2019 (arXiv:1905.02244).

        Examples
        --------
        >>> krt.tensor([-4.0, 1.5, 4.0]).hardswish().tolist()
        [-0.0, 1.125, 4.0]
        """
        return self._widely(lambda x: x.alu(Op.MUL, _hardsigmoid(x)))

    def celu(self, alpha: float = 1.0) -> Self:
        """Return x where x is positive, and ``alpha * (exp(x / alpha) - 1)`` elsewhere.

        Parameters
        ----------
        alpha : float, default 1.0
            Scale of the negative part; not 0.

        Returns
        -------
        Tensor of floats
            Same shape and dtype.

        Raises
        ------
        DTypeError
            This tensor holds integers or bools.
        DomainError
            `alpha` is 0.

        Notes
        -----
        From Barron, "Continuously Differentiable Exponential Linear Units", 2017
        (arXiv:1704.07483).

        Examples
        --------
        >>> x = krt.tensor([-1.0, 0.0, 2.0], dtype="float64")
        >>> x.celu(alpha=0.5).round(decimals=4).tolist()
        [-0.4323, 0.0, 2.0]
        """
        self._floats("celu")
        if real(alpha, "alpha") == 0:
            raise DomainError("alpha: expected a number other than 0, not 0")
        return self._widely(lambda x: _exponential(x, 1, alpha, 1 / alpha))

    def selu(self) -> Self:
        """Return :meth:`elu` scaled so that layers keep activations at mean 0 and variance 1.

        Returns
        -------
        Tensor of floats
            Same shape and dtype; integers and bools raise DTypeError.

        Notes
        -----
        From Klambauer et al., "Self-Normalizing Neural Networks", 2017 (arXiv:1706.02515).

        Examples
        --------
        >>> krt.tensor([-1.0, 0.0, 1.0], dtype="float64").selu().round(decimals=4).tolist()
        [-1.1113, 0.0, 1.0507]
        """
        self._floats("selu")
        return self._widely(lambda x: _exponential(x, _SELU_SCALE, _SELU_SCALE * _SELU_ALPHA, 1))

    def hardshrink(self, lambd: float = 0.5) -> Self:
        """Return 0 where ``abs(x) <= lambd``, and x elsewhere; the gradient is 0 where x is NaN.

        Parameters
        ----------
        lambd : float, default 0.5
            Greatest magnitude that becomes 0.

        Returns
        -------
        Tensor of floats
            Same shape and dtype; integers and bools raise DTypeError.

        Examples
        --------
        >>> krt.tensor([-2.0, 0.5, 1.0]).hardshrink().tolist()
        [-2.0, 0.0, 1.0]
        """
        self._floats("hardshrink")
        edge = real(lambd, "lambd")
        return self._widely(lambda x: _shrunk(x, edge, x))

    def softshrink(self, lambd: float = 0.5) -> Self:
        """Return 0 where ``abs(x) <= lambd``; elsewhere, move x toward 0 by `lambd`.

        The gradient is 0 where x is NaN.

        Parameters
        ----------
        lambd : float, default 0.5
            Distance to move, at least 0.

        Returns
        -------
        Tensor of floats
            Same shape and dtype.

        Raises
        ------
        DTypeError
            This tensor holds integers or bools.
        DomainError
            `lambd` is negative.

        Examples
        --------
        >>> krt.tensor([-2.0, 0.5, 1.0]).softshrink().tolist()
        [-1.5, 0.0, 0.5]
        """
        self._floats("softshrink")
        edge = real(lambd, "lambd")
        if not edge >= 0:
            raise DomainError(f"lambd: expected a number of at least 0, not {lambd}")

        def rule(x: UOp) -> UOp:
            below = x.alu(Op.LT, build.zeros_like(x))
            moved = build.where(below, build.add(x, edge), build.sub(x, edge))
            return _shrunk(x, edge, moved)

        return self._widely(rule)

    def tanhshrink(self) -> Self:
        """Return ``self - tanh(self)``.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([-2.0, 0.0, 2.0], dtype="float64").tanhshrink().round(decimals=4).tolist()
        [-1.036, 0.0, 1.036]
        """
        return self._widely(_tanhshrink)

    def threshold(self, threshold: float, value: float) -> Self:
        """Return x where x is above `threshold`, and `value` elsewhere; NaN stays NaN.

        Parameters
        ----------
        threshold : float
            Limit above which elements stay.
        value : float
            Replacement of the other elements. For an integer tensor, the fractions of `threshold`
            and `value` are dropped.

        Returns
        -------
        Tensor
            Same shape and dtype.

        Raises
        ------
        DTypeError
            This tensor holds integers, and `threshold` or `value` is outside of their range.

        Examples
        --------
        >>> krt.tensor([0.0, 1.0, 2.0]).threshold(1.0, -5.0).tolist()
        [-5.0, -5.0, 2.0]
        """
        x = self.uop
        edge = build.full(element(threshold, x.dtype, "threshold"), x.dtype, x.shape)
        other = element(value, x.dtype, "value")
        return self._of(build.where(x.alu(Op.LE, edge), other, x))


#: alpha and scale of selu, which solve the equations of its paper (arXiv:1706.02515).
_SELU_ALPHA: Final = 1.6732632423543772848170429916717
_SELU_SCALE: Final = 1.0507009873554804934193349852946


def _exponential(x: UOp, above: float, below: float, rate: float) -> UOp:
    """Return ``above * x`` where x is positive, and ``below * (exp(rate * x) - 1)`` elsewhere."""
    zero = build.zeros_like(x)
    positive = zero.alu(Op.LT, x)
    # Positive elements are replaced by 0, as their exponential could overflow.
    power = build.mul(build.where(positive, zero, x), rate).alu(Op.EXPM1)
    return build.where(positive, build.mul(x, above), build.mul(power, below))


def _shrunk(x: UOp, edge: float, far: UOp) -> UOp:
    """Return 0 where ``abs(x) <= edge``, and `far`, whose derivative is 1, elsewhere."""
    near = x.alu(Op.ABS).alu(Op.LE, build.full(edge, x.dtype, x.shape))
    return custom(build.where(near, 0, far), _shrunk_rule, x, arg=edge)


def _shrunk_rule(node: UOp, g: UOp, _i: int) -> UOp:
    x = node.arg.inputs[0]
    beyond = build.full(node.arg.arg, x.dtype, x.shape).alu(Op.LT, x.alu(Op.ABS))
    return build.where(beyond, g, 0)


def _gelu(x: UOp) -> UOp:
    inner = build.mul(x, math.sqrt(0.5)).alu(Op.ERF)
    return build.mul(build.mul(x, 0.5), build.add(inner, 1))


def _gelu_by_tanh(x: UOp) -> UOp:
    # Hendrycks and Gimpel, arXiv:1606.08415. (1 + tanh(u)) / 2 is computed as sigmoid(2 u), which
    # stays precise where tanh is near -1.
    cubic = build.mul(build.mul(x, x.alu(Op.MUL, x)), 0.044715)
    return x.alu(Op.MUL, sigmoid(build.mul(build.add(x, cubic), 2 * math.sqrt(2 / math.pi))))


def _tanhshrink(x: UOp) -> UOp:
    return custom(x.alu(Op.SUB, x.alu(Op.TANH)), _tanhshrink_rule, x)


def _tanhshrink_rule(node: UOp, g: UOp, _i: int) -> UOp:
    # Computing 1 minus the derivative of tanh would cancel near 0.
    bent = node.arg.inputs[0].alu(Op.TANH)
    return build.mul(g, bent.alu(Op.MUL, bent))


def _hardsigmoid(x: UOp) -> UOp:
    low, high = (build.full(v, x.dtype, x.shape) for v in (-3, 3))
    return build.div(build.add(clamped(x, low, high, closed=False), 3), 6)

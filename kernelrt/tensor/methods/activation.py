"""Activation functions of neural networks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Self

from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import check_floats, real
from kernelrt.tensor.nodes.composite_ops import clamped, sigmoid, softplus
from kernelrt.tensor.nodes.promotion import element
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.methods.operators import OperatorMethods as _Below
else:  # at run time a mixin without bases: freeing a tensor visits each base class of Tensor
    _Below = object

__all__ = ["ActivationMethods"]


@operations()
class ActivationMethods(_Below):
    """Activation functions. Their gradients use the output where it is sufficient."""

    __slots__ = ()

    def _floats(self, name: str) -> UOp:
        node = self.uop
        check_floats(node.dtype, name)
        return node

    def relu(self) -> Self:
        """Return ``max(self, 0)``; NaN stays NaN, and the gradient at 0 is 0."""
        x = self.uop
        zero = build.zeros_like(x)
        return self._of(build.where(x.alu(Op.LE, zero), zero, x))

    def relu6(self) -> Self:
        """Return ``min(max(self, 0), 6)``; the gradient at 0, 6 and NaN is 0."""
        return self.hardtanh(0, 6)

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """Return each positive element unchanged, and each other one times `negative_slope`."""
        self._floats("leaky_relu")

        def rule(x: UOp) -> UOp:
            positive = build.zeros_like(x).alu(Op.LT, x)
            return build.where(positive, x, build.mul(x, negative_slope))

        return self._widely(rule)

    def elu(self, alpha: float = 1.0) -> Self:
        """Return each positive element unchanged, else ``alpha * (exp(x) - 1)``."""
        self._floats("elu")

        def rule(x: UOp) -> UOp:
            zero = build.zeros_like(x)
            positive = zero.alu(Op.LT, x)
            # Positive elements are replaced by 0, as their exponential could overflow.
            below = build.mul(build.where(positive, zero, x).alu(Op.EXPM1), alpha)
            return build.where(positive, x, below)

        return self._widely(rule)

    def sigmoid(self) -> Self:
        """Return ``1 / (1 + exp(-self))``."""
        return self._widely(sigmoid)

    def logsigmoid(self) -> Self:
        """Return ``log(sigmoid(self))``, computed without overflow."""
        self._floats("logsigmoid")
        return self._widely(lambda x: build.neg(softplus(build.neg(x))))

    def silu(self) -> Self:
        """Return ``self * sigmoid(self)``, also known as swish."""
        self._floats("silu")
        return self._widely(lambda x: x.alu(Op.MUL, sigmoid(x)))

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """Clamp this tensor to [min_val, max_val]; the gradient at the limits and NaN is 0.

        The result of an integer tensor has its dtype: the limits lose their fractions, and the
        limits of an unsigned tensor must not be negative.
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
        """Return the Gaussian error linear unit of each element.

        Parameters
        ----------
        approximate : "none" or "tanh"
            "none" for the definition by erf, "tanh" for its approximation by tanh.
        """
        self._floats("gelu")
        rule = {"none": _gelu, "tanh": _gelu_by_tanh}.get(approximate)
        if rule is None:
            raise ShapeError(f"approximate: expected 'none' or 'tanh', not {approximate!r}")
        return self._widely(rule)

    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Self:
        """Return ``log(1 + exp(beta * x)) / beta``, or x where ``beta * x > threshold``."""
        self._floats("softplus")

        def rule(x: UOp) -> UOp:
            scaled = build.mul(x, beta)
            beyond = build.full(threshold, x.dtype, x.shape).alu(Op.LT, scaled)
            return build.where(beyond, x, build.div(softplus(scaled), beta))

        return self._widely(rule)

    def mish(self) -> Self:
        """Return ``self * tanh(softplus(self))``."""
        self._floats("mish")
        return self._widely(lambda x: x.alu(Op.MUL, softplus(x).alu(Op.TANH)))

    def softsign(self) -> Self:
        """Return ``self / (1 + |self|)``."""
        return self._widely(lambda x: x.alu(Op.DIV, build.add(x.alu(Op.ABS), 1)))

    def hardsigmoid(self) -> Self:
        """Return ``clamp(self + 3, 0, 6) / 6``; the gradient at -3, 3 and NaN is 0."""
        return self._widely(_hardsigmoid)

    def hardswish(self) -> Self:
        """Return ``self * hardsigmoid(self)``."""
        return self._widely(lambda x: x.alu(Op.MUL, _hardsigmoid(x)))

    def celu(self, alpha: float = 1.0) -> Self:
        """Return each positive element unchanged, else ``alpha * (exp(x / alpha) - 1)``.

        Parameters
        ----------
        alpha : float
            Scale of the negative part; not 0.
        """
        self._floats("celu")
        if real(alpha, "alpha") == 0:
            raise ShapeError("alpha: expected a number other than 0")
        return self._widely(lambda x: _exponential(x, 1, alpha, 1 / alpha))

    def selu(self) -> Self:
        """Return the scaled :meth:`elu` that keeps mean 0 and variance 1.

        Klambauer et al., arXiv:1706.02515.
        """
        self._floats("selu")
        return self._widely(lambda x: _exponential(x, _SELU_SCALE, _SELU_SCALE * _SELU_ALPHA, 1))

    def hardshrink(self, lambd: float = 0.5) -> Self:
        """Return 0 where ``abs(x) <= lambd``, else the element; the gradient at NaN is 0."""
        self._floats("hardshrink")
        edge = real(lambd, "lambd")
        return self._widely(lambda x: _shrunk(x, edge, x))

    def softshrink(self, lambd: float = 0.5) -> Self:
        """Move each element towards 0 by `lambd`, and return 0 where ``abs(x) <= lambd``.

        `lambd` must be at least 0. The gradient at NaN is 0.
        """
        self._floats("softshrink")
        edge = real(lambd, "lambd")
        if not edge >= 0:
            raise ShapeError(f"lambd: expected a number of at least 0, not {lambd}")

        def rule(x: UOp) -> UOp:
            below = x.alu(Op.LT, build.zeros_like(x))
            moved = build.where(below, build.add(x, edge), build.sub(x, edge))
            return _shrunk(x, edge, moved)

        return self._widely(rule)

    def tanhshrink(self) -> Self:
        """Return ``self - tanh(self)``."""
        return self._widely(_tanhshrink)

    def threshold(self, threshold: float, value: float) -> Self:
        """Return each element above `threshold` unchanged, else `value`; NaN stays NaN."""
        x = self.uop
        edge = build.full(element(threshold, x.dtype, "threshold"), x.dtype, x.shape)
        other = element(value, x.dtype, "value")
        return self._of(build.where(x.alu(Op.LE, edge), other, x))


#: alpha and scale of selu, which solve the equations of its paper (arXiv:1706.02515).
_SELU_ALPHA: Final = 1.6732632423543772848170429916717
_SELU_SCALE: Final = 1.0507009873554804934193349852946


def _exponential(x: UOp, above: float, below: float, rate: float) -> UOp:
    """Return ``above * x`` where x is positive, else ``below * (exp(rate * x) - 1)``."""
    zero = build.zeros_like(x)
    positive = zero.alu(Op.LT, x)
    # Positive elements are replaced by 0, as their exponential could overflow.
    power = build.mul(build.where(positive, zero, x), rate).alu(Op.EXPM1)
    return build.where(positive, build.mul(x, above), build.mul(power, below))


def _shrunk(x: UOp, edge: float, far: UOp) -> UOp:
    """Return 0 where ``abs(x) <= edge``, else `far`, whose derivative is 1."""
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

"""Activation functions of neural networks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.tensor import build
from kernelrt.tensor.functions import clamped, sigmoid, softplus
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.elementwise import ElementwiseMethods as _Below
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object

__all__ = ["ActivationMethods"]


@operations()
class ActivationMethods(_Below):
    """Activation functions; their gradients use the output where that says enough."""

    __slots__ = ()

    def _floats(self, name: str) -> UOp:
        node = self.uop
        if not node.dtype.is_float:
            raise DTypeError(
                f"{name}: expected a floating type, not {node.dtype.name}; cast the tensor "
                "first, as in x.float()"
            )
        return node

    def relu(self) -> Self:
        """The positive part; NaN stays, and the gradient at 0 is 0."""
        x = self.uop
        zero = build.zeros_like(x)
        return self._of(build.where(x.alu(Op.LE, zero), zero, x))

    def relu6(self) -> Self:
        """``min(max(self, 0), 6)``; the gradient at 0, 6 and NaN is 0."""
        return self.hardtanh(0, 6)

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """The element where it is positive, else the element times `negative_slope`."""
        self._floats("leaky_relu")

        def rule(x: UOp) -> UOp:
            positive = build.zeros_like(x).alu(Op.LT, x)
            return build.where(positive, x, build.mul(x, negative_slope))

        return self._widely(rule)

    def elu(self, alpha: float = 1.0) -> Self:
        """The element where it is positive, else ``alpha * (exp(x) - 1)``."""
        self._floats("elu")

        def rule(x: UOp) -> UOp:
            zero = build.zeros_like(x)
            positive = zero.alu(Op.LT, x)
            # The exponential of the positive part is not taken: it could overflow.
            below = build.mul(build.where(positive, zero, x).alu(Op.EXPM1), alpha)
            return build.where(positive, x, below)

        return self._widely(rule)

    def sigmoid(self) -> Self:
        """``1 / (1 + exp(-self))``."""
        return self._widely(sigmoid)

    def logsigmoid(self) -> Self:
        """``log(sigmoid(self))`` without overflow."""
        self._floats("logsigmoid")
        return self._widely(lambda x: build.neg(softplus(build.neg(x))))

    def silu(self) -> Self:
        """``self * sigmoid(self)``, also known as swish."""
        self._floats("silu")
        return self._widely(lambda x: x.alu(Op.MUL, sigmoid(x)))

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """This tensor clamped to [min_val, max_val]; the gradient at the limits and NaN is 0.

        Of integers it has their type: limits lose their fractions, and those of unsigned integers
        are not negative.
        """
        kind = self.dtype
        if not (kind.is_float or kind.is_bool):
            min_val, max_val = int(min_val), int(max_val)
            if kind.is_unsigned and min(min_val, max_val) < 0:
                raise DTypeError(
                    f"min_val, max_val: expected limits that {kind.name} has, not {min_val} and "
                    f"{max_val}; cast the tensor to a signed type, or use clamp()"
                )
        return self._limited(("min_val", min_val), ("max_val", max_val), closed=False)

    def gelu(self, approximate: str = "none") -> Self:
        """Gaussian error linear unit.

        Parameters
        ----------
        approximate : "none" or "tanh"
            The definition by erf, or its approximation by tanh.
        """
        self._floats("gelu")
        rule = {"none": _gelu, "tanh": _gelu_by_tanh}.get(approximate)
        if rule is None:
            raise ShapeError(f"approximate: expected 'none' or 'tanh', not {approximate!r}")
        return self._widely(rule)

    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Self:
        """``log(1 + exp(beta * self)) / beta``, the element itself above `threshold`."""
        self._floats("softplus")

        def rule(x: UOp) -> UOp:
            scaled = build.mul(x, beta)
            beyond = build.full(threshold, x.dtype, x.shape).alu(Op.LT, scaled)
            return build.where(beyond, x, build.div(softplus(scaled), beta))

        return self._widely(rule)

    def mish(self) -> Self:
        """``self * tanh(softplus(self))``."""
        self._floats("mish")
        return self._widely(lambda x: x.alu(Op.MUL, softplus(x).alu(Op.TANH)))

    def softsign(self) -> Self:
        """``self / (1 + |self|)``."""
        return self._widely(lambda x: x.alu(Op.DIV, build.add(x.alu(Op.ABS), 1)))

    def hardsigmoid(self) -> Self:
        """``clamp(self + 3, 0, 6) / 6``; the gradient at -3, 3 and NaN is 0."""
        return self._widely(_hardsigmoid)

    def hardswish(self) -> Self:
        """``self * hardsigmoid(self)``."""
        return self._widely(lambda x: x.alu(Op.MUL, _hardsigmoid(x)))


def _gelu(x: UOp) -> UOp:
    inner = build.mul(x, math.sqrt(0.5)).alu(Op.ERF)
    return build.mul(build.mul(x, 0.5), build.add(inner, 1))


def _gelu_by_tanh(x: UOp) -> UOp:
    # Hendrycks and Gimpel, arXiv:1606.08415; (1 + tanh(u)) / 2 is sigmoid(2 u), which keeps its
    # digits where tanh is near -1.
    cubic = build.mul(build.mul(x, x.alu(Op.MUL, x)), 0.044715)
    return x.alu(Op.MUL, sigmoid(build.mul(build.add(x, cubic), 2 * math.sqrt(2 / math.pi))))


def _hardsigmoid(x: UOp) -> UOp:
    low, high = (build.full(v, x.dtype, x.shape) for v in (-3, 3))
    return build.div(build.add(clamped(x, low, high, closed=False), 3), 6)

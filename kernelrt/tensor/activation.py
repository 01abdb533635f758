"""Activation functions of neural networks."""

from __future__ import annotations

import math
from typing import Self

from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.tensor import build
from kernelrt.tensor.elementwise import ElementwiseMethods
from kernelrt.tensor.functions import sigmoid, softplus

__all__ = ["ActivationMethods"]


class ActivationMethods(ElementwiseMethods):
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
        """``min(max(self, 0), 6)``; the gradient at 0 and at 6 is 0."""
        return self.hardtanh(0, 6)

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """The element where it is positive, else the element times `negative_slope`."""
        x = self._floats("leaky_relu")
        return self._of(
            build.where(build.zeros_like(x).alu(Op.LT, x), x, build.mul(x, negative_slope))
        )

    def elu(self, alpha: float = 1.0) -> Self:
        """The element where it is positive, else ``alpha * (exp(x) - 1)``."""
        x = self._floats("elu")
        zero = build.zeros_like(x)
        # The exponential of the positive part is not taken: it could overflow.
        below = self._of(build.where(zero.alu(Op.LT, x), zero, x)).expm1() * alpha
        return self._of(build.where(zero.alu(Op.LT, x), x, below.uop))

    def sigmoid(self) -> Self:
        """``1 / (1 + exp(-self))``."""
        x = self._as_float()
        return self._of(sigmoid(x))

    def logsigmoid(self) -> Self:
        """``log(sigmoid(self))`` without overflow."""
        return self._of(build.neg(softplus(build.neg(self._floats("logsigmoid")))))

    def silu(self) -> Self:
        """``self * sigmoid(self)``, also known as swish."""
        x = self._floats("silu")
        return self._of(x.alu(Op.MUL, sigmoid(x)))

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """This tensor clamped to [min_val, max_val]; the gradient at the limits is 0."""
        x, low, high = self._unify(("min_val", min_val), ("max_val", max_val), exact=True)
        x = build.where(x.alu(Op.LE, low), low, x)
        return self._of(build.where(high.alu(Op.LE, x), high, x))

    def gelu(self, approximate: str = "none") -> Self:
        """Gaussian error linear unit.

        Parameters
        ----------
        approximate : "none" or "tanh"
            The definition by erf, or its approximation by tanh.
        """
        x = self._floats("gelu")
        if approximate == "none":
            inner = build.mul(x, math.sqrt(0.5)).alu(Op.ERF)
        elif approximate == "tanh":
            # Hendrycks and Gimpel, arXiv:1606.08415.
            cubic = build.mul(build.mul(x, x.alu(Op.MUL, x)), 0.044715)
            inner = build.mul(build.add(x, cubic), math.sqrt(2 / math.pi)).alu(Op.TANH)
        else:
            raise ShapeError(f"approximate: expected 'none' or 'tanh', not {approximate!r}")
        return self._of(build.mul(build.mul(x, 0.5), build.add(inner, 1)))

    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Self:
        """``log(1 + exp(beta * self)) / beta``, the element itself above `threshold`."""
        x = self._floats("softplus")
        scaled = build.mul(x, beta)
        smooth = build.div(softplus(scaled), beta)
        return self._of(
            build.where(build.full(threshold, x.dtype, x.shape).alu(Op.LT, scaled), x, smooth)
        )

    def mish(self) -> Self:
        """``self * tanh(softplus(self))``."""
        return self * self._of(softplus(self._floats("mish"))).tanh()

    def softsign(self) -> Self:
        """``self / (1 + |self|)``."""
        return self / (self.abs() + 1)

    def hardsigmoid(self) -> Self:
        """``clamp(self + 3, 0, 6) / 6``; the gradient at -3 and at 3 is 0."""
        x = self._of(self._as_float())
        out = ((x + 3) / 6).uop
        out = build.where(x.uop.alu(Op.LE, build.full(-3, x.dtype, x.dims)), 0, out)
        return self._of(build.where(build.full(3, x.dtype, x.dims).alu(Op.LE, x.uop), 1, out))

    def hardswish(self) -> Self:
        """``self * hardsigmoid(self)``."""
        return self * self.hardsigmoid()

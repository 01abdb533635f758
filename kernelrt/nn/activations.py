"""Activation layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kernelrt import dtype as dt
from kernelrt.errors import ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.nn import init
from kernelrt.nn.layers import parameter, positive
from kernelrt.nn.module import Module
from kernelrt.tensor.nodes.arguments import flag, integer, real

if TYPE_CHECKING:
    from kernelrt.tensor import Tensor

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
    "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SiLU",
    "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh",
    "Tanhshrink", "Threshold",
]  # fmt: skip


class _Function(Module):
    """Base of layers that call a method of Tensor; its arguments are attributes of the layer."""

    _method: ClassVar[str]
    _arguments: ClassVar[tuple[str, ...]] = ()
    inplace = False

    def forward(self, input: Tensor) -> Tensor:
        """Apply the activation."""
        given = [getattr(self, name) for name in self._arguments]
        result: Tensor = getattr(input, self._method)(*given)
        return result

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        given = [f"{name}={getattr(self, name)!r}" for name in self._arguments]
        return ", ".join([*given, *(["inplace=True"] if self.inplace else [])])


class _InPlace(_Function):
    """Base of activations without arguments except `inplace`.

    Parameters
    ----------
    inplace : bool
        Accepted for compatibility: the input never changes, and the result is returned.
    """

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = flag(inplace, "inplace")


class _AlongAxis(_Function):
    """Base of activations along an axis.

    Parameters
    ----------
    dim : int
        Axis of the activation.
    """

    _arguments = ("dim",)

    def __init__(self, dim: int = -1) -> None:
        self.dim = integer(dim, "dim")


class _Shrinking(_Function):
    """Base of activations that differ between ``-lambd`` and ``lambd``.

    Parameters
    ----------
    lambd : float
        Bound of that interval.
    """

    _arguments = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = real(lambd, "lambd")


class _Exponential(_Function):
    """Base of activations that are exponential below 0.

    Parameters
    ----------
    alpha : float
        Scale of the part below 0.
    inplace : bool
        Accepted for compatibility: the input never changes, and the result is returned.
    """

    _arguments = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha, self.inplace = real(alpha, "alpha"), flag(inplace, "inplace")


class ReLU(_InPlace):
    """Rectified linear unit: ``max(x, 0)``."""

    _method = "relu"


class ReLU6(_InPlace):
    """Rectified linear unit with an upper bound: ``min(max(x, 0), 6)``."""

    _method = "relu6"


class SELU(_InPlace):
    """Scaled :class:`ELU`, which keeps mean and variance of normally distributed inputs."""

    _method = "selu"


class SiLU(_InPlace):
    """``x * sigmoid(x)``."""

    _method = "silu"


class Mish(_InPlace):
    """``x * tanh(softplus(x))``."""

    _method = "mish"


class Hardswish(_InPlace):
    """``x * relu6(x + 3) / 6``."""

    _method = "hardswish"


class Hardsigmoid(_InPlace):
    """``relu6(x + 3) / 6``."""

    _method = "hardsigmoid"


class Tanh(_Function):
    """Hyperbolic tangent."""

    _method = "tanh"


class Sigmoid(_Function):
    """``1 / (1 + exp(-x))``."""

    _method = "sigmoid"


class LogSigmoid(_Function):
    """Logarithm of the sigmoid, computed without overflow."""

    _method = "logsigmoid"


class Softsign(_Function):
    """``x / (1 + |x|)``."""

    _method = "softsign"


class Tanhshrink(_Function):
    """``x - tanh(x)``."""

    _method = "tanhshrink"


class ELU(_Exponential):
    """Exponential linear unit: x if positive, else ``alpha * (exp(x) - 1)``."""

    _method = "elu"


class CELU(_Exponential):
    """Continuously differentiable ELU: x if positive, else ``alpha * (exp(x / alpha) - 1)``."""

    _method = "celu"


class Hardshrink(_Shrinking):
    """Hard shrinkage: 0 between ``-lambd`` and ``lambd``, else x."""

    _method = "hardshrink"


class Softshrink(_Shrinking):
    """Soft shrinkage: 0 between ``-lambd`` and ``lambd``, else x moved by `lambd` towards 0."""

    _method = "softshrink"

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd)
        if not self.lambd >= 0:
            raise ShapeError(f"lambd: expected a number of at least 0, not {lambd}")


class LeakyReLU(_Function):
    """Leaky rectified linear unit: x if positive, else ``negative_slope * x``.

    Parameters
    ----------
    negative_slope : float
        Slope below 0.
    inplace : bool
        Accepted for compatibility: the input never changes, and the result is returned.
    """

    _method, _arguments = "leaky_relu", ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope = real(negative_slope, "negative_slope")
        self.inplace = flag(inplace, "inplace")


class RReLU(_Function):
    """Randomized leaky ReLU: x if positive, else x times a slope.

    In training a random slope is drawn for each element; else the slope is the mean of the bounds.

    Parameters
    ----------
    lower, upper : float
        Bounds of the slopes.
    inplace : bool
        Accepted for compatibility: the input never changes, and the result is returned.
    """

    _method, _arguments = "rrelu", ("lower", "upper")

    def __init__(
        self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False
    ) -> None:
        self.lower, self.upper = real(lower, "lower"), real(upper, "upper")
        if not self.lower <= self.upper:
            raise ShapeError(f"lower, upper: expected lower <= upper, not {lower} and {upper}")
        self.inplace = flag(inplace, "inplace")

    def forward(self, input: Tensor) -> Tensor:
        """Apply the activation to each element."""
        return input.rrelu(self.lower, self.upper, self.training)


class Hardtanh(_Function):
    """Clamp elements between `min_val` and `max_val`.

    Parameters
    ----------
    min_val, max_val : float
        Lower and upper bound.
    inplace : bool
        Accepted for compatibility: the input never changes, and the result is returned.
    """

    _method, _arguments = "hardtanh", ("min_val", "max_val")

    def __init__(
        self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
    ) -> None:
        self.min_val, self.max_val = real(min_val, "min_val"), real(max_val, "max_val")
        if not self.min_val < self.max_val:
            raise ShapeError(
                f"min_val, max_val: expected min_val < max_val, not {min_val} and {max_val}"
            )
        self.inplace = flag(inplace, "inplace")


class Threshold(_Function):
    """Replace elements that are not above `threshold` by `value`.

    Parameters
    ----------
    threshold : float
        Bound of the elements that are kept.
    value : float
        Replacement of the others.
    inplace : bool
        Accepted for compatibility: the input never changes, and the result is returned.
    """

    _method, _arguments = "threshold", ("threshold", "value")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        self.threshold, self.value = real(threshold, "threshold"), real(value, "value")
        self.inplace = flag(inplace, "inplace")


class Softplus(_Function):
    """``log(1 + exp(beta * x)) / beta``, and x itself where ``beta * x`` exceeds `threshold`."""

    _method, _arguments = "softplus", ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = real(beta, "beta"), real(threshold, "threshold")


class GELU(_Function):
    """Gaussian error linear unit.

    Parameters
    ----------
    approximate : "none" or "tanh"
        Whether to use erf ("none") or an approximation by tanh.
    """

    _method, _arguments = "gelu", ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise ShapeError(f"approximate: expected 'none' or 'tanh', not {approximate!r}")
        self.approximate = approximate


class GLU(_AlongAxis):
    """Gated linear unit: one half of an axis times the sigmoid of the other."""

    _method = "glu"


class Softmax(_AlongAxis):
    """Softmax along an axis: exponentials, scaled to sum to 1."""

    _method = "softmax"


class Softmin(_AlongAxis):
    """Softmin along an axis: the softmax of the negated elements."""

    _method = "softmin"


class LogSoftmax(_AlongAxis):
    """Logarithm of the softmax, computed without overflow."""

    _method = "log_softmax"


class Softmax2d(Module):
    """Softmax over the channels of images, (batch, channels, rows, columns) or without batch."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply softmax along the third axis from the end."""
        if input.ndim not in (3, 4):
            raise ShapeError(
                "Softmax2d: expected shape (batch, channels, rows, columns) or (channels, rows, "
                f"columns), not {format_shape(input.dims)}"
            )
        return input.softmax(-3)


class PReLU(Module):
    """Parametric ReLU: x if positive, else x times a learned slope.

    Parameters
    ----------
    num_parameters : int
        Number of slopes: 1, or one for each channel.
    init : float
        Initial value of the slopes.
    dtype : DType or str
        Floating-point dtype of the slopes.

    Attributes
    ----------
    weight : Tensor, shape (num_parameters,)
        Slopes.
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, *, dtype: object = dt.float32
    ) -> None:
        self.num_parameters = positive("num_parameters", num_parameters)
        self.init = real(init, "init")
        self.weight = parameter((num_parameters,), dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the slopes to their initial value."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """Apply the activation to each element."""
        return input.prelu(self.weight)

    def extra_repr(self) -> str:
        """Return the number of slopes as text."""
        return f"num_parameters={self.num_parameters}"

"""Activation layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, ShapeError
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
        """Apply the activation. The result has the shape of `input`."""
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
        Accepted for compatibility, without effect: the input never changes.
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
    """Base of activations that treat elements between ``-lambd`` and ``lambd`` differently.

    Parameters
    ----------
    lambd : float
        Upper bound of the interval; the lower bound is ``-lambd``.
    """

    _arguments = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = real(lambd, "lambd")


class _Exponential(_Function):
    """Base of activations that are exponential below 0.

    Parameters
    ----------
    alpha : float
        Scale of the result where x < 0.
    inplace : bool
        Accepted for compatibility, without effect: the input never changes.
    """

    _arguments = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha, self.inplace = real(alpha, "alpha"), flag(inplace, "inplace")


class ReLU(_InPlace):
    """Apply the rectified linear unit ``max(x, 0)`` to each element.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Examples
    --------
    >>> krt.nn.ReLU()(krt.tensor([-2.0, 3.0])).tolist()
    [0.0, 3.0]
    """

    _method = "relu"


class ReLU6(_InPlace):
    """Apply the rectified linear unit with an upper bound, ``min(max(x, 0), 6)``, to each element.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Examples
    --------
    >>> krt.nn.ReLU6()(krt.tensor([-2.0, 3.0, 8.0])).tolist()
    [0.0, 3.0, 6.0]
    """

    _method = "relu6"


class SELU(_InPlace):
    """Apply the scaled :class:`ELU`, which keeps mean and variance of normally distributed inputs.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Notes
    -----
    Klambauer et al., "Self-normalizing neural networks", 2017.

    Examples
    --------
    >>> round(krt.nn.SELU()(krt.tensor(1.0)).item(), 4)
    1.0507
    """

    _method = "selu"


class SiLU(_InPlace):
    """Apply ``x * sigmoid(x)``, also called swish, to each element.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Examples
    --------
    >>> round(krt.nn.SiLU()(krt.tensor(1.0)).item(), 4)
    0.7311
    """

    _method = "silu"


class Mish(_InPlace):
    """Apply ``x * tanh(softplus(x))`` to each element.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Examples
    --------
    >>> round(krt.nn.Mish()(krt.tensor(1.0)).item(), 4)
    0.8651
    """

    _method = "mish"


class Hardswish(_InPlace):
    """Apply ``x * relu6(x + 3) / 6``, a piecewise approximation of :class:`SiLU`, to each element.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Examples
    --------
    >>> krt.nn.Hardswish()(krt.tensor([0.0, 1.5, 3.0])).tolist()
    [0.0, 1.125, 3.0]
    """

    _method = "hardswish"


class Hardsigmoid(_InPlace):
    """Apply ``relu6(x + 3) / 6``, a piecewise linear approximation of :class:`Sigmoid`.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Examples
    --------
    >>> krt.nn.Hardsigmoid()(krt.tensor([-3.0, 0.0, 3.0])).tolist()
    [0.0, 0.5, 1.0]
    """

    _method = "hardsigmoid"


class Tanh(_Function):
    """Apply the hyperbolic tangent to each element.

    Input and output have the same, arbitrary shape.

    Examples
    --------
    >>> krt.nn.Tanh()(krt.tensor([-100.0, 0.0, 100.0])).tolist()
    [-1.0, 0.0, 1.0]
    """

    _method = "tanh"


class Sigmoid(_Function):
    """Apply the logistic function ``1 / (1 + exp(-x))`` to each element.

    Input and output have the same, arbitrary shape.

    Examples
    --------
    >>> krt.nn.Sigmoid()(krt.tensor([0.0, 100.0])).tolist()
    [0.5, 1.0]
    """

    _method = "sigmoid"


class LogSigmoid(_Function):
    """Compute the logarithm of the sigmoid of each element without overflow.

    Input and output have the same, arbitrary shape.

    Examples
    --------
    >>> krt.nn.LogSigmoid()(krt.tensor([-1000.0])).tolist()
    [-1000.0]
    """

    _method = "logsigmoid"


class Softsign(_Function):
    """Apply ``x / (1 + |x|)`` to each element.

    Input and output have the same, arbitrary shape.

    Examples
    --------
    >>> krt.nn.Softsign()(krt.tensor([-1.0, 0.0, 3.0])).tolist()
    [-0.5, 0.0, 0.75]
    """

    _method = "softsign"


class Tanhshrink(_Function):
    """Apply ``x - tanh(x)`` to each element.

    Input and output have the same, arbitrary shape.

    Examples
    --------
    >>> krt.nn.Tanhshrink()(krt.tensor([0.0, 100.0])).tolist()
    [0.0, 99.0]
    """

    _method = "tanhshrink"


class ELU(_Exponential):
    """Apply the exponential linear unit: x if x > 0, otherwise ``alpha * (exp(x) - 1)``.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    alpha : float, default 1.0
        Scale of the result where x < 0. There, the result approaches ``-alpha``.
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Examples
    --------
    >>> krt.nn.ELU(alpha=2.0)(krt.tensor([-100.0, 1.0])).tolist()
    [-2.0, 1.0]
    """

    _method = "elu"


class CELU(_Exponential):
    """Apply the ELU with a continuous slope: x if x > 0, else ``alpha * (exp(x / alpha) - 1)``.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    alpha : float, default 1.0
        Scale of the result where x < 0. There, the result approaches ``-alpha``.
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Examples
    --------
    >>> krt.nn.CELU(alpha=2.0)(krt.tensor([-100.0, 1.0])).tolist()
    [-2.0, 1.0]
    """

    _method = "celu"


class Hardshrink(_Shrinking):
    """Replace elements between ``-lambd`` and ``lambd`` by 0, and keep the others.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    lambd : float, default 0.5
        Upper bound of the interval; the lower bound is ``-lambd``.

    Examples
    --------
    >>> krt.nn.Hardshrink()(krt.tensor([-2.0, 0.25, 2.0])).tolist()
    [-2.0, 0.0, 2.0]
    """

    _method = "hardshrink"


class Softshrink(_Shrinking):
    """Replace elements between ``-lambd`` and ``lambd`` by 0, and move others by `lambd` toward 0.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    lambd : float, default 0.5
        Upper bound of the interval, at least 0; the lower bound is ``-lambd``.

    Raises
    ------
    DomainError
        `lambd` is below 0.

    Examples
    --------
    >>> krt.nn.Softshrink()(krt.tensor([-2.0, 0.25, 2.0])).tolist()
    [-1.5, 0.0, 1.5]
    """

    _method = "softshrink"

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd)
        if not self.lambd >= 0:
            raise DomainError(f"lambd: expected a number of at least 0, not {lambd}")


class LeakyReLU(_Function):
    """Apply the leaky rectified linear unit: x if x > 0, otherwise ``negative_slope * x``.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    negative_slope : float, default 0.01
        Slope below 0.
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Examples
    --------
    >>> krt.nn.LeakyReLU(0.25)(krt.tensor([-2.0, 3.0])).tolist()
    [-0.5, 3.0]
    """

    _method, _arguments = "leaky_relu", ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope = real(negative_slope, "negative_slope")
        self.inplace = flag(inplace, "inplace")


class RReLU(_Function):
    """Apply the randomized leaky ReLU: x if x > 0, otherwise x times a slope.

    Input and output have the same, arbitrary shape. In training mode, a random slope is drawn for
    each element. In evaluation mode, the slope is the mean of `lower` and `upper`.

    Parameters
    ----------
    lower, upper : float, default 1/8 and 1/3
        Bounds of the slopes.
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Raises
    ------
    DomainError
        `lower` is above `upper`.

    Examples
    --------
    >>> krt.nn.RReLU(0.25, 0.75).eval()(krt.tensor([-2.0, 3.0])).tolist()
    [-1.0, 3.0]
    """

    _method, _arguments = "rrelu", ("lower", "upper")

    def __init__(
        self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False
    ) -> None:
        self.lower, self.upper = real(lower, "lower"), real(upper, "upper")
        if not self.lower <= self.upper:
            raise DomainError(f"lower, upper: expected lower <= upper, not {lower} and {upper}")
        self.inplace = flag(inplace, "inplace")

    def forward(self, input: Tensor) -> Tensor:
        """Apply the activation to each element. The result has the shape of `input`."""
        return input.rrelu(self.lower, self.upper, self.training)


class Hardtanh(_Function):
    """Clamp elements between `min_val` and `max_val`.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    min_val, max_val : float, default -1.0 and 1.0
        Lower and upper bound.
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Raises
    ------
    DomainError
        `min_val` is not below `max_val`.

    Examples
    --------
    >>> krt.nn.Hardtanh()(krt.tensor([-2.0, 0.5, 2.0])).tolist()
    [-1.0, 0.5, 1.0]
    """

    _method, _arguments = "hardtanh", ("min_val", "max_val")

    def __init__(
        self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
    ) -> None:
        self.min_val, self.max_val = real(min_val, "min_val"), real(max_val, "max_val")
        if not self.min_val < self.max_val:
            raise DomainError(
                f"min_val, max_val: expected min_val < max_val, not {min_val} and {max_val}"
            )
        self.inplace = flag(inplace, "inplace")


class Threshold(_Function):
    """Replace elements that are not above `threshold` by `value`; NaN stays NaN.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    threshold : float
        Bound of the elements that are kept.
    value : float
        Replacement of the others.
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Examples
    --------
    >>> krt.nn.Threshold(1.0, -5.0)(krt.tensor([0.5, 1.0, 2.0])).tolist()
    [-5.0, -5.0, 2.0]
    """

    _method, _arguments = "threshold", ("threshold", "value")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        self.threshold, self.value = real(threshold, "threshold"), real(value, "value")
        self.inplace = flag(inplace, "inplace")


class Softplus(_Function):
    """Apply ``log(1 + exp(beta * x)) / beta``, or x itself where ``beta * x`` exceeds `threshold`.

    Input and output have the same, arbitrary shape. The function is a smooth approximation of
    :class:`ReLU`.

    Parameters
    ----------
    beta : float, default 1.0
        Sharpness: the greater, the closer to :class:`ReLU`.
    threshold : float, default 20.0
        Value of ``beta * x`` above which the result is x.

    Examples
    --------
    >>> round(krt.nn.Softplus()(krt.tensor(0.0)).item(), 4)
    0.6931
    """

    _method, _arguments = "softplus", ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = real(beta, "beta"), real(threshold, "threshold")


class GELU(_Function):
    """Apply the Gaussian error linear unit, x times the normal distribution function of x.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    approximate : "none" or "tanh", default "none"
        Whether to use erf ("none") or an approximation by tanh.

    Raises
    ------
    DomainError
        `approximate` is unknown.

    Notes
    -----
    Hendrycks and Gimpel, "Gaussian error linear units", 2016.

    Examples
    --------
    >>> round(krt.nn.GELU()(krt.tensor(1.0)).item(), 4)
    0.8413
    """

    _method, _arguments = "gelu", ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise DomainError(f"approximate: expected 'none' or 'tanh', not {approximate!r}")
        self.approximate = approximate


class GLU(_AlongAxis):
    """Apply the gated linear unit: one half of an axis times the sigmoid of the other.

    Maps ``(*, 2 * n, *)`` to ``(*, n, *)``.

    Parameters
    ----------
    dim : int, default -1
        Axis to divide; its size must be even.

    Examples
    --------
    >>> krt.nn.GLU()(krt.tensor([4.0, 6.0, 0.0, 100.0])).tolist()
    [2.0, 6.0]
    """

    _method = "glu"


class Softmax(_AlongAxis):
    """Compute the softmax along an axis: exponentials, scaled to sum to 1.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    dim : int, default -1
        Axis along which the results sum to 1.

    Examples
    --------
    >>> krt.nn.Softmax(dim=-1)(krt.zeros(2, 4)).tolist()
    [[0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]
    """

    _method = "softmax"


class Softmin(_AlongAxis):
    """Compute the softmin along an axis: the softmax of the negated elements.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    dim : int, default -1
        Axis along which the results sum to 1.

    Examples
    --------
    >>> krt.nn.Softmin(dim=-1)(krt.tensor([0.0, 0.0, 1000.0])).tolist()
    [0.5, 0.5, 0.0]
    """

    _method = "softmin"


class LogSoftmax(_AlongAxis):
    """Compute the logarithm of the softmax along an axis without overflow.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    dim : int, default -1
        Axis along which the exponentials of the results sum to 1.

    Examples
    --------
    >>> krt.nn.LogSoftmax(dim=-1)(krt.tensor([1000.0, 0.0])).tolist()
    [0.0, -1000.0]
    """

    _method = "log_softmax"


class Softmax2d(Module):
    """Compute the softmax over the channels of images at each pixel.

    Input and output have shape ``(batch, channels, rows, columns)``; the batch may be missing.

    Examples
    --------
    >>> krt.nn.Softmax2d()(krt.zeros(2, 1, 2)).tolist()
    [[[0.5, 0.5]], [[0.5, 0.5]]]
    """

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(batch, channels, rows, columns)`` to the same shape; the batch may be missing."""
        if input.ndim not in (3, 4):
            raise ShapeError(
                "Softmax2d: expected shape (batch, channels, rows, columns) or (channels, rows, "
                f"columns), not {format_shape(input.dims)}"
            )
        return input.softmax(-3)


class PReLU(Module):
    """Apply the parametric ReLU: x if x > 0, otherwise x times a learned slope.

    Input and output have the same shape: ``(batch, num_parameters, *)`` if there are several
    slopes, any shape if there is one.

    Parameters
    ----------
    num_parameters : int, default 1
        Number of slopes: 1, or one for each channel (axis 1).
    init : float, default 0.25
        Initial value of the slopes.
    dtype : DType or str, default float32
        Floating-point dtype of the slopes.

    Attributes
    ----------
    weight : Tensor, shape (num_parameters,)
        Slopes.

    Examples
    --------
    >>> krt.nn.PReLU()(krt.tensor([-2.0, 3.0])).tolist()
    [-0.5, 3.0]
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
        """Apply the activation to each element. The result has the shape of `input`."""
        return input.prelu(self.weight)

    def extra_repr(self) -> str:
        """Return the number of slopes as text."""
        return f"num_parameters={self.num_parameters}"

"""Filling parameters with their first values, by PyTorch's names and formulas.

Each function overwrites the tensor it is given and returns it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt._lacking import INIT, of_module
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir.shape import is_static
from kernelrt.tensor import Tensor
from kernelrt.tensor.creation import full
from kernelrt.tensor.random import normal, uniform

__all__ = [
    "calculate_gain", "constant_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_",
    "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip

_GAINS: Final = {
    "linear": 1.0,
    "conv2d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
}


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Fill with draws from the uniform distribution over [a, b)."""
    _check(tensor)
    return tensor.assign(uniform(*tensor.shape, low=a, high=b, dtype=tensor.dtype))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fill with draws from the normal distribution."""
    _check(tensor)
    return tensor.assign(normal(*tensor.shape, mean=mean, std=std, dtype=tensor.dtype))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with `val`."""
    return tensor.assign(full(tensor.shape, val, tensor.dtype))


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return constant_(tensor, 1)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Glorot and Bengio (2010): variance ``2 * gain**2 / (fan_in + fan_out)``, uniform."""
    fan_in, fan_out = _fans(tensor)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Glorot and Bengio (2010): variance ``2 * gain**2 / (fan_in + fan_out)``, normal."""
    fan_in, fan_out = _fans(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """He et al. (2015): variance ``gain**2 / fan``, uniform.

    Parameters
    ----------
    tensor : Tensor
        At least two axes; (out, in, ...) as in Linear and Conv2d.
    a : float
        Negative slope of the leaky ReLU that follows.
    mode : "fan_in" or "fan_out"
        Whether the forward or the backward pass keeps its variance.
    nonlinearity : str
        What follows; see :func:`calculate_gain`.
    """
    std = calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    return uniform_(tensor, -math.sqrt(3.0) * std, math.sqrt(3.0) * std)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """He et al. (2015): variance ``gain**2 / fan``, normal; see :func:`kaiming_uniform_`."""
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By how much a nonlinearity shrinks the standard deviation; its inverse keeps the variance.

    Parameters
    ----------
    nonlinearity : str
        "linear", "conv2d", "sigmoid", "tanh", "relu" or "leaky_relu".
    param : float, optional
        Negative slope of a leaky ReLU, 0.01 if not given.
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1.0 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        names = ", ".join([*_GAINS, "leaky_relu"])
        raise ShapeError(f"nonlinearity: {nonlinearity!r} is unknown; expected one of {names}")
    return _GAINS[nonlinearity]


def _check(tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise DTypeError(f"tensor: expected a Tensor, not {type(tensor).__name__}")
    if not tensor.dtype.is_float:
        raise DTypeError(f"tensor: expected a floating type, not {tensor.dtype.name}")


def _fans(tensor: Tensor) -> tuple[int, int]:
    _check(tensor)
    if tensor.ndim < 2:
        raise ShapeError(
            f"tensor: fan-in and fan-out need at least two axes, not shape {tensor.shape}"
        )
    if not is_static(tensor.dims):
        raise ShapeError(
            f"tensor: fan-in and fan-out of shape {tensor.shape} are known only at run time; make "
            "the tensor outside of the function that has the Variable"
        )
    sizes = [d for d in tensor.dims if isinstance(d, int)]
    taps = math.prod(sizes[2:])
    return max(1, sizes[1] * taps), max(1, sizes[0] * taps)


def _fan(tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ShapeError(f"mode: expected 'fan_in' or 'fan_out', not {mode!r}")
    return _fans(tensor)[mode == "fan_out"]


if not TYPE_CHECKING:  # else any name would pass for one that is there
    __getattr__ = of_module("kernelrt.nn.init", INIT, __all__)

"""Initializers of parameters, with PyTorch's names and formulas.

Each function overwrites the given tensor and returns it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir.shape import is_static
from kernelrt.tensor.free_functions.creation import eye, full
from kernelrt.tensor.free_functions.creation import tensor as array
from kernelrt.tensor.nodes.arguments import real, tensor_of
from kernelrt.tensor.rng.random import normal, uniform
from kernelrt.util.unsupported_names import INIT, of_module

if TYPE_CHECKING:
    from kernelrt.tensor import Tensor

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_",
    "normal_", "ones_", "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_",
    "xavier_uniform_", "zeros_",
]  # fmt: skip

_GAINS: Final = {
    "linear": 1.0,
    "conv2d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
    **dict.fromkeys(("conv1d", "conv3d"), 1.0),
    **dict.fromkeys([f"conv_transpose{n}d" for n in (1, 2, 3)], 1.0),
}


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Fill with samples of the uniform distribution over [a, b).

    Parameters
    ----------
    tensor : Tensor of floats
        Tensor to overwrite.
    a, b : float, default 0.0 and 1.0
        Bounds of the samples.

    Returns
    -------
    Tensor
        The given tensor.

    Raises
    ------
    DomainError
        `a` is above `b`.

    Examples
    --------
    >>> weight = krt.nn.init.uniform_(krt.empty(100), 2.0, 3.0)
    >>> (weight >= 2).all().item(), (weight < 3).all().item()
    (True, True)
    """
    _check(tensor)
    a, b = real(a, "a"), real(b, "b")
    if not a <= b:
        raise DomainError(f"a, b: expected a <= b, not {a} and {b}")
    return tensor.assign(uniform(*tensor.shape, low=a, high=b, dtype=tensor.dtype))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fill with samples of the normal distribution.

    Parameters
    ----------
    tensor : Tensor of floats
        Tensor to overwrite.
    mean, std : float, default 0.0 and 1.0
        Mean and standard deviation.

    Returns
    -------
    Tensor
        The given tensor.

    Raises
    ------
    DomainError
        `std` is below 0.

    Examples
    --------
    >>> krt.nn.init.normal_(krt.empty(2), mean=3.0, std=0.0).tolist()
    [3.0, 3.0]
    """
    _check(tensor)
    return tensor.assign(normal(*tensor.shape, mean=mean, std=std, dtype=tensor.dtype))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with `val`.

    Parameters
    ----------
    tensor : Tensor
        Tensor to overwrite, of any dtype.
    val : number
        The value.

    Returns
    -------
    Tensor
        The given tensor.

    Examples
    --------
    >>> krt.nn.init.constant_(krt.empty(2), 0.5).tolist()
    [0.5, 0.5]
    """
    return tensor.assign(full(tensor.shape, val, tensor.dtype))


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros.

    Parameters
    ----------
    tensor : Tensor
        Tensor to overwrite, of any dtype.

    Returns
    -------
    Tensor
        The given tensor.

    Examples
    --------
    >>> krt.nn.init.zeros_(krt.ones(2)).tolist()
    [0.0, 0.0]
    """
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones.

    Parameters
    ----------
    tensor : Tensor
        Tensor to overwrite, of any dtype.

    Returns
    -------
    Tensor
        The given tensor.

    Examples
    --------
    >>> krt.nn.init.ones_(krt.zeros(2)).tolist()
    [1.0, 1.0]
    """
    return constant_(tensor, 1)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with uniform samples of variance ``2 * gain**2 / (fan_in + fan_out)``.

    Parameters
    ----------
    tensor : Tensor of floats, shape (out, in, ...)
        Tensor to overwrite. ``fan_out`` is the size of axis 0, and ``fan_in`` that of axis 1, each
        times the sizes of the axes after axis 1.
    gain : float, default 1.0
        Factor of the standard deviation; see :func:`calculate_gain`.

    Returns
    -------
    Tensor
        The given tensor.

    Raises
    ------
    ShapeError
        The tensor has fewer than two axes.

    Notes
    -----
    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks",
    2010.

    Examples
    --------
    The bound is sqrt(6 / (fan_in + fan_out)):

    >>> weight = krt.nn.init.xavier_uniform_(krt.empty(20, 4))
    >>> (weight.abs() <= 0.5).all().item()
    True
    """
    fan_in, fan_out = _fans(tensor)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with normal samples of variance ``2 * gain**2 / (fan_in + fan_out)``.

    Parameters
    ----------
    tensor : Tensor of floats, shape (out, in, ...)
        Tensor to overwrite; see :func:`xavier_uniform_`.
    gain : float, default 1.0
        Factor of the standard deviation; see :func:`calculate_gain`.

    Returns
    -------
    Tensor
        The given tensor.

    Raises
    ------
    ShapeError
        The tensor has fewer than two axes.

    Notes
    -----
    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks",
    2010.

    Examples
    --------
    >>> krt.nn.init.xavier_normal_(krt.empty(20, 4)).shape
    (20, 4)
    """
    fan_in, fan_out = _fans(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Fill with uniform samples of variance ``gain**2 / fan``.

    Parameters
    ----------
    tensor : Tensor of floats, shape (out, in, ...)
        Tensor to overwrite, with axes as in Linear and Conv2d.
    a : float, default 0.0
        Negative slope of the leaky ReLU after the layer.
    mode : "fan_in" or "fan_out", default "fan_in"
        Whether to keep the variance in the forward pass ("fan_in") or in the backward pass
        ("fan_out").
    nonlinearity : str, default "leaky_relu"
        Nonlinearity after the layer; see :func:`calculate_gain`.

    Returns
    -------
    Tensor
        The given tensor.

    Raises
    ------
    DomainError
        `mode` or `nonlinearity` is unknown.
    ShapeError
        The tensor has fewer than two axes.

    Notes
    -----
    He et al., "Delving deep into rectifiers", 2015.

    Examples
    --------
    The bound is gain * sqrt(3 / fan_in), and the gain of ReLU sqrt(2):

    >>> weight = krt.nn.init.kaiming_uniform_(krt.empty(4, 24), nonlinearity="relu")
    >>> (weight.abs() <= 0.5).all().item()
    True
    """
    std = calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    return uniform_(tensor, -math.sqrt(3.0) * std, math.sqrt(3.0) * std)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Fill with normal samples of variance ``gain**2 / fan``.

    Parameters
    ----------
    tensor : Tensor of floats, shape (out, in, ...)
        Tensor to overwrite, with axes as in Linear and Conv2d.
    a : float, default 0.0
        Negative slope of the leaky ReLU after the layer.
    mode : "fan_in" or "fan_out", default "fan_in"
        Whether to keep the variance in the forward pass ("fan_in") or in the backward pass
        ("fan_out").
    nonlinearity : str, default "leaky_relu"
        Nonlinearity after the layer; see :func:`calculate_gain`.

    Returns
    -------
    Tensor
        The given tensor.

    Raises
    ------
    DomainError
        `mode` or `nonlinearity` is unknown.
    ShapeError
        The tensor has fewer than two axes.

    Notes
    -----
    He et al., "Delving deep into rectifiers", 2015.

    Examples
    --------
    >>> krt.nn.init.kaiming_normal_(krt.empty(4, 24), mode="fan_out").shape
    (4, 24)
    """
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)))


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Tensor:
    """Fill with samples of the normal distribution truncated to [a, b].

    The method is inverse transform sampling: uniform samples between ``F(a)`` and ``F(b)`` are
    mapped through the inverse of F, the distribution function.

    Parameters
    ----------
    tensor : Tensor of floats
        Tensor to overwrite.
    mean, std : float, default 0.0 and 1.0
        Mean and standard deviation before the truncation.
    a, b : float, default -2.0 and 2.0
        Bounds of the samples: absolute values, not multiples of `std`.

    Returns
    -------
    Tensor
        The given tensor.

    Raises
    ------
    DomainError
        `a` is above `b`, or `std` is not above 0.

    Examples
    --------
    >>> weight = krt.nn.init.trunc_normal_(krt.empty(100), std=5.0)
    >>> (weight.abs() <= 2).all().item()
    True
    """
    _check(tensor)
    mean, std, a, b = real(mean, "mean"), real(std, "std"), real(a, "a"), real(b, "b")
    if not a <= b:
        raise DomainError(f"a, b: expected a <= b, not {a} and {b}")
    if not std > 0:
        raise DomainError(f"std: expected a number above 0, not {std}")
    low, high = ((1 + math.erf((end - mean) / std / math.sqrt(2))) / 2 for end in (a, b))
    even = uniform(*tensor.shape, low=2 * low - 1, high=2 * high - 1, dtype=tensor.dtype)
    return tensor.assign((even.erfinv() * (std * math.sqrt(2)) + mean).clamp(a, b))


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with ones on its diagonal and zeros elsewhere.

    Parameters
    ----------
    tensor : Tensor of floats, shape (n, m)
        Matrix to overwrite.

    Returns
    -------
    Tensor
        The given tensor.

    Raises
    ------
    ShapeError
        The tensor does not have two axes.

    Examples
    --------
    >>> krt.nn.init.eye_(krt.empty(2, 3)).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    _check(tensor)
    if tensor.ndim != 2:
        raise ShapeError(f"tensor: expected 2 axes, not shape {tensor.shape}")
    rows, columns = (int(d) for d in tensor.shape)
    return tensor.assign(eye(rows, columns, dtype=tensor.dtype))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill convolution filters so that the convolution preserves as many input channels as it can.

    Parameters
    ----------
    tensor : Tensor of floats, shape (out, in, ...)
        Filters of one, two or three spatial axes.
    groups : int, default 1
        Number of groups of the convolution; each group preserves its channels.

    Returns
    -------
    Tensor
        The given tensor.

    Raises
    ------
    ShapeError
        The tensor does not have three to five axes, or its first axis is not a multiple of
        `groups`.

    Examples
    --------
    >>> krt.nn.init.dirac_(krt.empty(2, 2, 3)).tolist()
    [[[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
    """
    _check(tensor)
    if tensor.ndim not in (3, 4, 5):
        raise ShapeError(f"tensor: expected 3 to 5 axes, not shape {tensor.shape}")
    shape = tuple(int(d) for d in tensor.shape)
    if shape[0] % groups:
        raise ShapeError(f"groups: expected a divisor of shape[0], {shape[0]}, not {groups}")
    filters = np.zeros(shape)
    each = shape[0] // groups
    middle = tuple(d // 2 for d in shape[2:])
    for group in range(groups):
        for k in range(min(each, shape[1])):
            filters[(group * each + k, k, *middle)] = 1
    return _given(tensor, filters)


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with orthonormal rows, or columns if there are fewer columns than rows, times `gain`.

    All axes but the first are flattened.

    Parameters
    ----------
    tensor : Tensor of floats, shape (rows, ...)
        Tensor to overwrite.
    gain : float, default 1.0
        Length of the rows or columns.

    Returns
    -------
    Tensor
        The given tensor.

    Raises
    ------
    ShapeError
        The tensor has fewer than two axes.

    Notes
    -----
    Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear neural
    networks", 2013 (arXiv:1312.6120). The result is the first factor of the QR decomposition of a
    matrix of normal samples, with signs chosen such that all orthogonal matrices are equally
    likely.

    Examples
    --------
    >>> q = krt.nn.init.orthogonal_(krt.empty(2, 5))
    >>> krt.allclose(q @ q.T, krt.eye(2), atol=1e-5)
    True
    """
    _check(tensor)
    if tensor.ndim < 2:
        raise ShapeError(f"tensor: expected at least two axes, not shape {tensor.shape}")
    rows = int(tensor.shape[0])
    columns = math.prod(int(d) for d in tensor.shape[1:])
    drawn = normal(max(rows, columns), min(rows, columns), dtype="float64").numpy()
    q, r = np.linalg.qr(drawn)
    q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
    q = q if rows >= columns else q.T
    return _given(tensor, gain * q.reshape(tensor.shape))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """Fill a matrix with normal samples, but a fraction of each column with zeros.

    Parameters
    ----------
    tensor : Tensor of floats, shape (rows, columns)
        Matrix to overwrite.
    sparsity : float
        Fraction of zeros in each column; their number is rounded up.
    std : float, default 0.01
        Standard deviation of the normal samples.

    Returns
    -------
    Tensor
        The given tensor.

    Raises
    ------
    DomainError
        `sparsity` is not from 0 to 1.
    ShapeError
        The tensor does not have two axes.

    Notes
    -----
    Martens, "Deep learning via Hessian-free optimization", 2010.

    Examples
    --------
    >>> weight = krt.nn.init.sparse_(krt.empty(4, 3), sparsity=0.5)
    >>> (weight == 0).sum(0).tolist()
    [2, 2, 2]
    """
    _check(tensor)
    if tensor.ndim != 2:
        raise ShapeError(f"tensor: expected 2 axes, not shape {tensor.shape}")
    if not 0 <= sparsity <= 1:
        raise DomainError(f"sparsity: expected a fraction from 0 to 1, not {sparsity}")
    rows, columns = (int(d) for d in tensor.shape)
    zero = math.ceil(sparsity * rows)
    order = uniform(rows, columns, dtype="float64").numpy().argsort(0).argsort(0)
    drawn = normal(rows, columns, std=std, dtype="float64").numpy()
    return _given(tensor, np.where(order < zero, 0.0, drawn))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the recommended gain for a nonlinearity. It keeps the variance of activations.

    Parameters
    ----------
    nonlinearity : str
        "linear", "conv1d" to "conv_transpose3d", "sigmoid", "tanh", "relu", "selu" or
        "leaky_relu".
    param : float, optional
        Negative slope of the leaky ReLU; 0.01 by default.

    Returns
    -------
    float
        Factor of the standard deviation.

    Raises
    ------
    DomainError
        `nonlinearity` is unknown.

    Examples
    --------
    >>> krt.nn.init.calculate_gain("selu"), krt.nn.init.calculate_gain("leaky_relu", 1.0)
    (0.75, 1.0)
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1.0 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        names = ", ".join([*_GAINS, "leaky_relu"])
        raise DomainError(f"nonlinearity: {nonlinearity!r} is unknown; expected one of {names}")
    return _GAINS[nonlinearity]


def _check(tensor: Tensor) -> None:
    tensor_of(tensor, "tensor")
    if not tensor.dtype.is_float:
        raise DTypeError(f"tensor: expected a floating-point dtype, not {tensor.dtype.name}")


def _given(tensor: Tensor, values: np.ndarray[Any, Any]) -> Tensor:
    return tensor.assign(array(values, dtype=tensor.dtype))


def _fans(tensor: Tensor) -> tuple[int, int]:
    _check(tensor)
    if tensor.ndim < 2:
        raise ShapeError(
            f"tensor: expected at least two axes for fan-in and fan-out, not shape {tensor.shape}"
        )
    if not is_static(tensor.dims):
        raise ShapeError(
            f"tensor: expected static sizes for fan-in and fan-out, not shape {tensor.shape}; "
            "create the tensor outside of the function that uses the Variable"
        )
    sizes = [d for d in tensor.dims if isinstance(d, int)]
    taps = math.prod(sizes[2:])
    return max(1, sizes[1] * taps), max(1, sizes[0] * taps)


def _fan(tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise DomainError(f"mode: expected 'fan_in' or 'fan_out', not {mode!r}")
    return _fans(tensor)[mode == "fan_out"]


if not TYPE_CHECKING:  # type checkers would accept any name of a module with __getattr__
    __getattr__ = of_module("kernelrt.nn.init", INIT, __all__)

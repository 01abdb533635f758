"""Linear layers, layer normalization, and layers that change shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir.shape import format_shape, same
from kernelrt.nn import init
from kernelrt.nn.module import Module
from kernelrt.tensor.free_functions.creation import empty
from kernelrt.tensor.nodes.arguments import index_of, whole

if TYPE_CHECKING:
    from kernelrt.tensor import Tensor

__all__ = ["Flatten", "Identity", "LayerNorm", "Linear", "Unflatten"]


def positive(name: str, value: object) -> int:
    """Return `value` as a positive int, or raise an error that names the argument."""
    number = whole(index_of(value, name))
    if number is None:
        raise DTypeError(f"{name}: expected an int, not {type(value).__name__}")
    if number < 1:
        raise ShapeError(f"{name}: expected at least 1, not {number}")
    return number


def parameter(shape: tuple[int, ...], dtype: object) -> Tensor:
    """Return an uninitialized parameter, for kernelrt.nn.init to fill."""
    parsed = dt.parse(dtype)
    if not parsed.is_float:
        raise DTypeError(f"dtype: a layer needs a floating-point dtype, not {parsed.name}")
    return empty(shape, dtype=parsed, requires_grad=True)


def bias_bound(fan_in: int) -> float:
    """Return the bound of the uniform distribution that PyTorch draws biases from."""
    return 1.0 / math.sqrt(fan_in) if fan_in else 0.0


class Linear(Module):
    """Apply a linear map to the last axis: ``x @ weight.T + bias``.

    Maps an input of shape ``(*, in_features)`` to ``(*, out_features)``.

    Parameters
    ----------
    in_features, out_features : int
        Sizes of the last axis of the input and of the result.
    bias : bool, default True
        Whether to add a learned bias.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight : Tensor, shape (out_features, in_features)
        Initialized uniformly between ±1/sqrt(in_features).
    bias : Tensor of shape (out_features,), or None
        Initialized from the same distribution.

    Raises
    ------
    ShapeError
        A size is below 1; in a call: the last axis of the input has another size.
    DTypeError
        `dtype` is not a floating-point dtype.

    Examples
    --------
    >>> layer = krt.nn.Linear(3, 2)
    >>> layer(krt.ones(5, 3)).shape, layer.weight.shape
    ((5, 2), (2, 3))
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, dtype: object = dt.float32
    ) -> None:
        self.in_features = positive("in_features", in_features)
        self.out_features = positive("out_features", out_features)
        self.weight = parameter((out_features, in_features), dtype)
        # Any: code that asked for a bias uses it without a check for None, as with PyTorch.
        self.bias: Any = parameter((out_features,), dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values for weight and bias."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = bias_bound(self.in_features)
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(*, in_features)`` to ``(*, out_features)``."""
        if not input.ndim or not same(input.dims[-1], self.in_features):
            raise ShapeError(
                f"Linear({self.in_features}, {self.out_features}): expected an input of shape "
                f"(..., {self.in_features}), not {format_shape(input.dims)}"
            )
        return input.linear(self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes as text."""
        return f"{self.in_features}, {self.out_features}" + (
            "" if self.bias is not None else ", bias=False"
        )


class LayerNorm(Module):
    """Apply layer normalization: ``(x - mean) / sqrt(var + eps) * weight + bias``.

    Input and output have shape ``(*, *normalized_shape)``.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Sizes of the last axes, over which to take the mean and the (biased) variance.
    eps : float, default 1e-5
        Added to the variance.
    elementwise_affine : bool, default True
        Whether to have a learned weight and bias.
    bias : bool, default True
        Whether to have a bias, if `elementwise_affine`.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight, bias : Tensor of shape normalized_shape, or None
        Initialized to ones and zeros.

    Notes
    -----
    Ba et al., "Layer normalization", 2016.

    Examples
    --------
    >>> layer = krt.nn.LayerNorm(2, eps=0.0)
    >>> layer(krt.tensor([[1.0, 3.0], [10.0, 30.0]])).tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: object = dt.float32,
    ) -> None:
        sizes = normalized_shape if isinstance(normalized_shape, Sequence) else (normalized_shape,)
        self.normalized_shape = tuple(positive("normalized_shape", size) for size in sizes)
        if not self.normalized_shape:
            raise ShapeError("normalized_shape: expected at least one size, not ()")
        self.eps = eps
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None
        if elementwise_affine:
            self.weight = init.ones_(parameter(self.normalized_shape, dtype))
            if bias:
                self.bias = init.zeros_(parameter(self.normalized_shape, dtype))

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(*, *normalized_shape)`` to the same shape."""
        return input.layer_norm(self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the shape and eps as text."""
        return f"{self.normalized_shape}, eps={self.eps}"


class Flatten(Module):
    """Flatten the axes from `start_dim` to `end_dim` into one axis.

    Maps ``(batch, a, b, ...)`` to ``(batch, a * b * ...)`` by default.

    Parameters
    ----------
    start_dim, end_dim : int, default 1 and -1
        First and last axis to flatten; by default all axes but the first.

    Examples
    --------
    >>> krt.nn.Flatten()(krt.ones(5, 2, 3)).shape
    (5, 6)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(batch, a, b, ...)`` to ``(batch, a * b * ...)`` with the default axes."""
        return input.flatten(self.start_dim, self.end_dim)


class Unflatten(Module):
    """Split one axis into several: the inverse of :class:`Flatten`.

    Maps ``(*, n, *)`` to ``(*, *unflattened_size, *)``.

    Parameters
    ----------
    dim : int
        Axis to split.
    unflattened_size : sequence of int
        Sizes of the new axes; one may be -1, to be inferred.

    Examples
    --------
    >>> krt.nn.Unflatten(1, (2, -1))(krt.ones(5, 6)).shape
    (5, 2, 3)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(*, n, *)`` to ``(*, *unflattened_size, *)``."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """Return the axis and the sizes as text."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Identity(Module):
    """Return the input unchanged.

    Input and output have the same, arbitrary shape.

    Parameters
    ----------
    *args, **kwargs
        Ignored, so that Identity can replace a layer and keep its arguments.

    Examples
    --------
    >>> krt.nn.Identity(3, bias=False)(krt.tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:
        """Return `input`, of any shape."""
        return input

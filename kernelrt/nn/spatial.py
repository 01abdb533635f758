"""Layers over images: convolution and pooling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir.shape import format_shape, same
from kernelrt.nn import init
from kernelrt.nn.layers import bias_bound, parameter, positive
from kernelrt.nn.module import Module
from kernelrt.tensor.arguments import whole

if TYPE_CHECKING:
    from kernelrt.tensor import Tensor

__all__ = ["AvgPool2d", "Conv2d", "MaxPool2d"]

Pair = int | tuple[int, int]


def pair(name: str, value: object, least: int) -> tuple[int, int]:
    """`value` as (rows, columns), each at least `least`."""
    both = value if isinstance(value, tuple | list) else (value, value)
    sizes = [size for size in map(whole, both) if size is not None]
    if len(both) != 2 or len(sizes) != 2:
        raise DTypeError(f"{name}: expected an int or a pair of ints, not {value!r}")
    for size in sizes:
        if size < least:
            raise ShapeError(f"{name}: expected at least {least}, not {size}")
    return sizes[0], sizes[1]


class Conv2d(Module):
    """Two-dimensional cross-correlation over (batch, channels, rows, columns).

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of input and result.
    kernel_size : int or (int, int)
        Rows and columns of a filter.
    stride, padding, dilation : int or (int, int)
        Step of the filter, zeros added on each side, distance between its taps.
    groups : int
        Channels are divided into so many groups that do not mix.
    bias : bool
        Whether to add a bias to each channel.
    dtype : DType or str
        Floating type of the parameters.

    Attributes
    ----------
    weight : Tensor, shape (out_channels, in_channels / groups, rows, columns)
        Drawn uniformly from ±1/sqrt(fan_in).
    bias : Tensor of shape (out_channels,), or None
        Drawn from the same distribution.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        dtype: object = dt.float32,
    ) -> None:
        self.in_channels = positive("in_channels", in_channels)
        self.out_channels = positive("out_channels", out_channels)
        self.groups = positive("groups", groups)
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ShapeError(f"{name}: {channels} channels do not divide into {groups} groups")
        self.kernel_size = pair("kernel_size", kernel_size, 1)
        self.stride = pair("stride", stride, 1)
        self.padding = pair("padding", padding, 0)
        self.dilation = pair("dilation", dilation, 1)
        self.weight = parameter((out_channels, in_channels // groups, *self.kernel_size), dtype)
        self.bias = parameter((out_channels,), dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = bias_bound(self.in_channels // self.groups * math.prod(self.kernel_size))
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_channels, rows, columns) to (batch, out_channels, rows', columns')."""
        if x.ndim != 4 or not same(x.dims[1], self.in_channels):
            raise ShapeError(
                f"Conv2d({self.in_channels}, {self.out_channels}, ...): expected an input of shape "
                f"(batch, {self.in_channels}, rows, columns), not {format_shape(x.dims)}"
            )
        return x.conv2d(
            self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def extra_repr(self) -> str:
        """Give channels, kernel and stride."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        text += f", stride={self.stride}"
        for name, value, usual in (
            ("padding", self.padding, (0, 0)),
            ("dilation", self.dilation, (1, 1)),
            ("groups", self.groups, 1),
        ):
            if value != usual:
                text += f", {name}={value}"
        return text if self.bias is not None else text + ", bias=False"


class MaxPool2d(Module):
    """Largest value in each window.

    Parameters
    ----------
    kernel_size : int or (int, int)
        Rows and columns of a window.
    stride : int or (int, int), optional
        Step of the window; its size if not given.
    padding, dilation : int or (int, int)
        Border that never wins, and distance between the elements of a window.
    """

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        dilation: Pair = 1,
    ) -> None:
        self.kernel_size = pair("kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else pair("stride", stride, 1)
        self.padding = pair("padding", padding, 0)
        self.dilation = pair("dilation", dilation, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., rows, columns) to (..., rows', columns')."""
        return x.max_pool2d(self.kernel_size, self.stride, self.padding, self.dilation)

    def extra_repr(self) -> str:
        """Give the window."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}"


class AvgPool2d(Module):
    """Mean of each window.

    Parameters
    ----------
    kernel_size : int or (int, int)
        Rows and columns of a window.
    stride : int or (int, int), optional
        Step of the window; its size if not given.
    padding : int or (int, int)
        Zeros added on each side, which count in the mean.
    """

    def __init__(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0) -> None:
        self.kernel_size = pair("kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else pair("stride", stride, 1)
        self.padding = pair("padding", padding, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., rows, columns) to (..., rows', columns')."""
        return x.avg_pool2d(self.kernel_size, self.stride, self.padding)

    def extra_repr(self) -> str:
        """Give the window."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}"

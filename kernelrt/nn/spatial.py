"""Convolution layers over sequences, images and volumes."""

from __future__ import annotations

import math
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir.shape import difference, format_shape, format_size, prod, same, total
from kernelrt.nn import init
from kernelrt.nn.layers import bias_bound, parameter, positive
from kernelrt.nn.module import Module
from kernelrt.tensor.nodes.arguments import size_of, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.tensor import Tensor

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
]

Pair = int | tuple[int, int]
#: One number for all axes, or one for each.
Sizes = int | tuple[int, ...]


def pair(name: str, value: object, least: int) -> tuple[int, int]:
    """Return `value` as (rows, columns), each at least `least`."""
    rows, columns = sizes(name, value, least, 2)
    return rows, columns


def sizes(name: str, value: object, least: int, axes: int) -> tuple[int, ...]:
    """Return `value` as one number for each of `axes`, each at least `least`."""
    each = value if isinstance(value, tuple | list) else (value,) * axes
    found = tuple(size for size in map(whole, each) if size is not None)
    if len(each) != axes or len(found) != axes:
        wanted = ("an int", "an int or a pair of ints", "an int or three ints")[axes - 1]
        raise DTypeError(f"{name}: expected {wanted}, not {value!r}")
    for size in found:
        if size < least:
            raise ShapeError(f"{name}: expected at least {least}, not {size}")
    return found


def named(function: Callable[..., None], name: str) -> Callable[..., None]:
    """Return a copy of `function` whose qualified name, as shown in errors, is `name`."""
    assert isinstance(function, FunctionType)
    twin = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__,
        function.__closure__,
    )  # fmt: skip
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__doc__, twin.__annotations__ = function.__doc__, function.__annotations__
    twin.__module__, twin.__qualname__ = function.__module__, name
    return twin


class _Convolution(Module):
    """Base of convolutions and transposed convolutions over any number of axes."""

    _axes: ClassVar[int]
    #: Names of the axes after batch and channels.
    _names: ClassVar[str]
    #: Axis of the weight that has the output channels.
    _filters: ClassVar[int] = 0
    _modes: ClassVar[tuple[str, ...]] = ("zeros", "reflect", "replicate", "circular")

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: object = dt.float32,
    ) -> None:
        if padding_mode not in self._modes:
            known = ", ".join(map(repr, self._modes))
            raise DomainError(f"padding_mode: expected one of {known}, not {padding_mode!r}")
        self.padding_mode = padding_mode
        self.in_channels = positive("in_channels", in_channels)
        self.out_channels = positive("out_channels", out_channels)
        self.groups = positive("groups", groups)
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ShapeError(f"{name}: expected a multiple of groups, {groups}, not {channels}")
        self.kernel_size = sizes("kernel_size", kernel_size, 1, self._axes)
        self.stride = sizes("stride", stride, 1, self._axes)
        self.padding = self._check_padding(padding)
        self.dilation = sizes("dilation", dilation, 1, self._axes)
        both = out_channels, in_channels
        first, second = both[self._filters], both[1 - self._filters] // groups
        self.weight = parameter((first, second, *self.kernel_size), dtype)
        # Any: code that asked for a bias uses it without a check for None, as with PyTorch.
        self.bias: Any = parameter((out_channels,), dtype) if bias else None
        self.reset_parameters()

    def __init_subclass__(cls) -> None:
        # Errors of constructor calls name the layer, not this base class.
        if not cls.__name__.startswith("_"):
            cls.__init__ = named(cls.__init__, f"{cls.__name__}.__init__")  # type: ignore[method-assign]

    def _check_padding(self, padding: Sizes | str) -> tuple[int, ...] | str:
        """Return `padding` as one number for each axis, or as "same" or "valid"."""
        if not isinstance(padding, str):
            return sizes("padding", padding, 0, self._axes)
        if padding not in ("same", "valid"):
            raise DomainError(f"padding: expected numbers, 'valid' or 'same', not {padding!r}")
        if padding == "same" and self.stride != (1,) * self._axes:
            raise ShapeError(f"padding: 'same' needs a stride of 1, not {self.stride}")
        return padding

    def reset_parameters(self) -> None:
        """Draw new initial values for weight and bias."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            channels = (self.in_channels, self.out_channels)[self._filters] // self.groups
            bound = bias_bound(channels * math.prod(self.kernel_size))
            init.uniform_(self.bias, -bound, bound)

    def _check_input(self, x: Tensor) -> None:
        axis = self._axis_of(x)
        if axis not in (0, 1) or not same(x.dims[axis], self.in_channels):
            shape = f"{self.in_channels}, {self._names}"
            raise ShapeError(
                f"{type(self).__name__}({self.in_channels}, {self.out_channels}, ...): expected an "
                f"input of shape (batch, {shape}) or ({shape}), not {format_shape(x.dims)}"
            )

    def _axis_of(self, x: Tensor) -> int:
        """Return the channel axis, which precedes the spatial axes."""
        return x.ndim - self._axes - 1

    def _padded(self, x: Tensor) -> tuple[Tensor, tuple[int, ...] | str]:
        """Check the input, and apply padding other than zeros. Return it and the zero padding."""
        self._check_input(x)
        if self.padding_mode == "zeros":
            return x, self.padding
        widths: list[int] = []
        for k in reversed(range(self._axes)):
            if self.padding == "same":
                both = self.dilation[k] * (self.kernel_size[k] - 1)
                widths += (both // 2, both - both // 2)
            else:
                width = 0 if isinstance(self.padding, str) else self.padding[k]
                widths += (width, width)
        return x.pad(widths, self.padding_mode), (0,) * self._axes

    def extra_repr(self) -> str:
        """Return channels, kernel size, stride and options other than the defaults as text."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        text += f", stride={self.stride}"
        for name, usual in (("padding", 0), ("output_padding", 0), ("dilation", 1)):
            value = getattr(self, name, (usual,) * self._axes)
            if value != (usual,) * self._axes:
                text += f", {name}={value!r}"
        text += f", groups={self.groups}" * (self.groups != 1)
        text += f", padding_mode={self.padding_mode!r}" * (self.padding_mode != "zeros")
        return text if self.bias is not None else text + ", bias=False"


class Conv2d(_Convolution):
    """Apply a two-dimensional convolution (cross-correlation) to images.

    Maps ``(batch, in_channels, rows, columns)`` to ``(batch, out_channels, rows', columns')``; the
    batch may be missing. An axis of n elements becomes one of
    ``floor((n + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1``.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the result.
    kernel_size : int or (int, int)
        Rows and columns of a filter.
    stride, dilation : int or (int, int), default 1
        `stride` is the distance between two positions of the filter, and `dilation` the distance
        between two of its elements.
    padding : int, (int, int), "valid" or "same", default 0
        Number of zeros to add on each side. "valid" adds none. "same" adds so many that the size
        stays the same, and needs a stride of 1.
    groups : int, default 1
        Number of groups of channels. Each group of outputs depends on one group of inputs only.
    bias : bool, default True
        Whether to add a bias to each channel.
    padding_mode : "zeros", "reflect", "replicate" or "circular", default "zeros"
        Padding to use instead of zeros; see ``Tensor.pad``.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight : Tensor, shape (out_channels, in_channels / groups, rows, columns)
        Initialized uniformly between ±1/sqrt(fan_in).
    bias : Tensor of shape (out_channels,), or None
        Initialized from the same distribution.

    Raises
    ------
    DomainError
        `padding_mode` is unknown, or `padding` is an unknown word.
    ShapeError
        A size is too small, a number of channels is not a multiple of `groups`, or "same" is
        combined with a stride; in a call: the input has other axes or channels.
    DTypeError
        `dtype` is not a floating-point dtype.

    Examples
    --------
    >>> layer = krt.nn.Conv2d(3, 8, kernel_size=3, stride=2, padding=1)
    >>> layer(krt.ones(5, 3, 28, 28)).shape, layer.weight.shape
    ((5, 8, 14, 14), (8, 3, 3, 3))
    """

    _axes, _names = 2, "rows, columns"

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(batch, in_channels, rows, columns)`` to ``(batch, out_channels, ...)``."""
        x, padding = self._padded(input)
        return x.conv2d(self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Convolution):
    """Apply a one-dimensional convolution (cross-correlation) to sequences.

    Maps ``(batch, in_channels, length)`` to ``(batch, out_channels, length')``; the batch may be
    missing. :class:`Conv2d` has the formula of the size, and describes the errors.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the result.
    kernel_size : int
        Length of a filter.
    stride, dilation : int, default 1
        `stride` is the distance between two positions of the filter, and `dilation` the distance
        between two of its elements.
    padding : int, "valid" or "same", default 0
        Number of zeros to add on each side. "valid" adds none. "same" adds so many that the size
        stays the same, and needs a stride of 1.
    groups : int, default 1
        Number of groups of channels. Each group of outputs depends on one group of inputs only.
    bias : bool, default True
        Whether to add a bias to each channel.
    padding_mode : "zeros", "reflect", "replicate" or "circular", default "zeros"
        Padding to use instead of zeros; see ``Tensor.pad``.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight : Tensor, shape (out_channels, in_channels / groups, kernel_size)
        Initialized uniformly between ±1/sqrt(fan_in).
    bias : Tensor of shape (out_channels,), or None
        Initialized from the same distribution.

    Examples
    --------
    >>> layer = krt.nn.Conv1d(2, 4, kernel_size=3, padding="same")
    >>> layer(krt.ones(5, 2, 100)).shape, layer.weight.shape
    ((5, 4, 100), (4, 2, 3))
    """

    _axes, _names = 1, "length"

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(batch, in_channels, length)`` to ``(batch, out_channels, length')``."""
        x, padding = self._padded(input)
        return x.conv1d(self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_Convolution):
    """Apply a three-dimensional convolution (cross-correlation) to volumes.

    Maps ``(batch, in_channels, depth, rows, columns)`` to
    ``(batch, out_channels, depth', rows', columns')``; the batch may be missing. :class:`Conv2d`
    has the formula of the sizes, and describes the errors.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the result.
    kernel_size : int or (int, int, int)
        Depth, rows and columns of a filter.
    stride, dilation : int or (int, int, int), default 1
        `stride` is the distance between two positions of the filter, and `dilation` the distance
        between two of its elements.
    padding : int, (int, int, int), "valid" or "same", default 0
        Number of zeros to add on each side. "valid" adds none. "same" adds so many that the size
        stays the same, and needs a stride of 1.
    groups : int, default 1
        Number of groups of channels. Each group of outputs depends on one group of inputs only.
    bias : bool, default True
        Whether to add a bias to each channel.
    padding_mode : "zeros", "reflect", "replicate" or "circular", default "zeros"
        Padding to use instead of zeros; see ``Tensor.pad``.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight : Tensor, shape (out_channels, in_channels / groups, depth, rows, columns)
        Initialized uniformly between ±1/sqrt(fan_in).
    bias : Tensor of shape (out_channels,), or None
        Initialized from the same distribution.

    Examples
    --------
    >>> layer = krt.nn.Conv3d(1, 2, kernel_size=(1, 3, 3))
    >>> layer(krt.ones(5, 1, 4, 8, 8)).shape, layer.weight.shape
    ((5, 2, 4, 6, 6), (2, 1, 1, 3, 3))
    """

    _axes, _names = 3, "depth, rows, columns"

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(batch, in_channels, depth, rows, columns)`` to ``(batch, out_channels, ...)``."""
        x, padding = self._padded(input)
        return x.conv3d(self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class _TransposedConvolution(_Convolution):
    _filters, _modes = 1, ("zeros",)
    padding: tuple[int, ...]

    def _check_padding(self, padding: Sizes | str) -> tuple[int, ...]:
        return sizes("padding", padding, 0, self._axes)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        *,
        dtype: object = dt.float32,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
            padding_mode, dtype=dtype,
        )  # fmt: skip
        self.output_padding = sizes("output_padding", output_padding, 0, self._axes)
        for more, step, apart in zip(
            self.output_padding, self.stride, self.dilation, strict=True
        ):
            if more >= max(step, apart):
                raise ShapeError(
                    f"output_padding: expected less than the greater of stride {step} and dilation "
                    f"{apart}, not {more}"
                )

    def _padding_for(self, x: Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
        """Return the output padding that gives `output_size`."""
        if output_size is None:
            return self.output_padding
        first = x.ndim - self._axes
        given = output_size if isinstance(output_size, tuple | list) else ()
        if len(given) not in (self._axes, x.ndim):
            raise ShapeError(
                f"output_size: expected a list or tuple of the sizes {self._names}, or of all "
                f"{x.ndim} sizes of the result, not {output_size!r}"
            )
        padding = []
        for size, old, step, around, apart, taps in zip(
            given[len(given) - self._axes :], x.dims[first:], self.stride, self.padding,
            self.dilation, self.kernel_size, strict=True,
        ):  # fmt: skip
            wanted = size_of(size, "output_size")
            least = total((prod((old, step)), apart * (taps - 1) + 1 - step - 2 * around))
            more = difference(wanted, least)
            if not isinstance(more, int):
                raise ShapeError(
                    f"output_size: whether {format_size(wanted)} is in the range from "
                    f"{format_size(least)} to {format_size(total((least, step - 1)))} is known "
                    "only at run time; leave the axis out of jit(dynamic=...)"
                )
            if not 0 <= more < step:
                raise ShapeError(
                    f"output_size: expected a size from {format_size(least)} to "
                    f"{format_size(total((least, step - 1)))} for an input axis of "
                    f"{format_size(old)} elements and stride {step}, not {format_size(wanted)}"
                )
            padding.append(more)
        return tuple(padding)


class ConvTranspose2d(_TransposedConvolution):
    """Apply a two-dimensional transposed convolution to images.

    Maps ``(batch, in_channels, rows, columns)`` to ``(batch, out_channels, rows', columns')``; the
    batch may be missing. An axis of n elements becomes one of ``(n - 1) * stride - 2 * padding +
    dilation * (kernel_size - 1) + 1 + output_padding``. A call may choose the
    result's size instead of `output_padding`, with ``output_size=(rows', columns')`` or the whole
    shape. Each size may be up to ``stride - 1`` above the size without `output_padding`.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the result.
    kernel_size : int or (int, int)
        Rows and columns of a filter.
    stride, padding, dilation : int or (int, int), default 1, 0 and 1
        `stride` is the distance in the result between the positions of neighboring inputs,
        `padding` the number of elements to cut from each side of the result, and `dilation` the
        distance between two elements of a filter.
    output_padding : int or (int, int), default 0
        Number of elements to add at the end of the result. It must be below the greater of `stride`
        and `dilation`.
    groups : int, default 1
        Number of groups of channels. Each group of outputs depends on one group of inputs only.
    bias : bool, default True
        Whether to add a bias to each channel.
    padding_mode : "zeros", default "zeros"
        Accepted for compatibility; other modes raise DomainError.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight : Tensor, shape (in_channels, out_channels / groups, rows, columns)
        Initialized uniformly between ±1/sqrt(fan_in), where fan_in counts ``out_channels / groups``
        channels, as in PyTorch.
    bias : Tensor of shape (out_channels,), or None
        Initialized from the same distribution.

    Raises
    ------
    ShapeError
        A size is too small, a number of channels is not a multiple of `groups`, or `output_padding`
        is too large; in a call: the input has other axes or channels, or `output_size` is out of
        range.
    DTypeError
        `dtype` is not a floating-point dtype.

    Examples
    --------
    >>> layer = krt.nn.ConvTranspose2d(8, 3, kernel_size=4, stride=2, padding=1)
    >>> layer(krt.ones(5, 8, 14, 14)).shape, layer.weight.shape
    ((5, 3, 28, 28), (8, 3, 4, 4))
    >>> layer(krt.ones(5, 8, 14, 14), output_size=(29, 28)).shape
    (5, 3, 29, 28)
    """

    _axes, _names = 2, "rows, columns"

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Map ``(batch, in_channels, rows, columns)`` to ``(batch, out_channels, ...)``."""
        self._check_input(input)
        more = self._padding_for(input, output_size)
        return input.conv_transpose2d(
            self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation
        )


class ConvTranspose1d(_TransposedConvolution):
    """Apply a one-dimensional transposed convolution to sequences.

    Maps ``(batch, in_channels, length)`` to ``(batch, out_channels, length')``; the batch may be
    missing. :class:`ConvTranspose2d` has the formula of the size, and describes `output_size` and
    the errors.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the result.
    kernel_size : int
        Length of a filter.
    stride, padding, dilation : int, default 1, 0 and 1
        `stride` is the distance in the result between the positions of neighboring inputs,
        `padding` the number of elements to cut from each side of the result, and `dilation` the
        distance between two elements of a filter.
    output_padding : int, default 0
        Number of elements to add at the end of the result. It must be below the greater of `stride`
        and `dilation`.
    groups : int, default 1
        Number of groups of channels. Each group of outputs depends on one group of inputs only.
    bias : bool, default True
        Whether to add a bias to each channel.
    padding_mode : "zeros", default "zeros"
        Accepted for compatibility; other modes raise DomainError.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight : Tensor, shape (in_channels, out_channels / groups, kernel_size)
        Initialized as in :class:`ConvTranspose2d`.
    bias : Tensor of shape (out_channels,), or None
        Initialized from the same distribution.

    Examples
    --------
    >>> layer = krt.nn.ConvTranspose1d(4, 2, kernel_size=2, stride=2)
    >>> layer(krt.ones(5, 4, 50)).shape, layer.weight.shape
    ((5, 2, 100), (4, 2, 2))
    """

    _axes, _names = 1, "length"

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Map ``(batch, in_channels, length)`` to ``(batch, out_channels, length')``."""
        self._check_input(input)
        more = self._padding_for(input, output_size)
        return input.conv_transpose1d(
            self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation
        )


class ConvTranspose3d(_TransposedConvolution):
    """Apply a three-dimensional transposed convolution to volumes.

    Maps ``(batch, in_channels, depth, rows, columns)`` to
    ``(batch, out_channels, depth', rows', columns')``; the batch may be missing.
    :class:`ConvTranspose2d` has the formula of the sizes, and describes `output_size` and the
    errors.

    Parameters
    ----------
    in_channels, out_channels : int
        Number of channels of the input and of the result.
    kernel_size : int or (int, int, int)
        Depth, rows and columns of a filter.
    stride, padding, dilation : int or (int, int, int), default 1, 0 and 1
        `stride` is the distance in the result between the positions of neighboring inputs,
        `padding` the number of elements to cut from each side of the result, and `dilation` the
        distance between two elements of a filter.
    output_padding : int or (int, int, int), default 0
        Number of elements to add at the end of the result. It must be below the greater of `stride`
        and `dilation`.
    groups : int, default 1
        Number of groups of channels. Each group of outputs depends on one group of inputs only.
    bias : bool, default True
        Whether to add a bias to each channel.
    padding_mode : "zeros", default "zeros"
        Accepted for compatibility; other modes raise DomainError.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight : Tensor, shape (in_channels, out_channels / groups, depth, rows, columns)
        Initialized as in :class:`ConvTranspose2d`.
    bias : Tensor of shape (out_channels,), or None
        Initialized from the same distribution.

    Examples
    --------
    >>> layer = krt.nn.ConvTranspose3d(4, 2, kernel_size=2, stride=2)
    >>> layer(krt.ones(5, 4, 2, 4, 4)).shape, layer.weight.shape
    ((5, 2, 4, 8, 8), (4, 2, 2, 2, 2))
    """

    _axes, _names = 3, "depth, rows, columns"

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Map ``(batch, in_channels, depth, rows, columns)`` to ``(batch, out_channels, ...)``."""
        self._check_input(input)
        more = self._padding_for(input, output_size)
        return input.conv_transpose3d(
            self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation
        )

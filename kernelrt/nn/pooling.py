"""Pooling and resizing layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt.errors import DTypeError
from kernelrt.nn.module import Module
from kernelrt.tensor.free_functions.fractional_pooling import (
    Fractions,
    fractional_max_pool2d,
    fractional_max_pool3d,
)
from kernelrt.tensor.methods.resampling import check_interpolation, factors_of
from kernelrt.tensor.methods.window_pooling import Windows
from kernelrt.tensor.nodes.arguments import flag

if TYPE_CHECKING:
    from kernelrt.tensor import Tensor

__all__ = ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
           "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
           "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d",
           "MaxPool1d", "MaxPool2d", "MaxPool3d", "Upsample", "UpsamplingBilinear2d",
           "UpsamplingNearest2d"]  # fmt: skip

Sizes = int | tuple[int, ...]


class _Pool(Module):
    """Base of pooling layers, which call a function with stored arguments."""

    _function: ClassVar[str]
    _axes: ClassVar[int]
    _shown: ClassVar[tuple[str, ...]] = ("kernel_size", "stride", "padding")

    def extra_repr(self) -> str:
        """Return the window parameters as text."""
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._shown)


class _MaxPool(_Pool):
    def __init__(
        self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
        dilation: Sizes = 1, return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        w = Windows(
            type(self).__name__, self._axes, kernel_size, stride, padding, dilation, ceil_mode
        )
        self.kernel_size, self.stride = w.kernel, w.stride
        self.padding, self.dilation, self.ceil_mode = w.padding, w.dilation, ceil_mode
        self.return_indices = flag(return_indices, "return_indices")

    def forward(self, input: Tensor) -> Any:
        """Map ``(batch, channels, *sizes)`` to ``(batch, channels, *counts)``, one per window."""
        return getattr(input, self._function)(
            self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
            self.return_indices,
        )  # fmt: skip


class MaxPool1d(_MaxPool):
    """Take the maximum of each window over the last axis.

    Maps ``(batch, channels, length)`` to ``(batch, channels, length')``; the batch may be missing.
    The docstring of :class:`MaxPool2d` has the formula of this size.

    Parameters
    ----------
    kernel_size : int
        Length of a window.
    stride : int, optional
        Stride of the window; by default its size.
    padding, dilation : int, default 0 and 1
        `padding` is the width of a border that is added on each side and never gives the maximum.
        `dilation` is the distance between the elements of a window.
    return_indices : bool, default False
        Whether to return the indices of the maxima along the axis, too.
    ceil_mode : bool, default False
        Whether the last window may extend beyond the end.

    Examples
    --------
    >>> krt.nn.MaxPool1d(2)(krt.tensor([[1.0, 3.0, 2.0, 0.0]])).tolist()
    [[3.0, 2.0]]
    """

    _function, _axes = "max_pool1d", 1


class MaxPool2d(_MaxPool):
    """Take the maximum of each window over the last two axes.

    Maps ``(batch, channels, rows, columns)`` to ``(batch, channels, rows', columns')``; the batch
    may be missing. An axis of n elements becomes one of
    ``floor((n + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1``.

    Parameters
    ----------
    kernel_size : int or (int, int)
        Rows and columns of a window.
    stride : int or (int, int), optional
        Stride of the window; by default its size.
    padding, dilation : int or (int, int), default 0 and 1
        `padding` is the width of a border that is added on each side and never gives the maximum.
        `dilation` is the distance between the elements of a window.
    return_indices : bool, default False
        Whether to return the indices of the maxima in the flattened image, too.
    ceil_mode : bool, default False
        Whether the last window may extend beyond the end.

    Raises
    ------
    ShapeError
        A size is too small, or `padding` exceeds half of the window.

    Examples
    --------
    >>> pool = krt.nn.MaxPool2d(2, return_indices=True)
    >>> values, indices = pool(krt.tensor([[[1.0, 4.0], [3.0, 2.0]]]))
    >>> values.tolist(), indices.tolist()
    ([[[4.0]]], [[[1]]])
    """

    _function, _axes = "max_pool2d", 2


class MaxPool3d(_MaxPool):
    """Take the maximum of each window over the last three axes.

    Maps ``(batch, channels, depth, rows, columns)`` to
    ``(batch, channels, depth', rows', columns')``; the batch may be missing. The docstring of
    :class:`MaxPool2d` has the formula of these sizes.

    Parameters
    ----------
    kernel_size : int or (int, int, int)
        Depth, rows and columns of a window.
    stride : int or (int, int, int), optional
        Stride of the window; by default its size.
    padding, dilation : int or (int, int, int), default 0 and 1
        `padding` is the width of a border that is added on each side and never gives the maximum.
        `dilation` is the distance between the elements of a window.
    return_indices : bool, default False
        Whether to return the indices of the maxima in the flattened volume, too.
    ceil_mode : bool, default False
        Whether the last window may extend beyond the end.

    Examples
    --------
    >>> krt.nn.MaxPool3d(2)(krt.ones(5, 3, 8, 6, 4)).shape
    (5, 3, 4, 3, 2)
    """

    _function, _axes = "max_pool3d", 3


class _AvgPool(_Pool):
    def __init__(
        self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        w = Windows(type(self).__name__, self._axes, kernel_size, stride, padding, 1, ceil_mode)
        self.kernel_size, self.stride, self.padding = w.kernel, w.stride, w.padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad
        if self._axes == 1 and divisor_override is not None:
            raise DTypeError("divisor_override: expected None, as AvgPool1d does not support it")
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Any:
        """Map ``(batch, channels, *sizes)`` to ``(batch, channels, *counts)``, one per window."""
        given = (
            self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )  # fmt: skip
        more = (self.divisor_override,) if self._axes > 1 else ()
        return getattr(input, self._function)(*given, *more)


class AvgPool1d(_AvgPool):
    """Take the mean of each window over the last axis.

    Maps ``(batch, channels, length)`` to ``(batch, channels, length')``; the batch may be missing.
    The docstring of :class:`AvgPool2d` has the formula of this size.

    Parameters
    ----------
    kernel_size : int
        Length of a window.
    stride : int, optional
        Stride of the window; by default its size.
    padding : int, default 0
        Number of zeros to add on each side.
    ceil_mode : bool, default False
        Whether the last window may extend beyond the end.
    count_include_pad : bool, default True
        Whether the padding counts in the average.
    divisor_override : None
        Only the pools of more axes support a divisor.

    Examples
    --------
    >>> krt.nn.AvgPool1d(2)(krt.tensor([[1.0, 3.0, 2.0, 0.0]])).tolist()
    [[2.0, 1.0]]
    """

    _function, _axes = "avg_pool1d", 1


class AvgPool2d(_AvgPool):
    """Take the mean of each window over the last two axes.

    Maps ``(batch, channels, rows, columns)`` to ``(batch, channels, rows', columns')``; the batch
    may be missing. An axis of n elements becomes one of
    ``floor((n + 2 * padding - kernel_size) / stride) + 1``.

    Parameters
    ----------
    kernel_size : int or (int, int)
        Rows and columns of a window.
    stride : int or (int, int), optional
        Stride of the window; by default its size.
    padding : int or (int, int), default 0
        Number of zeros to add on each side.
    ceil_mode : bool, default False
        Whether the last window may extend beyond the end.
    count_include_pad : bool, default True
        Whether the padding counts in the average.
    divisor_override : int, optional
        Divisor of the sums, instead of the number of elements.

    Raises
    ------
    ShapeError
        A size is too small, or `padding` exceeds half of the window.

    Examples
    --------
    >>> krt.nn.AvgPool2d(2)(krt.tensor([[[1.0, 4.0], [3.0, 2.0]]])).tolist()
    [[[2.5]]]
    """

    _function, _axes = "avg_pool2d", 2


class AvgPool3d(_AvgPool):
    """Take the mean of each window over the last three axes.

    Maps ``(batch, channels, depth, rows, columns)`` to
    ``(batch, channels, depth', rows', columns')``; the batch may be missing. The docstring of
    :class:`AvgPool2d` has the formula of these sizes.

    Parameters
    ----------
    kernel_size : int or (int, int, int)
        Depth, rows and columns of a window.
    stride : int or (int, int, int), optional
        Stride of the window; by default its size.
    padding : int or (int, int, int), default 0
        Number of zeros to add on each side.
    ceil_mode : bool, default False
        Whether the last window may extend beyond the end.
    count_include_pad : bool, default True
        Whether the padding counts in the average.
    divisor_override : int, optional
        Divisor of the sums, instead of the number of elements.

    Examples
    --------
    >>> krt.nn.AvgPool3d(2)(krt.ones(5, 3, 8, 6, 4)).shape
    (5, 3, 4, 3, 2)
    """

    _function, _axes = "avg_pool3d", 3


class _PowerPool(_Pool):
    _shown = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        w = Windows(type(self).__name__, self._axes, kernel_size, stride, 0, 1, ceil_mode)
        self.norm_type, self.ceil_mode = norm_type, ceil_mode
        self.kernel_size, self.stride = w.kernel, w.stride

    def forward(self, input: Tensor) -> Any:
        """Map ``(batch, channels, *sizes)`` to ``(batch, channels, *counts)``, one per window."""
        return getattr(input, self._function)(
            self.norm_type, self.kernel_size, self.stride, self.ceil_mode
        )


class LPPool1d(_PowerPool):
    """Take the root of the sum of powers of each window over the last axis.

    See ``Tensor.lp_pool1d``. Maps ``(batch, channels, length)`` to ``(batch, channels, length')``;
    the batch may be missing.

    Parameters
    ----------
    norm_type : float
        The power: 1 gives sums, and large powers approach max pooling.
    kernel_size : int
        Length of a window.
    stride : int, optional
        Stride of the window; by default its size.
    ceil_mode : bool, default False
        Whether the last window may extend beyond the end.

    Examples
    --------
    >>> krt.nn.LPPool1d(2, 2)(krt.tensor([[3.0, 4.0]])).tolist()
    [[5.0]]
    """

    _function, _axes = "lp_pool1d", 1


class LPPool2d(_PowerPool):
    """Take the root of the sum of powers of each window over the last two axes.

    See ``Tensor.lp_pool2d``. Maps ``(batch, channels, rows, columns)`` to ``(batch, channels,
    rows', columns')``; the batch may be missing.

    Parameters
    ----------
    norm_type : float
        The power: 1 gives sums, and large powers approach max pooling.
    kernel_size : int or (int, int)
        Rows and columns of a window.
    stride : int or (int, int), optional
        Stride of the window; by default its size.
    ceil_mode : bool, default False
        Whether the last window may extend beyond the end.

    Examples
    --------
    >>> krt.nn.LPPool2d(2, 2)(krt.tensor([[[3.0, 0.0], [0.0, 4.0]]])).tolist()
    [[[5.0]]]
    """

    _function, _axes = "lp_pool2d", 2


class LPPool3d(_PowerPool):
    """Take the root of the sum of powers of each window over the last three axes.

    See ``Tensor.lp_pool3d``. Maps ``(batch, channels, depth, rows, columns)`` to ``(batch,
    channels, depth', rows', columns')``; the batch may be missing.

    Parameters
    ----------
    norm_type : float
        The power: 1 gives sums, and large powers approach max pooling.
    kernel_size : int or (int, int, int)
        Depth, rows and columns of a window.
    stride : int or (int, int, int), optional
        Stride of the window; by default its size.
    ceil_mode : bool, default False
        Whether the last window may extend beyond the end.

    Examples
    --------
    >>> krt.nn.LPPool3d(1, 2)(krt.ones(1, 2, 2, 2)).tolist()
    [[[[8.0]]]]
    """

    _function, _axes = "lp_pool3d", 3


class _AdaptivePool(_Pool):
    _shown = ("output_size",)

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Any:
        """Map ``(batch, channels, *sizes)`` to ``(batch, channels, *output_size)``."""
        return getattr(input, self._function)(self.output_size)


class AdaptiveAvgPool1d(_AdaptivePool):
    """Take the mean of each window over the last axis; the number of windows is fixed.

    Maps ``(batch, channels, length)`` to ``(batch, channels, output_size)``; the batch may be
    missing. ``Tensor.adaptive_avg_pool2d`` describes the windows.

    Parameters
    ----------
    output_size : int
        Number of windows.

    Examples
    --------
    >>> krt.nn.AdaptiveAvgPool1d(2)(krt.tensor([[1.0, 3.0, 2.0, 0.0]])).tolist()
    [[2.0, 1.0]]
    """

    _function, _axes = "adaptive_avg_pool1d", 1


class AdaptiveAvgPool2d(_AdaptivePool):
    """Take the mean of each window over the last two axes; the numbers of windows are fixed.

    Maps ``(batch, channels, rows, columns)`` to ``(batch, channels, *output_size)``; the batch may
    be missing. ``Tensor.adaptive_avg_pool2d`` describes the windows.

    Parameters
    ----------
    output_size : int, or pair of int or None
        Rows and columns of the result; None keeps the size of an axis.

    Examples
    --------
    >>> krt.nn.AdaptiveAvgPool2d(1)(krt.tensor([[[1.0, 4.0], [3.0, 2.0]]])).tolist()
    [[[2.5]]]
    """

    _function, _axes = "adaptive_avg_pool2d", 2


class AdaptiveAvgPool3d(_AdaptivePool):
    """Take the mean of each window over the last three axes; the numbers of windows are fixed.

    Maps ``(batch, channels, depth, rows, columns)`` to ``(batch, channels, *output_size)``; the
    batch may be missing. ``Tensor.adaptive_avg_pool2d`` describes the windows.

    Parameters
    ----------
    output_size : int, or three of int or None
        Depth, rows and columns of the result; None keeps the size of an axis.

    Examples
    --------
    >>> krt.nn.AdaptiveAvgPool3d((2, None, 1))(krt.ones(5, 3, 8, 6, 4)).shape
    (5, 3, 2, 6, 1)
    """

    _function, _axes = "adaptive_avg_pool3d", 3


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        """Map ``(batch, channels, *sizes)`` to ``(batch, channels, *output_size)``."""
        return getattr(input, self._function)(self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Take the maximum of each window over the last axis; the number of windows is fixed.

    Maps ``(batch, channels, length)`` to ``(batch, channels, output_size)``; the batch may be
    missing. ``Tensor.adaptive_avg_pool2d`` describes the windows.

    Parameters
    ----------
    output_size : int
        Number of windows.
    return_indices : bool, default False
        Whether to return the indices of the maxima along the axis, too.

    Examples
    --------
    >>> krt.nn.AdaptiveMaxPool1d(2)(krt.tensor([[1.0, 3.0, 2.0, 0.0]])).tolist()
    [[3.0, 2.0]]
    """

    _function, _axes = "adaptive_max_pool1d", 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Take the maximum of each window over the last two axes; their numbers are fixed.

    Maps ``(batch, channels, rows, columns)`` to ``(batch, channels, *output_size)``; the batch may
    be missing. ``Tensor.adaptive_avg_pool2d`` describes the windows.

    Parameters
    ----------
    output_size : int, or pair of int or None
        Rows and columns of the result; None keeps the size of an axis.
    return_indices : bool, default False
        Whether to return the indices of the maxima in the flattened image, too.

    Examples
    --------
    >>> krt.nn.AdaptiveMaxPool2d(1)(krt.tensor([[[1.0, 4.0], [3.0, 2.0]]])).tolist()
    [[[4.0]]]
    """

    _function, _axes = "adaptive_max_pool2d", 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Take the maximum of each window over the last three axes; their numbers are fixed.

    Maps ``(batch, channels, depth, rows, columns)`` to ``(batch, channels, *output_size)``; the
    batch may be missing. ``Tensor.adaptive_avg_pool2d`` describes the windows.

    Parameters
    ----------
    output_size : int, or three of int or None
        Depth, rows and columns of the result; None keeps the size of an axis.
    return_indices : bool, default False
        Whether to return the indices of the maxima in the flattened volume, too.

    Examples
    --------
    >>> krt.nn.AdaptiveMaxPool3d((2, None, 1))(krt.ones(5, 3, 8, 6, 4)).shape
    (5, 3, 2, 6, 1)
    """

    _function, _axes = "adaptive_max_pool3d", 3


class _FractionalMaxPool(_Pool):
    _shown = ("kernel_size", "output_size", "output_ratio")
    _random_samples: Tensor | None

    def __init__(
        self, kernel_size: Sizes, output_size: Sizes | None = None,
        output_ratio: float | tuple[float, ...] | None = None, return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        given = Fractions(
            type(self).__name__, self._axes, kernel_size, output_size, output_ratio
        )
        self.kernel_size, self.output_size = given.kernel, given.counts
        self.output_ratio = given.ratios
        self.return_indices = flag(return_indices, "return_indices")
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Tensor) -> Any:
        """Map ``(batch, channels, *sizes)`` to ``(batch, channels, *output_size)``."""
        pool = fractional_max_pool2d if self._axes == 2 else fractional_max_pool3d
        return pool(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
            self._random_samples,
        )  # fmt: skip


class FractionalMaxPool2d(_FractionalMaxPool):
    """Take the maximum of windows at random positions over the last two axes.

    Maps ``(batch, channels, rows, columns)`` to ``(batch, channels, *output_size)``; the batch may
    be missing. See :func:`kernelrt.nn.functional.fractional_max_pool2d`.

    Parameters
    ----------
    kernel_size : int or pair of int
        Size of the windows.
    output_size : int or pair of int, optional
        Number of windows along each axis.
    output_ratio : float or pair of float, optional
        Alternative to `output_size`: the ratio of output size to input size, above 0 and below 1.
    return_indices : bool, default False
        Whether to return the indices of the maxima, too.
    _random_samples : Tensor, shape (batch, channels, 2), optional
        Numbers from 0 to 1 to use instead of random ones.

    Raises
    ------
    DomainError
        A ratio is out of range.
    ShapeError
        Not exactly one of `output_size` and `output_ratio` is given.

    Notes
    -----
    Graham, "Fractional max-pooling", 2014.

    Examples
    --------
    >>> krt.nn.FractionalMaxPool2d(2, output_ratio=0.75)(krt.ones(5, 3, 16, 8)).shape
    (5, 3, 12, 6)
    """

    _axes = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Take the maximum of windows at random positions over the last three axes.

    Maps ``(batch, channels, depth, rows, columns)`` to ``(batch, channels, *output_size)``; the
    batch may be missing. :class:`FractionalMaxPool2d` describes the errors.

    Parameters
    ----------
    kernel_size : int or three of int
        Size of the windows.
    output_size : int or three of int, optional
        Number of windows along each axis.
    output_ratio : float or three of float, optional
        Alternative to `output_size`: the ratio of output size to input size, above 0 and below 1.
    return_indices : bool, default False
        Whether to return the indices of the maxima, too.
    _random_samples : Tensor, shape (batch, channels, 3), optional
        Numbers from 0 to 1 to use instead of random ones.

    Examples
    --------
    >>> krt.nn.FractionalMaxPool3d(2, output_size=(4, 6, 3))(krt.ones(5, 3, 8, 9, 8)).shape
    (5, 3, 4, 6, 3)
    """

    _axes = 3


class Upsample(Module):
    """Resize the axes after batch and channels; see ``Tensor.interpolate``.

    Maps ``(batch, channels, *sizes)`` to ``(batch, channels, *size)``.

    Parameters
    ----------
    size : int or tuple of int, optional
        New sizes of these axes.
    scale_factor : float or tuple of float, optional
        Alternative to `size`: factor of the sizes.
    mode : str, default "nearest"
        "nearest", "nearest-exact", "linear" (one axis), "bilinear" or "bicubic" (two axes),
        "trilinear" (three axes) or "area"; ``Tensor.interpolate`` defines them.
    align_corners : bool, optional
        For interpolating modes: whether the corner elements of input and result coincide.
    recompute_scale_factor : bool, optional
        Whether to compute positions from the sizes instead of `scale_factor`.

    Raises
    ------
    DomainError
        `mode` is unknown.
    ShapeError
        Not exactly one of `size` and `scale_factor` is given, or `mode` does not take
        `align_corners`.

    Examples
    --------
    >>> krt.nn.Upsample(scale_factor=2)(krt.tensor([[[1.0, 3.0]]])).tolist()
    [[[1.0, 1.0, 3.0, 3.0]]]
    """

    def __init__(
        self, size: Sizes | None = None,
        scale_factor: float | tuple[float, ...] | None = None, mode: str = "nearest",
        align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        check_interpolation(mode, align_corners)
        given = size if scale_factor is None else scale_factor
        factors_of(size, scale_factor, len(given) if isinstance(given, tuple | list) else 1)
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(batch, channels, *sizes)`` to ``(batch, channels, *size)``."""
        return input.interpolate(
            self.size, self.scale_factor, self.mode, self.align_corners,
            self.recompute_scale_factor,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the sizes or factors as text."""
        given = {"size": self.size, "scale_factor": self.scale_factor}
        text = ", ".join(f"{k}={v}" for k, v in given.items() if v is not None)
        return text if self.mode == "nearest" else f"{text}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resize images by nearest neighbor; see :class:`Upsample`.

    Maps ``(batch, channels, rows, columns)`` to ``(batch, channels, *size)``.

    Parameters
    ----------
    size : int or (int, int), optional
        New numbers of rows and columns.
    scale_factor : float or (float, float), optional
        Alternative to `size`: factor of the sizes.

    Examples
    --------
    >>> krt.nn.UpsamplingNearest2d(scale_factor=2)(krt.tensor([[[[1.0, 3.0]]]])).tolist()
    [[[[1.0, 1.0, 3.0, 3.0], [1.0, 1.0, 3.0, 3.0]]]]
    """

    def __init__(
        self, size: Sizes | None = None, scale_factor: float | tuple[float, ...] | None = None
    ) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Resize images by bilinear interpolation with aligned corners; see :class:`Upsample`.

    Maps ``(batch, channels, rows, columns)`` to ``(batch, channels, *size)``.

    Parameters
    ----------
    size : int or (int, int), optional
        New numbers of rows and columns.
    scale_factor : float or (float, float), optional
        Alternative to `size`: factor of the sizes.

    Examples
    --------
    >>> krt.nn.UpsamplingBilinear2d(size=(1, 3))(krt.tensor([[[[1.0, 3.0]]]])).tolist()
    [[[[1.0, 2.0, 3.0]]]]
    """

    def __init__(
        self, size: Sizes | None = None, scale_factor: float | tuple[float, ...] | None = None
    ) -> None:
        super().__init__(size, scale_factor, "bilinear", True)

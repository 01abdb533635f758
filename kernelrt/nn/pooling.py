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
        """Pool the last axes."""
        return getattr(input, self._function)(
            self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
            self.return_indices,
        )  # fmt: skip


class MaxPool1d(_MaxPool):
    """Max pooling over the last axis; see :class:`MaxPool2d`."""

    _function, _axes = "max_pool1d", 1


class MaxPool2d(_MaxPool):
    """Max pooling over the last two axes.

    Parameters
    ----------
    kernel_size : int or (int, int)
        Rows and columns of a window.
    stride : int or (int, int), optional
        Stride of the window; by default its size.
    padding, dilation : int or (int, int)
        Border that never is the maximum, and distance between the elements of a window.
    return_indices : bool
        Whether to return the indices of the maxima in the flattened image, too.
    ceil_mode : bool
        Whether the last window may extend beyond the end.
    """

    _function, _axes = "max_pool2d", 2


class MaxPool3d(_MaxPool):
    """Max pooling over the last three axes; see :class:`MaxPool2d`."""

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
        """Pool the last axes."""
        given = (
            self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )  # fmt: skip
        more = (self.divisor_override,) if self._axes > 1 else ()
        return getattr(input, self._function)(*given, *more)


class AvgPool1d(_AvgPool):
    """Average pooling over the last axis; see :class:`AvgPool2d`."""

    _function, _axes = "avg_pool1d", 1


class AvgPool2d(_AvgPool):
    """Average pooling over the last two axes.

    Parameters
    ----------
    kernel_size : int or (int, int)
        Rows and columns of a window.
    stride : int or (int, int), optional
        Stride of the window; by default its size.
    padding : int or (int, int)
        Number of zeros to add on each side.
    ceil_mode : bool
        Whether the last window may extend beyond the end.
    count_include_pad : bool
        Whether the padding counts in the average.
    divisor_override : int, optional
        Divisor of the sums, instead of the number of elements.
    """

    _function, _axes = "avg_pool2d", 2


class AvgPool3d(_AvgPool):
    """Average pooling over the last three axes; see :class:`AvgPool2d`."""

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
        """Pool the last axes."""
        return getattr(input, self._function)(
            self.norm_type, self.kernel_size, self.stride, self.ceil_mode
        )


class LPPool1d(_PowerPool):
    """Power-average pooling (root of a power sum) over the last axis; see ``Tensor.lp_pool1d``."""

    _function, _axes = "lp_pool1d", 1


class LPPool2d(_PowerPool):
    """Power-average pooling (root of a power sum) over two axes; see ``Tensor.lp_pool2d``."""

    _function, _axes = "lp_pool2d", 2


class LPPool3d(_PowerPool):
    """Power-average pooling (root of a power sum) over three axes; see ``Tensor.lp_pool3d``."""

    _function, _axes = "lp_pool3d", 3


class _AdaptivePool(_Pool):
    _shown = ("output_size",)

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Any:
        """Pool the last axes."""
        return getattr(input, self._function)(self.output_size)


class AdaptiveAvgPool1d(_AdaptivePool):
    """Average pooling of the last axis to a given size; see ``Tensor.adaptive_avg_pool2d``."""

    _function, _axes = "adaptive_avg_pool1d", 1


class AdaptiveAvgPool2d(_AdaptivePool):
    """Average pooling of the last two axes to given sizes; see ``Tensor.adaptive_avg_pool2d``.

    Parameters
    ----------
    output_size : int, or pair of int or None
        Rows and columns of the result; None keeps the size of an axis.
    """

    _function, _axes = "adaptive_avg_pool2d", 2


class AdaptiveAvgPool3d(_AdaptivePool):
    """Average pooling of the last three axes to given sizes."""

    _function, _axes = "adaptive_avg_pool3d", 3


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        """Pool the last axes."""
        return getattr(input, self._function)(self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Max pooling of the last axis to a given size."""

    _function, _axes = "adaptive_max_pool1d", 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Max pooling of the last two axes to given sizes; see ``Tensor.adaptive_max_pool2d``."""

    _function, _axes = "adaptive_max_pool2d", 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Max pooling of the last three axes to given sizes."""

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
        """Pool the last axes."""
        pool = fractional_max_pool2d if self._axes == 2 else fractional_max_pool3d
        return pool(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
            self._random_samples,
        )  # fmt: skip


class FractionalMaxPool2d(_FractionalMaxPool):
    """Max pooling over the last two axes, with windows at random positions.

    See :func:`kernelrt.nn.functional.fractional_max_pool2d`.

    Parameters
    ----------
    kernel_size : int or pair of int
        Size of the windows.
    output_size : int or pair of int, optional
        Number of windows along each axis.
    output_ratio : float or pair of float, optional
        Alternative to `output_size`: its ratio to the input size, above 0 and below 1.
    return_indices : bool
        Whether to return the indices of the maxima, too.
    _random_samples : Tensor, shape (batch, channels, 2), optional
        Numbers from 0 to 1 to use instead of random ones.
    """

    _axes = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Max pooling like :class:`FractionalMaxPool2d`, over the last three axes."""

    _axes = 3


class Upsample(Module):
    """Resize the axes after batch and channels; see ``Tensor.interpolate``.

    Parameters
    ----------
    size : int or tuple of int, optional
        New sizes of these axes.
    scale_factor : float or tuple of float, optional
        Alternative to `size`: factor of the sizes.
    mode : str
        "nearest", "linear", "bilinear", "bicubic" or "trilinear".
    align_corners : bool, optional
        For interpolating modes: whether the corner elements of input and result coincide.
    recompute_scale_factor : bool, optional
        Whether to compute positions from the sizes instead of `scale_factor`.
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
        """Map (batch, channels, ...) to the same with new sizes after the channels."""
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
    """Resize images by nearest neighbor; see :class:`Upsample`."""

    def __init__(
        self, size: Sizes | None = None, scale_factor: float | tuple[float, ...] | None = None
    ) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Resize images by bilinear interpolation with aligned corners; see :class:`Upsample`."""

    def __init__(
        self, size: Sizes | None = None, scale_factor: float | tuple[float, ...] | None = None
    ) -> None:
        super().__init__(size, scale_factor, "bilinear", True)

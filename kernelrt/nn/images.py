"""Image layers other than convolution and pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt.nn.module import Module
from kernelrt.tensor.methods.image_windows import fold, unfold
from kernelrt.tensor.nodes.arguments import PerAxis, integer, per_axis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.tensor import Tensor

__all__ = ["ChannelShuffle", "Fold", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "PixelShuffle",
           "PixelUnshuffle", "Unfold"]  # fmt: skip


class _Function(Module):
    _arguments: ClassVar[tuple[str, ...]]

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._arguments)


class PixelShuffle(_Function):
    """Rearrange channels into pixels; see ``Tensor.pixel_shuffle``.

    Parameters
    ----------
    upscale_factor : int
        Factor by which rows and columns grow.
    """

    _arguments = ("upscale_factor",)

    def __init__(self, upscale_factor: int) -> None:
        self.upscale_factor = integer(upscale_factor, "upscale_factor", 1)

    def forward(self, input: Tensor) -> Tensor:
        """Map (..., C * r * r, H, W) to (..., C, H * r, W * r)."""
        return input.pixel_shuffle(self.upscale_factor)


class PixelUnshuffle(_Function):
    """Rearrange pixels into channels; see ``Tensor.pixel_unshuffle``.

    Parameters
    ----------
    downscale_factor : int
        Factor by which rows and columns shrink.
    """

    _arguments = ("downscale_factor",)

    def __init__(self, downscale_factor: int) -> None:
        self.downscale_factor = integer(downscale_factor, "downscale_factor", 1)

    def forward(self, input: Tensor) -> Tensor:
        """Map (..., C, H * r, W * r) to (..., C * r * r, H, W)."""
        return input.pixel_unshuffle(self.downscale_factor)


class ChannelShuffle(_Function):
    """Interleave the channels of groups; see ``Tensor.channel_shuffle``.

    Parameters
    ----------
    groups : int
        Number of groups that the channels are divided into.
    """

    _arguments = ("groups",)

    def __init__(self, groups: int) -> None:
        self.groups = integer(groups, "groups", 1)

    def forward(self, input: Tensor) -> Tensor:
        """Map (N, C, ...) to the same shape."""
        return input.channel_shuffle(self.groups)


class Unfold(_Function):
    """Extract windows of images as columns (im2col); see ``nn.functional.unfold``.

    Parameters
    ----------
    kernel_size, dilation, padding, stride : int or (int, int)
        As in the function.
    """

    _arguments: ClassVar[tuple[str, ...]] = ("kernel_size", "dilation", "padding", "stride")

    def __init__(
        self, kernel_size: PerAxis, dilation: PerAxis = 1, padding: PerAxis = 0,
        stride: PerAxis = 1,
    ) -> None:  # fmt: skip
        self.kernel_size = per_axis(kernel_size, 2, "kernel_size", least=1)
        self.dilation = per_axis(dilation, 2, "dilation", least=1)
        self.padding = per_axis(padding, 2, "padding")
        self.stride = per_axis(stride, 2, "stride", least=1)

    def forward(self, input: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, C * kernel, windows)."""
        return unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Unfold):
    """Add up windows to images (col2im); see ``nn.functional.fold``.

    Parameters
    ----------
    output_size : int or (int, int)
        Rows and columns of the images.
    kernel_size, dilation, padding, stride : int or (int, int)
        As in the function.
    """

    _arguments = ("output_size", "kernel_size", "dilation", "padding", "stride")

    def __init__(
        self, output_size: PerAxis, kernel_size: PerAxis, dilation: PerAxis = 1,
        padding: PerAxis = 0, stride: PerAxis = 1,
    ) -> None:  # fmt: skip
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = per_axis(output_size, 2, "output_size", least=1)

    def forward(self, input: Tensor) -> Tensor:
        """Map (N, C * kernel, windows) to (N, C, H, W)."""
        return fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )


class _MaxUnpool(_Function):
    """Base of the inverses of max pooling; see ``Tensor.max_unpool2d``.

    Parameters
    ----------
    kernel_size, stride, padding : int or sequence of int
        As in the pooling.
    """

    _arguments = ("kernel_size", "stride", "padding")
    _method: ClassVar[str]
    _axes: ClassVar[int]

    def __init__(
        self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0
    ) -> None:
        axes = self._axes
        self.kernel_size = per_axis(kernel_size, axes, "kernel_size", least=1)
        self.stride = self.kernel_size
        if stride is not None:
            self.stride = per_axis(stride, axes, "stride", least=1)
        self.padding = per_axis(padding, axes, "padding")

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        """Place the elements of `input` at `indices`."""
        method: Any = getattr(input, self._method)
        result: Tensor = method(
            indices, self.kernel_size, self.stride, self.padding, output_size
        )
        return result


class MaxUnpool1d(_MaxUnpool):
    """Partial inverse of :class:`MaxPool1d`; see ``Tensor.max_unpool1d``."""

    _method, _axes = "max_unpool1d", 1


class MaxUnpool2d(_MaxUnpool):
    """Partial inverse of :class:`MaxPool2d`; see ``Tensor.max_unpool2d``."""

    _method, _axes = "max_unpool2d", 2


class MaxUnpool3d(_MaxUnpool):
    """Partial inverse of :class:`MaxPool3d`; see ``Tensor.max_unpool3d``."""

    _method, _axes = "max_unpool3d", 3

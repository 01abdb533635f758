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

    Maps an input of shape ``(*, C * r * r, H, W)`` to ``(*, C, H * r, W * r)``.

    Parameters
    ----------
    upscale_factor : int
        Factor r by which rows and columns grow.

    Examples
    --------
    >>> krt.nn.PixelShuffle(2)(krt.tensor([[[1.0]], [[2.0]], [[3.0]], [[4.0]]])).tolist()
    [[[1.0, 2.0], [3.0, 4.0]]]
    """

    _arguments = ("upscale_factor",)

    def __init__(self, upscale_factor: int) -> None:
        self.upscale_factor = integer(upscale_factor, "upscale_factor", 1)

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(*, C * r * r, H, W)`` to ``(*, C, H * r, W * r)``."""
        return input.pixel_shuffle(self.upscale_factor)


class PixelUnshuffle(_Function):
    """Rearrange pixels into channels, the inverse of :class:`PixelShuffle`.

    Maps an input of shape ``(*, C, H * r, W * r)`` to ``(*, C * r * r, H, W)``; see
    ``Tensor.pixel_unshuffle``.

    Parameters
    ----------
    downscale_factor : int
        Factor r by which rows and columns shrink.

    Examples
    --------
    >>> krt.nn.PixelUnshuffle(2)(krt.tensor([[[1.0, 2.0], [3.0, 4.0]]])).tolist()
    [[[1.0]], [[2.0]], [[3.0]], [[4.0]]]
    """

    _arguments = ("downscale_factor",)

    def __init__(self, downscale_factor: int) -> None:
        self.downscale_factor = integer(downscale_factor, "downscale_factor", 1)

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(*, C, H * r, W * r)`` to ``(*, C * r * r, H, W)``."""
        return input.pixel_unshuffle(self.downscale_factor)


class ChannelShuffle(_Function):
    """Interleave the channels of groups; see ``Tensor.channel_shuffle``.

    Input and output have shape ``(N, C, *)``.

    Parameters
    ----------
    groups : int
        Number of groups that the channels are divided into.

    Examples
    --------
    >>> krt.nn.ChannelShuffle(2)(krt.arange(4).reshape(1, 4, 1)).flatten().tolist()
    [0, 2, 1, 3]
    """

    _arguments = ("groups",)

    def __init__(self, groups: int) -> None:
        self.groups = integer(groups, "groups", 1)

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(N, C, *)`` to the same shape."""
        return input.channel_shuffle(self.groups)


class Unfold(_Function):
    """Extract windows of images as columns (im2col); see :func:`kernelrt.nn.functional.unfold`.

    Maps ``(N, C, H, W)`` to ``(N, C * kernel, windows)``, where ``kernel`` is the number of
    elements of a window; N may be missing.

    Parameters
    ----------
    kernel_size : int or (int, int)
        Rows and columns of a window.
    dilation, padding, stride : int or (int, int), default 1, 0 and 1
        `dilation` is the distance between the elements of a window, `padding` the number of zeros
        to add on each side, and `stride` the distance between windows.

    Examples
    --------
    >>> krt.nn.Unfold((1, 2))(krt.tensor([[[1.0, 2.0, 3.0]]])).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
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
        """Map ``(N, C, H, W)`` to ``(N, C * kernel, windows)``."""
        return unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Unfold):
    """Add up windows into images (col2im), the adjoint of :class:`Unfold`.

    Maps ``(N, C * kernel, windows)`` to ``(N, C, H, W)``, where ``kernel`` is the number of
    elements of a window; N may be missing. See :func:`kernelrt.nn.functional.fold`.

    Parameters
    ----------
    output_size : int or (int, int)
        Rows and columns of the images.
    kernel_size : int or (int, int)
        Rows and columns of a window.
    dilation, padding, stride : int or (int, int), default 1, 0 and 1
        `dilation` is the distance between the elements of a window, `padding` the number of zeros
        to add on each side, and `stride` the distance between windows.

    Examples
    --------
    >>> krt.nn.Fold((1, 3), (1, 2))(krt.tensor([[1.0, 2.0], [2.0, 3.0]])).tolist()
    [[[1.0, 4.0, 3.0]]]
    """

    _arguments = ("output_size", "kernel_size", "dilation", "padding", "stride")

    def __init__(
        self, output_size: PerAxis, kernel_size: PerAxis, dilation: PerAxis = 1,
        padding: PerAxis = 0, stride: PerAxis = 1,
    ) -> None:  # fmt: skip
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = per_axis(output_size, 2, "output_size", least=1)

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(N, C * kernel, windows)`` to ``(N, C, H, W)``."""
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
        """Map ``(N, C, *counts)`` and indices ``(N, C, *counts)`` to ``(N, C, *output_size)``."""
        method: Any = getattr(input, self._method)
        result: Tensor = method(
            indices, self.kernel_size, self.stride, self.padding, output_size
        )
        return result


class MaxUnpool1d(_MaxUnpool):
    """Place the maxima of :class:`MaxPool1d` at their indices, and zeros elsewhere.

    Maps maxima and indices, both of shape ``(N, C, length)``, to ``(N, C, length')``; N may be
    missing. See ``Tensor.max_unpool1d``.

    Parameters
    ----------
    kernel_size, stride, padding : int
        The arguments of the pooling layer. By default the stride is the size of the window, and the
        padding is 0.

    Examples
    --------
    >>> values, indices = krt.nn.MaxPool1d(2, return_indices=True)(
    ...     krt.tensor([[1.0, 3.0, 2.0, 0.0]])
    ... )
    >>> krt.nn.MaxUnpool1d(2)(values, indices).tolist()
    [[0.0, 3.0, 2.0, 0.0]]
    """

    _method, _axes = "max_unpool1d", 1


class MaxUnpool2d(_MaxUnpool):
    """Place the maxima of :class:`MaxPool2d` at their indices, and zeros elsewhere.

    Maps maxima and indices, both of shape ``(N, C, rows, columns)``, to ``(N, C, rows',
    columns')``; N may be missing. See ``Tensor.max_unpool2d``. Images of different sizes may be
    pooled to the same size. The result has the smallest of these sizes, unless the call gives
    another one as `output_size`.

    Parameters
    ----------
    kernel_size, stride, padding : int or (int, int)
        The arguments of the pooling layer. By default the stride is the size of the window, and the
        padding is 0.

    Examples
    --------
    >>> values, indices = krt.nn.MaxPool2d(2, return_indices=True)(
    ...     krt.tensor([[[1.0, 4.0], [3.0, 2.0]]])
    ... )
    >>> krt.nn.MaxUnpool2d(2)(values, indices).tolist()
    [[[0.0, 4.0], [0.0, 0.0]]]
    """

    _method, _axes = "max_unpool2d", 2


class MaxUnpool3d(_MaxUnpool):
    """Place the maxima of :class:`MaxPool3d` at their indices, and zeros elsewhere.

    Maps maxima and indices, both of shape ``(N, C, depth, rows, columns)``, to ``(N, C, depth',
    rows', columns')``; N may be missing. See ``Tensor.max_unpool3d``.

    Parameters
    ----------
    kernel_size, stride, padding : int or (int, int, int)
        The arguments of the pooling layer. By default the stride is the size of the window, and the
        padding is 0.

    Examples
    --------
    >>> pool, unpool = krt.nn.MaxPool3d(2, return_indices=True), krt.nn.MaxUnpool3d(2)
    >>> unpool(*pool(krt.ones(5, 3, 8, 6, 4))).shape
    (5, 3, 8, 6, 4)
    """

    _method, _axes = "max_unpool3d", 3

"""Convolutions and transposed convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from kernelrt.errors import DomainError, ShapeError
from kernelrt.ir.shape import format_shape, format_size, prod, same, total
from kernelrt.tensor.nodes.arguments import PerAxis, lacking, per_axis
from kernelrt.tensor.nodes.convolve import Windows, convolve, transposed
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.methods.matrix_products import ContractionMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["ConvolutionMethods"]


@operations()
class ConvolutionMethods(_Below):
    """Convolutions and transposed convolutions."""

    __slots__ = ()

    def conv1d(
        self, weight: TensorBase, bias: TensorBase | None = None, stride: PerAxis = 1,
        padding: PerAxis | str = 0, dilation: PerAxis = 1, groups: int = 1,
    ) -> Self:  # fmt: skip
        """Convolve sequences with filters (cross-correlation, as in PyTorch).

        Parameters
        ----------
        weight : Tensor
            Filters of shape (out, in / groups, taps); this tensor has shape (batch, in, length), or
            no batch axis.
        bias : Tensor, optional
            Added to each of the `out` channels, of shape (out,).
        stride, dilation : int, default 1
            Step between windows, and step between the taps of a filter.
        padding : int, "valid" or "same", default 0
            Zeros added on each side. "valid" adds none; "same" keeps the length, and needs a stride
            of 1.
        groups : int, default 1
            Number of independent groups that the channels are divided into.

        Returns
        -------
        Tensor
            Shape (batch, out, windows), promoted dtype. An axis of n elements gives
            ``(n + 2 padding - dilation (taps - 1) - 1) // stride + 1`` windows.

        Raises
        ------
        ShapeError
            Numbers of axes, channels or sizes do not match, or an argument is out of range.
        DTypeError
            The operands are bools.

        Examples
        --------
        >>> x = krt.tensor([[[0.0, 1.0, 2.0, 3.0]]])
        >>> x.conv1d(krt.tensor([[[1.0, 2.0]]])).tolist()
        [[[2.0, 5.0, 8.0]]]
        """
        return self._conv(1, weight, bias, stride, padding, dilation, groups)

    def conv2d(
        self, weight: TensorBase, bias: TensorBase | None = None, stride: PerAxis = 1,
        padding: PerAxis | str = 0, dilation: PerAxis = 1, groups: int = 1,
    ) -> Self:  # fmt: skip
        """Convolve images with filters (cross-correlation, as in PyTorch).

        Parameters
        ----------
        weight : Tensor
            Filters of shape (out, in / groups, height, width); this tensor has shape
            (batch, in, height, width), or no batch axis.
        bias : Tensor, optional
            Added to each of the `out` channels, of shape (out,).
        stride, dilation : int or (int, int), default 1
            Step between windows, and step between the taps of a filter.
        padding : int, (int, int), "valid" or "same", default 0
            Zeros added on each side of the image. "valid" adds none; "same" keeps the size of the
            image, and needs a stride of 1.
        groups : int, default 1
            Number of independent groups that the channels are divided into.

        Returns
        -------
        Tensor
            Shape (batch, out, rows, columns), promoted dtype. The numbers of windows are as in
            :meth:`conv1d`.

        Raises
        ------
        ShapeError
            Numbers of axes, channels or sizes do not match, or an argument is out of range.
        DTypeError
            The operands are bools.

        Examples
        --------
        >>> images = krt.ones(8, 3, 32, 32)
        >>> images.conv2d(krt.ones(16, 3, 3, 3), stride=2, padding=1).shape
        (8, 16, 16, 16)
        >>> krt.ones(1, 1, 3, 3).conv2d(krt.ones(1, 1, 2, 2)).tolist()
        [[[[4.0, 4.0], [4.0, 4.0]]]]
        """
        return self._conv(2, weight, bias, stride, padding, dilation, groups)

    def conv3d(
        self, weight: TensorBase, bias: TensorBase | None = None, stride: PerAxis = 1,
        padding: PerAxis | str = 0, dilation: PerAxis = 1, groups: int = 1,
    ) -> Self:  # fmt: skip
        """Convolve volumes with filters (cross-correlation, as in PyTorch).

        Parameters
        ----------
        weight : Tensor
            Filters of shape (out, in / groups, depth, height, width); this tensor has shape
            (batch, in, depth, height, width), or no batch axis.
        bias, stride, padding, dilation, groups : optional
            As in :meth:`conv2d`, with three numbers instead of two.

        Returns
        -------
        Tensor
            Shape (batch, out, depth, rows, columns), promoted dtype.

        Raises
        ------
        ShapeError
            Numbers of axes, channels or sizes do not match, or an argument is out of range.
        DTypeError
            The operands are bools.

        Examples
        --------
        >>> krt.ones(1, 2, 4, 8, 8).conv3d(krt.ones(5, 2, 3, 3, 3)).shape
        (1, 5, 2, 6, 6)
        """
        return self._conv(3, weight, bias, stride, padding, dilation, groups)

    def conv_transpose1d(
        self, weight: TensorBase, bias: TensorBase | None = None, stride: PerAxis = 1,
        padding: PerAxis = 0, output_padding: PerAxis = 0, groups: int = 1, dilation: PerAxis = 1,
    ) -> Self:  # fmt: skip
        """Apply a transposed convolution, the gradient of :meth:`conv1d` with respect to its input.

        Parameters
        ----------
        weight : Tensor
            Filters of shape (in, out / groups, taps); this tensor has shape (batch, in, length), or
            no batch axis.
        bias, stride, padding, output_padding, groups, dilation : optional
            As in :meth:`conv_transpose2d`, with one number instead of two.

        Returns
        -------
        Tensor
            Shape (batch, out, length), promoted dtype. The length is as in
            :meth:`conv_transpose2d`.

        Raises
        ------
        ShapeError
            Numbers of axes, channels or sizes do not match, or an argument is out of range.
        DTypeError
            The operands are bools.

        Examples
        --------
        >>> x = krt.tensor([[[1.0, 2.0]]])
        >>> x.conv_transpose1d(krt.tensor([[[1.0, 3.0]]]), stride=2).tolist()
        [[[1.0, 3.0, 2.0, 6.0]]]
        """
        return self._transposed(
            1, weight, bias, stride, padding, output_padding, groups, dilation
        )

    def conv_transpose2d(
        self, weight: TensorBase, bias: TensorBase | None = None, stride: PerAxis = 1,
        padding: PerAxis = 0, output_padding: PerAxis = 0, groups: int = 1, dilation: PerAxis = 1,
    ) -> Self:  # fmt: skip
        """Apply a transposed convolution, the gradient of :meth:`conv2d` with respect to its input.

        Each element of an image of shape (height, width) is multiplied by the filters, and the
        products are added up `stride` apart. So an axis of n elements becomes one of ``(n - 1)
        stride - 2 padding + dilation (taps - 1) + 1 + output_padding``.

        Parameters
        ----------
        weight : Tensor
            Filters of shape (in, out / groups, height, width); this tensor has shape
            (batch, in, height, width), or no batch axis.
        bias : Tensor, optional
            Added to each of the `out` channels, of shape (out,).
        stride, dilation : int or (int, int), default 1
            Step in the result between neighboring input elements, and between neighboring taps.
        padding : int or (int, int), default 0
            Number of elements removed from each side of the result.
        output_padding : int or (int, int), default 0
            Number of elements added at the end of each axis; less than the greater of `stride` and
            `dilation`.
        groups : int, default 1
            Number of independent groups that the channels are divided into.

        Returns
        -------
        Tensor
            Shape (batch, out, height, width), promoted dtype.

        Raises
        ------
        ShapeError
            Numbers of axes, channels or sizes do not match, or an argument is out of range.
        DTypeError
            The operands are bools.

        Examples
        --------
        >>> krt.ones(1, 1, 2, 2).conv_transpose2d(krt.ones(1, 1, 2, 2)).tolist()
        [[[[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]]]
        """
        return self._transposed(
            2, weight, bias, stride, padding, output_padding, groups, dilation
        )

    def conv_transpose3d(
        self, weight: TensorBase, bias: TensorBase | None = None, stride: PerAxis = 1,
        padding: PerAxis = 0, output_padding: PerAxis = 0, groups: int = 1, dilation: PerAxis = 1,
    ) -> Self:  # fmt: skip
        """Apply a transposed convolution, the gradient of :meth:`conv3d` with respect to its input.

        Parameters
        ----------
        weight : Tensor
            Filters of shape (in, out / groups, depth, height, width); this tensor has shape
            (batch, in, depth, height, width), or no batch axis.
        bias, stride, padding, output_padding, groups, dilation : optional
            As in :meth:`conv_transpose2d`, with three numbers instead of two.

        Returns
        -------
        Tensor
            Shape (batch, out, depth, height, width), promoted dtype. Sizes are as in
            :meth:`conv_transpose2d`.

        Raises
        ------
        ShapeError
            Numbers of axes, channels or sizes do not match, or an argument is out of range.
        DTypeError
            The operands are bools.

        Examples
        --------
        >>> krt.ones(1, 2, 4, 4, 4).conv_transpose3d(krt.ones(2, 3, 2, 2, 2), stride=2).shape
        (1, 3, 8, 8, 8)
        """
        return self._transposed(
            3, weight, bias, stride, padding, output_padding, groups, dilation
        )

    def _conv(
        self, n: int, weight: TensorBase, bias: TensorBase | None, stride: PerAxis,
        padding: PerAxis | str, dilation: PerAxis, groups: int,
    ) -> Self:  # fmt: skip
        name = f"conv{n}d"
        if self.ndim == n + 1:
            single = self.unsqueeze(0)
            return single._conv(n, weight, bias, stride, padding, dilation, groups).squeeze(0)
        w = self._lift(weight, "weight")
        channels, outputs = self._check_channels(name, n, w, groups)
        if outputs % groups:
            raise ShapeError(
                f"groups: expected a divisor of the {outputs} output channels, not {groups}"
            )
        if w.shape[1] != channels // groups:
            raise ShapeError(
                f"weight: expected size {channels // groups} on axis 1, for an input with "
                f"{channels} channels in {groups} groups, not {w.shape[1]}"
            )
        strides = per_axis(stride, n, "stride", least=1)
        dilations = per_axis(dilation, n, "dilation", least=1)
        taps = tuple(w._static_size(2 + i, name) for i in range(n))
        low, high = _padding(padding, taps, strides, dilations)
        windows = Windows(taps, strides, dilations, low, high, groups)
        x, filters = self._factors(w, name)
        for size, lo, hi, k, d in zip(x.shape[2:], low, high, taps, dilations, strict=True):
            padded = total((lo, size, hi))
            if (end := lacking(padded, d * (k - 1) + 1)) is not None:
                raise ShapeError(
                    f"{name}: a kernel of size {k} with dilation {d} does not fit in an axis of "
                    f"{format_size(padded)} elements, padding included{end or '; use more padding'}"
                )
        return self._of(convolve(x, filters, windows))._with_bias(bias, outputs, n)

    def _transposed(
        self, n: int, weight: TensorBase, bias: TensorBase | None, stride: PerAxis,
        padding: PerAxis, output_padding: PerAxis, groups: int, dilation: PerAxis,
    ) -> Self:  # fmt: skip
        name = f"conv_transpose{n}d"
        if self.ndim == n + 1:
            single = self.unsqueeze(0)
            return single._transposed(
                n, weight, bias, stride, padding, output_padding, groups, dilation
            ).squeeze(0)
        w = self._lift(weight, "weight")
        channels, filters = self._check_channels(name, n, w, groups)
        if filters != channels:
            raise ShapeError(
                f"weight: expected size {channels} on its axis 0, one for each input channel, not "
                f"{filters}"
            )
        outputs = groups * w._static_size(1, name)
        strides = per_axis(stride, n, "stride", least=1)
        dilations = per_axis(dilation, n, "dilation", least=1)
        around = per_axis(padding, n, "padding")
        more = per_axis(output_padding, n, "output_padding")
        taps = tuple(w._static_size(2 + i, name) for i in range(n))
        for m, s, d in zip(more, strides, dilations, strict=True):
            if m >= max(s, d):
                raise ShapeError(
                    f"output_padding: expected less than the greater of stride {s} and dilation "
                    f"{d}, not {m}"
                )
        windows = Windows(taps, strides, dilations, around, around, groups)
        x, factors = self._factors(w, name)
        sizes = []
        for size, s, p, m, span in zip(
            x.shape[2:], strides, around, more, windows.spans, strict=True
        ):
            least = -(-(1 + 2 * p - m - span) // s) + 1
            if (end := lacking(size, max(1, least))) is not None:
                raise ShapeError(
                    f"{name}: an input axis of {format_size(size)} elements gives no output, since "
                    f"padding {p} removes elements from both ends of the output"
                    f"{end or '; use less padding'}"
                )
            sizes.append(total((prod((size, s)), span + m - s - 2 * p)))
        out = self._of(transposed(x, factors, tuple(sizes), windows))
        return out._with_bias(bias, outputs, n)

    def _with_bias(self, bias: TensorBase | None, channels: int, n: int) -> Self:
        """Add one number to each channel."""
        if bias is None:
            return self
        b = self._lift(bias, "bias")
        if b.ndim != 1 or not same(b.dims[0], channels):
            raise ShapeError(
                f"bias: expected shape {format_shape((channels,))}, not {format_shape(b.dims)}"
            )
        return self + b.reshape(-1, *(1,) * n)

    def _check_channels(self, name: str, n: int, w: Self, groups: int) -> tuple[int, int]:
        """Check the ranks and `groups`; return the numbers of input channels and of filters."""
        if self.ndim != n + 2 or w.ndim != n + 2:
            raise ShapeError(
                f"{name}: expected an input of {n + 1} or {n + 2} axes and a weight of {n + 2} "
                f"axes, not {self.ndim} and {w.ndim} axes"
            )
        channels, filters = self._static_size(1, name), w._static_size(0, name)
        if groups < 1 or channels % groups:
            raise ShapeError(
                f"groups: expected a divisor of the {channels} input channels, not {groups}"
            )
        return channels, filters


def _padding(
    padding: PerAxis | str, taps: tuple[int, ...], strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[tuple[int, ...], tuple[int, ...]]:  # fmt: skip
    """Return the numbers of zeros before and after each axis."""
    if padding == "valid":
        return (0,) * len(taps), (0,) * len(taps)
    if padding == "same":
        if any(s != 1 for s in strides):
            raise ShapeError(
                f"padding: 'same' needs a stride of 1, not {strides}; pass stride=1, or numbers as "
                "padding"
            )
        spans = [d * (k - 1) for k, d in zip(taps, dilations, strict=True)]
        return tuple(s // 2 for s in spans), tuple(s - s // 2 for s in spans)
    if isinstance(padding, str):
        raise DomainError(f"padding: expected numbers, 'valid' or 'same', not {padding!r}")
    widths = per_axis(padding, len(taps), "padding")
    return widths, widths

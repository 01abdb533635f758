"""Image methods: unfold, fold, pixel shuffles and max unpooling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.ir.shape import format_shape, prod, same, window_count
from kernelrt.tensor import views
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.methods.scattering import replaced
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import PerAxis, integer, per_axis, real
from kernelrt.tensor.nodes.positions import checked
from kernelrt.tensor.operation import operation, operations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.ir import Dim
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.methods.conversion import ConversionMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["ImageMethods", "fold", "unfold"]

_T = TypeVar("_T", bound="ImageMethods")


@operations()
class ImageMethods(_Below):
    """Operations on images other than convolution and pooling."""

    __slots__ = ()

    # ---- channels

    def pixel_shuffle(self, upscale_factor: int) -> Self:
        """Rearrange channels into pixels: (..., C * r * r, H, W) becomes (..., C, H * r, W * r).

        Parameters
        ----------
        upscale_factor : int
            Factor r of height and width, at least 1.

        Returns
        -------
        Tensor
            Shape (..., C, H * r, W * r), same dtype.

        Raises
        ------
        ShapeError
            This tensor has fewer than 3 axes, or r * r does not divide the number of channels.

        Notes
        -----
        From Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient
        Sub-Pixel Convolutional Neural Network", 2016 (arXiv:1609.05158).

        Examples
        --------
        >>> krt.arange(4).reshape(4, 1, 1).pixel_shuffle(2).tolist()
        [[[0, 1], [2, 3]]]
        """
        r = integer(upscale_factor, "upscale_factor", 1)
        lead, channels, height, width = self._planes("pixel_shuffle")
        if channels % (r * r):
            raise ShapeError(
                f"upscale_factor: {channels} channels are not divisible by {r} * {r}; expected "
                f"shape (..., C * {r * r}, H, W), not {format_shape(self.dims)}"
            )
        out = channels // (r * r)
        k = len(lead)
        x = self.reshape(*lead, out, r, r, height, width)
        x = x.permute(*range(k + 1), k + 3, k + 1, k + 4, k + 2)
        return views.unshared(x.reshape(*lead, out, prod((height, r)), prod((width, r))), self)

    def pixel_unshuffle(self, downscale_factor: int) -> Self:
        """Rearrange pixels into channels: (..., C, H * r, W * r) becomes (..., C * r * r, H, W).

        Parameters
        ----------
        downscale_factor : int
            Divisor r of height and width, at least 1.

        Returns
        -------
        Tensor
            Shape (..., C * r * r, H, W), same dtype.

        Raises
        ------
        ShapeError
            This tensor has fewer than 3 axes, or r does not divide height and width.

        Examples
        --------
        >>> krt.arange(4).reshape(1, 2, 2).pixel_unshuffle(2).tolist()
        [[[0]], [[1]], [[2]], [[3]]]
        """
        r = integer(downscale_factor, "downscale_factor", 1)
        lead, channels, _, _ = self._planes("pixel_unshuffle")
        height, width = (self._static_size(axis, "pixel_unshuffle") for axis in (-2, -1))
        if height % r or width % r:
            raise ShapeError(
                f"downscale_factor: expected height and width divisible by {r}, not {height} and "
                f"{width}"
            )
        k = len(lead)
        x = self.reshape(*lead, channels, height // r, r, width // r, r)
        x = x.permute(*range(k + 1), k + 2, k + 4, k + 1, k + 3)
        return views.unshared(x.reshape(*lead, channels * r * r, height // r, width // r), self)

    def channel_shuffle(self, groups: int) -> Self:
        """Interleave the channels of (N, C, ...), which form `groups` consecutive groups.

        The result takes one channel from each group in turn.

        Parameters
        ----------
        groups : int
            Number of groups, which divides C.

        Returns
        -------
        Tensor
            Same shape and dtype.

        Raises
        ------
        ShapeError
            This tensor has fewer than 3 axes, or `groups` does not divide C.

        Notes
        -----
        From Zhang et al., "ShuffleNet: An Extremely Efficient Convolutional Neural Network for
        Mobile Devices", 2017 (arXiv:1707.01083).

        Examples
        --------
        >>> krt.arange(4).reshape(1, 4, 1).channel_shuffle(2).tolist()
        [[[0], [2], [1], [3]]]
        """
        g = integer(groups, "groups", 1)
        if self.ndim < 3:
            raise ShapeError(
                f"channel_shuffle: expected shape (N, C, ...) of at least 3 axes, not "
                f"{format_shape(self.dims)}"
            )
        channels = self._static_size(1, "channel_shuffle")
        if channels % g:
            raise ShapeError(f"groups: expected a divisor of the {channels} channels, not {g}")
        batch, _, *rest = self.dims
        grouped = self.reshape(batch, g, channels // g, *rest)
        return views.unshared(grouped.transpose(1, 2).reshape(self.dims), self)

    def _planes(self, name: str) -> tuple[Sequence[Dim], int, Dim, Dim]:
        if self.ndim < 3:
            raise ShapeError(
                f"{name}: expected shape (..., C, H, W) of at least 3 axes, not "
                f"{format_shape(self.dims)}"
            )
        *lead, _, height, width = self.dims
        return lead, self._static_size(self.ndim - 3, name), height, width

    def local_response_norm(
        self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
    ) -> Self:
        """Normalize each element by the mean square of its neighbors in other channels.

        The result is ``x / (k + alpha * mean(x**2)) ** beta``. The mean is over `size` neighboring
        channels, with zeros before the first and after the last channel.

        Parameters
        ----------
        size : int
            Number of channels of the mean, ``size // 2`` of them before the element's own.
        alpha, beta, k : float, default 1e-4, 0.75 and 1.0
            Constants of the formula.

        Returns
        -------
        Tensor of floats
            Same shape, (N, C, ...), and dtype.

        Raises
        ------
        ShapeError
            This tensor has fewer than 3 axes.
        DTypeError
            This tensor holds integers or bools.

        Notes
        -----
        From Krizhevsky et al., "ImageNet Classification with Deep Convolutional Neural Networks",
        2012, section 3.3, but with PyTorch's mean instead of a sum.

        Examples
        --------
        >>> x = krt.tensor([[[1.0], [1.0]]])
        >>> x.local_response_norm(2, alpha=4.0, beta=1.0, k=0.0).tolist()
        [[[0.5], [0.25]]]
        """
        n = integer(size, "size", 1)
        x = self._floats("local_response_norm")
        if self.ndim < 3:
            raise ShapeError(
                "local_response_norm: expected shape (N, C, ...) of at least 3 axes, not "
                f"{format_shape(self.dims)}"
            )
        wide = x.cast(x.dtype.accumulator)
        around: list[tuple[Dim, Dim]] = [(0, 0)] * self.ndim
        around[1] = (n // 2, (n - 1) // 2)
        squares = build.pad(wide.alu(Op.MUL, wide), around)
        seen = UOp(Op.IM2COL, wide.dtype, (squares,), ((1, n, 1, 1),))
        mean = build.div(build.reduce(seen, Op.ADD, [self.ndim]), n)
        mean = build.reshape(mean, x.shape)
        base = build.add(build.mul(mean, real(alpha, "alpha")), real(k, "k"))
        power = self._of(base).pow(real(beta, "beta")).uop
        return self._of(wide.alu(Op.DIV, power).cast(x.dtype))

    # ---- windows

    @operation
    def _im2col(
        self, kernel_size: PerAxis, dilation: PerAxis = 1, padding: PerAxis = 0,
        stride: PerAxis = 1,
    ) -> Self:  # fmt: skip
        """Return the sliding windows of images as columns, for ``nn.functional.unfold``.

        Parameters
        ----------
        kernel_size : int or (int, int)
            Rows and columns of a window.
        dilation : int or (int, int)
            Step between the elements of a window.
        padding : int or (int, int)
            Zeros added on each side.
        stride : int or (int, int)
            Step between windows.

        Returns
        -------
        Tensor
            Shape (N, C * kernel, windows) for (N, C, H, W), or the same without N.
        """
        if self.ndim not in (3, 4):
            raise ShapeError(
                "unfold: expected shape (N, C, H, W) or (C, H, W), not "
                f"{format_shape(self.dims)}"
            )
        taps, apart, around, step = _steps(kernel_size, dilation, padding, stride)
        node = self.uop
        k = self.ndim - 2
        sides: list[tuple[Dim, Dim]] = [(0, 0)] * k
        sides += [(p, p) for p in around]
        node = build.pad(node, sides)
        windows = tuple(zip((k, k + 1), taps, step, apart, strict=True))
        seen = UOp(Op.IM2COL, node.dtype, (node,), windows)
        rows, columns = seen.shape[k : k + 2]
        if same(rows, 0) or same(columns, 0):
            raise ShapeError(
                f"kernel_size: windows of size {taps} with dilation {apart} do not fit in an image "
                f"of shape {format_shape(node.shape[k:])}, padding included; use more padding"
            )
        seen = build.permute(seen, (*range(k), k + 2, k + 3, k, k + 1))
        lead = node.shape[: k - 1]
        shape = (*lead, prod((node.shape[k - 1], *taps)), prod((rows, columns)))
        return self._of(build.reshape(seen, shape))

    @operation
    def _col2im(
        self, output_size: PerAxis, kernel_size: PerAxis, dilation: PerAxis = 1,
        padding: PerAxis = 0, stride: PerAxis = 1,
    ) -> Self:  # fmt: skip
        """Add up windows, the columns of this tensor, into images, for ``nn.functional.fold``.

        This is the adjoint of :meth:`_im2col`: overlapping windows are summed.

        Parameters
        ----------
        output_size : int or (int, int)
            Rows and columns of the images.
        kernel_size, dilation, padding, stride : int or (int, int)
            As in :meth:`_im2col`.

        Returns
        -------
        Tensor
            Shape (N, C, H, W) for (N, C * kernel, windows), or the same without N.
        """
        if self.ndim not in (2, 3):
            raise ShapeError(
                "fold: expected shape (N, C * kernel, windows) or (C * kernel, windows), not "
                f"{format_shape(self.dims)}"
            )
        size = per_axis(output_size, 2, "output_size", least=1)
        taps, apart, around, step = _steps(kernel_size, dilation, padding, stride)
        whole = [s + 2 * p for s, p in zip(size, around, strict=True)]
        counts = [
            window_count(*along) for along in zip(whole, taps, step, apart, strict=True)
        ]
        rows, columns = self._static_size(self.ndim - 2, "fold"), self.dims[-1]
        kernel = taps[0] * taps[1]
        if rows % kernel:
            raise ShapeError(f"fold: expected the size of axis -2 to be divisible by the {kernel} "
                             f"elements of a kernel, not {rows}")  # fmt: skip
        if not same(columns, prod(counts)) or same(columns, 0):
            raise ShapeError(
                f"fold: expected {prod(counts)} windows, {counts[0]} by {counts[1]}, for images of "
                f"size {size}, not shape {format_shape(self.dims)}"
            )
        node = self.uop
        wide = node.cast(node.dtype.accumulator) if node.dtype.is_float else node
        lead = node.shape[:-2]
        k = len(lead)
        seen = build.reshape(wide, (*lead, rows // kernel, *taps, *counts))
        seen = build.permute(seen, (*range(k + 1), k + 3, k + 4, k + 1, k + 2))
        windows = tuple(zip((k + 1, k + 2), taps, step, apart, strict=True))
        image = (*lead, rows // kernel, *whole)
        spread = UOp(Op.COL2IM, wide.dtype, (seen,), (image, windows))
        total = build.reduce(spread, Op.ADD, (k + 3, k + 4))
        total = build.reshape(total, image)
        inside: list[tuple[Dim, Dim]] = [(0, d) for d in image[: k + 1]]
        inside += [(p, p + s) for p, s in zip(around, size, strict=True)]
        return self._of(build.shrink(total, inside).cast(node.dtype))

    # ---- the reverse of max pooling

    def max_unpool1d(
        self, indices: TensorBase, kernel_size: PerAxis, stride: PerAxis | None = None,
        padding: PerAxis = 0, output_size: Sequence[int] | None = None,
    ) -> Self:  # fmt: skip
        """Invert :meth:`max_pool1d`; see :meth:`max_unpool2d`.

        Parameters
        ----------
        indices : Tensor of integers
            Positions in the sequences, from ``max_pool1d(..., return_indices=True)``.
        kernel_size, stride, padding : int
            As in the pooling.
        output_size : sequence of int, optional
            Length of the sequences, or their whole shape.

        Returns
        -------
        Tensor
            Shape (batch, channels, length), or the same without the batch; same dtype.

        Examples
        --------
        >>> x = krt.tensor([[[1.0, 5.0, 2.0, 3.0]]])
        >>> values, indices = x.max_pool1d(2, return_indices=True)
        >>> values.max_unpool1d(indices, 2).tolist()
        [[[0.0, 5.0, 0.0, 3.0]]]
        """
        return self._max_unpool(1, indices, kernel_size, stride, padding, output_size)

    def max_unpool2d(
        self, indices: TensorBase, kernel_size: PerAxis, stride: PerAxis | None = None,
        padding: PerAxis = 0, output_size: Sequence[int] | None = None,
    ) -> Self:  # fmt: skip
        """Put this tensor's elements where max pooling took them from, and zeros elsewhere.

        If several elements have the same position, the last one in row-major order counts. Each of
        them gets the gradient of that position, as in PyTorch.

        Parameters
        ----------
        indices : Tensor of integers
            Positions in the flat images, from ``max_pool2d(..., return_indices=True)``.
        kernel_size, stride, padding : int or (int, int)
            As in the pooling.
        output_size : sequence of int, optional
            Sizes of the images, or their whole shape. By default, an axis gets the least size that
            pooling reduces to this tensor's. Pass the sizes of the pooled images if they differ
            from the defaults, which they can by less than one stride.

        Returns
        -------
        Tensor
            Shape (batch, channels, height, width), or the same without the batch; same dtype.

        Raises
        ------
        ShapeError
            The shapes of this tensor and `indices` differ, or `output_size` is out of range.
        IndexBoundsError
            At run time, if an index is outside of the images.

        Examples
        --------
        >>> x = krt.tensor([[[1.0, 5.0], [2.0, 3.0]]])
        >>> values, indices = x.max_pool2d(2, return_indices=True)
        >>> values.max_unpool2d(indices, 2).tolist()
        [[[0.0, 5.0], [0.0, 0.0]]]
        """
        return self._max_unpool(2, indices, kernel_size, stride, padding, output_size)

    def max_unpool3d(
        self, indices: TensorBase, kernel_size: PerAxis, stride: PerAxis | None = None,
        padding: PerAxis = 0, output_size: Sequence[int] | None = None,
    ) -> Self:  # fmt: skip
        """Invert :meth:`max_pool3d`; see :meth:`max_unpool2d`.

        Parameters
        ----------
        indices : Tensor of integers
            Positions in the flat volumes, from ``max_pool3d(..., return_indices=True)``.
        kernel_size, stride, padding : int or (int, int, int)
            As in the pooling.
        output_size : sequence of int, optional
            Sizes of the volumes, or their whole shape.

        Returns
        -------
        Tensor
            Shape (batch, channels, depth, height, width), or the same without the batch; same
            dtype.

        Examples
        --------
        >>> x = krt.arange(8.0).reshape(1, 2, 2, 2)
        >>> values, indices = x.max_pool3d(2, return_indices=True)
        >>> values.max_unpool3d(indices, 2).tolist()
        [[[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 7.0]]]]
        """
        return self._max_unpool(3, indices, kernel_size, stride, padding, output_size)

    def _max_unpool(
        self, axes: int, indices: TensorBase, kernel_size: PerAxis, stride: PerAxis | None,
        padding: PerAxis, output_size: Sequence[int] | None,
    ) -> Self:  # fmt: skip
        name = f"max_unpool{axes}d"
        places = self._lift(indices, "indices")
        if self.ndim not in (axes + 1, axes + 2):
            raise ShapeError(
                f"{name}: expected {axes + 1} or {axes + 2} axes, not shape "
                f"{format_shape(self.dims)}"
            )
        if not places.dtype.is_int:
            raise DTypeError(f"indices: expected integers, not {places.dtype.name}")
        if not build.same_shape(places.dims, self.dims):
            raise ShapeError(
                f"indices: expected the shape of the tensor, {format_shape(self.dims)}, not "
                f"{format_shape(places.dims)}"
            )
        taps = per_axis(kernel_size, axes, "kernel_size", least=1)
        step = taps if stride is None else per_axis(stride, axes, "stride", least=1)
        around = per_axis(padding, axes, "padding")
        have = [self._static_size(a, name) for a in range(self.ndim - axes, self.ndim)]
        usual = [
            (n - 1) * s - 2 * p + k
            for n, s, p, k in zip(have, step, around, taps, strict=True)
        ]
        sizes = _unpooled(output_size, usual, step, name)
        lead = self.dims[: self.ndim - axes]
        whole = prod(sizes)
        node = self.uop
        place = checked(places.uop, whole).cast(dt.int64)
        rows, inner = prod(lead), prod(have)
        offsets = build.mul(build.iota_along((rows, inner), 0), whole)
        flat = build.add(build.reshape(place, (rows, inner)), offsets)
        flat = build.reshape(flat, (prod((rows, inner)),))
        values = build.reshape(node, flat.shape)
        zeros = build.full(0, node.dtype, (prod((rows, whole)),))
        made = replaced(zeros, values, [flat])
        if not build.has_zero(values.shape):
            made = custom(made, _unpool_rule, values, parts=(flat,))
        return self._of(build.reshape(made, (*lead, *sizes)))


def unfold(
    input: _T, kernel_size: PerAxis, dilation: PerAxis = 1,  # noqa: A002
    padding: PerAxis = 0, stride: PerAxis = 1,
) -> _T:  # fmt: skip
    """Return the sliding windows of images as columns (``Tensor.unfold`` is another operation).

    Parameters
    ----------
    input : Tensor
        Tensor of shape (N, C, H, W) or (C, H, W).
    kernel_size : int or (int, int)
        Rows and columns of a window.
    dilation : int or (int, int), default 1
        Step between the elements of a window.
    padding : int or (int, int), default 0
        Zeros added on each side.
    stride : int or (int, int), default 1
        Step between windows.

    Returns
    -------
    Tensor
        Shape (N, C * kernel, windows), or the same without N, where ``kernel`` is the number of
        elements of a window; same dtype.

    Raises
    ------
    ShapeError
        `input` has another number of axes, or a window does not fit in an image.

    Examples
    --------
    >>> from kernelrt.nn import functional
    >>> functional.unfold(krt.arange(6).reshape(1, 2, 3), 2).tolist()
    [[0, 1], [1, 2], [3, 4], [4, 5]]
    """
    return input._im2col(kernel_size, dilation, padding, stride)


def fold(
    input: _T, output_size: PerAxis, kernel_size: PerAxis,  # noqa: A002
    dilation: PerAxis = 1, padding: PerAxis = 0, stride: PerAxis = 1,
) -> _T:  # fmt: skip
    """Add up windows, given as columns, into images; overlapping windows are summed.

    Parameters
    ----------
    input : Tensor
        Tensor of shape (N, C * kernel, windows) or (C * kernel, windows), where ``kernel`` is the
        number of elements of a window.
    output_size : int or (int, int)
        Rows and columns of the images.
    kernel_size, dilation, padding, stride : int or (int, int)
        As in :func:`unfold`, whose adjoint this is.

    Returns
    -------
    Tensor
        Shape (N, C, H, W), or the same without N; same dtype.

    Raises
    ------
    ShapeError
        The shape of `input` does not match the sizes of images and windows.

    Examples
    --------
    >>> from kernelrt.nn import functional
    >>> functional.fold(krt.ones(4, 2), (2, 3), 2).tolist()
    [[[1.0, 2.0, 1.0], [1.0, 2.0, 1.0]]]
    """
    return input._col2im(output_size, kernel_size, dilation, padding, stride)


def _unpool_rule(node: UOp, g: UOp, _i: int) -> UOp:
    return UOp(Op.GATHER, g.dtype, (g, *node.arg.parts))


def _unpooled(
    given: Sequence[int] | None, usual: Sequence[int], step: Sequence[int], name: str
) -> tuple[int, ...]:
    """Return the image sizes of unpooling: `usual`, or `given`, less than one step from `usual`."""
    if given is None:
        if min(usual) < 1:
            raise ShapeError(f"{name}: the image would have size {tuple(usual)}; use less padding")
        return tuple(usual)
    axes = len(usual)
    if not isinstance(given, tuple | list) or len(given) not in (axes, axes + 1, axes + 2):
        raise ShapeError(
            f"output_size: expected {axes} sizes, or a whole shape of {axes + 1} or {axes + 2} "
            f"sizes, not {given!r}"
        )
    sizes = tuple(integer(size, "output_size", 1) for size in given[len(given) - axes :])
    for size, at, s in zip(sizes, usual, step, strict=True):
        if not at - s < size < at + s:
            raise ShapeError(
                f"output_size: expected sizes above {at - s} and below {at + s}, not {size}"
            )
    return sizes


def _steps(
    kernel_size: PerAxis, dilation: PerAxis, padding: PerAxis, stride: PerAxis
) -> tuple[tuple[int, ...], ...]:
    return (
        per_axis(kernel_size, 2, "kernel_size", least=1),
        per_axis(dilation, 2, "dilation", least=1),
        per_axis(padding, 2, "padding"),
        per_axis(stride, 2, "stride", least=1),
    )

"""Pooling over windows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.ir.shape import format_size
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import PerAxis, flag, integer, lacking, per_axis, real
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.ir import Dim
    from kernelrt.tensor.methods.convolution import ConvolutionMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["Pooled", "PoolingMethods", "Windows"]

_T = TypeVar("_T")
#: Greater than every position.
_NOWHERE: Final = (1 << 62) - 1


class Pooled(NamedTuple, Generic[_T]):
    """Result of max pooling with ``return_indices``: the maxima and their positions.

    Examples
    --------
    >>> values, indices = krt.tensor([[1.0, 5.0, 7.0, 2.0]]).max_pool1d(2, return_indices=True)
    >>> values.tolist(), indices.tolist()
    ([[5.0, 7.0]], [[1, 2]])
    """

    values: _T
    indices: _T


class Windows:
    """Windows over the last axes, from the arguments of a pooling operation.

    Parameters
    ----------
    name : str
        Name of the operation in errors.
    axes : int
        Number of axes.
    kernel, stride, padding, dilation : int or sequence of int
        As in ``max_pool2d``.
    ceil_mode : bool
        Whether a last window may reach beyond the end if it begins before it.
    """

    def __init__(
        self, name: str, axes: int, kernel: PerAxis, stride: PerAxis | None, padding: PerAxis,
        dilation: PerAxis, ceil_mode: bool,
    ) -> None:  # fmt: skip
        self.name, self.axes = name, axes
        self.kernel = per_axis(kernel, axes, "kernel_size", least=1)
        self.stride = self.kernel if stride is None else per_axis(stride, axes, "stride", least=1)
        self.padding = per_axis(padding, axes, "padding")
        self.dilation = per_axis(dilation, axes, "dilation", least=1)
        self.ceil_mode = flag(ceil_mode, "ceil_mode")
        for p, k, d in zip(self.padding, self.kernel, self.dilation, strict=True):
            if 2 * p > d * (k - 1) + 1:
                raise ShapeError(f"padding: expected at most half of kernel_size {k}, not {p}")

    def beyond(self, dims: Sequence[Dim]) -> tuple[int, ...]:
        """Return for each axis how far the last window reaches beyond the padding."""
        if not self.ceil_mode:
            return (0,) * self.axes
        found = []
        for size, k, s, p, d in zip(
            dims[len(dims) - self.axes :], self.kernel, self.stride, self.padding, self.dilation,
            strict=True,
        ):  # fmt: skip
            if not isinstance(size, int):
                raise ShapeError(
                    f"ceil_mode: {self.name} needs fixed sizes, not {format_size(size)}; leave "
                    "ceil_mode out, or pad"
                )
            room = size + 2 * p - d * (k - 1) - 1
            count = -(-room // s) + 1
            if (count - 1) * s >= size + p:
                count -= 1
            found.append(max(0, (count - 1) * s - room))
        return tuple(found)

    def counts(self, dims: Sequence[Dim], *, padding: bool) -> np.ndarray[Any, Any]:
        """Return the number of elements in each window; `padding` says whether padding counts."""
        out = np.ones((), np.int64)
        beyond = self.beyond(dims)
        for k in range(self.axes):
            size = dims[len(dims) - self.axes + k]
            assert isinstance(size, int)
            pad, step = self.padding[k], self.stride[k]
            reach = self.dilation[k] * (self.kernel[k] - 1)
            last = size + 2 * pad + beyond[k] - reach - 1
            starts = np.arange(0, last + 1, step)
            low, high = (0, size + 2 * pad) if padding else (pad, pad + size)
            taps = starts[:, None] + np.arange(self.kernel[k]) * self.dilation[k]
            out = out[..., None] * ((low <= taps) & (taps < high)).sum(1)
        return out

    def reaches_out(self, dims: Sequence[Dim], *, padding: bool = True) -> bool:
        """Return whether a window reaches past the input, or past its padding if not `padding`."""
        return any(self.beyond(dims)) or (padding and any(self.padding))


@operations()
class PoolingMethods(_Below):
    """Pooling over the last axes."""

    __slots__ = ()

    def max_pool1d(
        self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
        dilation: PerAxis = 1, ceil_mode: bool = False, return_indices: bool = False,
    ) -> Any:  # fmt: skip
        """Take the maximum of each window over the last axis.

        The gradient goes to the first greatest element of a window.

        Parameters
        ----------
        kernel_size : int
            Size of a window.
        stride : int, optional
            Step between windows; `kernel_size` by default.
        padding : int
            Number of elements to add at each end of the input, at most half of the window. They are
            minus infinity.
        dilation : int
            Step between the elements of a window.
        ceil_mode : bool
            Whether a last window may reach beyond the end.
        return_indices : bool
            Whether to also return the positions of the maxima along the axis.

        Returns
        -------
        Tensor or Pooled
            Tensor of this dtype: shape (batch, channels, out) or (channels, out) for this tensor's
            (batch, channels, length) or (channels, length). ``out`` is the number of windows,
            ``(length + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1``. With
            `return_indices`, a :class:`Pooled` with int64 ``indices``.

        Raises
        ------
        ShapeError
            The number of axes is wrong, `padding` is more than half of the window, or a window
            does not fit.

        Examples
        --------
        >>> krt.tensor([[1.0, 5.0, 7.0, 2.0]]).max_pool1d(2).tolist()
        [[5.0, 7.0]]
        """
        w = Windows("max_pool1d", 1, kernel_size, stride, padding, dilation, ceil_mode)
        return self._max_pool(w, return_indices)

    def max_pool2d(
        self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
        dilation: PerAxis = 1, ceil_mode: bool = False, return_indices: bool = False,
    ) -> Any:  # fmt: skip
        """Take the maximum of each window over the last two axes.

        The gradient goes to the first greatest element of a window.

        Parameters
        ----------
        kernel_size : int or (int, int)
            Size of a window.
        stride : int or (int, int), optional
            Step between windows; `kernel_size` by default.
        padding : int or (int, int)
            Number of elements to add on each side of the input, at most half of the window. They
            are minus infinity.
        dilation : int or (int, int)
            Step between the elements of a window.
        ceil_mode : bool
            Whether a last window may reach beyond the end.
        return_indices : bool
            Whether to also return the positions of the maxima in the flat image.

        Returns
        -------
        Tensor or Pooled
            Tensor of this dtype: shape (batch, channels, out rows, out columns) for this tensor's
            (batch, channels, rows, columns), or both without the batch. Each output size is the
            number of windows along the axis, as for :meth:`max_pool1d`. With `return_indices`, a
            :class:`Pooled` with int64 ``indices``.

        Raises
        ------
        ShapeError
            The number of axes is wrong, `padding` is more than half of the window, or a window
            does not fit.

        Examples
        --------
        >>> krt.arange(16.0).reshape(1, 4, 4).max_pool2d(2).tolist()
        [[[5.0, 7.0], [13.0, 15.0]]]
        """
        w = Windows("max_pool2d", 2, kernel_size, stride, padding, dilation, ceil_mode)
        return self._max_pool(w, return_indices)

    def max_pool3d(
        self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
        dilation: PerAxis = 1, ceil_mode: bool = False, return_indices: bool = False,
    ) -> Any:  # fmt: skip
        """Take the maximum of each window over the last three axes.

        Parameters
        ----------
        kernel_size, stride, padding, dilation : int or (int, int, int)
            As for :meth:`max_pool2d`.
        ceil_mode, return_indices : bool
            As for :meth:`max_pool2d`.

        Returns
        -------
        Tensor or Pooled
            Tensor of this dtype: shape (batch, channels, out depth, out rows, out columns) for this
            tensor's (batch, channels, depth, rows, columns), or both without the batch. With
            `return_indices`, a :class:`Pooled` with int64 ``indices``.

        Raises
        ------
        ShapeError
            The number of axes is wrong, `padding` is more than half of the window, or a window
            does not fit.

        Examples
        --------
        >>> krt.arange(8.0).reshape(1, 2, 2, 2).max_pool3d(2).tolist()
        [[[[7.0]]]]
        """
        w = Windows("max_pool3d", 3, kernel_size, stride, padding, dilation, ceil_mode)
        return self._max_pool(w, return_indices)

    def avg_pool1d(
        self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
    ) -> Self:  # fmt: skip
        """Take the mean of each window over the last axis.

        Parameters
        ----------
        kernel_size : int
            Size of a window.
        stride : int, optional
            Step between windows; `kernel_size` by default.
        padding : int
            Number of zeros at each end of the input, at most half of the window.
        ceil_mode : bool
            Whether a last window may reach beyond the end.
        count_include_pad : bool
            Whether the padding counts as elements. Positions beyond it never do.

        Returns
        -------
        Tensor
            Tensor of this dtype, of the shape that :meth:`max_pool1d` gives.

        Raises
        ------
        DTypeError
            The elements are not floats.
        ShapeError
            The number of axes is wrong, `padding` is more than half of the window, or a window
            does not fit.

        Examples
        --------
        >>> krt.tensor([[1.0, 5.0, 7.0, 2.0]]).avg_pool1d(2).tolist()
        [[3.0, 4.5]]
        """
        w = Windows("avg_pool1d", 1, kernel_size, stride, padding, 1, ceil_mode)
        return self._avg_pool(w, count_include_pad, None)

    def avg_pool2d(
        self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Self:  # fmt: skip
        """Take the mean of each window over the last two axes.

        Parameters
        ----------
        kernel_size : int or (int, int)
            Size of a window.
        stride : int or (int, int), optional
            Step between windows; `kernel_size` by default.
        padding : int or (int, int)
            Number of zeros on each side of the input, at most half of the window.
        ceil_mode : bool
            Whether a last window may reach beyond the end.
        count_include_pad : bool
            Whether the padding counts as elements. Positions beyond it never do.
        divisor_override : int, optional
            Divisor of the sums, instead of the number of elements.

        Returns
        -------
        Tensor
            Tensor of this dtype, of the shape that :meth:`max_pool2d` gives.

        Raises
        ------
        DTypeError
            The elements are not floats.
        DomainError
            `divisor_override` is 0.
        ShapeError
            The number of axes is wrong, `padding` is more than half of the window, or a window does
            not fit.

        Examples
        --------
        >>> krt.arange(16.0).reshape(1, 4, 4).avg_pool2d(2).tolist()
        [[[2.5, 4.5], [10.5, 12.5]]]
        """
        w = Windows("avg_pool2d", 2, kernel_size, stride, padding, 1, ceil_mode)
        return self._avg_pool(w, count_include_pad, divisor_override)

    def avg_pool3d(
        self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Self:  # fmt: skip
        """Take the mean of each window over the last three axes.

        Parameters
        ----------
        kernel_size, stride, padding : int or (int, int, int)
            As for :meth:`avg_pool2d`.
        ceil_mode, count_include_pad : bool
            As for :meth:`avg_pool2d`.
        divisor_override : int, optional
            Divisor of the sums, instead of the number of elements.

        Returns
        -------
        Tensor
            Tensor of this dtype, of the shape that :meth:`max_pool3d` gives.

        Raises
        ------
        DTypeError, ShapeError
            As for :meth:`avg_pool2d`.

        Examples
        --------
        >>> krt.arange(8.0).reshape(1, 2, 2, 2).avg_pool3d(2).tolist()
        [[[[3.5]]]]
        """
        w = Windows("avg_pool3d", 3, kernel_size, stride, padding, 1, ceil_mode)
        return self._avg_pool(w, count_include_pad, divisor_override)

    def lp_pool1d(
        self, norm_type: float, kernel_size: PerAxis, stride: PerAxis | None = None,
        ceil_mode: bool = False,
    ) -> Self:  # fmt: skip
        """Return ``sum(x ** norm_type) ** (1 / norm_type)`` of each window over the last axis.

        Where a sum is negative, the result is minus the root of its magnitude.

        Parameters
        ----------
        norm_type : float
            Exponent.
        kernel_size : int
            Size of a window.
        stride : int, optional
            Step between windows; `kernel_size` by default.
        ceil_mode : bool
            Whether a last window may reach beyond the end. Its sum is scaled to that of a full
            window.

        Returns
        -------
        Tensor
            Tensor of this dtype, of the shape that :meth:`max_pool1d` gives.

        Raises
        ------
        DTypeError
            The elements are not floats.
        ShapeError
            The number of axes is wrong, or a window does not fit.

        Examples
        --------
        >>> krt.tensor([[3.0, 4.0, 0.0, 1.0]]).lp_pool1d(2, 2).tolist()
        [[5.0, 1.0]]
        """
        return self._power_pool(
            Windows("lp_pool1d", 1, kernel_size, stride, 0, 1, ceil_mode), norm_type
        )

    def lp_pool2d(
        self, norm_type: float, kernel_size: PerAxis, stride: PerAxis | None = None,
        ceil_mode: bool = False,
    ) -> Self:  # fmt: skip
        """Return ``sum(x ** norm_type) ** (1 / norm_type)`` of each window over two axes.

        Parameters
        ----------
        norm_type : float
            Exponent.
        kernel_size : int or (int, int)
            Size of a window.
        stride : int or (int, int), optional
            Step between windows; `kernel_size` by default.
        ceil_mode : bool
            Whether a last window may reach beyond the end. Its sum is scaled to that of a full
            window.

        Returns
        -------
        Tensor
            Tensor of this dtype, of the shape that :meth:`max_pool2d` gives.

        Raises
        ------
        DTypeError
            The elements are not floats.
        ShapeError
            The number of axes is wrong, or a window does not fit.

        Examples
        --------
        >>> krt.tensor([[[3.0, 4.0], [0.0, 0.0]]]).lp_pool2d(2, 2).tolist()
        [[[5.0]]]
        """
        return self._power_pool(
            Windows("lp_pool2d", 2, kernel_size, stride, 0, 1, ceil_mode), norm_type
        )

    def lp_pool3d(
        self, norm_type: float, kernel_size: PerAxis, stride: PerAxis | None = None,
        ceil_mode: bool = False,
    ) -> Self:  # fmt: skip
        """Return ``sum(x ** norm_type) ** (1 / norm_type)`` of each window over three axes.

        Parameters
        ----------
        norm_type : float
            Exponent.
        kernel_size : int or (int, int, int)
            Size of a window.
        stride : int or (int, int, int), optional
            Step between windows; `kernel_size` by default.
        ceil_mode : bool
            Whether a last window may reach beyond the end. Its sum is scaled to that of a full
            window.

        Returns
        -------
        Tensor
            Tensor of this dtype, of the shape that :meth:`max_pool3d` gives.

        Raises
        ------
        DTypeError
            The elements are not floats.
        ShapeError
            The number of axes is wrong, or a window does not fit.

        Examples
        --------
        >>> krt.ones(1, 2, 2, 2).lp_pool3d(1, 2).tolist()
        [[[[8.0]]]]
        """
        return self._power_pool(
            Windows("lp_pool3d", 3, kernel_size, stride, 0, 1, ceil_mode), norm_type
        )

    def _max_pool(self, w: Windows, return_indices: bool) -> Any:
        low = -math.inf if self.dtype.is_float else self.dtype.min
        seen, taps = self._windows(w, low)
        out = build.reduce(seen, Op.MAX, taps)
        inside: tuple[UOp, ...] = ()
        if self.dtype.is_float and w.reaches_out(self.dims):
            # Elements of minus infinity equal the padding, which must get no gradient.
            ones = self._of(build.full(True, dt.bool_, self.dims))
            inside = (ones._windows(w, 0)[0],)
        value = self._of(custom(out, _first_maximum, seen, parts=inside, arg=taps))
        if not flag(return_indices, "return_indices"):
            return value
        sizes = [self._static_size(a, w.name) for a in range(self.ndim - w.axes, self.ndim)]
        line = (*(1,) * (self.ndim - w.axes), *sizes)
        flat = build.reshape(build.iota(math.prod(sizes)), line)
        numbers = self._of(build.expand(flat, self.dims))
        places, _ = numbers._windows(w, _NOWHERE)
        top = build.expand(build.reshape(out, build.keep_axes(seen.shape, taps)), seen.shape)
        hit = seen.eq(top)
        if seen.dtype.is_float:
            hit = hit.alu(Op.OR, seen.ne(seen))
        first = build.reduce(build.where(hit, places, _NOWHERE), Op.MIN, taps)
        return Pooled(value, self._of(first))

    def _avg_pool(self, w: Windows, pad_counts: bool, divisor: int | None) -> Self:
        x = self._of(self._floats(w.name))
        divisor = None if divisor is None else integer(divisor, "divisor_override")
        if divisor == 0:
            raise DomainError("divisor_override: expected a number other than 0, not 0")
        seen, taps = x._windows(w, 0)
        total = build.reduce(seen, Op.ADD, taps)
        every = math.prod(w.kernel)
        if divisor is not None:
            return self._of(build.div(total, divisor))
        if not w.reaches_out(x.dims, padding=not flag(pad_counts, "count_include_pad")):
            return self._of(build.div(total, every))
        if all(isinstance(d, int) for d in x.dims[-w.axes :]):
            counts = x._literal(w.counts(x.dims, padding=pad_counts)).cast(x.dtype)
            return self._of(total) / counts
        ones = x._of(build.full(1, x.dtype, x.dims))
        inside, _ = ones._windows(w, 0)
        return self._of(total.alu(Op.DIV, build.reduce(inside, Op.ADD, taps)))

    def _power_pool(self, w: Windows, power: float) -> Self:
        p = real(power, "norm_type")
        x = self._of(self._floats(w.name))
        seen, taps = (x.pow(p))._windows(w, 0)
        total = self._of(build.reduce(seen, Op.ADD, taps))
        if any(w.beyond(self.dims)):  # scale a window that reaches beyond the end to a full one
            counts = w.counts(self.dims, padding=True) / math.prod(w.kernel)
            total = total / self._literal(counts).cast(total.dtype)
        return (total.sign() * total.abs().relu()).pow(1 / p)

    def _windows(self, w: Windows, fill: float) -> tuple[UOp, tuple[int, ...]]:
        """Return the windows over the last axes, and the axes of their elements."""
        n = w.axes
        if not n < self.ndim <= n + 2:
            raise ShapeError(f"{w.name}: expected {n + 1} or {n + 2} axes, not {self.ndim}")
        first = self.ndim - n
        ends = [(p, p + e) for p, e in zip(w.padding, w.beyond(self.dims), strict=True)]
        x = self._pad([(0, 0)] * first + ends, fill).uop
        for size, k, d in zip(x.shape[first:], w.kernel, w.dilation, strict=True):
            if (end := lacking(size, d * (k - 1) + 1)) is not None:
                raise ShapeError(
                    f"{w.name}: a window of {k} does not fit in {format_size(size)} elements"
                    f"{end or '; use a smaller window'}"
                )
        if w.stride == w.kernel and all(d == 1 for d in w.dilation):
            return _tiles(x, first, w.kernel)
        windows = tuple(
            (first + i, *each)
            for i, each in enumerate(zip(w.kernel, w.stride, w.dilation, strict=True))
        )
        return UOp(Op.IM2COL, x.dtype, (x,), windows), tuple(range(self.ndim, self.ndim + n))


def _tiles(x: UOp, first: int, kernel: tuple[int, ...]) -> tuple[UOp, tuple[int, ...]]:
    """Return windows that neither overlap nor leave gaps, by a reshape."""
    counts = [build.quotient(d, k) for d, k in zip(x.shape[first:], kernel, strict=True)]
    whole = [build.volume((c, k)) for c, k in zip(counts, kernel, strict=True)]
    x = build.shrink(x, [(0, d) for d in (*x.shape[:first], *whole)], alike=True)
    pairs = [d for pair in zip(counts, kernel, strict=True) for d in pair]
    taps = tuple(first + 1 + 2 * i for i in range(len(kernel)))
    return build.reshape(x, (*x.shape[:first], *pairs)), taps


def _first_maximum(node: UOp, g: UOp, _i: int) -> UOp:
    (seen,), taps = node.arg.inputs, node.arg.arg
    shape = build.keep_axes(seen.shape, taps)
    top = build.expand(build.reshape(node.src[0], shape), seen.shape)
    sizes = [seen.shape[a] for a in taps]
    count = math.prod(k for k in sizes if isinstance(k, int))
    line = tuple(d if a in taps else 1 for a, d in enumerate(seen.shape))
    number = build.expand(build.reshape(build.iota(count), line), seen.shape).cast(dt.int32)
    hit = seen.eq(top)
    if seen.dtype.is_float:
        hit = hit.alu(Op.OR, seen.ne(seen))
    for inside in node.arg.parts:
        hit = hit.alu(Op.AND, inside)
    first = build.reduce(build.where(hit, number, count), Op.MIN, taps)
    # Every element of a window compares with it, so compute it only once.
    first = UOp(Op.CONTIGUOUS, dt.int32, (first,))
    first = build.expand(build.reshape(first, shape), seen.shape)
    spread = build.expand(build.reshape(g, shape), seen.shape)
    return build.where(number.eq(first), spread, 0)

"""Pooling over windows, and its reverse."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

from kernelrt import dtype as dt
from kernelrt.errors import ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.ir.shape import format_size
from kernelrt.tensor import build
from kernelrt.tensor.arguments import PerAxis, lacking, per_axis, real, whole
from kernelrt.tensor.marks import custom
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.convolution import ConvolutionMethods as _Below
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object

__all__ = ["PoolingMethods", "check_upsampling"]


@operations()
class PoolingMethods(_Below):
    """Pooling over the last axes."""

    __slots__ = ()

    def max_pool2d(
        self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
        dilation: PerAxis = 1,
    ) -> Self:  # fmt: skip
        """Greatest element of each window over the last two axes.

        The gradient goes to the first greatest element of a window. `stride` is `kernel_size`
        where it is not given; padding counts as minus infinity.
        """
        return self._max_pool(2, kernel_size, stride, padding, dilation)

    def max_pool1d(
        self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
        dilation: PerAxis = 1,
    ) -> Self:  # fmt: skip
        """Greatest element of each window over the last axis; as :meth:`max_pool2d`."""
        return self._max_pool(1, kernel_size, stride, padding, dilation)

    def avg_pool2d(
        self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
        count_include_pad: bool = True,
    ) -> Self:  # fmt: skip
        """Mean of each window over the last two axes; zeros of the padding count unless told."""
        return self._avg_pool(2, kernel_size, stride, padding, count_include_pad)

    def avg_pool1d(
        self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
        count_include_pad: bool = True,
    ) -> Self:  # fmt: skip
        """Mean of each window over the last axis; as :meth:`avg_pool2d`."""
        return self._avg_pool(1, kernel_size, stride, padding, count_include_pad)

    def interpolate(
        self, size: PerAxis | None = None,
        scale_factor: float | tuple[float, ...] | None = None, mode: str = "nearest",
    ) -> Self:  # fmt: skip
        """Other sizes of the axes behind the first two, by repeating or leaving out elements.

        Parameters
        ----------
        size : int or tuple of int, optional
            The new sizes.
        scale_factor : float or tuple of float, optional
            In their place, what the sizes are multiplied by, and rounded down.
        mode : "nearest"
            Element i of n is element ``floor(i * old / n)``, or ``floor(i / scale_factor)``.
        """
        check_upsampling(size, scale_factor, mode)
        n = self.ndim - 2
        if n < 1:
            raise ShapeError(f"interpolate: expected at least 3 axes, not {self.ndim}")
        out = self
        for axis, (count, factor) in enumerate(_upsampling(size, scale_factor, n), 2):
            times = whole(factor)
            if count is None and times is not None:
                out = out._spread_out(times, axis)
            else:
                old = self._static_size(axis, "interpolate")
                out = out._picked(axis, old, count or math.floor(old * factor), factor)
        return out

    def _picked(self, axis: int, old: int, count: int, factor: float) -> Self:
        """As many slices along `axis` as `count` says, `factor` apart or as far as that says."""
        if not old or not count:
            raise ShapeError(f"interpolate: axis {axis} of {old} elements cannot have {count}")
        if count % old == 0 and factor in (1, count // old):
            return self._spread_out(count // old, axis)
        number = build.iota(count)
        if factor == 1:
            place = build.mul(number, old).alu(Op.IDIV, _like(number, count))
        else:
            place = build.div(number.cast(dt.float64), factor).alu(Op.FLOOR).cast(dt.int64)
            place = place.alu(Op.MIN, _like(number, old - 1))
        return self.index_select(axis, self._of(place))

    def _max_pool(
        self, n: int, kernel: PerAxis, stride: PerAxis | None, padding: PerAxis, dilation: PerAxis
    ) -> Self:
        low = self.dtype.min
        seen, taps = self._windows(n, f"max_pool{n}d", kernel, stride, padding, dilation, low)
        out = build.reduce(seen, Op.MAX, taps)
        inside: tuple[UOp, ...] = ()
        if self.dtype.is_float and any(per_axis(padding, n, "padding")):
            # Elements of minus infinity are as great as the padding, which takes no gradient.
            inside = (self._inside(n, kernel, stride, padding, dilation),)
        return self._of(custom(out, _first_maximum, seen, parts=inside, arg=taps))

    def _inside(
        self, n: int, kernel: PerAxis, stride: PerAxis | None, padding: PerAxis, dilation: PerAxis
    ) -> UOp:
        """Which taps of the windows lie on elements, not on padding."""
        ones = self._of(build.full(True, dt.bool_, self.dims))
        return ones._windows(n, "", kernel, stride, padding, dilation, 0)[0]

    def _avg_pool(
        self, n: int, kernel: PerAxis, stride: PerAxis | None, padding: PerAxis, pad_counts: bool
    ) -> Self:
        name = f"avg_pool{n}d"
        x = self._of(self._floats(name))
        seen, taps = x._windows(n, name, kernel, stride, padding, 1, 0)
        total = build.reduce(seen, Op.ADD, taps)
        if pad_counts or not any(per_axis(padding, n, "padding")):
            return self._of(build.div(total, math.prod(per_axis(kernel, n, "kernel_size"))))
        ones = x._of(build.full(1, x.dtype, x.dims))
        inside, _ = ones._windows(n, name, kernel, stride, padding, 1, 0)
        return self._of(total.alu(Op.DIV, build.reduce(inside, Op.ADD, taps)))

    def _windows(
        self, n: int, name: str, kernel_size: PerAxis, stride: PerAxis | None, padding: PerAxis,
        dilation: PerAxis, fill: float,
    ) -> tuple[UOp, tuple[int, ...]]:  # fmt: skip
        """The windows over the last `n` axes, and the axes of their taps."""
        kernel = per_axis(kernel_size, n, "kernel_size", least=1)
        strides = kernel if stride is None else per_axis(stride, n, "stride", least=1)
        widths = per_axis(padding, n, "padding")
        dilations = per_axis(dilation, n, "dilation", least=1)
        if not n < self.ndim <= n + 2:
            raise ShapeError(f"{name}: expected {n + 1} or {n + 2} axes, not {self.ndim}")
        for p, k in zip(widths, kernel, strict=True):
            if 2 * p > k:
                raise ShapeError(f"padding: expected at most half of kernel_size {k}, not {p}")
        first = self.ndim - n
        x = self._pad([(0, 0)] * first + [(p, p) for p in widths], fill).uop
        for size, k, d in zip(x.shape[first:], kernel, dilations, strict=True):
            if (end := lacking(size, d * (k - 1) + 1)) is not None:
                raise ShapeError(
                    f"{name}: a window of {k} does not fit in {format_size(size)} elements{end}"
                )
        if strides == kernel and all(d == 1 for d in dilations):
            return _tiles(x, first, kernel)
        windows = tuple(
            (first + i, *w) for i, w in enumerate(zip(kernel, strides, dilations, strict=True))
        )
        return UOp(Op.WINDOW, x.dtype, (x,), windows), tuple(range(self.ndim, self.ndim + n))


def _tiles(x: UOp, first: int, kernel: tuple[int, ...]) -> tuple[UOp, tuple[int, ...]]:
    """Windows that neither overlap nor leave gaps: a reshape."""
    counts = [build.quotient(d, k) for d, k in zip(x.shape[first:], kernel, strict=True)]
    whole = [build.volume((c, k)) for c, k in zip(counts, kernel, strict=True)]
    x = build.shrink(x, [(0, d) for d in (*x.shape[:first], *whole)])
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
    # Every tap of a window asks for it: worth finding once.
    first = UOp(Op.CONTIGUOUS, dt.int32, (first,))
    first = build.expand(build.reshape(first, shape), seen.shape)
    spread = build.expand(build.reshape(g, shape), seen.shape)
    return build.where(number.eq(first), spread, 0)


def check_upsampling(size: object, scale_factor: object, mode: str) -> None:
    """Raise ShapeError where one of the two is not given alone, or for another mode."""
    if mode != "nearest":
        raise ShapeError(f"mode: expected 'nearest', not {mode!r}")
    if (size is None) == (scale_factor is None):
        raise ShapeError("size, scale_factor: expected one of the two")


def _upsampling(
    size: PerAxis | None, scale_factor: float | tuple[float, ...] | None, n: int
) -> list[tuple[int | None, float]]:
    """The new size of each axis, or None and by what it is multiplied."""
    if size is not None:
        return [(count, 1) for count in per_axis(size, n, "size", least=1)]
    assert scale_factor is not None
    each = scale_factor if isinstance(scale_factor, tuple | list) else (scale_factor,) * n
    if len(each) != n:
        raise ShapeError(f"scale_factor: expected {n} numbers, not {len(each)}")
    factors = [real(number, "scale_factor") for number in each]
    if not all(0 < factor < math.inf for factor in factors):
        raise ShapeError(f"scale_factor: expected numbers above 0, not {scale_factor}")
    return [(None, factor) for factor in factors]


def _like(node: UOp, value: int) -> UOp:
    return build.full(value, node.dtype, node.shape)

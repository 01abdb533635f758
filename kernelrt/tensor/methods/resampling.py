"""Resampling of images: adaptive pooling, interpolation and grid sampling."""

from __future__ import annotations

import contextlib
import functools
import math
from typing import TYPE_CHECKING, Any, Final, Self, cast

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError, OutOfMemoryError, ShapeError
from kernelrt.ir import Dim, UOp
from kernelrt.ir.shape import dim_span, format_shape, format_size, is_static, prod, same
from kernelrt.ir.size import plain
from kernelrt.tensor import views
from kernelrt.tensor.methods.window_pooling import Pooled
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import PerAxis, flag, real, whole
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.methods.conversion import ConversionMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["MODES", "ResamplingMethods", "check_interpolation", "coordinates", "cubic_weights",
           "factors_of"]  # fmt: skip

#: Modes of interpolation -> the number of axes that each supports; 0 for any.
MODES: Final = {"nearest": 0, "nearest-exact": 0, "area": 0, "linear": 1, "bilinear": 2,
                "bicubic": 2, "trilinear": 3}  # fmt: skip
#: Parameter of the bicubic convolution kernel (Keys, IEEE Trans. ASSP 29, 1981): PyTorch's value,
#: and Pillow's for antialiasing.
_SHARPNESS: Final = -0.75
_SMOOTH_SHARPNESS: Final = -0.5


@contextlib.contextmanager
def _made_for(name: str, size: int) -> Iterator[None]:
    """Turn a MemoryError, which names no size, into an OutOfMemoryError that names the size."""
    try:
        yield
    except MemoryError:
        raise OutOfMemoryError(
            f"{name}: not enough memory for {size} elements; choose a smaller size"
        ) from None


def coordinates(
    old: int, new: int, factor: float | None, *, align_corners: bool
) -> np.ndarray[Any, Any]:
    """Return the coordinates of `new` elements on an axis of `old` elements, in float64.

    Parameters
    ----------
    old, new : int
        Sizes of the two axes.
    factor : float, optional
        Scale factor, if it differs from the quotient of the sizes.
    align_corners : bool
        Whether the centers of the outermost elements coincide, instead of their edges.
    """
    at = np.arange(new, dtype=np.float64)
    if align_corners:
        return at * ((old - 1) / (new - 1) if new > 1 else 0.0)
    return (at + 0.5) * (old / new) - 0.5 if factor is None else (at + 0.5) / factor - 0.5


def _near(x: Any, a: float) -> Any:
    """Return the cubic kernel for distances up to 1."""
    return ((a + 2) * x - (a + 3)) * x * x + 1


def _far(x: Any, a: float) -> Any:
    """Return the cubic kernel for distances from 1 to 2."""
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def cubic_weights(part: Any) -> list[Any]:
    """Return the weights of the elements -1, 0, 1 and 2 at the fraction `part` from 0 to 1."""
    a = _SHARPNESS
    return [_far(part + 1, a), _near(part, a), _near(1 - part, a), _far(2 - part, a)]


@functools.lru_cache(maxsize=256)
def _taps(
    mode: str, old: int, new: int, factor: float | None, align_corners: bool, kind: str
) -> tuple[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None], ...]:
    """Return pairs of source elements and weights for each new element; None means weight 1."""
    if mode in ("nearest", "nearest-exact"):
        # The coordinate of an element is its centre for "nearest-exact", its start for "nearest".
        at = np.arange(new) + (0.5 if mode == "nearest-exact" else 0.0)
        if factor is None:
            at = at * old / new
        else:
            # Rounding decides which element is nearest, so round as PyTorch does.
            at = (at.astype(kind) * np.dtype(kind).type(1 / factor)).astype(np.float32)
        return ((np.clip(np.floor(at), 0, old - 1).astype(np.int64), None),)
    at = coordinates(old, new, factor, align_corners=align_corners)
    if mode == "bicubic":
        low = np.floor(at)
        weights = cubic_weights(at - low)
        steps: tuple[int, ...] = (-1, 0, 1, 2)
    else:
        at = np.maximum(at, 0)
        low = np.minimum(np.floor(at), old - 1)
        weights = [1 - (at - low), at - low]
        steps = (0, 1)
    return tuple(
        (np.clip(low + step, 0, old - 1).astype(np.int64), weight)
        for step, weight in zip(steps, weights, strict=True)
    )


@functools.lru_cache(maxsize=256)
def _windows(
    mode: str, old: int, new: int, factor: float | None, align_corners: bool
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return a row of source elements and weights for each new element, padded with weight 0.

    If the new elements are farther apart than the old ones, the filter is stretched accordingly, as
    in Pillow and PyTorch's ``antialias=True``.
    """
    if align_corners:
        scale = (old - 1) / (new - 1) if new > 1 else 0.0
    else:
        scale = old / new if factor is None else 1 / factor
    stretch = max(scale, 1.0)
    reach = (2 if mode == "bicubic" else 1) * stretch
    middles = scale * (np.arange(new) + 0.5)
    first = np.maximum((middles - reach + 0.5).astype(np.int64), 0)
    last = np.minimum((middles + reach + 0.5).astype(np.int64), old)
    positions = first[:, None] + np.arange(int((last - first).max()))
    apart = np.abs(positions - middles[:, None] + 0.5) / stretch
    if mode == "bicubic":
        a = _SMOOTH_SHARPNESS
        weights = np.where(apart < 1, _near(apart, a), np.where(apart < 2, _far(apart, a), 0))
    else:
        weights = np.maximum(1 - apart, 0)
    inside = positions < last[:, None]
    weights = np.where(inside, weights, 0)
    total = weights.sum(1, keepdims=True)
    weights = np.divide(weights, total, out=weights, where=total != 0)
    return np.where(inside, positions, old), weights


@operations()
class ResamplingMethods(_Below):
    """Adaptive pooling, interpolation and sampling of images."""

    __slots__ = ()

    # ---- adaptive pooling

    def adaptive_avg_pool1d(self, output_size: PerAxis | None) -> Self:
        """Average over adaptive windows of the last axis, one for each element of the result.

        Window i of n goes from ``floor(i * size / n)`` to ``ceil((i + 1) * size / n)``.

        Parameters
        ----------
        output_size : int or None
            Size of the result; None keeps the size of the axis.

        Returns
        -------
        Tensor
            Tensor of this dtype: shape (batch, channels, output_size) for this tensor's (batch,
            channels, length), or both without the batch.

        Raises
        ------
        DTypeError
            The elements are not floats.
        ShapeError
            The number of axes is wrong, or an axis is empty.

        Examples
        --------
        >>> krt.arange(5.0).reshape(1, 5).adaptive_avg_pool1d(2).tolist()  # of 0 1 2 and of 2 3 4
        [[1.0, 3.0]]
        """
        return self._adaptive_mean(1, output_size)

    def adaptive_avg_pool2d(self, output_size: Any) -> Self:
        """Average over adaptive windows of the last two axes, one for each element of the result.

        Window i of n goes from ``floor(i * size / n)`` to ``ceil((i + 1) * size / n)``.

        Parameters
        ----------
        output_size : int, or pair of int or None
            Sizes of the result; None keeps the size of an axis.

        Returns
        -------
        Tensor
            Tensor of this dtype: shape (batch, channels, out rows, out columns) for this tensor's
            (batch, channels, rows, columns), or both without the batch.

        Raises
        ------
        DTypeError
            The elements are not floats.
        ShapeError
            The number of axes is wrong, `output_size` has another length, or an axis is empty.

        Examples
        --------
        >>> krt.arange(16.0).reshape(1, 4, 4).adaptive_avg_pool2d(2).tolist()
        [[[2.5, 4.5], [10.5, 12.5]]]
        """
        return self._adaptive_mean(2, output_size)

    def adaptive_avg_pool3d(self, output_size: Any) -> Self:
        """Average over adaptive windows of the last three axes; see :meth:`adaptive_avg_pool2d`.

        Parameters
        ----------
        output_size : int, or triple of int or None
            Sizes of the result; None keeps the size of an axis.

        Returns
        -------
        Tensor
            Tensor of this dtype: shape (batch, channels, out depth, out rows, out columns) for this
            tensor's (batch, channels, depth, rows, columns), or both without the batch.

        Raises
        ------
        DTypeError, ShapeError
            As for :meth:`adaptive_avg_pool2d`.

        Examples
        --------
        >>> krt.arange(8.0).reshape(1, 2, 2, 2).adaptive_avg_pool3d(1).tolist()
        [[[[3.5]]]]
        """
        return self._adaptive_mean(3, output_size)

    def adaptive_max_pool1d(self, output_size: PerAxis, return_indices: bool = False) -> Any:
        """Take the maxima over the windows of :meth:`adaptive_avg_pool1d`.

        Parameters
        ----------
        output_size : int or None
            Size of the result; None keeps the size of the axis.
        return_indices : bool
            Whether to also return the positions of the maxima along the axis.

        Returns
        -------
        Tensor or Pooled
            Tensor of this dtype, of the shape that :meth:`adaptive_avg_pool1d` gives. With
            `return_indices`, a :class:`Pooled` with int64 ``indices``.

        Raises
        ------
        ShapeError
            The number of axes is wrong, or an axis is empty.

        Examples
        --------
        >>> krt.arange(5.0).reshape(1, 5).adaptive_max_pool1d(2).tolist()
        [[2.0, 4.0]]
        """
        return self._adaptive_max(1, output_size, return_indices)

    def adaptive_max_pool2d(self, output_size: Any, return_indices: bool = False) -> Any:
        """Take the maxima over the windows of :meth:`adaptive_avg_pool2d`.

        Parameters
        ----------
        output_size : int, or pair of int or None
            Sizes of the result; None keeps the size of an axis.
        return_indices : bool
            Whether to also return the positions of the maxima in the flat image.

        Returns
        -------
        Tensor or Pooled
            Tensor of this dtype, of the shape that :meth:`adaptive_avg_pool2d` gives. With
            `return_indices`, a :class:`Pooled` with int64 ``indices``.

        Raises
        ------
        ShapeError
            The number of axes is wrong, `output_size` has another length, or an axis is empty.

        Examples
        --------
        >>> values, indices = krt.arange(16.0).reshape(1, 4, 4).adaptive_max_pool2d(2, True)
        >>> values.tolist(), indices.tolist()
        ([[[5.0, 7.0], [13.0, 15.0]]], [[[5, 7], [13, 15]]])
        """
        return self._adaptive_max(2, output_size, return_indices)

    def adaptive_max_pool3d(self, output_size: Any, return_indices: bool = False) -> Any:
        """Take the maxima over the windows of :meth:`adaptive_avg_pool3d`.

        Parameters
        ----------
        output_size : int, or triple of int or None
            Sizes of the result; None keeps the size of an axis.
        return_indices : bool
            Whether to also return the positions of the maxima in the flat image.

        Returns
        -------
        Tensor or Pooled
            Tensor of this dtype, of the shape that :meth:`adaptive_avg_pool3d` gives. With
            `return_indices`, a :class:`Pooled` with int64 ``indices``.

        Raises
        ------
        ShapeError
            The number of axes is wrong, `output_size` has another length, or an axis is empty.

        Examples
        --------
        >>> krt.arange(8.0).reshape(1, 2, 2, 2).adaptive_max_pool3d(1).tolist()
        [[[[7.0]]]]
        """
        return self._adaptive_max(3, output_size, return_indices)

    def _adaptive_sizes(self, n: int, output_size: object, name: str) -> list[tuple[Dim, Dim]]:
        """Return the old and the new size of each of the last `n` axes.

        If an old size is known only at run time, the new size must be equal to it, or 1.
        """
        if not n < self.ndim <= n + 2:
            raise ShapeError(f"{name}: expected {n + 1} or {n + 2} axes, not {self.ndim}")
        given = output_size if isinstance(output_size, tuple | list) else (output_size,) * n
        if len(given) != n:
            raise ShapeError(f"output_size: expected {n} numbers, not {output_size!r}")
        found = []
        for k, wanted in enumerate(given):
            axis = self.ndim - n + k
            old = self.dims[axis]
            new = old if wanted is None else _count(wanted)
            if new is None or dim_span(new)[0] < 0:
                raise ShapeError(f"output_size: expected sizes or None, not {output_size!r}")
            if new != 1 and not same(new, old):
                old = self._static_size(axis, name)
                if not isinstance(new, int):
                    raise ShapeError(
                        f"output_size: expected ints, None, or the size of the axis, not "
                        f"{format_size(new)}, which is known only at run time"
                    )
            if not dim_span(old)[0] and new != 0:
                raise ShapeError(
                    f"{name}: expected at least 1 element per axis, not shape "
                    f"{format_shape(self.dims)}"
                )
            found.append((old, new))
        return found

    def _adaptive_mean(self, n: int, output_size: object) -> Self:
        name = f"adaptive_avg_pool{n}d"
        out = self._of(self._floats(name))
        for k, (old, new) in enumerate(self._adaptive_sizes(n, output_size, name)):
            axis = self.ndim - n + k
            if same(new, old):
                continue
            if new == 1:
                out = out.mean(axis, keepdim=True)
                continue
            old, new = cast("int", old), cast("int", new)  # noqa: PLW2901 - as is checked above
            if new and old % new == 0:
                out = out.unflatten(axis, (new, old // new)).mean(axis + 1)
            else:
                seen, inside = out._parts_of(axis, old, new)
                count = inside.sum(1, keepdim=True).squeeze(1).cast(out.dtype)
                out = seen.where(inside, 0).sum(axis + 1) / count
        return out

    def _parts_of(self, axis: int, old: int, new: int) -> tuple[Self, Self]:
        """Return windows of varying length as an axis after `axis`, and their mask."""
        with _made_for("output_size", new):
            starts = np.arange(new) * old // max(new, 1)
            ends = -((np.arange(new) + 1) * -old // max(new, 1))
            width = int((ends - starts).max(initial=1))
            positions = starts[:, None] + np.arange(width)
        inside = self._literal(positions < ends[:, None])
        index = self._literal(np.minimum(positions, old - 1).reshape(-1))
        seen = self.index_select(axis, index).unflatten(axis, (new, width))
        return seen, inside.reshape(new, width, *(1,) * (self.ndim - axis - 1))

    def _adaptive_max(self, n: int, output_size: object, return_indices: bool) -> Any:
        name = f"adaptive_max_pool{n}d"
        given = self._adaptive_sizes(n, output_size, name)
        first = self.ndim - n
        if not is_static(tuple(old for old, _ in given)):
            return self._greatest_of_images(n, given, name, return_indices)
        sizes = cast("list[tuple[int, int]]", given)
        if all(new and old % new == 0 for old, new in sizes):
            kernel = tuple(old // new for old, new in sizes)
            pool = (self.max_pool1d, self.max_pool2d, self.max_pool3d)[n - 1]
            return pool(kernel, return_indices=return_indices)
        count = math.prod(old for old, _ in sizes)
        flat = build.reshape(build.iota(count), tuple(old for old, _ in sizes))
        seen, positions = self, self._of(flat)
        low = -math.inf if self.dtype.is_float else self.dtype.min
        for k, (old, new) in enumerate(sizes):
            axis = first + 2 * k
            seen, inside = seen._parts_of(axis, old, new)
            positions, _ = positions._parts_of(2 * k, old, new)
            seen = seen.where(inside, low)
        taps = [first + 2 * k + 1 for k in range(n)]
        kept = [a for a in range(seen.ndim) if a not in taps]
        seen = seen.permute(*kept, *taps).flatten(self.ndim)
        positions = positions.permute(*range(0, 2 * n, 2), *range(1, 2 * n, 2)).flatten(n)
        values, chosen = seen.max(-1)
        if not flag(return_indices, "return_indices"):
            return values
        wide = positions.expand(*seen.dims)
        return Pooled(values, wide.gather(-1, chosen.unsqueeze(-1)).squeeze(-1))

    def _greatest_of_images(
        self, n: int, sizes: Sequence[tuple[Dim, Dim]], name: str, return_indices: bool
    ) -> Any:
        """Take the maxima of whole images if some sizes are known only at run time."""
        for axis, (_, new) in enumerate(sizes, self.ndim - n):
            if new != 1:
                self._static_size(axis, name)
        values, positions = self.flatten(self.ndim - n).max(-1)
        shape = (*self.dims[: self.ndim - n], *(1,) * n)
        values, positions = values.reshape(shape), positions.reshape(shape)
        return Pooled(values, positions) if flag(return_indices, "return_indices") else values

    # ---- interpolation

    def interpolate(
        self, size: PerAxis | None = None,
        scale_factor: float | tuple[float, ...] | None = None, mode: str = "nearest",
        align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
        antialias: bool = False,
    ) -> Self:  # fmt: skip
        """Resample the axes after the first two to other sizes.

        Parameters
        ----------
        size : int or tuple of int, optional
            New sizes, which may be known only at run time.
        scale_factor : float or tuple of float, optional
            Factors of the sizes instead of `size`; the products are rounded down.
        mode : str
            "nearest": element i of n is element ``floor(i * old / n)``, or, for a scale factor,
            ``floor(i / scale_factor)``. "nearest-exact": the old element that contains the center
            of the new one. "linear", "bilinear" and "trilinear": interpolation along 1, 2 and 3
            axes. "bicubic": cubic interpolation along 2 axes. "area": :meth:`adaptive_avg_pool2d`.
        align_corners : bool, optional
            For the modes that interpolate: whether the centers of the outermost elements of the
            input and of the result coincide, instead of their edges.
        recompute_scale_factor : bool, optional
            Whether the quotients of the sizes determine the coordinates, instead of `scale_factor`.
        antialias : bool
            For "bilinear" and "bicubic": whether each element of a smaller image is computed from
            all elements around it, with Pillow's filter. Without it, detail finer than the new
            elements causes aliasing patterns.

        Returns
        -------
        Tensor
            Tensor of this dtype: shape (batch, channels, ...) with the new sizes.

        Raises
        ------
        DTypeError
            The elements are not floats, and `mode` is neither "nearest" nor "nearest-exact".
        DomainError
            The mode is unknown, or a factor is not above 0.
        ShapeError
            The mode does not fit the number of axes or lacks the given option; or not exactly one
            of `size` and `scale_factor` is given.

        Notes
        -----
        As in PyTorch, "linear", "bilinear" and "trilinear" copy an axis that keeps its size,
        whatever `scale_factor` is. So does "nearest" for images, which also copies each element
        twice if a size doubles.

        The cubic kernel is that of R. Keys, Cubic convolution interpolation for digital image
        processing, IEEE Trans. ASSP 29, 1981, with the parameter -0.75, or -0.5 with `antialias`.

        Examples
        --------
        >>> krt.tensor([[[1.0, 2.0]]]).interpolate(4).tolist()
        [[[1.0, 1.0, 2.0, 2.0]]]
        >>> krt.tensor([[[1.0, 3.0]]]).interpolate(3, mode="linear", align_corners=True).tolist()
        [[[1.0, 2.0, 3.0]]]
        """
        n = self.ndim - 2
        if n < 1:
            raise ShapeError(
                "interpolate: expected at least 3 axes, (batch, channels, ...), not shape "
                f"{format_shape(self.dims)}"
            )
        check_interpolation(mode, align_corners)
        if flag(antialias, "antialias") and mode not in ("bilinear", "bicubic"):
            raise DomainError(
                f"antialias: expected mode 'bilinear' or 'bicubic', not {mode!r}"
            )
        sizes = factors_of(size, scale_factor, n)
        if MODES[mode] not in (0, n):
            raise ShapeError(
                f"mode: {mode!r} is for inputs of {MODES[mode] + 2} axes, not {self.ndim}"
            )
        if recompute_scale_factor or mode == "area":
            sizes = [
                (_scaled(self.dims[axis], f or 1) if c is None else c, None)
                for axis, (c, f) in enumerate(sizes, 2)
            ]
        if mode == "area":
            return self._adaptive_mean(n, [count for count, _ in sizes])
        if mode == "nearest" and all(
            f is not None and f == int(f) for _, f in sizes
        ):
            out = self
            for axis, (_, factor) in enumerate(sizes, 2):
                out = out._spread_out(int(factor or 1), axis)
            return views.unshared(out, self)
        out = self._interpolated(sizes, mode, bool(align_corners), antialias)
        return views.unshared(out, self)

    def _interpolated(
        self, sizes: Sequence[tuple[Dim | None, float | None]], mode: str, align_corners: bool,
        smooth: bool,
    ) -> Self:  # fmt: skip
        """Resample the axes after the first two, each to a new size or by a scale factor."""
        if mode not in ("nearest", "nearest-exact"):
            out = self._of(self._wide("interpolate"))
        else:
            out = self
        kind = "float64" if self.dtype is dt.float64 else "float32"
        for axis, (size, factor) in enumerate(sizes, 2):
            old = self.dims[axis]
            new = _scaled(old, factor or 1) if size is None else size
            if dim_span(old)[0] < 1 or dim_span(new)[0] < 1:
                raise ShapeError(
                    f"interpolate: axis {axis} of {format_size(old)} elements cannot be "
                    f"resized to {format_size(new)}; both sizes must be at least 1"
                )
            if mode == "nearest" and len(sizes) == 2 and same(new, build.volume((old, 2))):
                factor = None  # noqa: PLW2901 - use the sizes instead
            if same(new, old) and (factor in (None, 1) or _copies(mode, len(sizes), smooth)):
                continue
            if smooth:
                old = self._static_size(axis, "interpolate with antialias=True")
            if not (isinstance(old, int) and isinstance(new, int)):
                open_taps = self._open_taps(mode, old, new, factor, align_corners, kind)
                parts = [out._open_weighted(axis, *tap) for tap in open_taps]
                out = functools.reduce(lambda a, b: a + b, parts)
                continue
            if smooth:
                with _made_for("size", new):
                    positions, weights = _windows(mode, old, new, factor, align_corners)
                out = out._mixed(axis, old, positions, weights)
                continue
            with _made_for("size", new):
                taps = _taps(mode, old, new, factor, align_corners, kind)
            parts = [out._weighted(axis, position, weight) for position, weight in taps]
            out = functools.reduce(lambda a, b: a + b, parts)
        return out.cast(self.dtype)

    def _open_taps(
        self, mode: str, old: Dim, new: Dim, factor: float | None, align_corners: bool, kind: str
    ) -> list[tuple[Self, Self | None]]:
        """Compute :func:`_taps` for sizes that are known only at run time."""
        line = self._of(build.iota(new))
        size, count = (self._of(build.scalar(n, dt.int64)) for n in (old, new))
        half = 0.5 if mode == "nearest-exact" else 0.0
        if mode in ("nearest", "nearest-exact") and factor is None:
            position = (line * 2 + int(2 * half)) * size // (count * 2)
            return [(position.minimum(size - 1), None)]
        if factor is not None and mode in ("nearest", "nearest-exact"):
            at = (line.cast(kind) + half) * float(np.dtype(kind).type(1 / factor))
            return [(at.cast(dt.float32).floor().long().minimum(size - 1), None)]
        at = line.cast(dt.float64)
        if align_corners:
            at = at * ((size - 1).cast(dt.float64) / (count - 1).maximum(1).cast(dt.float64))
        elif factor is None:
            at = (at + 0.5) * (size.cast(dt.float64) / count.cast(dt.float64)) - 0.5
        else:
            at = (at + 0.5) / factor - 0.5
        if mode == "bicubic":
            low, first = at.floor(), -1
            weights = cubic_weights(at - low)
        else:
            at, first = at.maximum(0), 0
            low = at.floor().minimum((size - 1).cast(dt.float64))
            weights = [1 - (at - low), at - low]
        return [
            ((low.long() + step).maximum(0).minimum(size - 1), weight)
            for step, weight in enumerate(weights, first)
        ]

    def _open_weighted(self, axis: int, position: Self, weight: Self | None) -> Self:
        part = self.index_select(axis, position)
        if weight is None:
            return part
        shape = (part.dims[axis], *(1,) * (self.ndim - axis - 1))
        return part * weight.cast(self.dtype).reshape(shape)

    def _weighted(
        self, axis: int, position: np.ndarray[Any, Any], weight: np.ndarray[Any, Any] | None
    ) -> Self:
        part = self.index_select(axis, self._literal(position))
        if weight is None:
            return part
        line = weight.reshape(-1, *(1,) * (self.ndim - axis - 1)).astype(dt.to_numpy(self.dtype))
        return part * self._literal(line)

    def _mixed(
        self, axis: int, old: int, positions: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]
    ) -> Self:
        """Return weighted sums over rows of positions; positions from `old` on do not count."""
        behind = (1,) * (self.ndim - axis - 1)
        index = self._literal(np.minimum(positions, old - 1).reshape(-1))
        seen = self.index_select(axis, index).unflatten(axis, positions.shape)
        counts = weights.reshape(*weights.shape, *behind).astype(dt.to_numpy(self.dtype))
        inside = (positions < old).reshape(*positions.shape, *behind)
        parts = seen * self._literal(counts)
        return parts.where(self._literal(inside), 0).sum(axis + 1)

    # ---- sampling

    def grid_sample(
        self, grid: TensorBase, mode: str = "bilinear", padding_mode: str = "zeros",
        align_corners: bool = False,
    ) -> Self:  # fmt: skip
        """Sample images of shape (batch, channels, ...) at the points of a grid.

        Parameters
        ----------
        grid : Tensor, shape (batch, rows, columns, 2) or (batch, depth, rows, columns, 3)
            Coordinates from -1 to 1, the last axis of the image first.
        mode : "bilinear", "nearest" or "bicubic"
            "bilinear" interpolates between elements, "nearest" takes the nearest one, "bicubic"
            uses the 16 elements around each point and needs images of two axes.
        padding_mode : "zeros", "border" or "reflection"
            Values outside of the image: zeros, those of the nearest element of the border, or those
            of the image reflected at its border.
        align_corners : bool
            Whether -1 and 1 are the centers of the outermost elements, not their edges.

        Returns
        -------
        Tensor
            Tensor of this dtype, of shape (batch, channels, rows, columns) or (batch, channels,
            depth, rows, columns).

        Raises
        ------
        DTypeError
            The elements are not floats, or `grid` has another dtype.
        DomainError
            A mode is unknown.
        ShapeError
            `grid` has an unsuitable shape.

        Examples
        --------
        >>> image = krt.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
        >>> image.grid_sample(krt.tensor([[[[-0.5, -0.5], [0.0, 0.0]]]])).tolist()
        [[[[1.0, 2.5]]]]
        """
        if mode not in ("bilinear", "nearest", "bicubic"):
            raise DomainError(f"mode: expected 'bilinear', 'nearest' or 'bicubic', not {mode!r}")
        if padding_mode not in ("zeros", "border", "reflection"):
            raise DomainError(
                f"padding_mode: expected 'zeros', 'border' or 'reflection', not {padding_mode!r}"
            )
        flag(align_corners, "align_corners")
        at = self._lift(grid, "grid")
        n = self.ndim - 2
        if n not in (2, 3) or at.ndim != self.ndim or at.dims[-1] != n:
            raise ShapeError(
                f"grid: expected {self.ndim} axes, the first of size "
                f"{format_size(self.dims[0])} and the last of size {n}, for an input of shape "
                f"{format_shape(self.dims)}, not shape {format_shape(at.dims)}"
            )
        if not same(at.dims[0], self.dims[0]):
            raise ShapeError(
                f"grid: expected a grid for each of the {format_size(self.dims[0])} images of the "
                f"batch, not {format_size(at.dims[0])} grids; use grid.expand() to share one"
            )
        if not self.dtype.is_float or at.dtype is not self.dtype:
            raise DTypeError(
                f"grid: expected the dtype {self.dtype.name} of the input, not {at.dtype.name}"
            )
        sizes = [self._static_size(a, "grid_sample") for a in range(2, self.ndim)]
        ends = [
            _unnormalized(at[..., n - 1 - k], size, align_corners) for k, size in enumerate(sizes)
        ]
        if mode == "bicubic":
            if n != 2:
                raise ShapeError(
                    "mode: 'bicubic' needs an input with 2 spatial axes, not 3; use 'bilinear'"
                )
            return self._at_cubic(ends, sizes, padding_mode, align_corners)
        ends = [
            _inside(end, size, padding_mode, align_corners)
            for end, size in zip(ends, sizes, strict=True)
        ]
        if mode == "nearest":
            return self._at_corner([e.round() for e in ends], sizes)
        lows = [e.floor() for e in ends]
        out: Self | None = None
        for corner in range(1 << n):
            ups = [corner >> k & 1 for k in range(n)]
            share: Any = None
            for up, end, low in zip(ups, ends, lows, strict=True):
                part = end - low if up else 1 - (end - low)
                share = part if share is None else share * part
            seen = self._at_corner(
                [low + up for up, low in zip(ups, lows, strict=True)], sizes
            ) * share.unsqueeze(1)
            out = seen if out is None else out + seen
        assert out is not None
        return out

    def _at_cubic(
        self, ends: list[Any], sizes: list[int], padding: str, align: bool
    ) -> Self:
        """Interpolate between 4 elements along each of two axes; pad positions outside."""
        lows = [end.floor().detach() for end in ends]
        weights = [cubic_weights(end - low) for end, low in zip(ends, lows, strict=True)]
        positions = [
            [_inside(low + step, size, padding, align) for step in (-1, 0, 1, 2)]
            for low, size in zip(lows, sizes, strict=True)
        ]
        rows = []
        for row in positions[0]:
            taps = [self._at_corner([row, column], sizes) for column in positions[1]]
            rows.append(_weighted_sum(taps, weights[1]))
        return cast("Self", _weighted_sum(rows, weights[0]))

    def _at_corner(self, positions: list[Self], sizes: list[int]) -> Self:
        """Return the elements at integer positions, zeros outside; channels follow the batch."""
        inside: Any = None
        index: Any = None
        for position, size in zip(positions, sizes, strict=True):
            within = (position >= 0) & (position <= size - 1)
            inside = within if inside is None else inside & within
            clipped = position.detach().clamp(0, size - 1).where(within, 0).long()
            index = clipped if index is None else index * size + clipped
        shape = index.dims
        flat = self.flatten(2)
        wide = index.reshape(shape[0], 1, prod(shape[1:])).expand(-1, flat.dims[1], -1)
        seen = flat.gather(2, wide).reshape(*flat.dims[:2], *shape[1:])
        return seen.where(inside.unsqueeze(1), 0)


def _weighted_sum(values: list[Any], weights: list[Any]) -> Any:
    """Sum values, whose axis 1 holds channels, times weights without channels."""
    parts = [value * weight.unsqueeze(1) for value, weight in zip(values, weights, strict=True)]
    return functools.reduce(lambda a, b: a + b, parts)


def _unnormalized(at: Any, size: int, align: bool) -> Any:
    """Convert a coordinate from -1 to 1 to an element position."""
    return (at + 1) * ((size - 1) / 2) if align else ((at + 1) * size - 1) / 2


def _inside(position: Any, size: int, padding: str, align: bool) -> Any:
    """Map an element position into the image according to the padding mode."""
    if padding == "zeros":
        return position
    if padding == "reflection":
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        if span == 0:
            return position * 0
        position = (position - low).abs()
        reflections = (position / span).floor()
        rest = position - reflections * span
        odd = (reflections - 2 * (reflections / 2).floor()) == 1
        position = (span - rest).where(odd, rest) + low
    # From the edges on, the coordinate has no gradient.
    inside = (position > 0) & (position < size - 1)
    return position.where(inside, position.detach().clamp(0, size - 1))


def _count(value: object) -> Dim | None:
    """Return a number of elements or a Size; return None for anything else."""
    plain_value = plain(value)
    return plain_value if isinstance(plain_value, UOp) else whole(value)


def _scaled(size: Dim, factor: float) -> Dim:
    """Return the length of an axis times `factor`, rounded down."""
    if isinstance(size, int):
        return math.floor(size * factor)
    numerator, denominator = float(factor).as_integer_ratio()
    if max(numerator, denominator) > 1 << 20:  # then the product would be rounded
        raise ShapeError(
            f"scale_factor: {factor} times the size {format_size(size)}, known only at run time, "
            "cannot be computed exactly; pass size= instead, as in size=n * 7 // 10"
        )
    return build.quotient(build.volume((size, numerator)), denominator)


def _copies(mode: str, axes: int, smooth: bool) -> bool:
    """Return whether an axis that keeps its size is copied for any factor, as in PyTorch."""
    return smooth or mode.endswith("linear") or (mode == "nearest" and axes == 2)


def check_interpolation(mode: str, align_corners: object) -> None:
    """Raise an error for an unknown mode, or for options that the mode does not have."""
    if mode not in MODES:
        raise DomainError(f"mode: expected one of {', '.join(map(repr, MODES))}, not {mode!r}")
    if align_corners is not None:
        flag(align_corners, "align_corners")
        if mode in ("nearest", "nearest-exact", "area"):
            raise ShapeError(f"align_corners: mode {mode!r} has no such option; leave it out")


def factors_of(
    size: object, scale_factor: object, n: int
) -> list[tuple[Dim | None, float | None]]:
    """Return a pair for each axis: (new size, None) or (None, scale factor)."""
    if (size is None) == (scale_factor is None):
        came = "neither is" if size is None else "both are"
        raise ShapeError(f"size, scale_factor: expected exactly one of the two, but {came} given")
    given: Any = size if scale_factor is None else scale_factor
    each = tuple(given) if isinstance(given, tuple | list) else (given,) * n
    name = "size" if scale_factor is None else "scale_factor"
    if len(each) != n:
        raise ShapeError(f"{name}: expected {n} numbers, not {len(each)}")
    if scale_factor is None:
        counts = [_count(count) for count in each]
        if any(count is None for count in counts):
            raise DTypeError(f"size: expected ints, not {size!r}")
        if any(count is not None and dim_span(count)[0] < 1 for count in counts):
            raise ShapeError(f"size: expected sizes of at least 1, not {size!r}")
        return [(count, None) for count in counts]
    factors = [real(number, "scale_factor") for number in each]
    if not all(0 < factor < math.inf for factor in factors):
        raise DomainError(f"scale_factor: expected finite numbers above 0, not {scale_factor}")
    return [(None, factor) for factor in factors]



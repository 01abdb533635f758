"""Cumulative reductions and differences along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, cast

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir import Op
from kernelrt.ir.shape import dim_span, format_shape, format_size, same
from kernelrt.tensor import views
from kernelrt.tensor.free_functions import joining
from kernelrt.tensor.methods.reduction import Extremum
from kernelrt.tensor.nodes import build, composite_ops
from kernelrt.tensor.nodes.arguments import axis_of, integer, real, tensor_of
from kernelrt.tensor.nodes.reductions import (
    cumulative_extremes,
    cumulative_log_sum,
    cumulative_product,
)
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.methods.statistics import StatisticsMethods as _Below
    from kernelrt.tensor.tensor import Tensor
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["RunningMethods", "cumulative_trapezoid", "trapezoid"]


@operations()
class RunningMethods(_Below):
    """Cumulative reductions. Each element costs a fixed number of steps."""

    __slots__ = ()

    def cumprod(self, dim: int, dtype: object = None) -> Self:
        """Return the cumulative product along `dim`; integers multiply in int64.

        Elements are multiplied one after the other; float32 numbers are multiplied in float64. The
        gradient takes as many steps. It is also correct where elements are 0, and can be
        differentiated any number of times.

        Parameters
        ----------
        dim : int
            Axis to multiply along.
        dtype : DType or str, optional
            Dtype to cast to first.

        Returns
        -------
        Tensor
            Same shape, in `dtype` if it is given. Otherwise same dtype; integers and bools give
            int64.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0, 3.0, 4.0]).cumprod(0).tolist()
        [1.0, 2.0, 6.0, 24.0]
        """
        node = self._summand(dtype)
        axis = axis_of(dim, self.ndim)
        if self.ndim == 0:
            return self._of(node)
        kind = node.dtype.accumulator if node.dtype.is_float else dt.int64
        return self._of(cumulative_product(node.cast(kind), axis).cast(node.dtype))

    def cummax(self, dim: int) -> Extremum[Self]:
        """Return the cumulative maximum along `dim` and its positions.

        NaN is greater than every number. Among equal elements the position is that of the last one,
        which gets the gradient.

        Parameters
        ----------
        dim : int
            Axis to go along.

        Returns
        -------
        Extremum
            ``values``, of this shape and dtype, and ``indices`` in int64.

        Examples
        --------
        >>> values, indices = krt.tensor([1.0, 3.0, 2.0]).cummax(0)
        >>> values.tolist(), indices.tolist()
        ([1.0, 3.0, 3.0], [0, 1, 1])
        """
        return self._running_extremum(dim, Op.MAX)

    def cummin(self, dim: int) -> Extremum[Self]:
        """Return the cumulative minimum along `dim` and its positions; see :meth:`cummax`.

        NaN is less than every number.

        Parameters
        ----------
        dim : int
            Axis to go along.

        Returns
        -------
        Extremum
            ``values``, of this shape and dtype, and ``indices`` in int64.

        Examples
        --------
        >>> values, indices = krt.tensor([3.0, 1.0, 2.0]).cummin(0)
        >>> values.tolist(), indices.tolist()
        ([3.0, 1.0, 1.0], [0, 1, 1])
        """
        return self._running_extremum(dim, Op.MIN)

    def _running_extremum(self, dim: int, op: Op) -> Extremum[Self]:
        node = self.uop
        axis = axis_of(dim, self.ndim)
        if self.ndim == 0:
            return Extremum(self, self._of(build.full(0, dt.int64, ())))
        wide = node.cast(node.dtype.accumulator) if node.dtype.is_float else node
        values, places = cumulative_extremes(wide, op, axis)
        return Extremum(self._of(values.cast(node.dtype)), self._of(places))

    def logcumsumexp(self, dim: int) -> Self:
        """Return ``self.exp().cumsum(dim).log()``, computed without overflow.

        Parameters
        ----------
        dim : int
            Axis to go along.

        Returns
        -------
        Tensor of floats
            Same shape and dtype; integers and bools raise DTypeError.

        Examples
        --------
        >>> x = krt.tensor([1000.0, 1000.0], dtype="float64")
        >>> x.logcumsumexp(0).round(decimals=4).tolist()
        [1000.0, 1000.6931]
        """
        node = self._wide("logcumsumexp")
        axis = axis_of(dim, self.ndim)
        out = cumulative_log_sum(node, axis) if self.ndim else node
        return self._of(out.cast(self.dtype))

    def diff(
        self, n: int = 1, dim: int = -1, prepend: TensorBase | None = None,
        append: TensorBase | None = None,
    ) -> Self:  # fmt: skip
        """Return `n`-th differences of neighbors along `dim`; a difference of bools is their XOR.

        Parameters
        ----------
        n : int, default 1
            Number of times to take differences; 0 returns the elements.
        dim : int, default -1
            Axis of the differences.
        prepend, append : Tensor, optional
            Elements to put before and after this tensor along `dim` first.

        Returns
        -------
        Tensor
            Same dtype; unsigned integers wrap. The size of axis `dim` decreases by `n`, down to 0.

        Raises
        ------
        ShapeError
            This tensor is a scalar, `n` is negative, or `prepend` or `append` has another number of
            axes.

        Examples
        --------
        >>> krt.tensor([1, 4, 9, 16]).diff().tolist()
        [3, 5, 7]
        >>> krt.tensor([1, 4, 9, 16]).diff(2).tolist()
        [2, 2]
        """
        times = integer(n, "n", least=0)
        if self.ndim == 0:
            raise ShapeError("diff: expected at least 1 axis, not a scalar")
        axis = axis_of(dim, self.ndim)
        out = self._framed(prepend, append, axis) if times else self
        for _ in range(times):
            node = out.uop
            size = out.dims[axis]
            if dim_span(size)[0] == 0 and out._static_size(axis, "diff") == 0:
                break
            ends = [(0, d) for d in node.shape]
            ends[axis] = (1, size)
            later = build.shrink(node, ends)
            ends[axis] = (0, build.difference(size, 1))
            earlier = build.shrink(node, ends)
            if node.dtype.is_bool:
                out = self._of(later.alu(Op.XOR, earlier))
            else:
                out = self._of(composite_ops.difference(later, earlier))
        return views.unshared(out, self)

    def _framed(
        self, prepend: TensorBase | None, append: TensorBase | None, axis: int
    ) -> Self:
        """Return this tensor with `prepend` before it and `append` after it along `axis`."""
        parts = [self]
        for name, value in (("prepend", prepend), ("append", append)):
            if value is None:
                continue
            part = self._lift(value, name)
            if part.ndim != self.ndim:
                raise ShapeError(
                    f"{name}: expected {self.ndim} axes, not the shape {format_shape(part.dims)}"
                )
            parts = [part, *parts] if name == "prepend" else [*parts, part]
        return cast("Self", joining.cat(parts, axis))


def trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1
) -> Tensor:
    """Integrate `y` along `dim` by the trapezoidal rule.

    Parameters
    ----------
    y : Tensor
        Values of the integrand.
    x : Tensor, optional
        Sample points: a vector as long as axis `dim`, or a tensor whose intervals broadcast with
        `y`.
    dx : float, optional
        Distance between the sample points if `x` is not given; 1 by default.
    dim : int, default -1
        Axis to integrate along.

    Returns
    -------
    Tensor
        Shape of `y` without axis `dim`, in the dtype of `y`; integers give float32.

    Raises
    ------
    ShapeError
        `y` is a scalar, or the vector `x` has another length than axis `dim`.
    DTypeError
        Both `x` and `dx` are given.

    Examples
    --------
    >>> y = krt.tensor([1.0, 2.0, 3.0])
    >>> krt.trapezoid(y).item(), krt.trapezoid(y, krt.tensor([0.0, 1.0, 3.0])).item()
    (4.0, 6.5)
    """
    return _panels(y, x, dx, dim, "trapezoid").sum(dim)


#: PyTorch's other name of it.
trapz = trapezoid


def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1
) -> Tensor:
    """Return the integral of `y` up to each interval along `dim`; see :func:`trapezoid`.

    Parameters
    ----------
    y, x, dx, dim
        As in :func:`trapezoid`.

    Returns
    -------
    Tensor
        Shape of `y`, with axis `dim` shorter by 1, in the dtype of `y`; integers give float32.

    Raises
    ------
    ShapeError, DTypeError
        As in :func:`trapezoid`.

    Examples
    --------
    >>> krt.cumulative_trapezoid(krt.tensor([1.0, 2.0, 3.0])).tolist()
    [1.5, 4.0]
    """
    return _panels(y, x, dx, dim, "cumulative_trapezoid").cumsum(dim)


def _panels(y: Tensor, x: Tensor | None, dx: float | None, dim: int, name: str) -> Tensor:
    tensor_of(y, f"{name}: y")
    if y.ndim == 0:
        raise ShapeError(f"{name}: y: expected at least 1 axis, not a scalar")
    if x is not None and dx is not None:
        raise DTypeError(f"{name}: x, dx: expected at most one of the two; leave one out")
    axis = axis_of(dim, y.ndim)
    size = y.dims[axis]
    heights = y
    if dim_span(size)[0] > 0 or y._static_size(axis, name) > 0:
        gaps = build.difference(size, 1)
        heights = y._of(y._part_node(axis, 1, size)) + y._of(y._part_node(axis, 0, gaps))
    if x is None:
        return heights * (0.5 * (1.0 if dx is None else real(dx, "dx")))
    places = y._lift(x, "x")
    if places.ndim == 1:
        if not same(places.dims[0], size):
            raise ShapeError(
                f"{name}: x: expected {format_size(size)} sample points, the size of axis {axis} "
                f"of y, not {format_size(places.dims[0])}"
            )
        places = places.reshape(*(size if a == axis else 1 for a in range(y.ndim)))
        return heights * places.diff(dim=axis) / 2
    return heights * places.diff(dim=dim) / 2

"""Reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Self, TypeAlias, TypeVar, overload

from kernelrt import dtype as dt
from kernelrt.device import spec
from kernelrt.errors import DTypeError, ShapeError, VariableError
from kernelrt.ir import Op, UOp
from kernelrt.ir.ops import ELEMENTWISE, MOVEMENT
from kernelrt.ir.shape import dim_max, dim_span, format_shape, is_static, same
from kernelrt.tensor import state
from kernelrt.tensor.autograd.tags import custom, detach
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import axes_of, axis_of, flag, real, whole
from kernelrt.tensor.nodes.reductions import (
    cumulative_sum,
    float_count,
    guarded_root_rule,
    kept,
    log_softmax_rule,
    log_total,
    mean_of,
    norm,
    norm_rule,
    softmax_rule,
    var_rule,
)
from kernelrt.tensor.operation import operations
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.tensor.methods.movement import MovementMethods as _Below
    from kernelrt.tensor.nodes import vector_norms
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object
    vector_norms = Module("kernelrt.tensor.nodes.vector_norms")

__all__ = ["Dims", "Extremum", "ReductionMethods"]

Dims: TypeAlias = int | Sequence[int] | None
_T = TypeVar("_T")


class Extremum(NamedTuple, Generic[_T]):
    """Result of ``x.max(dim)`` and ``x.min(dim)``: the elements and their positions.

    Examples
    --------
    >>> values, indices = krt.tensor([[1.0, 5.0], [7.0, 2.0]]).max(1)
    >>> values.tolist(), indices.tolist()
    ([5.0, 7.0], [1, 0])
    """

    values: _T
    indices: _T


@operations()
class ReductionMethods(_Below):
    """Sums, extrema, statistics and softmax."""

    __slots__ = ()

    def _reduce(self, node: UOp, op: Op, dim: Dims, keepdim: bool) -> Self:
        axes = axes_of(dim, len(node.shape))
        out = build.reduce(node, op, axes)
        wide = build.reshape(out, build.keep_axes(node.shape, axes)) if keepdim else out
        return self._of(wide)  # a new tensor even if each sum has one element

    def _summand(self, dtype: object) -> UOp:
        """Return the elements in the dtype of a sum: `dtype`, or int64 for bools and integers."""
        node = self.uop
        if dtype is not None:
            return node.cast(dt.parse(dtype))
        return node if node.dtype.is_float else node.cast(dt.int64)

    def sum(self, dim: Dims = None, keepdim: bool = False, *, dtype: object = None) -> Self:
        """Return the sum over `dim`, or over all axes.

        Parameters
        ----------
        dim : int or sequence of int, optional
            Axes to reduce; all by default. An empty tuple reduces none.
        keepdim : bool
            Whether to keep the reduced axes with size 1.
        dtype : DType, optional
            Dtype to convert the elements to first.

        Returns
        -------
        Tensor
            Tensor of the remaining axes, in this dtype; integers and bools give int64. The sum of
            no elements is 0.

        Examples
        --------
        >>> x = krt.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> x.sum().item(), x.sum(0).tolist(), x.sum(1, keepdim=True).tolist()
        (10.0, [4.0, 6.0], [[3.0], [7.0]])
        """
        return self._reduce(self._summand(dtype), Op.ADD, dim, keepdim)

    def prod(self, dim: Dims = None, keepdim: bool = False, *, dtype: object = None) -> Self:
        """Return the product over `dim`, or over all axes.

        The gradient is the product of the other elements, also where some are 0 or infinite. It is
        differentiable any number of times.

        Parameters
        ----------
        dim : int or sequence of int, optional
            Axes to reduce; all by default. An empty tuple reduces none.
        keepdim : bool
            Whether to keep the reduced axes with size 1.
        dtype : DType, optional
            Dtype to convert the elements to first.

        Returns
        -------
        Tensor
            Tensor of the remaining axes, in this dtype; integers and bools give int64. The product
            of no elements is 1.

        Examples
        --------
        >>> krt.tensor([[1.0, 2.0], [3.0, 4.0]]).prod(1).tolist()
        [2.0, 12.0]
        """
        return self._reduce(self._summand(dtype), Op.MUL, dim, keepdim)

    def mean(self, dim: Dims = None, keepdim: bool = False, *, dtype: object = None) -> Self:
        """Return the mean over `dim`, or over all axes.

        Parameters
        ----------
        dim : int or sequence of int, optional
            Axes to reduce; all by default. An empty tuple reduces none.
        keepdim : bool
            Whether to keep the reduced axes with size 1.
        dtype : DType, optional
            Dtype to convert the elements to first, such as ``krt.float32`` for a tensor of
            integers.

        Returns
        -------
        Tensor
            Tensor of the remaining axes, in this dtype. The mean of no elements is NaN.

        Raises
        ------
        DTypeError
            The elements are not floats.

        Examples
        --------
        >>> krt.tensor([[1.0, 2.0], [3.0, 4.0]]).mean(0).tolist()
        [2.0, 3.0]
        >>> krt.tensor([1, 2]).mean(dtype=krt.float32).item()
        1.5
        """
        node = self.uop if dtype is None else self.uop.cast(dt.parse(dtype))
        if not node.dtype.is_float:
            raise DTypeError(
                f"mean: expected a floating type, not {node.dtype.name}; cast the tensor first, "
                "as in x.float()"
            )
        axes = axes_of(dim, self.ndim)
        out = mean_of(node.cast(node.dtype.accumulator), axes).cast(node.dtype)
        return self._of(out if keepdim else _drop(out, axes))

    def var(
        self, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *,
        correction: float | None = None,
    ) -> Self:  # fmt: skip
        """Return the variance over `dim`: sum of squared deviations / (count - `correction`).

        If the divisor would be 0 or negative, the variance is infinite, or NaN where all deviations
        are 0.

        Parameters
        ----------
        dim : int or sequence of int, optional
            Axes to reduce; all by default. An empty tuple reduces none. As in PyTorch,
            ``x.var(False)`` sets `unbiased`.
        unbiased : bool, optional
            PyTorch's older form of `correction`: True means 1, False means 0.
        keepdim : bool
            Whether to keep the reduced axes with size 1.
        correction : float, optional
            Number subtracted from the count of elements; 1 by default.

        Returns
        -------
        Tensor
            Tensor of the remaining axes, in this dtype.

        Raises
        ------
        DTypeError
            The elements are not floats, or both `unbiased` and `correction` are given.

        Notes
        -----
        The mean is subtracted first, and its rounding error is corrected (Chan, Golub and LeVeque,
        Algorithms for computing the sample variance, The American Statistician 37, 1983).

        Examples
        --------
        >>> x = krt.tensor([1.0, 2.0, 3.0])
        >>> x.var().item(), x.var(correction=0).item()
        (1.0, 0.666...)
        """
        dim, unbiased = _spread_over(dim, unbiased)
        out = self._variance(dim, _correction(correction, unbiased), "var")
        return self._kept_or_dropped(out, dim, keepdim)

    def _variance(self, dim: Dims, correction: float, name: str) -> UOp:
        """Return the variance in the accumulation dtype; reduced axes keep size 1."""
        x = self._wide(name)
        axes = axes_of(dim, self.ndim)
        correction = real(correction, "correction")
        count = float_count(x, axes, correction)
        mean = mean_of(x, axes)
        deviation = x.alu(Op.SUB, build.expand(mean, x.shape))
        squares = kept(deviation.alu(Op.MUL, deviation), Op.ADD, axes)
        # Far from 0 the rounding error of the mean can exceed all deviations. The sum of the
        # deviations, which should be 0, gives that error. Chan, Golub and LeVeque, The American
        # Statistician 37, 1983.
        rest = kept(deviation, Op.ADD, axes)
        # Where the squares overflow, the correction may be infinite as well.
        over = squares.eq(build.full(math.inf, x.dtype, squares.shape))
        rest = build.where(over, 0, rest)
        size = build.broadcast_to(float_count(x, axes), rest.shape)
        shift = detach(rest.alu(Op.DIV, size))
        squares = squares.alu(Op.SUB, rest.alu(Op.MUL, shift)).alu(Op.MAX, build.zeros_like(rest))
        out = squares.alu(Op.DIV, build.broadcast_to(count, rest.shape))
        # As in PyTorch the derivative along named axes also divides by a negative count. So the
        # derivative of a standard deviation, which is infinite there, is 0.
        named = dim is not None and self.ndim > 0
        divisor = build.sub(float_count(x, axes), correction) if named else count
        return custom(out, var_rule, x, parts=(mean, shift, divisor))

    def _wide(self, name: str) -> UOp:
        """Return the elements, which must be floats, in the accumulation dtype."""
        x = self._floats(name)
        return x.cast(x.dtype.accumulator)

    def _kept_or_dropped(self, out: UOp, dim: Dims, keepdim: bool) -> Self:
        """Cast a reduction to this tensor's dtype, and drop its axes of size 1 unless `keepdim`."""
        out = out.cast(self.dtype)
        return self._of(out if keepdim else _drop(out, axes_of(dim, self.ndim)))

    def std(
        self, dim: Dims = None, unbiased: bool | None = None, keepdim: bool = False, *,
        correction: float | None = None,
    ) -> Self:  # fmt: skip
        """Return the standard deviation over `dim`: the square root of :meth:`var`.

        If all elements are equal, the derivative does not exist, and the gradient is 0.

        Parameters
        ----------
        dim : int or sequence of int, optional
            Axes to reduce; all by default. An empty tuple reduces none. As in PyTorch,
            ``x.std(False)`` sets `unbiased`.
        unbiased : bool, optional
            PyTorch's older form of `correction`: True means 1, False means 0.
        keepdim : bool
            Whether to keep the reduced axes with size 1.
        correction : float, optional
            Number subtracted from the count of elements; 1 by default.

        Returns
        -------
        Tensor
            Tensor of the remaining axes, in this dtype.

        Raises
        ------
        DTypeError
            The elements are not floats, or both `unbiased` and `correction` are given.

        Examples
        --------
        >>> krt.tensor([[1.0, 2.0, 3.0], [0.0, 4.0, 8.0]]).std(1).tolist()
        [1.0, 4.0]
        """
        dim, unbiased = _spread_over(dim, unbiased)
        variance = self._variance(dim, _correction(correction, unbiased), "std")
        root = custom(variance.alu(Op.SQRT), guarded_root_rule, variance)
        return self._kept_or_dropped(root, dim, keepdim)

    # ---- extrema

    def amax(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """Return the greatest element over `dim`; NaN if an element is NaN.

        The gradient is shared equally among equal greatest elements, or among the NaNs.

        Parameters
        ----------
        dim : int or sequence of int, optional
            Axes to reduce; all by default. An empty tuple reduces none.
        keepdim : bool
            Whether to keep the reduced axes with size 1.

        Returns
        -------
        Tensor
            Tensor of the remaining axes, in this dtype.

        Raises
        ------
        ShapeError
            A reduced axis is empty.
        VariableError
            A reduced axis has a dynamic size that may be 0.

        Examples
        --------
        >>> x = krt.tensor([[1.0, 5.0], [7.0, 2.0]])
        >>> x.amax().item(), x.amax(1).tolist()
        (7.0, [5.0, 7.0])
        """
        self._check_filled("amax", dim)
        return self._reduce(self.uop, Op.MAX, dim, keepdim)

    def amin(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """Return the least element over `dim`; NaN if an element is NaN.

        The gradient is shared equally among equal least elements, or among the NaNs.

        Parameters
        ----------
        dim : int or sequence of int, optional
            Axes to reduce; all by default. An empty tuple reduces none.
        keepdim : bool
            Whether to keep the reduced axes with size 1.

        Returns
        -------
        Tensor
            Tensor of the remaining axes, in this dtype.

        Raises
        ------
        ShapeError
            A reduced axis is empty.
        VariableError
            A reduced axis has a dynamic size that may be 0.

        Examples
        --------
        >>> krt.tensor([[1.0, 5.0], [7.0, 2.0]]).amin(1).tolist()
        [1.0, 2.0]
        """
        self._check_filled("amin", dim)
        return self._reduce(self.uop, Op.MIN, dim, keepdim)

    @overload
    def max(self, dim: None = None, keepdim: bool = False) -> Self: ...
    @overload
    def max(self, dim: int, keepdim: bool = False) -> Extremum[Self]: ...
    @overload
    def max(self, dim: TensorBase, keepdim: bool = False) -> Self: ...
    def max(
        self, dim: int | TensorBase | None = None, keepdim: bool = False
    ) -> Self | Extremum[Self]:
        """Return the greatest element, or (values, indices) along `dim`.

        NaN counts as the greatest element. Along `dim` the gradient goes to the element at the
        index. Without `dim` it is shared equally among equal greatest elements.

        Parameters
        ----------
        dim : int or Tensor, optional
            Axis to reduce; all by default. With a second tensor this is :meth:`maximum`.
        keepdim : bool
            Whether to keep the axis `dim` with size 1.

        Returns
        -------
        Tensor or Extremum
            Tensor of shape () without `dim`. With an axis, an :class:`Extremum`: ``values`` in this
            dtype, and the int64 ``indices`` of the first greatest elements.

        Raises
        ------
        DTypeError
            `dim` is a sequence; use :meth:`amax`.
        ShapeError
            A reduced axis is empty.

        Examples
        --------
        >>> x = krt.tensor([[1.0, 5.0], [7.0, 2.0]])
        >>> x.max().item()
        7.0
        >>> values, indices = x.max(1)
        >>> values.tolist(), indices.tolist()
        ([5.0, 7.0], [1, 0])
        """
        if dim is None:
            return self.amax()
        if isinstance(dim, TensorBase):
            return self.maximum(dim)
        self._check_one("max", dim)
        self._check_filled("max", dim)
        return self._extremum(Op.MAX, dim, keepdim)

    @overload
    def min(self, dim: None = None, keepdim: bool = False) -> Self: ...
    @overload
    def min(self, dim: int, keepdim: bool = False) -> Extremum[Self]: ...
    @overload
    def min(self, dim: TensorBase, keepdim: bool = False) -> Self: ...
    def min(
        self, dim: int | TensorBase | None = None, keepdim: bool = False
    ) -> Self | Extremum[Self]:
        """Return the least element, or (values, indices) along `dim`.

        NaN counts as the least element. The gradient is that of :meth:`max`.

        Parameters
        ----------
        dim : int or Tensor, optional
            Axis to reduce; all by default. With a second tensor this is :meth:`minimum`.
        keepdim : bool
            Whether to keep the axis `dim` with size 1.

        Returns
        -------
        Tensor or Extremum
            Tensor of shape () without `dim`. With an axis, an :class:`Extremum`: ``values`` in this
            dtype, and the int64 ``indices`` of the first least elements.

        Raises
        ------
        DTypeError
            `dim` is a sequence; use :meth:`amin`.
        ShapeError
            A reduced axis is empty.

        Examples
        --------
        >>> values, indices = krt.tensor([[1.0, 5.0], [7.0, 2.0]]).min(1)
        >>> values.tolist(), indices.tolist()
        ([1.0, 2.0], [0, 1])
        """
        if dim is None:
            return self.amin()
        if isinstance(dim, TensorBase):
            return self.minimum(dim)
        self._check_one("min", dim)
        self._check_filled("min", dim)
        return self._extremum(Op.MIN, dim, keepdim)

    def _extremum(self, op: Op, dim: int, keepdim: bool) -> Extremum[Self]:
        indices = self._position(op, dim, keepdim, with_value=True)
        if self.ndim == 0:
            return Extremum(self._reduce(self.uop, op, dim, keepdim), indices)
        node, axis = self.uop, axis_of(dim, self.ndim)
        shape = build.keep_axes(node.shape, (axis,))
        out = build.reduce(node, op, (axis,))
        place = build.expand(build.reshape(indices.uop, shape), node.shape)
        out = custom(build.reshape(out, shape), _chosen_rule, node, parts=(place,), arg=axis)
        return Extremum(self._of(out if keepdim else build.reshape(out, indices.dims)), indices)

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Self:
        """Return the position of the first maximum (or NaN), along `dim` or in the flat tensor.

        Parameters
        ----------
        dim : int, optional
            Axis to search. By default the position is that in the flat tensor.
        keepdim : bool
            Whether to keep the reduced axes with size 1.

        Returns
        -------
        Tensor
            Tensor of int64.

        Raises
        ------
        ShapeError
            A searched axis is empty.

        Examples
        --------
        >>> x = krt.tensor([[1.0, 5.0], [7.0, 2.0]])
        >>> x.argmax().item(), x.argmax(1).tolist()
        (2, [1, 0])
        """
        return self._position(Op.MAX, dim, keepdim)

    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Self:
        """Return the position of the first minimum (or NaN), along `dim` or in the flat tensor.

        Parameters
        ----------
        dim : int, optional
            Axis to search. By default the position is that in the flat tensor.
        keepdim : bool
            Whether to keep the reduced axes with size 1.

        Returns
        -------
        Tensor
            Tensor of int64.

        Raises
        ------
        ShapeError
            A searched axis is empty.

        Examples
        --------
        >>> x = krt.tensor([[1.0, 5.0], [7.0, 0.0]])
        >>> x.argmin().item(), x.argmin(1).tolist()
        (3, [0, 1])
        """
        return self._position(Op.MIN, dim, keepdim)

    def _position(
        self, op: Op, dim: int | None, keepdim: bool, *, with_value: bool = False
    ) -> Self:
        """Return the position of the greatest or least element.

        With `with_value`, it is computed together with the element itself.
        """
        name = "argmax" if op is Op.MAX else "argmin"
        if dim is not None:
            self._check_one(name, dim)
        self._check_filled(name, dim)
        source = self.reshape(-1) if dim is None or self.ndim == 0 else self
        axis = 0 if dim is None else axis_of(dim, self.ndim)
        node = detach(source.uop)
        kept = dim is not None and keepdim
        block = 0 if with_value else _block(node, axis)
        fits = dim_span(node.shape[axis])[1] <= _PLACES and not with_value
        rank = _rank(node, op) if fits and not block else None
        if block:
            out = self._of(_place_by_blocks(node, op, block))
            out = out.unsqueeze(-1) if kept else out
        elif rank is None:
            places = source._reduce(_places_of_best(node, op, axis), Op.MIN, axis, kept)
            out = self._of(places.uop.cast(dt.int64))
        else:
            # A key of rank and position orders by greatest rank, then by least position, so one
            # reduction finds both.
            place = build.iota_along(node.shape, axis)
            later = build.sub(_like(place, _PLACES - 1), place)
            key = rank.alu(Op.SHL, _like(rank, 32)).alu(Op.OR, later)
            best = source._reduce(key, Op.MAX, axis, kept)
            out = self._of(best.uop.alu(Op.NOT).alu(Op.AND, _like(best.uop, _PLACES - 1)))
        if self.ndim == 0:
            return out.reshape(())
        return out.reshape((1,) * self.ndim) if dim is None and keepdim else out

    def _check_one(self, name: str, dim: object) -> None:
        if whole(dim) is None:
            raise DTypeError(
                f"{name}: dim: expected one axis, an int, not {type(dim).__name__}; use "
                f"a{name[-3:]} for several axes, or {name[-3:]}imum for two tensors"
            )

    def _check_filled(self, name: str, dim: Dims) -> None:
        for axis in axes_of(dim, self.ndim):
            least, most = dim_span(self.dims[axis])
            if most <= 0:
                raise ShapeError(
                    f"{name}: axis {axis} of {format_shape(self.dims)} is empty; expected at "
                    "least 1 element"
                )
            if least <= 0:
                raise VariableError(
                    f"{name}: axis {axis} of {format_shape(self.dims)} may be empty; give its "
                    "Variable a lower bound of at least 1"
                )

    def any(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """Return whether at least one element over `dim` is nonzero.

        Parameters
        ----------
        dim : int or sequence of int, optional
            Axes to reduce; all by default. An empty tuple reduces none.
        keepdim : bool
            Whether to keep the reduced axes with size 1.

        Returns
        -------
        Tensor
            Tensor of bools, or of uint8 for a uint8 tensor. The result for no elements is False.
            NaN counts as nonzero.

        Examples
        --------
        >>> krt.tensor([[0, 0], [0, 2]]).any(1).tolist()
        [False, True]
        """
        return self._reduced_truth(Op.MAX, dim, keepdim)

    def all(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """Return whether every element over `dim` is nonzero.

        Parameters
        ----------
        dim : int or sequence of int, optional
            Axes to reduce; all by default. An empty tuple reduces none.
        keepdim : bool
            Whether to keep the reduced axes with size 1.

        Returns
        -------
        Tensor
            Tensor of bools, or of uint8 for a uint8 tensor. The result for no elements is True. NaN
            counts as nonzero.

        Examples
        --------
        >>> krt.tensor([[1, 0], [1, 2]]).all(1).tolist()
        [False, True]
        """
        return self._reduced_truth(Op.MIN, dim, keepdim)

    def _reduced_truth(self, op: Op, dim: Dims, keepdim: bool) -> Self:
        # The reduction is one of bools: the minimum of no bytes would be 255.
        found = self._reduce(self.cast(dt.bool_).uop, op, dim, keepdim)
        return found.cast(dt.uint8) if self.dtype is dt.uint8 else found

    def count_nonzero(self, dim: Dims = None) -> Self:
        """Return the number of nonzero elements over `dim`.

        Parameters
        ----------
        dim : int or sequence of int, optional
            Axes to reduce; all by default. An empty tuple reduces none.

        Returns
        -------
        Tensor
            int64; the shape lacks the axes in `dim`. NaN counts as nonzero.

        Examples
        --------
        >>> krt.tensor([[1, 0], [1, 2]]).count_nonzero(1).tolist()
        [1, 2]
        """
        return self.cast(dt.bool_).sum(dim)

    def norm(
        self, p: float | str | None = "fro", dim: Dims = None, keepdim: bool = False, *,
        dtype: object = None,
    ) -> Self:  # fmt: skip
        """Return the `p`-norm over `dim`: the `p`-th root of the sum of ``abs(x) ** p``.

        The norms of order infinity and minus infinity are the greatest and the least magnitude. The
        0-norm counts the nonzero elements. Where the derivative does not exist, as at 0, the
        gradient is 0.

        Parameters
        ----------
        p : float, "fro" or "nuc"
            Order of the norm. "fro" is 2; "nuc" is the sum of the singular values of matrices over
            two axes.
        dim : int or sequence of int, optional
            Axes to reduce; all by default. An empty tuple reduces none.
        keepdim : bool
            Whether to keep the axes with size 1.
        dtype : DType, optional
            Dtype to convert to first.

        Returns
        -------
        Tensor
            Tensor of the remaining axes, in this dtype.

        Raises
        ------
        DTypeError
            The elements are not floats.
        ShapeError
            "nuc" is not over two axes; or `p` is negative or infinite and a reduced axis is empty.

        Examples
        --------
        >>> x = krt.tensor([3.0, -4.0])
        >>> x.norm().item(), x.norm(1).item(), x.norm(krt.inf).item()
        (5.0, 7.0, 4.0)
        """
        source = self if dtype is None else self.cast(dtype)
        if p == "nuc":
            return source._nuclear(dim, keepdim)
        p = 2.0 if p in ("fro", None) else real(p, "p")
        if p in (math.inf, -math.inf):
            sizes = self._of(source._floats("norm")).abs()
            return (sizes.amax if p > 0 else sizes.amin)(dim, keepdim)
        if p < 0:
            source._check_filled("norm", dim)
        x = source._wide("norm")
        axes = axes_of(dim, self.ndim)
        # A single element needs no power, which could overflow or underflow.
        alone = p != 0 and same(build.volume(x.shape, axes), 1)
        out = custom(norm(x, 1 if alone else p, axes), norm_rule, x, arg=(p, alone))
        return source._kept_or_dropped(out, dim, keepdim)

    def _nuclear(self, dim: Dims, keepdim: bool) -> Self:
        axes = axes_of(dim, self.ndim)
        if len(axes) != 2:
            raise ShapeError(f"norm: 'nuc' needs two axes, not {len(axes)}; pass two as dim")

        out = vector_norms.singular_values(self, axes).sum(-1)
        return out.reshape(build.keep_axes(self.dims, axes)) if keepdim else out

    # ---- softmax

    def logsumexp(self, dim: Dims, keepdim: bool = False) -> Self:
        """Return ``log(sum(exp(self)))`` over `dim`, without overflow.

        Parameters
        ----------
        dim : int or sequence of int
            Axes to reduce.
        keepdim : bool
            Whether to keep the reduced axes with size 1.

        Returns
        -------
        Tensor
            Tensor of the remaining axes, in this dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([1000.0, 1000.0]).logsumexp(0).item()  # 1000 + log(2)
        1000.693...
        """
        source = self._of(self._as_float())
        x = source._wide("logsumexp")
        top, rest = log_total(x, axes_of(dim, self.ndim), guard=True)
        return source._kept_or_dropped(rest.alu(Op.ADD, top), dim, keepdim)

    def softmax(self, dim: int = -1, dtype: object = None) -> Self:
        """Return ``exp(self)`` divided by its sum along `dim`, computed without overflow.

        Parameters
        ----------
        dim : int
            Axis along which the results add up to 1.
        dtype : DType, optional
            Dtype to convert the elements to first.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype. It is NaN where all elements along `dim` are -inf.

        Raises
        ------
        DTypeError
            The elements are not floats.

        Examples
        --------
        >>> krt.tensor([[0.0, 0.0], [1000.0, -1000.0]]).softmax(-1).tolist()
        [[0.5, 0.5], [1.0, 0.0]]
        """
        x, axes, kind = self._softmax_input(dim, dtype, "softmax")
        top = kept(detach(x), Op.MAX, axes)
        powers = x.alu(Op.SUB, build.expand(top, x.shape)).alu(Op.EXP)
        total = build.expand(kept(powers, Op.ADD, axes), x.shape)
        return self._of(custom(powers.alu(Op.DIV, total), softmax_rule, x, arg=axes).cast(kind))

    def log_softmax(self, dim: int = -1, dtype: object = None) -> Self:
        """Return the logarithm of :meth:`softmax`, computed without overflow.

        Parameters
        ----------
        dim : int
            Axis along which the exponentials of the results add up to 1.
        dtype : DType, optional
            Dtype to convert the elements to first.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype.

        Raises
        ------
        DTypeError
            The elements are not floats.

        Examples
        --------
        >>> krt.tensor([1000.0, 0.0]).log_softmax().tolist()
        [0.0, -1000.0]
        """
        x, axes, kind = self._softmax_input(dim, dtype, "log_softmax")
        top, rest = log_total(x, axes)
        below = x.alu(Op.SUB, build.expand(top, x.shape))
        out = below.alu(Op.SUB, build.expand(rest, x.shape))
        return self._of(custom(out, log_softmax_rule, x, arg=axes).cast(kind))

    def _softmax_input(
        self, dim: int, dtype: object, name: str
    ) -> tuple[UOp, tuple[int, ...], DType]:
        x = self if dtype is None else self.cast(dtype)
        return x._wide(name), axes_of(axis_of(dim, self.ndim), self.ndim), x.dtype

    # ---- cumulative sums

    def cumsum(self, dim: int, dtype: object = None) -> Self:
        """Return the cumulative sum along `dim`.

        More than 8 floats are accumulated in float64, with an error that does not grow with their
        number. If no element is negative, the sums never decrease.

        Parameters
        ----------
        dim : int
            Axis to sum along.
        dtype : DType, optional
            Dtype to convert the elements to first.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype; integers and bools give int64.

        Examples
        --------
        >>> krt.tensor([[1, 2, 3], [4, 5, 6]]).cumsum(1).tolist()
        [[1, 3, 6], [4, 9, 15]]
        """
        node = self._summand(dtype)
        axis = axis_of(dim, self.ndim)
        if self.ndim == 0:
            return self._of(node)
        source = node.cast(node.dtype.accumulator)
        while source.dtype is dt.int64 and source.op is Op.CAST and _is_whole(source.src[0]):
            source = source.src[0]  # the routine reads narrow integers, too
        return self._of(cumulative_sum(source, axis).cast(node.dtype))


#: Number of positions along an axis that fit into 64 bits together with a 32-bit rank.
_PLACES: Final = 1 << 32
_MOST: Final = int(dt.int32.max)
#: Minimum numbers of elements for which positions are searched by blocks: along the axis, and of
#: the tensor in traced and in eager code. Eager code takes 40 us to build the larger graph, each
#: time.
_LEAST_SEARCHED: Final = 128
_LEAST_TRACED: Final = 1 << 12
_LEAST_EAGER: Final = 1 << 20
#: Bytes of a tensor from which on the target decides whether rows are searched by blocks.
_LEAST_STREAMED: Final = 1 << 22
#: Operations whose results lie in memory as their first operands do.
_FOLLOWED: Final = ELEMENTWISE | MOVEMENT | {Op.DETACH}
#: Limits of a block of a row, in bytes and in elements; bytes of a block if there is only one row.
#: 256 bytes are faster than 64, 128 and 512 for float32 and float64 from 1024 columns on, and 128
#: elements are faster than 64 and 256 for uint8 (Zen 4, AVX2 and AVX-512).
_BLOCK_BYTES: Final = 256
_BLOCK_ELEMENTS: Final = 128
_WHOLE_BLOCK_BYTES: Final = 4096


def _is_whole(x: UOp) -> bool:
    return x.dtype.is_int or x.dtype.is_bool


def _like(x: UOp, number: int) -> UOp:
    return build.full(number, x.dtype, x.shape)


def _rank(x: UOp, op: Op) -> UOp | None:
    """Return int64 ranks of the elements; the extremum (MAX or MIN) has the greatest rank.

    NaN ranks highest. Each rank fits in 32 bits. Return None for dtypes with more than 2**32
    values.
    """
    if x.dtype.is_float and x.dtype.itemsize <= 4:
        # The bits of a float, flipped so that they order by value; -0.0 becomes 0.0.
        x = x.cast(dt.float32)
        bits = UOp(Op.BITCAST, dt.int32, (x.alu(Op.ADD, build.zeros_like(x)),))
        below = bits.alu(Op.SHR, _like(bits, 31)).alu(Op.AND, _like(bits, _MOST))
        rank = bits.alu(Op.XOR, below)
        rank = rank if op is Op.MAX else rank.alu(Op.NOT)
        return build.where(x.ne(x), _MOST, rank).cast(dt.int64)
    if x.dtype.bits < 32 or x.dtype is dt.int32:
        rank = x.cast(dt.int64)
        return rank if op is Op.MAX else rank.alu(Op.NOT)
    return None


def _places_of_best(x: UOp, op: Op, axis: int) -> UOp:
    """Return each element's position if it is the extremum or NaN, or else the axis's size."""
    return _places_of(x, kept(x, op, (axis,)), axis)


def _places_of(x: UOp, best: UOp, axis: int) -> UOp:
    """Return each element's position if it equals `best` or is NaN, or else the axis's size.

    Positions are int32 if they fit and elements have at most 32 bits. Then vectors of elements and
    of positions have the same number of lanes. (A processor without mask registers has to shuffle a
    mask whose lanes have another width.)
    """
    hit = x.eq(build.expand(best, x.shape))
    if x.dtype.is_float:
        hit = hit.alu(Op.OR, x.ne(x))
    place = build.iota_along(x.shape, axis)
    nowhere = build.full(x.shape[axis], dt.int64, x.shape)
    if x.dtype.itemsize <= 4 and dim_span(x.shape[axis])[1] <= _MOST:
        place, nowhere = place.cast(dt.int32), nowhere.cast(dt.int32)
    return build.where(hit, place, nowhere)


def _block(x: UOp, axis: int) -> int:
    """Return the number of elements per block of :func:`_place_by_blocks`; 0 if it is no faster."""
    last = len(x.shape) - 1
    if axis != last or x.dtype.is_bool or x.dtype.is_narrow or not is_static(x.shape):
        return 0
    n, count, size = dim_max(x.shape[axis]), dim_max(build.volume(x.shape)), x.dtype.itemsize
    traced = state.local.trace is not None
    least = _LEAST_TRACED if traced else _LEAST_EAGER
    if n < _LEAST_SEARCHED or count < least or _is_transposed(x):
        return 0
    block = min(_WHOLE_BLOCK_BYTES // size, n // 1024 * 64)
    if last:
        block = min(_BLOCK_ELEMENTS, _BLOCK_BYTES // size, n // 64 * 16)
    if n % block and not traced:
        return 0  # eager code of other sizes shares one plan, which has no blocks
    # If the data come from main memory, the blocks to search arrive late. With mask registers, keys
    # of 32-bit elements take no longer than memory: rows of 4096 x 4096 take 2.3 ms, and 2.7 ms by
    # blocks (Zen 4). Without mask registers, keys take 16 ms and more.
    if last and size == 4 and count * size >= _LEAST_STREAMED:
        target = spec.host()
        if count * size >= target.l3_bytes and target.has("avx512vl"):
            return 0
    return block


def _is_transposed(x: UOp) -> bool:
    """Return whether elements that are adjacent along the last axis of `x` are far apart in memory.

    If an operation has several operands, the first one decides.
    """
    while x.src and x.op in _FOLLOWED:
        if x.op is Op.PERMUTE and x.arg[-1] != len(x.shape) - 1:
            return True
        x = x.src[0]
    return False


def _place_by_blocks(x: UOp, op: Op, block: int) -> UOp:
    """Return the position of the first extremum or NaN along the last axis, by blocks of elements.

    The extremum of each block is stored. Then only the first block whose extremum is that of the
    whole axis is searched. So memory is read about once, and elements need no positions.
    """
    *lead, size = x.shape
    axis, n = len(lead), dim_max(size)
    whole = n // block * block
    ends = [(0, d) for d in lead]
    rows = build.reshape(build.shrink(x, [*ends, (0, whole)]), (*lead, n // block, block))
    tops = UOp(Op.CONTIGUOUS, x.dtype, (build.reduce(rows, op, (axis + 1,)),))
    best = kept(tops, op, (axis,))
    if whole < n:
        rest = kept(build.shrink(x, [*ends, (whole, n)]), op, (axis,))
        best = best.alu(op, rest)
    first = build.reduce(_places_of(tops, best, axis), Op.MIN, (axis,)).cast(dt.int64)
    start = build.mul(first, block)
    if whole < n:
        # No block has the extremum: the rest, with the end of the last block, has.
        start = start.alu(Op.MIN, build.full(n - block, dt.int64, start.shape))
    shape = (*lead, block)
    along = build.add(
        build.expand(build.reshape(start, (*lead, 1)), shape), build.iota_along(shape, axis)
    )
    indices = [*(build.iota_along(shape, a) for a in range(axis)), along]
    found = UOp(Op.GATHER, x.dtype, (x, *indices))
    place = build.reduce(_places_of(found, best, axis), Op.MIN, (axis,))
    return build.add(start, place.cast(dt.int64))


def _drop(x: UOp, axes: tuple[int, ...]) -> UOp:
    return build.reshape(x, tuple(d for a, d in enumerate(x.shape) if a not in axes))


def _chosen_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,), (place,) = node.arg.inputs, node.arg.parts
    chosen = build.iota_along(x.shape, node.arg.arg).eq(place)
    return build.where(chosen, build.expand(g, x.shape), 0)


def _spread_over(dim: Dims, unbiased: bool | None) -> tuple[Dims, bool | None]:
    """Return the axes of a variance, and `unbiased` if it was passed in the place of the axes."""
    return (None, dim) if isinstance(dim, bool) and unbiased is None else (dim, unbiased)


def _correction(correction: float | None, unbiased: bool | None) -> float:
    """Return the number that a variance subtracts from the count."""
    if unbiased is None:
        return 1 if correction is None else correction
    if correction is not None:
        raise DTypeError("correction, unbiased: expected at most one of the two; leave one out")
    return int(flag(unbiased, "unbiased"))

"""Sorting, selection by order, and search in sorted tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.ir.routine import Routine
from kernelrt.ir.shape import dim_max, dim_span, format_shape, is_static
from kernelrt.native.array_handle import ArrayHandle
from kernelrt.tensor.autograd.tags import custom, detach
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import axis_of, flag, integer, real
from kernelrt.tensor.nodes.composite_ops import settled
from kernelrt.tensor.operation import operations
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.ir import Dim
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.methods.conversion import ConversionMethods as _Below
    from kernelrt.tensor.nodes import data_checks
else:
    _Below = object
    data_checks = Module("kernelrt.tensor.nodes.data_checks")

__all__ = [
    "OrderingMethods", "Ranked", "insertions", "picked", "sort_keys",
    "sorted_positions",
]  # fmt: skip

_T = TypeVar("_T")
#: Probabilities of quantiles.
Shares: TypeAlias = "float | Sequence[float] | TensorBase"

#: Up to this many keys, all pairs are compared: with vectors that is two to three times as fast as
#: the radix sort, which takes a microsecond for a single row (bench/routines.py).
_COMPARED: Final = 64


class Ranked(NamedTuple, Generic[_T]):
    """Elements selected by order, and their positions along the axis.

    Examples
    --------
    >>> values, indices = krt.tensor([3.0, 1.0, 2.0]).topk(2)
    >>> values.tolist(), indices.tolist()
    ([3.0, 2.0], [0, 2])
    """

    values: _T
    indices: _T


def sort_keys(x: UOp) -> UOp:
    """Return unsigned numbers of 32 or 64 bits that sort like the elements; NaN is the greatest.

    Both zeros are equal, and so are all NaNs.
    """
    bits = 64 if x.dtype.bits == 64 else 32
    unsigned = dt.uint64 if bits == 64 else dt.uint32
    top = 1 << (bits - 1)
    if x.dtype.is_float:
        x = x.cast(dt.float64 if bits == 64 else dt.float32)
        raw = UOp(Op.BITCAST, unsigned, (x.alu(Op.ADD, build.zeros_like(x)),))
        negative = raw.alu(Op.SHR, _all(raw, bits - 1)).ne(build.zeros_like(raw))
        key = build.where(negative, raw.alu(Op.NOT), raw.alu(Op.OR, _all(raw, top)))
        return build.where(x.ne(x), _all(key, 2 * top - 1), key)
    if not x.dtype.is_signed:
        return x.cast(unsigned)
    raw = UOp(Op.BITCAST, unsigned, (x.cast(dt.int64 if bits == 64 else dt.int32),))
    return raw.alu(Op.XOR, _all(raw, top))


def _all(x: UOp, value: int) -> UOp:
    return build.full(value, x.dtype, x.shape)


def sorted_positions(x: UOp, axis: int, *, descending: bool = False) -> UOp:
    """Return the positions along `axis` of the elements in stably sorted order, in int64."""
    if not x.shape:
        return build.full(0, dt.int64, ())
    if build.has_zero(x.shape) or x.shape[axis] == 1:
        return build.full(0, dt.int64, x.shape)
    keys = sort_keys(detach(x))
    if descending:
        keys = keys.alu(Op.NOT)
    axes = [*(a for a in range(len(x.shape)) if a != axis), axis]
    keys = build.permute(keys, axes)
    positions = _argsort(keys)
    return build.permute(positions, [axes.index(a) for a in range(len(axes))])


def _argsort(keys: UOp) -> UOp:
    """Return the stable order of unsigned keys along the last axis."""
    n = keys.shape[-1]
    rows = build.volume(keys.shape[:-1])
    if dim_span(n)[1] <= _COMPARED:
        return _ranked(keys, n)
    routine = Routine(f"argsort_u{keys.dtype.bits}", rows, (n,))
    sorted_rows = build.call(routine, build.reshape(keys, (rows, n)))
    out = build.shrink(sorted_rows, [(0, rows), (0, n)])
    return build.reshape(out, keys.shape)


def _ranked(keys: UOp, n: Dim) -> UOp:
    """Return the stable order of unsigned keys by comparing all pairs."""
    rest, last = keys.shape[:-1], len(keys.shape) - 1
    shape = (*rest, n, n)
    own = build.expand(build.reshape(keys, (*rest, n, 1)), shape)
    other = build.expand(build.reshape(keys, (*rest, 1, n)), shape)
    i, j = (build.iota_along(shape, last + k).cast(dt.int32) for k in (0, 1))
    before = build.where(j.alu(Op.LT, i), other.alu(Op.LE, own), other.alu(Op.LT, own))
    rank = build.reduce(before.cast(dt.int32), Op.ADD, (last + 1,))
    there = build.expand(build.reshape(rank, (*rest, 1, n)), shape)
    return build.reduce(build.where(there.eq(i), j, 0), Op.ADD, (last + 1,)).cast(dt.int64)


def picked(x: UOp, positions: UOp, axis: int) -> UOp:
    """Return the elements of `x` at `positions` along `axis`, which are in range."""
    if not x.shape or build.has_zero(positions.shape):
        if positions.shape == x.shape:
            return x
        return settled(build.full(0, x.dtype, positions.shape), x)
    indices = [
        positions if a == axis else build.iota_along(positions.shape, a)
        for a in range(len(x.shape))
    ]
    return UOp(Op.GATHER, x.dtype, (x, *indices))


@operations()
class OrderingMethods(_Below):
    """Sorting, selection by rank, and statistics based on them."""

    __slots__ = ()

    def sort(
        self, dim: int = -1, descending: bool = False, stable: bool = False
    ) -> Ranked[Self]:
        """Sort the elements along `dim`; return them and their former positions.

        The sort is always stable. NaN is greater than every number.

        Parameters
        ----------
        dim : int
            Axis to sort along.
        descending : bool
            Whether the greatest elements come first.
        stable : bool
            For compatibility: equal elements keep their order either way.

        Returns
        -------
        Ranked
            ``values`` in this dtype, and ``indices`` in int64, both of this shape.

        Examples
        --------
        >>> values, indices = krt.tensor([3.0, 1.0, 2.0]).sort()
        >>> values.tolist(), indices.tolist()
        ([1.0, 2.0, 3.0], [1, 2, 0])
        """
        axis = axis_of(dim, self.ndim)
        node = self.uop
        positions = sorted_positions(node, axis, descending=flag(descending, "descending"))
        flag(stable, "stable")
        return Ranked(self._of(picked(node, positions, axis)), self._of(positions))

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = False) -> Self:
        """Return the ``indices`` of :meth:`sort`.

        Parameters
        ----------
        dim : int
            Axis to sort along.
        descending : bool
            Whether the greatest elements come first.
        stable : bool
            For compatibility: equal elements keep their order either way.

        Returns
        -------
        Tensor
            int64 of this shape.

        Examples
        --------
        >>> krt.tensor([3.0, 1.0, 2.0]).argsort().tolist()
        [1, 2, 0]
        """
        flag(stable, "stable")
        axis = axis_of(dim, self.ndim)
        return self._of(sorted_positions(self.uop, axis, descending=flag(descending, "descending")))

    def msort(self) -> Self:
        """Sort the elements along the first axis.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Examples
        --------
        >>> krt.tensor([[3, 1], [2, 5]]).msort().tolist()
        [[2, 1], [3, 5]]
        """
        return self.sort(0).values

    def topk(
        self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True  # noqa: A002
    ) -> Ranked[Self]:
        """Return the `k` greatest (or least) elements along `dim`, in order, and their positions.

        Among equal elements the first ones are selected, in their order.

        Parameters
        ----------
        k : int
            Number of elements, at most the size of `dim`.
        dim : int
            Axis to select along.
        largest : bool
            Whether to select the greatest elements. NaN counts as the greatest.
        sorted : bool
            For compatibility: the result is in order either way.

        Returns
        -------
        Ranked
            ``values`` in this dtype, and ``indices`` in int64, both of this shape except that the
            size of `dim` is `k`.

        Raises
        ------
        ShapeError
            `k` is negative, or greater than the size of `dim`.

        Examples
        --------
        >>> values, indices = krt.tensor([3.0, 1.0, 2.0]).topk(2)
        >>> values.tolist(), indices.tolist()
        ([3.0, 2.0], [0, 2])
        """
        axis = axis_of(dim, self.ndim)
        flag(sorted, "sorted")
        count, greatest = self._rank_of(k, axis, least=0), flag(largest, "largest")
        if count == 1 and greatest and self.ndim and is_static(self.dims):
            position = self._position(Op.MAX, axis, keepdim=True)  # NaN is the greatest there, too
            return Ranked(self._of(picked(self.uop, position.uop, axis)), position)
        values, indices = self.sort(axis, descending=greatest)
        if self.ndim == 0:
            return Ranked(values, indices) if count else Ranked(values[None][:0], indices[None][:0])
        ends = [(0, count if a == axis else d) for a, d in enumerate(self.dims)]
        first, positions = (self._of(build.shrink(part.uop, ends)) for part in (values, indices))
        return Ranked(first, positions)

    def _rank_of(self, k: int, axis: int, least: int) -> int:
        """Check `k` as a number of elements along `axis`."""
        count = integer(k, "k", least)
        size = self.dims[axis] if self.dims else 1
        if isinstance(size, int) and count > size:
            raise ShapeError(f"k: expected at most {size}, the size of axis {axis}, not {count}")
        return count

    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> Ranked[Self]:
        """Return the `k`-th least element along `dim`, counted from 1, and its position.

        Parameters
        ----------
        k : int
            Rank of the element, from 1 to the size of `dim`.
        dim : int
            Axis to select along.
        keepdim : bool
            Whether to keep the axis with size 1.

        Returns
        -------
        Ranked
            ``values`` in this dtype, and ``indices`` in int64.

        Raises
        ------
        ShapeError
            `k` is below 1, or greater than the size of `dim`.

        Examples
        --------
        >>> value, index = krt.tensor([3.0, 1.0, 2.0]).kthvalue(2)
        >>> value.item(), index.item()
        (2.0, 2)
        """
        axis = axis_of(dim, self.ndim)
        count = self._rank_of(k, axis, least=1)
        return self._ranked(axis, build.full(count - 1, dt.int64, self._one_along(axis)), keepdim)

    def _one_along(self, axis: int) -> build.Shape:
        return build.keep_axes(self.dims, (axis,) if self.dims else ())

    def _ranked(self, axis: int, rank: UOp, keepdim: bool) -> Ranked[Self]:
        """Return the elements of `rank`, which has size 1 along `axis`, in order along `axis`."""
        node = self.uop
        positions = picked(sorted_positions(node, axis), rank, axis)
        value = picked(node, positions, axis)
        if not keepdim and node.shape:
            shape = tuple(d for a, d in enumerate(node.shape) if a != axis)
            value, positions = build.reshape(value, shape), build.reshape(positions, shape)
        return Ranked(self._of(value), self._of(positions))

    def _nans(self, axis: int) -> UOp:
        """Return the number of NaNs along `axis`, in int64; the axis keeps size 1."""
        node = detach(self.uop)
        nan = node.ne(node) if node.dtype.is_float else build.full(False, dt.bool_, node.shape)
        if not node.shape:
            return nan.cast(dt.int64)
        return build.reshape(
            build.reduce(nan.cast(dt.int64), Op.ADD, (axis,)), self._one_along(axis)
        )

    def _middle(self, axis: int, keepdim: bool, name: str, *, ignore: bool) -> Ranked[Self]:
        """Return the lower median along `axis`; with `ignore`, of the elements that are not NaN."""
        self._check_filled(name, axis)
        nans = self._nans(axis)
        n = build.full(self.dims[axis] if self.dims else 1, dt.int64, nans.shape)
        zero, two = build.zeros_like(n), build.full(2, dt.int64, n.shape)
        numbers = n.alu(Op.SUB, nans)
        if ignore:
            last = numbers.alu(Op.SUB, build.full(1, dt.int64, n.shape)).alu(Op.MAX, zero)
            return self._ranked(axis, last.alu(Op.IDIV, two), keepdim)
        half = build.sub(n, 1).alu(Op.IDIV, two)
        return self._ranked(axis, build.where(nans.ne(zero), numbers, half), keepdim)

    def median(self, dim: int | None = None, keepdim: bool = False) -> Self | Ranked[Self]:
        """Return the lower median: of all elements, or (values, indices) along `dim`.

        The median is NaN if there is a NaN. Without `dim` the median of no floats is NaN as well,
        and the gradient is shared equally among elements that equal the median.

        Parameters
        ----------
        dim : int, optional
            Axis to reduce; all by default.
        keepdim : bool
            Whether to keep the axis `dim` with size 1.

        Returns
        -------
        Tensor or Ranked
            Tensor of shape () without `dim`. With an axis, a :class:`Ranked`: ``values`` in this
            dtype, and ``indices`` in int64.

        Raises
        ------
        DTypeError
            This tensor holds bools.
        ShapeError
            A reduced axis is empty, except for floats without `dim`.

        Examples
        --------
        >>> krt.tensor([3.0, 1.0, 2.0, 4.0]).median().item()  # the lower one of 2 and 3
        2.0
        >>> values, indices = krt.tensor([[3, 1, 2], [4, 6, 5]]).median(1)
        >>> values.tolist(), indices.tolist()
        ([2, 5], [2, 2])
        """
        return self._median(dim, keepdim, "median", ignore=False)

    def nanmedian(self, dim: int | None = None, keepdim: bool = False) -> Self | Ranked[Self]:
        """Return the :meth:`median` without the elements that are NaN.

        Parameters
        ----------
        dim : int, optional
            Axis to reduce; all by default.
        keepdim : bool
            Whether to keep the axis `dim` with size 1.

        Returns
        -------
        Tensor or Ranked
            As for :meth:`median`; NaN where all elements are NaN.

        Raises
        ------
        DTypeError
            This tensor holds bools.
        ShapeError
            A reduced axis is empty, except for floats without `dim`.

        Examples
        --------
        >>> krt.tensor([3.0, krt.nan, 2.0, 4.0]).nanmedian().item()
        3.0
        """
        return self._median(dim, keepdim, "nanmedian", ignore=True)

    def _median(
        self, dim: int | None, keepdim: bool, name: str, *, ignore: bool
    ) -> Self | Ranked[Self]:
        if self.dtype.is_bool:
            raise DTypeError(f"{name}: bools have no median; cast them, as in x.int()")
        if dim is not None:
            return self._middle(axis_of(dim, self.ndim), keepdim, name, ignore=ignore)
        node = self.uop
        if build.has_zero(node.shape) and node.dtype.is_float:
            return self._of(settled(build.full(math.nan, node.dtype, ()), node))
        flat = self._of(detach(node)).reshape(-1)
        value = flat._middle(0, False, name, ignore=ignore).values.uop
        if not node.dtype.is_float:
            return self._of(value)
        return self._of(custom(value, _shared_rule, node))

    def quantile(
        self, q: Shares, dim: int | None = None, keepdim: bool = False, *,
        interpolation: str = "linear",
    ) -> Self:  # fmt: skip
        """Return the quantiles of probability `q` along `dim`.

        Where there is a NaN along `dim`, the quantiles are NaN.

        Parameters
        ----------
        q : float, sequence of float, or Tensor of one axis at most
            Probabilities from 0 to 1. Several give a first axis of the result.
        dim : int, optional
            Axis to reduce; by default, all elements are flattened.
        keepdim : bool
            Whether to keep the axis with size 1.
        interpolation : str
            Method between the two nearest elements: "linear", "lower", "higher", "nearest" or
            "midpoint".

        Returns
        -------
        Tensor
            Tensor of this dtype, of shape (count of `q`, remaining axes). If `q` is one number, the
            first axis is missing.

        Raises
        ------
        DTypeError
            The elements are not float32 or float64.
        DomainError
            `q` lies outside of [0, 1]. Or, at run time, an element of the tensor `q` lies outside
            or is NaN.
        ShapeError
            There are no elements.

        Examples
        --------
        >>> x = krt.tensor([0.0, 1.0, 2.0, 3.0])
        >>> x.quantile(0.5).item(), x.quantile([0.25, 1.0]).tolist()
        (1.5, [0.75, 3.0])
        """
        return self._quantile(q, dim, keepdim, interpolation, "quantile", ignore=False)

    def nanquantile(
        self, q: Shares, dim: int | None = None, keepdim: bool = False, *,
        interpolation: str = "linear",
    ) -> Self:  # fmt: skip
        """Return the :meth:`quantile` without the elements that are NaN.

        Parameters
        ----------
        q : float, sequence of float, or Tensor of one axis at most
            Probabilities from 0 to 1. Several give a first axis of the result.
        dim : int, optional
            Axis to reduce; by default, all elements are flattened.
        keepdim : bool
            Whether to keep the axis with size 1.
        interpolation : str
            Method between the two nearest elements: "linear", "lower", "higher", "nearest" or
            "midpoint".

        Returns
        -------
        Tensor
            As for :meth:`quantile`; NaN where all elements are NaN.

        Raises
        ------
        DTypeError, ShapeError, DomainError
            As for :meth:`quantile`.

        Examples
        --------
        >>> krt.tensor([0.0, krt.nan, 3.0]).nanquantile(0.5).item()
        1.5
        """
        return self._quantile(q, dim, keepdim, interpolation, "nanquantile", ignore=True)

    def _quantile(
        self, q: Shares, dim: int | None, keepdim: bool, interpolation: str, name: str,
        *, ignore: bool,
    ) -> Self:  # fmt: skip
        if self.dtype not in (dt.float32, dt.float64):
            raise DTypeError(
                f"{name}: expected float32 or float64, not {self.dtype.name}; cast the tensor"
            )
        shares = self._shares(q)
        source = self.reshape(-1) if dim is None or self.ndim == 0 else self
        axis = 0 if dim is None else axis_of(dim, self.ndim)
        self._check_filled(name, dim)
        # The quantiles replace the axis, which then moves to the front.
        values = source._at_shares(shares.reshape(-1).uop, axis, interpolation, ignore=ignore)
        out = values.movedim(axis, 0)
        if keepdim:
            kept = (1,) * self.ndim if dim is None else self._one_along(axis)
            out = out.reshape(shares.numel(), *kept)
        return out if shares.ndim else out.squeeze(0)

    def _shares(self, q: Shares) -> Self:
        """Return `q` in this tensor's dtype; check numbers now, and a tensor at run time."""
        if isinstance(q, ArrayHandle | np.ndarray):
            shares = self._lift(q, "q")
            if shares.ndim > 1 or not shares.dtype.is_float:
                raise ShapeError(
                    f"q: expected a float or a vector of floats, not {shares.dtype.name} of shape "
                    f"{format_shape(shares.dims)}"
                )

            return data_checks.if_each(shares, shares, 0, 1, "q").cast(self.dtype)
        numbers = [real(n, "q") for n in (q if isinstance(q, list | tuple) else (q,))]
        if not all(0 <= number <= 1 for number in numbers):
            raise DomainError(f"q: expected numbers from 0 to 1, not {q!r}")
        several = isinstance(q, list | tuple)
        return self._literal(np.array(numbers if several else numbers[0])).cast(self.dtype)

    def _at_shares(self, shares: UOp, axis: int, interpolation: str, *, ignore: bool) -> Self:
        x = self.uop
        count = shares.shape[0]
        shape = tuple(count if a == axis else d for a, d in enumerate(x.shape))
        line = tuple(count if a == axis else 1 for a in range(len(x.shape)))
        share = build.expand(build.reshape(shares, line), shape)
        nans = build.expand(self._nans(axis), shape)
        n = build.full(x.shape[axis], dt.int64, shape)
        if ignore:
            n = n.alu(Op.SUB, nans).alu(Op.MAX, build.full(1, dt.int64, shape))
        last = build.sub(n, 1).cast(x.dtype)
        rank = share.alu(Op.MUL, last)
        low, part = _between(rank, interpolation)
        zero = build.zeros_like(rank)
        low = low.alu(Op.MAX, zero).alu(Op.MIN, last)
        high = build.add(low, 1).alu(Op.MIN, last)
        order = sorted_positions(x, axis)
        ends = [
            picked(x, picked(order, end.cast(dt.int64), axis), axis) for end in (low, high)
        ]
        found = ends[0]
        if part is not None:
            first, second = (self._of(end) for end in ends)
            # With weight 0 an infinite neighbour must not give NaN.
            found = build.where(part.eq(zero), found, first.lerp(second, self._of(part)).uop)
        if not ignore:
            found = build.where(nans.ne(build.zeros_like(nans)), math.nan, found)
        return self._of(found)

    def mode(self, dim: int = -1, keepdim: bool = False) -> Ranked[Self]:
        """Return the most frequent element along `dim` (the least if tied) and its last index.

        Parameters
        ----------
        dim : int
            Axis to reduce.
        keepdim : bool
            Whether to keep the axis with size 1.

        Returns
        -------
        Ranked
            ``values`` in this dtype, and ``indices`` in int64.

        Raises
        ------
        ShapeError
            The axis is empty.

        Examples
        --------
        >>> value, index = krt.tensor([3, 1, 3, 1, 2]).mode()
        >>> value.item(), index.item()
        (1, 3)
        """
        axis = axis_of(dim, self.ndim)
        self._check_filled("mode", axis)
        if self.ndim == 0:
            return Ranked(self, self._of(build.full(0, dt.int64, ())))
        x = self.uop
        order = sorted_positions(x, axis)
        there = self._of(picked(detach(x), order, axis))
        position = self._of(build.iota_along(x.shape, axis))
        fresh = (there != there.roll(1, axis)) | position.eq(0)
        runs = fresh.long().cumsum(axis) - 1
        zeros = self._of(build.full(0, dt.int64, x.shape))
        lengths = zeros.scatter_add(axis, runs, zeros + 1)
        best = lengths.argmax(axis, keepdim=True)
        last = (runs <= best).sum(axis, keepdim=True) - 1
        return self._ranked(axis, last.uop, keepdim)

    # ---- lookup in sorted tensors

    def searchsorted(
        self, values: TensorBase | float, right: bool = False, *, side: str | None = None,
        out_int32: bool = False, sorter: TensorBase | None = None,
    ) -> Self:  # fmt: skip
        """Return the positions where `values` can be inserted so that the last axis stays sorted.

        NaN is greater than every number, as in :meth:`sort`.

        Parameters
        ----------
        values : Tensor or number
            Values to insert. They have any shape if this tensor is a vector. Otherwise, their
            leading axes are those of this tensor.
        right : bool
            Whether to insert after equal elements instead of before them.
        side : str, optional
            "left" or "right", instead of `right`.
        out_int32 : bool
            Whether to return int32 instead of int64.
        sorter : Tensor, optional
            Order that sorts the elements, from :meth:`argsort`.

        Returns
        -------
        Tensor
            int64, or int32, of the shape of `values`.

        Raises
        ------
        DomainError
            `side` contradicts `right`.
        ShapeError
            This tensor has no axis, or the leading axes differ.

        Examples
        --------
        >>> x = krt.tensor([1.0, 3.0, 5.0])
        >>> x.searchsorted(krt.tensor([3.0, 4.0])).tolist(), x.searchsorted(3.0, right=True).item()
        ([1, 2], 2)
        """
        sequence = self if sorter is None else self.gather(-1, self._lift(sorter, "sorter"))
        wanted = self._lift(values, "values")
        flag(right, "right")
        if side not in (None, "left", "right") or (side == "left" and right):
            raise DomainError(
                "side: expected 'left' or 'right', and not 'left' with right=True, but got "
                f"{side!r}"
            )
        if sequence.ndim != 1 and not build.same_shape(sequence.dims[:-1], wanted.dims[:-1]):
            raise ShapeError(
                f"values: expected the leading axes {format_shape(sequence.dims[:-1])} of "
                f"sorted_sequence, not the shape {format_shape(wanted.dims)}"
            )
        a, b = sequence._searched(wanted)
        out = insertions(a, b, behind=right or side == "right")
        return self._of(out.cast(dt.int32) if out_int32 else out)

    def _searched(self, wanted: Self) -> tuple[UOp, UOp]:
        """Promote a sorted tensor and the values to search for to one dtype."""
        if self.ndim == 0:
            raise ShapeError("sorted_sequence: expected at least 1 axis, not a scalar")
        common = dt.promote(self.dtype, wanted.dtype)
        return self.uop.cast(common), wanted.uop.cast(common)

    def bucketize(
        self, boundaries: TensorBase, *, out_int32: bool = False, right: bool = False
    ) -> Self:
        """Return for each element the number of its interval between sorted `boundaries`.

        This is ``boundaries.searchsorted(self)``, see :meth:`searchsorted`.

        Parameters
        ----------
        boundaries : Tensor
            Sorted vector.
        out_int32 : bool
            Whether to return int32 instead of int64.
        right : bool
            Whether an element that equals a boundary belongs to the interval after it.

        Returns
        -------
        Tensor
            int64, or int32, of this shape; the numbers go from 0 to the number of boundaries.

        Raises
        ------
        ShapeError
            `boundaries` is not a vector.

        Examples
        --------
        >>> krt.tensor([0.5, 1.0, 4.0]).bucketize(krt.tensor([1.0, 3.0])).tolist()
        [0, 0, 2]
        """
        edges = self._lift(boundaries, "boundaries")
        if edges.ndim != 1:
            raise ShapeError(f"boundaries: expected 1 axis, not {edges.ndim}")
        return edges.searchsorted(self, right, out_int32=out_int32)

    def isin(
        self, test_elements: TensorBase | float, *, assume_unique: bool = False,
        invert: bool = False,
    ) -> Self:  # fmt: skip
        """Return whether each element is one of `test_elements`; with `invert`, the opposite.

        Parameters
        ----------
        test_elements : Tensor or number
            Elements to compare with, of any shape.
        assume_unique : bool
            For compatibility; has no effect.
        invert : bool
            Whether to return the opposite.

        Returns
        -------
        Tensor
            Bools of this shape.

        Notes
        -----
        NaN is never one of `test_elements`, because it does not equal itself.

        Examples
        --------
        >>> krt.tensor([1, 2, 3]).isin(krt.tensor([2, 3])).tolist()
        [False, True, True]
        """
        flag(assume_unique, "assume_unique")
        among = self._lift(test_elements, "test_elements").reshape(-1)
        if build.has_zero(among.dims):
            found = self._of(build.full(False, dt.bool_, self.dims))
        else:
            ranked = among.sort().values
            a, b = ranked._searched(self)
            last = insertions(a, b, behind=True).alu(Op.SUB, build.full(1, dt.int64, b.shape))
            inside = last.alu(Op.MAX, build.zeros_like(last))
            there = UOp(Op.GATHER, a.dtype, (a, inside))
            found = self._of(there.eq(b).alu(Op.AND, build.zeros_like(last).alu(Op.LE, last)))
        return ~found if flag(invert, "invert") else found


def _shared_rule(node: UOp, g: UOp, _i: int) -> UOp:
    """Share the gradient of one element equally among all elements that equal it."""
    (x,) = node.arg.inputs
    value = build.broadcast_to(node, x.shape)
    hit = x.eq(value).alu(Op.OR, x.ne(x).alu(Op.AND, value.ne(value)))
    axes = range(len(x.shape))
    count = build.broadcast_to(build.reduce(hit.cast(x.dtype), Op.ADD, axes), x.shape)
    return build.where(hit, build.div(build.broadcast_to(g, x.shape), count), 0)


def _between(rank: UOp, interpolation: str) -> tuple[UOp, UOp | None]:
    """Return the index of an element for a rank, and the weight of the next one (None for 0)."""
    low = rank.alu(Op.FLOOR)
    if interpolation == "linear":
        return low, rank.alu(Op.SUB, low)
    if interpolation == "lower":
        return low, None
    if interpolation == "higher":
        return rank.alu(Op.CEIL), None
    if interpolation == "nearest":
        return rank.alu(Op.ROUND), None
    if interpolation == "midpoint":
        whole = low.eq(rank)
        return low, build.where(whole, 0, build.full(0.5, rank.dtype, rank.shape))
    raise DomainError(
        "interpolation: expected 'linear', 'lower', 'higher', 'nearest' or 'midpoint', not "
        f"{interpolation!r}"
    )


#: Up to this many elements, counting those before a value is faster than a binary search: 1000
#: values among 32 elements take a third of the time.
_COUNTED: Final = 64


def insertions(sequence: UOp, values: UOp, *, behind: bool) -> UOp:
    """Return the number of elements of sorted rows that come before each value.

    The binary search takes one step for each bit of the size.
    """
    n = sequence.shape[-1]
    count = build.full(0, dt.int64, values.shape)
    if build.has_zero(sequence.shape) or build.has_zero(values.shape):
        return count
    if dim_max(n) <= _COUNTED:
        return _counted(sequence, values, behind=behind)
    size = build.full(n, dt.int64, values.shape)
    for bit in reversed(range(dim_max(n).bit_length())):
        further = build.add(count, 1 << bit)
        inside = further.alu(Op.LE, size)
        last = build.sub(further.alu(Op.MIN, size), 1)
        if dim_span(n)[0] < 1:
            last = last.alu(Op.MAX, build.zeros_like(last))
        if len(sequence.shape) == 1:
            there = UOp(Op.GATHER, sequence.dtype, (sequence, last))
        else:
            there = picked(sequence, last, len(sequence.shape) - 1)
        count = build.where(inside.alu(Op.AND, _before(there, values, behind)), further, count)
    return count


def _counted(sequence: UOp, values: UOp, *, behind: bool) -> UOp:
    """Compute :func:`insertions` by comparing each value with each element."""
    *lead, n = sequence.shape
    shape = (*values.shape, n)
    ones = (1,) * (len(values.shape) - len(lead))
    there = build.expand(build.reshape(sequence, (*lead, *ones, n)), shape)
    wanted = build.expand(build.reshape(values, (*values.shape, 1)), shape)
    before = _before(there, wanted, behind).cast(dt.int32)
    return build.reduce(before, Op.ADD, (len(shape) - 1,)).cast(dt.int64)


def _before(there: UOp, values: UOp, behind: bool) -> UOp:
    """Return whether `there` comes before `values`, in an order in which NaN is the greatest."""
    after = values.alu(Op.LT, there) if behind else values.alu(Op.LE, there)
    before = after.eq(build.full(False, dt.bool_, values.shape))  # of two numbers, or of NaN
    if not there.dtype.is_float:
        return before
    number = there.eq(there)
    return before.alu(Op.AND, number.alu(Op.OR, values.ne(values)) if behind else number)

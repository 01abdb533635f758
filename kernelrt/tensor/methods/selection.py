"""Selection by masks and by lists of positions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import format_shape, prod
from kernelrt.tensor import state
from kernelrt.tensor.autograd.tags import detach
from kernelrt.tensor.methods.sorting import picked, sorted_positions
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import axis_of, check_bools, check_floats, flag, integer, real
from kernelrt.tensor.nodes.positions import checked, elements
from kernelrt.tensor.nodes.promotion import element
from kernelrt.tensor.operation import operations
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from kernelrt.tensor import tensor as tensor_module
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.methods.conversion import ConversionMethods as _Below
    from kernelrt.tensor.nodes import data_checks
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object
    data_checks = Module("kernelrt.tensor.nodes.data_checks")
    tensor_module = Module("kernelrt.tensor.tensor")

__all__ = ["SelectionMethods"]


def _first(flags: UOp, size: int) -> UOp:
    """Return the positions of the first `size` True flags in int64, padded with -1."""
    n = prod(flags.shape)
    before = build.full(-1, dt.int64, (size + 1,))
    if build.has_zero(flags.shape):
        return build.shrink(before, [(0, size)])
    # Positions of False flags, and surplus ones, are written past the end.
    return build.shrink(
        build.scatter(Op.MAX, before, build.iota(n), _ranks(flags, size)), [(0, size)]
    )


def _coordinate(position: UOp, shape: tuple[Dim, ...], axis: int) -> UOp:
    """Return the index along `axis` of row-major positions; an axis of size 0 counts as 1."""
    below = build.full(prod(shape[axis + 1 :]), dt.int64, position.shape)
    size = build.full(shape[axis], dt.int64, position.shape)
    one = build.full(1, dt.int64, position.shape)
    quotient = position.alu(Op.IDIV, below.alu(Op.MAX, one))
    return quotient.alu(Op.MOD, size.alu(Op.MAX, one))


def _ranks(flags: UOp, size: int) -> UOp:
    rank = build.sub(tensor_module.Tensor._of(flags.cast(dt.int64)).cumsum(0).uop, 1)
    end = build.full(size, dt.int64, flags.shape)
    return build.where(flags.alu(Op.AND, rank.alu(Op.LT, end)), rank, end)


@operations()
class SelectionMethods(_Below):
    """Selection by masks and by lists of positions.

    The number of selected elements depends on data. Outside of traced functions the positions are
    computed immediately, and the elements are gathered from there. In a traced function this works
    for constants that the function creates itself; for other tensors `size` sets the number of
    elements.
    """

    __slots__ = ()

    def _true(self) -> Self:
        node = detach(self.uop)
        holds = node if node.dtype.is_bool else node.ne(build.zeros_like(node))
        return self._of(holds)

    def _made(self, data: np.ndarray[Any, Any]) -> Self:
        return self._lift(np.asarray(data, order="C"), "index")  # keeps shape ()

    # ---- nonzero positions

    def nonzero(
        self, *, as_tuple: bool = False, size: int | None = None, fill_value: int = 0
    ) -> Self | tuple[Self, ...]:
        """Return the positions of the nonzero elements in row-major order.

        Parameters
        ----------
        as_tuple : bool
            Whether to return one vector for each axis, for use as an index, instead of one row for
            each element.
        size : int, optional
            Number of positions to return: surplus ones are dropped, missing ones are `fill_value`.
            Required in a traced function.
        fill_value : int
            Index that fills missing positions.

        Returns
        -------
        Tensor or tuple of Tensor
            int64 of shape (count, axes), or one vector for each axis.

        Raises
        ------
        JitError
            A function is traced, and `size` is not given.

        Examples
        --------
        >>> x = krt.tensor([[0, 3], [4, 0]])
        >>> x.nonzero().tolist()
        [[0, 1], [1, 0]]
        >>> x[x.nonzero(as_tuple=True)].tolist()
        [3, 4]
        """
        several = flag(as_tuple, "as_tuple")
        if size is None and self.ndim and not several:
            return self._made(np.argwhere(elements(self._true(), "nonzero", "pass size=")))
        columns = self._columns(size, fill_value, "nonzero")
        if several:
            return tuple(columns) if self.ndim else self.reshape(1).nonzero(
                as_tuple=True, size=size, fill_value=fill_value)  # fmt: skip
        if not self.ndim:
            count = columns[0].dims[0] if columns else 0
            return self._of(build.full(0, dt.int64, (count, 0)))
        return self._of(
            build.cat([build.reshape(c.uop, (c.dims[0], 1)) for c in columns], 1)
        )

    def argwhere(self, *, size: int | None = None, fill_value: int = 0) -> Self:
        """Return the positions of nonzero elements, a row for each, as :meth:`nonzero` does.

        Parameters
        ----------
        size : int, optional
            Number of positions to return: surplus ones are dropped, missing ones are `fill_value`.
            Required in a traced function.
        fill_value : int
            Index that fills missing positions.

        Returns
        -------
        Tensor
            int64 of shape (count, axes).

        Raises
        ------
        JitError
            A function is traced, and `size` is not given.

        Examples
        --------
        >>> krt.tensor([[0, 3], [4, 0]]).argwhere().tolist()
        [[0, 1], [1, 0]]
        """
        found = self.nonzero(size=size, fill_value=fill_value)
        assert not isinstance(found, tuple)
        return found

    def _columns(self, size: int | None, fill: int, name: str) -> list[Self]:
        """Return the coordinates of nonzero elements; a scalar counts as a vector of size 1."""
        holds = self._true() if self.ndim else self._true().reshape(1)
        if size is None:
            held = elements(holds, name, "pass size=")
            return [self._made(c.astype(np.int64)) for c in np.nonzero(held)]
        count, fill = integer(size, "size", 0), integer(fill, "fill_value")
        position = self._of(_first(build.reshape(holds.uop, (prod(holds.dims),)), count))
        missing, columns = position < 0, []
        for axis in reversed(range(holds.ndim)):
            column = self._of(_coordinate(position.uop, holds.dims, axis))
            columns.append(column.masked_fill(missing, fill))
        return columns[::-1]

    def masked_select(
        self, mask: TensorBase, *, size: int | None = None, fill_value: float = 0
    ) -> Self:
        """Return as a vector the elements where `mask`, broadcast with this tensor, is True.

        Parameters
        ----------
        mask : Tensor
            Bools that broadcast with this tensor.
        size : int, optional
            Number of elements to return: surplus ones are dropped, missing ones are `fill_value`.
            Required in a traced function.
        fill_value : number
            Value of missing elements.

        Returns
        -------
        Tensor
            Vector of this dtype.

        Raises
        ------
        DTypeError
            `mask` does not hold bools.
        JitError
            A function is traced, and `size` is not given.

        Examples
        --------
        >>> x = krt.tensor([1, -2, 3])
        >>> x.masked_select(x > 0).tolist(), x.masked_select(x > 0, size=3).tolist()
        ([1, 3], [1, 3, 0])
        """
        where = self._lift(mask, "mask")
        check_bools(where.dtype, "mask")
        if size is None and state.local.trace is None and build.same_shape(self.dims, where.dims):
            return self[where] if self.ndim else self.reshape(1)[where.reshape(1)]
        x, chosen = build.align(self.uop, where.uop)
        flat = build.reshape(x, (prod(x.shape),))
        flags = self._of(build.reshape(chosen, (prod(x.shape),)))
        if size is None:
            held = elements(flags, "masked_select", "pass size=, or use where(mask, x, other)")
            return self._of(flat)[self._made(np.flatnonzero(held))]
        position = _first(flags.uop, integer(size, "size", 0))
        return self._of(self._or_fill(flat, position, fill_value))

    def _or_fill(self, flat: UOp, position: UOp, fill: float) -> UOp:
        """Return the elements at `position`, and `fill` where the position is negative."""
        number = element(fill, flat.dtype, "fill_value")
        if build.has_zero(flat.shape):
            return build.full(number, flat.dtype, position.shape)
        zero = build.zeros_like(position)
        there = picked(flat, position.alu(Op.MAX, zero), 0)
        return build.where(position.alu(Op.LT, zero), number, there)

    # ---- unique values

    def unique(
        self, sorted: bool = True, return_inverse: bool = False,  # noqa: A002 - torch's name
        return_counts: bool = False, dim: int | None = None, *, size: int | None = None,
        fill_value: float | None = None,
    ) -> Any:  # fmt: skip
        """Return the unique elements in ascending order.

        Parameters
        ----------
        sorted : bool
            For compatibility: the elements are sorted either way.
        return_inverse : bool
            Whether to return the position of each element among the unique ones.
        return_counts : bool
            Whether to return the count of each unique element.
        dim : int, optional
            Axis whose slices to compare, instead of elements.
        size : int, optional
            Number of unique elements to return. Surplus elements are dropped, the greatest first.
            Missing elements are `fill_value` with count 0. Required in a traced function; only
            without `dim`.
        fill_value : number, optional
            Value of missing elements; the least element by default.

        Returns
        -------
        Tensor or tuple of Tensor
            The unique elements, then the positions and the counts if requested. Each NaN is an
            element of its own.

        Raises
        ------
        JitError
            A function is traced, and `size` is not given.
        ShapeError
            Both `size` and `dim` are given.

        Examples
        --------
        >>> values, counts = krt.tensor([3, 1, 3]).unique(return_counts=True)
        >>> values.tolist(), counts.tolist()
        ([1, 3], [1, 2])
        """
        flag(sorted, "sorted")
        asked = (flag(return_inverse, "return_inverse"), flag(return_counts, "return_counts"))
        if size is not None:
            return _given(self._distinct_of(size, fill_value, dim, ordered=False), asked)
        data = elements(self, "unique", "pass size=")
        if dim is None:
            _, first, inverse, counts = np.unique(
                data.ravel(), return_index=True, return_inverse=True, return_counts=True,
                equal_nan=False,
            )
            found = self.reshape(-1)[self._made(first)]
            inverse = inverse.reshape(self.shape)
        else:
            axis = axis_of(dim, self.ndim)
            first, inverse, counts = _distinct_rows(_slices(data, axis))
            found = self.index_select(axis, self._made(first))
        return _given((found, self._made(inverse), self._made(counts)), asked)

    def unique_consecutive(
        self, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None,
        *, size: int | None = None, fill_value: float | None = None,
    ) -> Any:  # fmt: skip
        """Return the first element of every run of equal ones.

        Parameters
        ----------
        return_inverse : bool
            Whether to return the number of the run of each element.
        return_counts : bool
            Whether to return the length of each run.
        dim : int, optional
            Axis whose slices to compare, instead of elements.
        size : int, optional
            Number of runs to return, as in :meth:`unique`. Required in a traced function; only
            without `dim`.
        fill_value : number, optional
            Value of missing elements; the first element by default.

        Returns
        -------
        Tensor or tuple of Tensor
            The elements, then the numbers and the lengths of the runs if requested.

        Raises
        ------
        JitError
            A function is traced, and `size` is not given.
        ShapeError
            Both `size` and `dim` are given.

        Examples
        --------
        >>> values, counts = krt.tensor([1, 1, 2, 1]).unique_consecutive(return_counts=True)
        >>> values.tolist(), counts.tolist()
        ([1, 2, 1], [2, 1, 1])
        """
        asked = (flag(return_inverse, "return_inverse"), flag(return_counts, "return_counts"))
        if size is not None:
            return _given(self._distinct_of(size, fill_value, dim, ordered=True), asked)
        data = elements(self, "unique_consecutive", "pass size=")
        source = self.reshape(-1) if dim is None else self
        axis = 0 if dim is None else axis_of(dim, self.ndim)
        rows = _flat_rows(_slices(data.ravel() if dim is None else data, axis))
        fresh = np.ones(len(rows), bool)
        fresh[1:] = (rows[1:] != rows[:-1]).any(1)
        first = np.flatnonzero(fresh)
        inverse = np.cumsum(fresh) - 1
        counts = np.diff(np.append(first, len(rows)))
        found = source.index_select(axis, self._made(first))
        shape = self.shape if dim is None else inverse.shape
        return _given(
            (found, self._made(inverse.reshape(shape)), self._made(counts)), asked
        )

    def _distinct_of(
        self, size: int, fill: float | None, dim: int | None, *, ordered: bool
    ) -> tuple[Self, Self, Self]:
        """Return `size` unique elements, the position of each element in them, and counts."""
        if dim is not None:
            raise ShapeError("size: cannot be combined with dim; leave out one of the two")
        count = integer(size, "size", 0)
        n = prod(self.dims)
        flat = build.reshape(self.uop, (n,))
        if build.has_zero(flat.shape):
            none = build.full(0, dt.int64, (count,))
            value = build.full(element(fill or 0, flat.dtype, "fill_value"), flat.dtype, (count,))
            return self._of(value), self._of(build.full(0, dt.int64, self.dims)), self._of(none)
        order = build.iota(n) if ordered else sorted_positions(flat, 0)
        line = detach(picked(flat, order, 0))
        position = build.iota(n)
        before = picked(line, build.sub(position, 1).alu(Op.MAX, build.zeros_like(position)), 0)
        fresh = line.ne(before).alu(Op.OR, position.eq(build.zeros_like(position)))
        first = _first(fresh, count)
        missing = first.alu(Op.LT, build.zeros_like(first))
        there = picked(order, first.alu(Op.MAX, build.zeros_like(first)), 0)
        values = picked(flat, there, 0)
        if fill is None:
            least = build.broadcast_to(build.shrink(picked(flat, order, 0), [(0, 1)]), (count,))
            values = build.where(missing, least, values)
        else:
            values = build.where(missing, element(fill, flat.dtype, "fill_value"), values)
        rank = build.sub(self._of(fresh.cast(dt.int64)).cumsum(0).uop, 1)
        inverse = build.scatter_add(build.full(0, dt.int64, (n,)), rank, order)
        slot = rank.alu(Op.MIN, build.full(count, dt.int64, rank.shape))
        zeros, ones = (build.full(k, dt.int64, s) for k, s in ((0, (count + 1,)), (1, (n,))))
        counts = build.shrink(build.scatter_add(zeros, ones, slot), [(0, count)])
        return self._of(values), self._of(build.reshape(inverse, self.dims)), self._of(counts)

    # ---- counts

    def bincount(
        self, weights: TensorBase | None = None, minlength: int = 0, *, size: int | None = None
    ) -> Self:
        """Count how often each number from 0 on occurs in a vector of integers.

        Parameters
        ----------
        weights : Tensor, optional
            Weight of each element, instead of 1.
        minlength : int
            Least length of the result.
        size : int, optional
            Length of the result. Required in a traced function.

        Returns
        -------
        Tensor
            int64, or float32 for `weights` in float32, float64 for other weights.

        Raises
        ------
        IndexBoundsError
            At run time, if an element is negative, or at least `size`.
        ShapeError
            This tensor is no vector of integers, or `weights` has another shape.
        JitError
            A function is traced, and `size` is not given.

        Examples
        --------
        >>> x = krt.tensor([1, 1, 3])
        >>> x.bincount().tolist(), x.bincount(krt.tensor([0.5, 0.5, 2.0])).tolist()
        ([0, 2, 0, 1], [0.0, 1.0, 0.0, 2.0])
        """
        if self.ndim != 1 or not self.dtype.is_int:
            raise ShapeError(
                f"bincount: expected a vector of integers, not {self.dtype.name} of shape "
                f"{format_shape(self.dims)}"
            )
        least = integer(minlength, "minlength", 0)
        if size is None:
            data = elements(self, "bincount", "pass size=")
            count = max(least, int(data.max()) + 1, 1) if data.size else least
        else:
            count = max(least, integer(size, "size", 0))
        if weights is None:
            each = build.full(1, dt.int64, self.dims)
        else:
            each = self._lift(weights, "weights").uop
            each = each if each.dtype is dt.float32 else each.cast(dt.float64)
            if not build.same_shape(each.shape, self.dims):
                raise ShapeError(
                    f"weights: expected the shape {format_shape(self.dims)}, not "
                    f"{format_shape(each.shape)}"
                )
        if build.has_zero(self.dims):  # int64 as in PyTorch, whatever the weights are
            return self._of(build.full(0, dt.int64, (count,)))
        zeros = build.full(0, each.dtype, (count,))
        return self._of(build.scatter_add(zeros, each, checked(self.uop, count)))

    def histc(self, bins: int = 100, min: float = 0, max: float = 0) -> Self:  # noqa: A002
        """Count the elements in each of `bins` bins of equal width from `min` to `max`.

        Parameters
        ----------
        bins : int
            Number of bins.
        min, max : number
            Left edge of the first and right edge of the last bin, both included. If the two are
            equal, the least and the greatest element are used instead. Elements outside of all
            bins, and NaN, are not counted.

        Returns
        -------
        Tensor
            Counts in this dtype, of shape (bins,).

        Raises
        ------
        DTypeError
            The elements are not floats.
        DomainError
            `min` is greater than `max`. Or, at run time, the range comes from the elements, and one
            of its ends is NaN or infinite.
        ShapeError
            `bins` is below 1.

        Examples
        --------
        >>> krt.tensor([0.0, 1.0, 2.0, 3.0, 3.5]).histc(4, 0, 4).tolist()
        [1.0, 1.0, 1.0, 2.0]
        """
        check_floats(self.dtype, "histc")
        count = integer(bins, "bins", 1)
        low, high = real(min, "min"), real(max, "max")
        if low > high:
            raise DomainError(f"min, max: expected min to be at most max, not {min} and {max}")
        x = self._of(build.reshape(detach(self.uop), (prod(self.dims),)))
        zeros = build.full(0, dt.int64, (count + 1,))
        if build.has_zero(x.dims):
            return self._of(build.full(0, x.dtype, (count,)))
        wide = x.cast(x.dtype.accumulator)
        if low == high:
            first, last = (data_checks.finite(v, "input") for v in (wide.amin(), wide.amax()))
            same = first.eq(last)
            first, last = first - same.cast(first.dtype), last + same.cast(first.dtype)
        else:
            first, last = (wide._of(build.full(v, wide.dtype, ())) for v in (low, high))
        inside = (wide >= first) & (wide <= last)
        position = ((wide - first) * count / (last - first)).long().clamp(0, count - 1)
        slot = build.where(inside.uop, position.uop, count)
        ones = build.full(1, dt.int64, x.dims)
        found = build.scatter_add(zeros, ones, slot)
        return self._of(build.shrink(found, [(0, count)]).cast(self.dtype))


def _given(found: tuple[Any, Any, Any], asked: tuple[bool, bool]) -> Any:
    """Return the values, together with the other results that were requested."""
    value, *others = found
    more = tuple(o for o, wanted in zip(others, asked, strict=True) if wanted)
    return (value, *more) if more else value


def _slices(data: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    """Move an axis to the front; a scalar becomes a vector."""
    return np.moveaxis(np.atleast_1d(data), axis, 0)


def _flat_rows(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return rows.reshape(len(rows), math.prod(rows.shape[1:]))


def _distinct_rows(rows: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], ...]:
    """Return the unique rows of a NumPy array in ascending order.

    Return the positions of their first occurrences in the array, the position of each row among the
    unique rows, and the counts of the unique rows.
    """
    flat = _flat_rows(rows)
    order = np.lexsort(flat.T[::-1]) if flat.shape[1] else np.arange(len(flat))
    ordered = flat[order]
    fresh = np.ones(len(flat), bool)
    fresh[1:] = (ordered[1:] != ordered[:-1]).any(1)
    inverse = np.empty(len(flat), np.int64)
    inverse[order] = np.cumsum(fresh) - 1
    starts = np.flatnonzero(fresh)
    return order[starts], inverse, np.diff(np.append(starts, len(flat)))

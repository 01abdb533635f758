"""Scatter: writes at positions given by tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.ir.reducers import empty_result
from kernelrt.ir.shape import format_shape, prod, same
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import axis_of, check_bools, flag, integer, own_axis
from kernelrt.tensor.nodes.positions import checked, spelled_out
from kernelrt.tensor.nodes.promotion import as_scalar, check_size, element
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.ir import Dim
    from kernelrt.tensor.base import Operand, TensorBase
    from kernelrt.tensor.methods.conversion import ConversionMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["ScatteringMethods", "replaced", "taken_in"]

_REDUCERS: Final = {
    "sum": Op.ADD, "mean": Op.ADD, "prod": Op.MUL, "amax": Op.MAX, "amin": Op.MIN,
}  # fmt: skip


def replaced(base: UOp, values: UOp, positions: Sequence[UOp]) -> UOp:
    """Return `base` with `values` at `positions`.

    Of several values for one position, the last one in row-major order is written.
    """
    if build.has_zero(values.shape):
        return build.depending_on(base, values)
    count = prod(values.shape)
    order = build.reshape(build.iota(count), values.shape)
    nobody = build.full(-1, dt.int64, base.shape)
    last = build.scatter(Op.MAX, nobody, order, *positions)
    flat = build.reshape(values, (count,))
    zero = build.zeros_like(last)
    chosen = UOp(Op.GATHER, flat.dtype, (flat, last.alu(Op.MAX, zero)))
    return build.where(zero.alu(Op.LE, last), chosen, base)


def taken_in(
    base: UOp, values: UOp, positions: Sequence[UOp], reduce: str, *, include_self: bool
) -> UOp:
    """Return `base` with `values` reduced into it at `positions`.

    Without `include_self` the former elements at these positions do not count.
    """
    if build.has_zero(values.shape):
        return build.depending_on(base, values)
    reducer, dtype = _REDUCERS[reduce], base.dtype
    wide = dtype.accumulator if reducer in (Op.ADD, Op.MUL) else dtype
    base, values = base.cast(wide), values.cast(wide)
    if reduce != "mean" and include_self:
        return build.scatter(reducer, base, values, *positions).cast(dtype)
    zero = build.full(0, dt.int64, base.shape)
    ones = build.full(1, dt.int64, values.shape)
    count = build.scatter_add(zero, ones, *positions)
    if not include_self:
        base = build.where(count.ne(zero), empty_result(reducer, wide), base)
    out = build.scatter(reducer, base, values, *positions)
    if reduce == "mean":
        count = build.add(count, 1) if include_self else count.alu(Op.MAX, build.add(zero, 1))
        out = out.alu(Op.DIV if wide.is_float else Op.IDIV, count.cast(wide))
    return out.cast(dtype)


@operations()
class ScatteringMethods(_Below):
    """Writes at positions given by tensors. The results are new tensors."""

    __slots__ = ()

    # ---- an index for each element

    def scatter(
        self, dim: int, index: TensorBase, src: Operand | None = None, *,
        value: float | None = None, reduce: str | None = None,
    ) -> Self:  # fmt: skip
        """Return this tensor with each element of `src` written to its position in `index`.

        ``out[index[i, j], j] = src[i, j]`` for `dim` 0. Among equal positions the last one, in
        row-major order of `index`, wins and gets the gradient.

        Parameters
        ----------
        dim : int
            Axis of the positions in `index`.
        index : Tensor
            Integers with as many axes as this tensor. Only axis `dim` may be longer than this
            tensor's. A scalar counts as a vector of one element.
        src : Tensor or number
            Elements to write, of this tensor's dtype, at least as large as `index`.
        value : number, optional
            Another name of `src` for a number.
        reduce : str, optional
            "add" or "multiply" to combine `src` with the element there instead of replacing it.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        IndexBoundsError
            At run time, if an index lies outside of [0, size of `dim`).
        DTypeError
            `index` holds no integers, `src` has another dtype, or not exactly one of `src` and
            `value` is given.
        DomainError
            `reduce` is unknown.
        ShapeError
            `index` or `src` has an unsuitable shape.

        Examples
        --------
        >>> index = krt.tensor([[1, 0, 1]])
        >>> krt.zeros(2, 3).scatter(0, index, krt.tensor([[1.0, 2.0, 3.0]])).tolist()
        [[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]
        """
        if (src is None) == (value is None):
            came = "neither is" if src is None else "both are"
            raise DTypeError(f"src, value: expected exactly one of the two, but {came} given")
        given = value if src is None else src
        if reduce is None:
            return self._scattered(dim, index, given, "scatter", replaced)
        if reduce not in ("add", "multiply"):
            raise DomainError(f"reduce: expected 'add', 'multiply' or None, not {reduce!r}")
        how = "sum" if reduce == "add" else "prod"
        return self._scattered(
            dim, index, given, "scatter",
            lambda base, values, positions: taken_in(
                base, values, positions, how, include_self=True
            ),
        )  # fmt: skip

    def scatter_reduce(
        self, dim: int, index: TensorBase, src: TensorBase, reduce: str, *,
        include_self: bool = True,
    ) -> Self:  # fmt: skip
        """Return this tensor with the elements of `src` reduced into their positions in `index`.

        Parameters
        ----------
        dim : int
            Axis of the positions in `index`.
        index, src : Tensor
            As in :meth:`scatter`.
        reduce : str
            Reduction: "sum", "prod", "mean", "amax" or "amin". Means of integers are rounded down.
        include_self : bool
            Whether the element of this tensor takes part in the reduction.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        IndexBoundsError, DTypeError, ShapeError
            As for :meth:`scatter`.

        Notes
        -----
        The gradient of a maximum or minimum is shared equally among the elements that equal it.

        Examples
        --------
        >>> index, src = krt.tensor([0, 0, 2]), krt.tensor([2.0, 3.0, 4.0])
        >>> krt.ones(3).scatter_reduce(0, index, src, "amax").tolist()
        [3.0, 1.0, 4.0]
        """
        _check_reducer(reduce, tuple(_REDUCERS))
        include_self = flag(include_self, "include_self")
        return self._scattered(
            dim, index, src, "scatter_reduce",
            lambda base, values, positions: taken_in(
                base, values, positions, reduce, include_self=include_self
            ),
        )  # fmt: skip

    # ---- an index for each slice

    def index_add(
        self, dim: int, index: TensorBase, source: TensorBase, *, alpha: float = 1
    ) -> Self:
        """Return this tensor with slices of `source`, times `alpha`, added at positions `index`.

        Parameters
        ----------
        dim : int
            Axis of the slices.
        index : Tensor
            Vector of integers, one for each slice of `source`.
        source : Tensor
            Tensor of this tensor's dtype and, apart from `dim`, its shape.
        alpha : number
            Factor of the slices.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        IndexBoundsError
            At run time, if an index lies outside of [0, size of `dim`).
        DTypeError
            `source` has another dtype.
        ShapeError
            `index` is no vector of integers, or `source` has another shape.

        Examples
        --------
        >>> index, source = krt.tensor([2, 2]), krt.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> krt.zeros(3, 2).index_add(0, index, source).tolist()
        [[0.0, 0.0], [0.0, 0.0], [4.0, 6.0]]
        """
        def rule(base: UOp, values: UOp, positions: Sequence[UOp]) -> UOp:
            if alpha != 1:
                scale = build.full(element(alpha, values.dtype, "alpha"), values.dtype, ())
                values = values.alu(Op.MUL, build.broadcast_to(scale, values.shape))
            return taken_in(base, values, positions, "sum", include_self=True)

        return self._by_slices(dim, index, source, rule)

    def index_copy(self, dim: int, index: TensorBase, source: TensorBase) -> Self:
        """Return a copy whose slices at positions `index` are replaced by those of `source`.

        If positions are equal, the slice of the last one is written.

        Parameters
        ----------
        dim : int
            Axis of the slices.
        index : Tensor
            Vector of integers, one for each slice of `source`.
        source : Tensor
            Tensor of this tensor's dtype and, apart from `dim`, its shape.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        IndexBoundsError, DTypeError, ShapeError
            As for :meth:`index_add`.

        Examples
        --------
        >>> krt.zeros(3).index_copy(0, krt.tensor([2, 0]), krt.tensor([5.0, 6.0])).tolist()
        [6.0, 0.0, 5.0]
        """
        return self._by_slices(dim, index, source, replaced)

    def index_reduce(
        self, dim: int, index: TensorBase, source: TensorBase, reduce: str, *,
        include_self: bool = True,
    ) -> Self:  # fmt: skip
        """Return this tensor with slices of `source` reduced into those at positions `index`.

        Parameters
        ----------
        dim : int
            Axis of the slices.
        index : Tensor
            Vector of integers, one for each slice of `source`.
        source : Tensor
            Tensor of this tensor's dtype and, apart from `dim`, its shape.
        reduce : str
            Reduction: "prod", "mean", "amax" or "amin"; for sums use :meth:`index_add`. Means of
            integers are rounded down.
        include_self : bool
            Whether the elements of this tensor take part in the reduction.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        IndexBoundsError, DTypeError, ShapeError
            As for :meth:`index_add`.
        DomainError
            `reduce` is unknown.

        Examples
        --------
        >>> krt.ones(3).index_reduce(0, krt.tensor([2, 2]), krt.tensor([5.0, 2.0]), "prod").tolist()
        [1.0, 1.0, 10.0]
        """
        _check_reducer(reduce, ("prod", "mean", "amax", "amin"))
        include_self = flag(include_self, "include_self")
        return self._by_slices(
            dim, index, source,
            lambda base, values, positions: taken_in(
                base, values, positions, reduce, include_self=include_self
            ),
        )  # fmt: skip

    def index_fill(self, dim: int, index: TensorBase, value: Operand) -> Self:
        """Return this tensor with the single number `value` in the slices at positions `index`.

        Parameters
        ----------
        dim : int
            Axis of the slices.
        index : Tensor
            Vector of integers. Negative positions count from the end.
        value : number, or Tensor without axes
            Element to write.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        IndexBoundsError
            At run time, if a position is out of range.
        DTypeError
            The dtype cannot represent `value`.
        ShapeError
            `index` is no vector of integers, or `value` has axes.

        Examples
        --------
        >>> krt.zeros(2, 3).index_fill(1, krt.tensor([0, -1]), 7).tolist()
        [[7.0, 0.0, 7.0], [7.0, 0.0, 7.0]]
        """
        axis = axis_of(dim, self.ndim)
        fill = self._one(value)
        source = self if self.ndim else self.reshape(1)
        line = source._positions(axis, index, from_end=True)
        zeros = build.full(False, dt.bool_, (source.dims[axis],))
        ones = build.full(True, dt.bool_, line.shape)
        hit = self._of(zeros if build.has_zero(line.shape) else
                       build.scatter(Op.MAX, zeros, ones, line))  # fmt: skip
        hit = hit.reshape(tuple(-1 if a == axis else 1 for a in range(source.ndim)))
        return source._select(hit, fill, source).reshape(self.dims)

    def _one(self, value: Operand) -> Self:
        """Return a number, or a scalar tensor, in this tensor's dtype."""
        number = as_scalar(value)
        if number is not None:
            value = element(number, self.dtype, "value")
        check_size(value, self.dtype, "value")
        one = self._lift(value, "value", like=True)
        if one.ndim:
            raise ShapeError(
                f"value: expected a number or a tensor without axes, not the shape "
                f"{format_shape(one.dims)}"
            )
        return one.cast(self.dtype)

    def _positions(self, axis: int, index: object, *, from_end: bool = False) -> UOp:
        """Return a vector of checked positions along `axis`."""
        positions = self._lift(index, "index")
        if positions.ndim > 1 or not positions.dtype.is_int:
            raise ShapeError(
                f"index: expected a vector of integers, not {positions.dtype.name} of shape "
                f"{format_shape(positions.dims)}"
            )
        return checked(positions.reshape(-1).uop, self.dims[axis], from_end=from_end)

    def _by_slices(
        self, dim: int, index: TensorBase, source: TensorBase,
        rule: Callable[[UOp, UOp, Sequence[UOp]], UOp],
    ) -> Self:  # fmt: skip
        axis = axis_of(dim, self.ndim)
        target = self if self.ndim else self.reshape(1)
        line = target._positions(axis, index)
        values = self._of_own_type(self._lift(source, "source"), "source")
        if values.ndim == 0:
            values = self._of(build.reshape(values.uop, (1,)))
        shape = (*target.dims[:axis], line.shape[0], *target.dims[axis + 1 :])
        if not build.same_shape(values.dims, shape):
            raise ShapeError(
                f"source: expected the shape {format_shape(shape)}, one slice for each position in "
                f"index, not {format_shape(values.dims)}"
            )
        positions = [
            build.expand(_line(line, axis, len(shape)), shape) if a == axis
            else build.iota_along(shape, a) for a in range(len(shape))
        ]  # fmt: skip
        return self._of(build.reshape(rule(target.uop, values.uop, positions), self.dims))

    # ---- positions in row-major order

    def take(self, index: TensorBase) -> Self:
        """Return the elements at positions `index`, which are counted in row-major order.

        Parameters
        ----------
        index : Tensor
            Integers. Negative positions count from the end.

        Returns
        -------
        Tensor
            New tensor of this dtype, of the shape of `index`.

        Raises
        ------
        IndexBoundsError
            At run time, if a position is out of range.
        DTypeError
            `index` holds no integers.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).take(krt.tensor([3, -4])).tolist()
        [4, 1]
        """
        return self.reshape(-1)[self._whole(index)]

    def put(self, index: TensorBase, source: TensorBase, accumulate: bool = False) -> Self:
        """Return this tensor with the elements of `source` at row-major positions `index`.

        Parameters
        ----------
        index : Tensor
            Positions. Negative ones count from the end.
        source : Tensor
            Tensor with as many elements as `index`, of this tensor's dtype.
        accumulate : bool
            Whether to add the elements. Otherwise the last of equal positions wins.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        IndexBoundsError
            At run time, if a position is out of range.
        DTypeError
            `index` holds no integers, or `source` has another dtype.
        ShapeError
            `source` has another number of elements than `index`.

        Examples
        --------
        >>> krt.zeros(2, 2).put(krt.tensor([3, 0]), krt.tensor([5.0, 6.0])).tolist()
        [[6.0, 0.0], [0.0, 5.0]]
        """
        positions = self._whole(index)
        values = self._of_own_type(self._lift(source, "source"), "source")
        if not same(prod(values.dims), prod(positions.dims)):
            raise ShapeError(
                "source: expected as many elements as index of shape "
                f"{format_shape(positions.dims)}, not shape {format_shape(values.dims)}"
            )
        line = build.reshape(positions.uop, (prod(positions.dims),))
        line = checked(line, prod(self.dims), from_end=True)
        flat = build.reshape(self.uop, (prod(self.dims),))
        value = build.reshape(values.uop, line.shape)
        out = build.scatter_add(flat, value, line) if flag(accumulate, "accumulate") else (
            replaced(flat, value, [line]))  # fmt: skip
        return self._of(build.reshape(out, self.dims))

    def _whole(self, index: object) -> Self:
        positions = self._lift(index, "index")
        if not positions.dtype.is_int:
            raise DTypeError(
                f"index: expected integers, not {positions.dtype.name}; cast them, as in "
                "index.long()"
            )
        return positions

    def index_put(
        self, indices: Sequence[TensorBase | None], values: TensorBase, accumulate: bool = False
    ) -> Self:
        """Return this tensor with `values` written to, or added at, ``self[indices]``.

        Parameters
        ----------
        indices : sequence of Tensor or None
            Integers or bools as in indexing; None selects a whole axis.
        values : Tensor
            Tensor of this tensor's dtype that broadcasts to the selected elements.
        accumulate : bool
            Whether to add the values. Otherwise the last of several values for one element wins.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        IndexBoundsError
            At run time, if an index is out of range.
        DTypeError
            `indices` is no tuple or list, or `values` has another dtype.
        ShapeError
            `values` does not broadcast to the selected elements.

        Examples
        --------
        >>> places = (krt.tensor([0, 1]), krt.tensor([1, 0]))
        >>> krt.zeros(2, 2).index_put(places, krt.tensor([5.0, 6.0])).tolist()
        [[0.0, 5.0], [6.0, 0.0]]
        """
        if not isinstance(indices, tuple | list):
            raise DTypeError(
                "indices: expected a tuple or list of Tensors and None, not "
                f"{type(indices).__name__}"
            )
        items: Any = tuple(slice(None) if i is None else i for i in indices)
        value = self._of_own_type(self._lift(values, "values", like=True), "values")
        return self._placed(items, value, accumulate=flag(accumulate, "accumulate"))

    # ---- parts

    def masked_scatter(self, mask: TensorBase, source: TensorBase) -> Self:
        """Return this tensor with the elements of `source`, in order, where `mask` is True.

        Parameters
        ----------
        mask : Tensor
            Bools. This tensor and the mask broadcast.
        source : Tensor
            Tensor of this tensor's dtype with at least as many elements as the mask selects.

        Returns
        -------
        Tensor
            New tensor of the broadcast shape and this dtype.

        Raises
        ------
        IndexBoundsError
            At run time, if `source` has too few elements.
        DTypeError
            `mask` does not hold bools, or `source` has another dtype.

        Examples
        --------
        >>> mask = krt.tensor([True, False, True])
        >>> krt.zeros(3).masked_scatter(mask, krt.tensor([1.0, 2.0])).tolist()
        [1.0, 0.0, 2.0]
        """
        where = self._lift(mask, "mask")
        check_bools(where.dtype, "mask")
        values = self._of_own_type(self._lift(source, "source"), "source")
        base, chosen = build.align(self.uop, where.uop)
        if build.has_zero(base.shape):
            return self._of(base)
        count = prod(base.shape)
        flat = self._of(build.reshape(chosen, (count,)))
        position = flat.long().cumsum(0) - 1
        position = self._of(build.where(flat.uop, position.uop, 0))
        size = prod(values.dims)
        line = build.reshape(values.uop, (size,))
        if build.has_zero(line.shape):  # a selected element then reads index 1 and fails
            line, size, position = build.full(0, line.dtype, (1,)), 1, flat.long()
        picked = UOp(Op.GATHER, line.dtype, (line, build.bound(position.uop, size)))
        out = build.where(flat.uop, picked, build.reshape(base, (count,)))
        return self._of(build.reshape(out, base.shape))

    def select(self, dim: int, index: int) -> Self:
        """Return the slice at position `index` of axis `dim`, without that axis.

        Parameters
        ----------
        dim : int
            Axis to index.
        index : int
            Position; a negative one counts from the end.

        Returns
        -------
        Tensor
            View of this tensor.

        Raises
        ------
        IndexBoundsError
            `index` is out of range.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).select(1, -1).tolist()
        [2, 4]
        """
        return self[(*(slice(None),) * own_axis(dim, self.ndim), index)]

    def select_scatter(self, src: TensorBase, dim: int, index: int) -> Self:
        """Return this tensor with `src` as the slice at position `index` of axis `dim`.

        Parameters
        ----------
        src : Tensor
            Tensor of the shape of that slice; it is converted to this dtype.
        dim : int
            Axis to index.
        index : int
            Position; a negative one counts from the end.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        IndexBoundsError
            `index` is out of range.
        ShapeError
            `src` has another shape than the slice.

        Examples
        --------
        >>> krt.zeros(2, 2).select_scatter(krt.tensor([1.0, 2.0]), 1, 0).tolist()
        [[1.0, 0.0], [2.0, 0.0]]
        """
        axis = own_axis(dim, self.ndim)
        items = (*(slice(None),) * axis, index)
        return self._with_part(items, src)

    def slice_scatter(
        self, src: TensorBase, dim: int = 0, start: int | None = None, end: int | None = None,
        step: int = 1,
    ) -> Self:  # fmt: skip
        """Return this tensor with `src` in place of ``start:end:step`` of axis `dim`.

        Parameters
        ----------
        src : Tensor
            Tensor of the shape of that part; it is converted to this dtype.
        dim : int
            Axis to slice.
        start, end : int, optional
            Limits of the slice, as in Python.
        step : int
            Step of the slice, at least 1.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        ShapeError
            `src` has another shape than the part, or `step` is below 1.

        Examples
        --------
        >>> krt.zeros(4).slice_scatter(krt.tensor([1.0, 2.0]), 0, 1, 3).tolist()
        [0.0, 1.0, 2.0, 0.0]
        """
        axis = own_axis(dim, self.ndim)
        step = integer(step, "step", 1)
        return self._with_part((*(slice(None),) * axis, slice(start, end, step)), src)

    def diagonal_scatter(
        self, src: TensorBase, offset: int = 0, dim1: int = 0, dim2: int = 1
    ) -> Self:
        """Return this tensor with `src` as its diagonal.

        Parameters
        ----------
        src : Tensor
            Tensor of the shape of the diagonal; it is converted to this dtype.
        offset : int
            Diagonal to replace: 0 is the main one, a positive number lies above it, a negative one
            below.
        dim1, dim2 : int
            Axes of the rows and the columns.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        ShapeError
            `src` has another shape than the diagonal; see :meth:`diagonal`.

        Examples
        --------
        >>> krt.zeros(2, 2).diagonal_scatter(krt.tensor([1.0, 2.0])).tolist()
        [[1.0, 0.0], [0.0, 2.0]]
        """
        order = self._of(build.reshape(build.iota(prod(self.dims)), self.dims))
        line = order.diagonal(offset, dim1, dim2)
        value = self._part(src, line.dims)
        if build.has_zero(line.dims):
            return self._of(self.uop)
        n = prod(line.dims)
        flat = build.reshape(self.uop, (prod(self.dims),))
        out = replaced(flat, build.reshape(value.uop, (n,)), [build.reshape(line.uop, (n,))])
        return self._of(build.reshape(out, self.dims))

    def _part(self, src: object, shape: tuple[Dim, ...]) -> Self:
        value = self._lift(src, "src")
        if not build.same_shape(value.dims, shape):
            raise ShapeError(
                f"src: expected the shape {format_shape(shape)} of the part it replaces, not "
                f"{format_shape(value.dims)}"
            )
        return value.cast(self.dtype)

    def _with_part(self, items: tuple[Any, ...], src: TensorBase) -> Self:
        """Return this tensor with `src` at the elements that numbers and slices select."""
        full = spelled_out(items, self.ndim)
        value = self._part(src, self[items].dims)
        covered, filled = self._spread(full, value)
        return self._select(covered, filled, self)


def _line(line: UOp, axis: int, rank: int) -> UOp:
    return build.reshape(line, tuple(line.shape[0] if a == axis else 1 for a in range(rank)))


def _check_reducer(reduce: object, known: tuple[str, ...]) -> None:
    if reduce not in known:
        names = ", ".join(map(repr, known[:-1]))
        raise DomainError(f"reduce: expected {names} or {known[-1]!r}, not {reduce!r}")

"""Positions in what is sorted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from kernelrt import dtype as dt
from kernelrt.errors import ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.ir.shape import dim_max, dim_span, format_shape
from kernelrt.tensor.methods.sorting import picked
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import flag
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.methods.sorting import OrderingMethods as _Below
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object

__all__ = ["SearchingMethods", "insertions"]

#: Among so many elements, counting those that come before takes less time than a search: 1000
#: values among 32 elements take a third.
_COMPARED: Final = 64


def insertions(sequence: UOp, values: UOp, *, behind: bool) -> UOp:
    """How many elements of sorted rows come before each value; a step for each bit of the size."""
    n = sequence.shape[-1]
    count = build.full(0, dt.int64, values.shape)
    if build.has_zero(sequence.shape) or build.has_zero(values.shape):
        return count
    if dim_max(n) <= _COMPARED:
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
    """The same, by comparing each value with each element."""
    *lead, n = sequence.shape
    shape = (*values.shape, n)
    ones = (1,) * (len(values.shape) - len(lead))
    there = build.expand(build.reshape(sequence, (*lead, *ones, n)), shape)
    wanted = build.expand(build.reshape(values, (*values.shape, 1)), shape)
    before = _before(there, wanted, behind).cast(dt.int32)
    return build.reduce(before, Op.ADD, (len(shape) - 1,)).cast(dt.int64)


def _before(there: UOp, values: UOp, behind: bool) -> UOp:
    """Whether `there` comes before `values` in an order in which NaN is the greatest."""
    after = values.alu(Op.LT, there) if behind else values.alu(Op.LE, there)
    before = after.eq(build.full(False, dt.bool_, values.shape))  # of two numbers, or of NaN
    if not there.dtype.is_float:
        return before
    number = there.eq(there)
    return before.alu(Op.AND, number.alu(Op.OR, values.ne(values)) if behind else number)


@operations()
class SearchingMethods(_Below):
    """Lookup in sorted tensors."""

    __slots__ = ()

    def searchsorted(
        self, values: TensorBase | float, right: bool = False, *, side: str | None = None,
        out_int32: bool = False, sorter: TensorBase | None = None,
    ) -> Self:  # fmt: skip
        """Where `values` would have to be inserted so that the last axis stays sorted.

        NaN is greater than every number, as in :meth:`sort`.

        Parameters
        ----------
        values : Tensor or number
            Beside a tensor of one axis of any shape, else with the same leading axes.
        right : bool
            Behind equal elements instead of before them.
        side : str, optional
            "left" or "right", which says the same.
        out_int32 : bool
            Whether the result is int32 instead of int64.
        sorter : Tensor, optional
            The order in which the elements are sorted, as :meth:`argsort` gives it.
        """
        sequence = self if sorter is None else self.gather(-1, self._lift(sorter, "sorter"))
        wanted = self._lift(values, "values")
        flag(right, "right")
        if side not in (None, "left", "right") or (side == "left" and right):
            raise ShapeError(f"side: expected 'left' or 'right', and not against right, not {side}")
        if sequence.ndim != 1 and not build.same_shape(sequence.dims[:-1], wanted.dims[:-1]):
            raise ShapeError(
                f"values: expected the leading axes {format_shape(sequence.dims[:-1])}, not the "
                f"shape {format_shape(wanted.dims)}"
            )
        a, b = sequence._searched(wanted)
        out = insertions(a, b, behind=right or side == "right")
        return self._of(out.cast(dt.int32) if out_int32 else out)

    def _searched(self, wanted: Self) -> tuple[UOp, UOp]:
        """A sorted tensor and what is looked for there, in one type."""
        if self.ndim == 0:
            raise ShapeError("sorted_sequence: expected at least 1 axis, not a scalar")
        common = dt.promote(self.dtype, wanted.dtype)
        return self.uop.cast(common), wanted.uop.cast(common)

    def bucketize(
        self, boundaries: TensorBase, *, out_int32: bool = False, right: bool = False
    ) -> Self:
        """For each element, which of the intervals between sorted `boundaries` it lies in.

        See :meth:`searchsorted`, which this is with the two exchanged.
        """
        edges = self._lift(boundaries, "boundaries")
        if edges.ndim != 1:
            raise ShapeError(f"boundaries: expected 1 axis, not {edges.ndim}")
        return edges.searchsorted(self, right, out_int32=out_int32)

    def isin(
        self, test_elements: TensorBase | float, *, assume_unique: bool = False,
        invert: bool = False,
    ) -> Self:  # fmt: skip
        """Whether each element is one of `test_elements`, or with `invert` none of them.

        Parameters
        ----------
        test_elements : Tensor or number
            Of any shape.
        assume_unique : bool
            For those who know it; nothing is gained.
        invert : bool
            Ask the opposite.

        Notes
        -----
        NaN is none of them, as it equals nothing.
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

"""Elementwise bit operations, logic, comparison and selection."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Self, cast, overload

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.dlpack import kind_name
from kernelrt.errors import DomainError, DTypeError
from kernelrt.ir import Op, UOp
from kernelrt.native.thread_modes import MISSING
from kernelrt.tensor.base import Operand, TensorBase
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import check_bools, real
from kernelrt.tensor.nodes.promotion import as_scalar, check_size, element
from kernelrt.tensor.operation import operation, operations

if TYPE_CHECKING:
    from kernelrt.tensor.methods.unary import FunctionMethods as _Below
    from kernelrt.tensor.tensor import Tensor
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["ComparisonMethods", "where"]

#: Method names of the ops on bits, for error messages.
_NAMES: Final = {
    Op.AND: "bitwise_and", Op.OR: "bitwise_or", Op.XOR: "bitwise_xor",
    Op.SHL: "bitwise_left_shift", Op.SHR: "bitwise_right_shift",
}  # fmt: skip



@operations()
class ComparisonMethods(_Below):
    """Elementwise comparisons, logic and bit operations."""

    __slots__ = ()

    # ---- bits and logic

    def _bits(self, op: Op, other: Operand, *, reverse: bool = False) -> Self:
        shift = op in (Op.SHL, Op.SHR)
        a, b = self._unify(("other", other), exact=shift)
        if a.dtype.is_float:
            raise DTypeError(
                f"{_NAMES[op]}: expected integers or bools, not {a.dtype.name}; cast the floats"
            )
        if shift and a.dtype.is_bool:
            raise DTypeError(f"{_NAMES[op]}: bools cannot be shifted; cast them to integers")
        return self._of(b.alu(op, a) if reverse else a.alu(op, b))

    def __and__(self, other: Operand) -> Self:
        return self._bits(Op.AND, other)

    def __or__(self, other: Operand) -> Self:
        return self._bits(Op.OR, other)

    def __xor__(self, other: Operand) -> Self:
        return self._bits(Op.XOR, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self, other: Operand) -> Self:
        return self._bits(Op.SHL, other)

    def __rshift__(self, other: Operand) -> Self:
        return self._bits(Op.SHR, other)

    def __rlshift__(self, other: Operand) -> Self:
        return self._bits(Op.SHL, other, reverse=True)

    def __rrshift__(self, other: Operand) -> Self:
        return self._bits(Op.SHR, other, reverse=True)

    def __invert__(self) -> Self:
        if self.dtype.is_float:
            raise DTypeError(
                f"~: expected integers or bools, not {self.dtype.name}; cast, as in x.long()"
            )
        return self._unary(Op.NOT)

    def bitwise_and(self, other: Operand) -> Self:
        """Return the bitwise AND of integers, or the logical AND of bools.

        Parameters
        ----------
        other : Tensor or int
            Integers or bools; shapes broadcast.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Raises
        ------
        DTypeError
            An operand holds floats.

        Examples
        --------
        >>> krt.tensor([6, 3]).bitwise_and(2).tolist()
        [2, 2]
        """
        return self & other

    def bitwise_or(self, other: Operand) -> Self:
        """Return the bitwise OR of integers, or the logical OR of bools.

        Parameters
        ----------
        other : Tensor or int
            Integers or bools; shapes broadcast.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Raises
        ------
        DTypeError
            An operand holds floats.

        Examples
        --------
        >>> krt.tensor([6, 3]).bitwise_or(1).tolist()
        [7, 3]
        """
        return self | other

    def bitwise_xor(self, other: Operand) -> Self:
        """Return the bitwise XOR of integers, or the logical XOR of bools.

        Parameters
        ----------
        other : Tensor or int
            Integers or bools; shapes broadcast.

        Returns
        -------
        Tensor
            Broadcast shape, promoted dtype.

        Raises
        ------
        DTypeError
            An operand holds floats.

        Examples
        --------
        >>> krt.tensor([6, 3]).bitwise_xor(2).tolist()
        [4, 1]
        """
        return self ^ other

    def bitwise_not(self) -> Self:
        """Return the bitwise complement of integers, or the logical NOT of bools.

        Returns
        -------
        Tensor
            Same shape and dtype; floats raise DTypeError.

        Examples
        --------
        >>> krt.tensor([0, 5]).bitwise_not().tolist()
        [-1, -6]
        """
        return ~self

    def bitwise_left_shift(self, other: Operand) -> Self:
        """Return integers times ``2**other``, wrapped; 0 where all bits are shifted out.

        Parameters
        ----------
        other : Tensor or int
            Number of bits; shapes broadcast.

        Returns
        -------
        Tensor of integers
            Broadcast shape, promoted dtype.

        Raises
        ------
        DTypeError
            An operand holds floats, or both hold bools.

        Examples
        --------
        >>> krt.tensor([1, 3], dtype="int8").bitwise_left_shift(6).tolist()
        [64, -64]
        """
        return self << other

    def bitwise_right_shift(self, other: Operand) -> Self:
        """Return integers divided by ``2**other``, rounded down.

        Where all bits are shifted out the result is 0, or -1 for a negative element.

        Parameters
        ----------
        other : Tensor or int
            Number of bits; shapes broadcast.

        Returns
        -------
        Tensor of integers
            Broadcast shape, promoted dtype.

        Raises
        ------
        DTypeError
            An operand holds floats, or both hold bools.

        Examples
        --------
        >>> krt.tensor([-7, 7]).bitwise_right_shift(1).tolist()
        [-4, 3]
        """
        return self >> other

    def logical_not(self) -> Self:
        """Return whether each element is zero.

        Returns
        -------
        Tensor of bools
            Same shape.

        Examples
        --------
        >>> krt.tensor([0.0, 2.0]).logical_not().tolist()
        [True, False]
        """
        return ~self.cast(dt.bool_)

    def logical_and(self, other: Operand) -> Self:
        """Return whether both elements are nonzero; NaN counts as nonzero.

        Parameters
        ----------
        other : Tensor or number
            Second operand; shapes broadcast.

        Returns
        -------
        Tensor of bools
            Broadcast shape.

        Examples
        --------
        >>> krt.tensor([0, 1, 2]).logical_and(krt.tensor([1, 0, 3])).tolist()
        [False, False, True]
        """
        return self.cast(dt.bool_) & self._lift(other, "other").cast(dt.bool_)

    def logical_or(self, other: Operand) -> Self:
        """Return whether at least one of the elements is nonzero; NaN counts as nonzero.

        Parameters
        ----------
        other : Tensor or number
            Second operand; shapes broadcast.

        Returns
        -------
        Tensor of bools
            Broadcast shape.

        Examples
        --------
        >>> krt.tensor([0, 1, 0]).logical_or(krt.tensor([0, 0, 3])).tolist()
        [False, True, True]
        """
        return self.cast(dt.bool_) | self._lift(other, "other").cast(dt.bool_)

    def logical_xor(self, other: Operand) -> Self:
        """Return whether exactly one of the elements is nonzero; NaN counts as nonzero.

        Parameters
        ----------
        other : Tensor or number
            Second operand; shapes broadcast.

        Returns
        -------
        Tensor of bools
            Broadcast shape.

        Examples
        --------
        >>> krt.tensor([0, 1, 2]).logical_xor(krt.tensor([0, 0, 3])).tolist()
        [False, True, False]
        """
        return self.cast(dt.bool_) ^ self._lift(other, "other").cast(dt.bool_)

    # ---- comparison

    def _is_beyond(self, number: object, *, below: bool) -> bool:
        """Return whether an integer is below the dtype's range or, without `below`, above it."""
        if not self.dtype.is_int or not isinstance(number, int | np.integer):
            return False
        return bool(number < self.dtype.min if below else number > self.dtype.max)

    def _compare(self, op: Op, other: Operand, *, reverse: bool = False) -> Self:
        for above, below in ((True, False), (False, True)):
            if self._is_beyond(other, below=below):
                holds = op is Op.NE or (op is not Op.EQ and above is not reverse)
                return self._of(build.full(holds, dt.bool_, self.dims))
        a, b = self._unify(("other", other), exact=True)
        return self._of(b.alu(op, a) if reverse else a.alu(op, b))

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        if other is None:  # Python then answers False by identity
            return NotImplemented
        return self._compare(Op.EQ, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        if other is None:
            return NotImplemented
        return self._compare(Op.NE, other)  # type: ignore[arg-type]

    __hash__ = TensorBase.__hash__

    def __lt__(self, other: Operand) -> Self:
        return self._compare(Op.LT, other)

    def __le__(self, other: Operand) -> Self:
        return self._compare(Op.LE, other)

    def __gt__(self, other: Operand) -> Self:
        return self._compare(Op.LT, other, reverse=True)

    def __ge__(self, other: Operand) -> Self:
        return self._compare(Op.LE, other, reverse=True)

    def eq(self, other: Operand) -> Self:
        """Return whether ``self == other``; NaN equals nothing.

        Parameters
        ----------
        other : Tensor or number
            Values to compare with; shapes broadcast.

        Returns
        -------
        Tensor of bools
            Broadcast shape.

        Examples
        --------
        >>> krt.tensor([1, 2, 3]).eq(2).tolist()
        [False, True, False]
        """
        return self == other

    def ne(self, other: Operand) -> Self:
        """Return whether ``self != other``; NaN differs from everything.

        Parameters
        ----------
        other : Tensor or number
            Values to compare with; shapes broadcast.

        Returns
        -------
        Tensor of bools
            Broadcast shape.

        Examples
        --------
        >>> krt.tensor([1, 2, 3]).ne(2).tolist()
        [True, False, True]
        """
        return self != other

    def lt(self, other: Operand) -> Self:
        """Return whether ``self < other``; False where one of them is NaN.

        Parameters
        ----------
        other : Tensor or number
            Values to compare with; shapes broadcast.

        Returns
        -------
        Tensor of bools
            Broadcast shape.

        Examples
        --------
        >>> krt.tensor([1, 2, 3]).lt(2).tolist()
        [True, False, False]
        """
        return self < other

    def le(self, other: Operand) -> Self:
        """Return whether ``self <= other``; False where one of them is NaN.

        Parameters
        ----------
        other : Tensor or number
            Values to compare with; shapes broadcast.

        Returns
        -------
        Tensor of bools
            Broadcast shape.

        Examples
        --------
        >>> krt.tensor([1, 2, 3]).le(2).tolist()
        [True, True, False]
        """
        return self <= other

    def gt(self, other: Operand) -> Self:
        """Return whether ``self > other``; False where one of them is NaN.

        Parameters
        ----------
        other : Tensor or number
            Values to compare with; shapes broadcast.

        Returns
        -------
        Tensor of bools
            Broadcast shape.

        Examples
        --------
        >>> krt.tensor([1, 2, 3]).gt(2).tolist()
        [False, False, True]
        """
        return self > other

    def ge(self, other: Operand) -> Self:
        """Return whether ``self >= other``; False where one of them is NaN.

        Parameters
        ----------
        other : Tensor or number
            Values to compare with; shapes broadcast.

        Returns
        -------
        Tensor of bools
            Broadcast shape.

        Examples
        --------
        >>> krt.tensor([1, 2, 3]).ge(2).tolist()
        [False, True, True]
        """
        return self >= other

    greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne

    def isclose(
        self, other: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Self:
        """Return whether elements differ by at most ``atol + rtol * abs(other)``, or are equal.

        Parameters
        ----------
        other : Tensor or number
            Values to compare with; shapes broadcast.
        rtol, atol : float, default 1e-5 and 1e-8
            Relative and absolute tolerance, at least 0.
        equal_nan : bool, default False
            Whether two NaNs are close.

        Returns
        -------
        Tensor of bools
            Broadcast shape.

        Raises
        ------
        DomainError
            A tolerance is negative.

        Examples
        --------
        >>> krt.tensor([100.0, 100.5]).isclose(100.0, rtol=1e-3).tolist()
        [True, False]
        """
        for name, value in (("rtol", rtol), ("atol", atol)):
            if not real(value, name) >= 0:
                raise DomainError(f"{name}: expected a number of at least 0, not {value}")
        a, b = self._unify(("other", other), exact=True)
        same = a.eq(b)
        if equal_nan and a.dtype.is_float:
            same = same.alu(Op.OR, a.ne(a).alu(Op.AND, b.ne(b)))
        if a.dtype.is_bool or (rtol == 0 and atol == 0):
            return self._of(same)
        wide = a.dtype.accumulator if a.dtype.is_float else dt.float64
        a, b = a.cast(wide), b.cast(wide)
        limit = build.add(build.mul(b.alu(Op.ABS), rtol), atol)
        gap = a.alu(Op.SUB, b).alu(Op.ABS)
        finite = gap.alu(Op.LT, build.full(math.inf, wide, gap.shape))
        return self._of(same.alu(Op.OR, finite.alu(Op.AND, gap.alu(Op.LE, limit))))

    def isnan(self) -> Self:
        """Return whether each element is NaN.

        Returns
        -------
        Tensor of bools
            Same shape; False for integers and bools.

        Examples
        --------
        >>> krt.tensor([1.0, float("nan")]).isnan().tolist()
        [False, True]
        """
        x = self.uop
        return self._of(x.ne(x) if x.dtype.is_float else build.full(False, dt.bool_, x.shape))

    def isinf(self) -> Self:
        """Return whether each element is infinite.

        Returns
        -------
        Tensor of bools
            Same shape; False for integers and bools.

        Examples
        --------
        >>> krt.tensor([1.0, float("-inf"), float("nan")]).isinf().tolist()
        [False, True, False]
        """
        if not self.dtype.is_float:
            return self._of(build.full(False, dt.bool_, self.dims))
        return self._unary(Op.ABS).eq(math.inf)

    def isfinite(self) -> Self:
        """Return whether each element is neither infinite nor NaN.

        Returns
        -------
        Tensor of bools
            Same shape; True for integers and bools.

        Examples
        --------
        >>> krt.tensor([1.0, float("-inf"), float("nan")]).isfinite().tolist()
        [True, False, False]
        """
        if not self.dtype.is_float:
            return self._of(build.full(True, dt.bool_, self.dims))
        return self._unary(Op.ABS) < math.inf

    def where(self, condition: Operand, other: Operand) -> Self:
        """Return this tensor's elements where `condition` holds, else those of `other`.

        Parameters
        ----------
        condition : Tensor of bools
            Where to keep this tensor's elements.
        other : Tensor or number
            Elements for the other positions.

        Returns
        -------
        Tensor
            Broadcast shape of all three, promoted dtype of the elements.

        Raises
        ------
        DTypeError
            `condition` is not of type bool.

        Examples
        --------
        >>> x = krt.tensor([-1.0, 2.0])
        >>> x.where(x > 0, 0).tolist()
        [0.0, 2.0]
        """
        return self._select(condition, self, other)

    def masked_fill(self, mask: Operand, value: Operand) -> Self:
        """Return this tensor with `value` where `mask` holds; the dtype stays.

        Parameters
        ----------
        mask : Tensor of bools
            Where to put `value`.
        value : Tensor or number
            Replacement, cast to this dtype. A tensor broadcasts.

        Returns
        -------
        Tensor
            Broadcast shape, same dtype.

        Raises
        ------
        DTypeError
            `mask` is not of type bool, or `value` is a number outside of the range of this tensor's
            integer dtype.

        Examples
        --------
        >>> x = krt.tensor([-1.0, 2.0])
        >>> x.masked_fill(x < 0, 9).tolist()
        [9.0, 2.0]
        """
        number = as_scalar(value)
        if number is not None:
            value = element(number, self.dtype, "value")
        else:
            check_size(value, self.dtype, "value")
            value = self._lift(value, "value").cast(self.dtype)
        chosen = self._lift(mask, "masked_fill: mask")
        check_bools(chosen.dtype, "masked_fill: mask")
        return self._select(chosen, value, self)

    @operation
    def _select(self, condition: object, yes: Operand, no: Operand) -> Self:
        mask = self._lift(condition, "condition")
        check_bools(mask.dtype, "condition")
        a, b = self._promote(("input", yes), ("other", no), exact=True)
        return self._of(UOp(Op.WHERE, a.dtype, tuple(build.align(mask.uop, a, b))))


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(condition: object, input: Operand, other: Operand) -> Tensor: ...
def where(
    condition: object, input: Operand | Any = MISSING, other: Operand | Any = MISSING  # noqa: A002 - torch's name
) -> Tensor | tuple[Tensor, ...]:
    """Return the elements of `input` where `condition` holds, else those of `other`.

    The arguments broadcast and promote. With `condition` alone, return the positions of its nonzero
    elements: ``condition.nonzero(as_tuple=True)``.

    Parameters
    ----------
    condition : Tensor of bools
        Where to take the elements of `input`. A tensor of any dtype if it is the only argument.
    input, other : Tensor or number
        Elements to select. At least one of the three arguments must be a tensor.

    Returns
    -------
    Tensor, or tuple of Tensor
        The selected elements; or one vector of int64 positions for each axis of `condition`.

    Raises
    ------
    DTypeError
        `condition` is not of type bool, or no argument is a tensor.

    Examples
    --------
    >>> x = krt.tensor([-1.0, 2.0])
    >>> krt.where(x > 0, x, 0).tolist()
    [0.0, 2.0]
    >>> [positions.tolist() for positions in krt.where(x > 0)]
    [[1]]
    """
    if (input is MISSING) != (other is MISSING):
        absent = "input" if input is MISSING else "other"
        raise TypeError(
            f"where() missing 1 required positional argument: {absent!r}; pass input and other, "
            "or the condition alone to get the positions where it holds"
        )
    if input is MISSING:
        if not isinstance(condition, ComparisonMethods):
            raise DTypeError(f"where: condition: expected a Tensor, not {kind_name(condition)}")
        alone = cast("Tensor", condition)
        return cast("tuple[Tensor, ...]", alone.nonzero(as_tuple=True))
    for value in (condition, input, other):
        if isinstance(value, ComparisonMethods):
            return cast("Tensor", value._select(condition, input, other))
    raise DTypeError(
        "where: expected at least one Tensor among condition, input and other, but there is none; "
        "convert one of them with kernelrt.tensor()"
    )

"""``x[mask]`` in a traced function that does not know the values of the mask."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NoReturn

from kernelrt.errors import JitError
from kernelrt.tensor.nodes.promotion import as_scalar, number_node

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MaskedPart", "refuse_part", "unknown_count"]

_Method = Any


def unknown_count() -> JitError:
    """Return the error for code that needs the number of elements that a mask selects."""
    return JitError(
        "index: the number of elements that a boolean mask selects depends on values, which are "
        "unknown while a function is traced. Use an operation of fixed size: where(mask, x, "
        "other), x.masked_fill(mask, value), x * mask, x.masked_select(mask, size=n) or "
        "mask.nonzero(size=n). x[mask] = y, x[mask] += y and x[mask] = 2 * y[mask] with the same "
        "mask work, too, as they need no number. If the mask never changes, do not pass it as an "
        "argument, but convert it to an array before the call: mask = mask.numpy()"
    )


def refuse_part(value: object) -> None:
    """Raise the error of :func:`unknown_count` if `value` is a MaskedPart."""
    if isinstance(value, MaskedPart):
        raise unknown_count()


def _binary(rule: Callable[[Any, Any], Any], *, reverse: bool = False) -> _Method:
    """Return the method of an operator that computes a new part."""

    def method(self: MaskedPart, other: object) -> MaskedPart:
        beside = self._operand(other)
        pair = (beside, self._whole) if reverse else (self._whole, beside)
        return self._with(rule(*pair))

    method.__name__ = f"__{'r' if reverse else ''}{rule.__name__.strip('_')}__"
    return method


def _unary(rule: Callable[[Any], Any]) -> _Method:
    def method(self: MaskedPart) -> MaskedPart:
        return self._with(rule(self._whole))

    method.__name__ = f"__{rule.__name__}__"
    return method


def _in_place(rule: Callable[[Any, Any], Any], sign: str) -> _Method:
    """Return the method of an operator that changes the part in place."""

    def method(self: MaskedPart, other: object) -> MaskedPart:
        new = self._whole._fitting(rule(self._whole, self._operand(other)), sign)
        self._whole = self._filled(new)
        return self

    method.__name__ = f"__i{rule.__name__.strip('_')}__"
    return method


class MaskedPart:
    """``x[mask]`` in a traced function, if the number of selected elements depends on data.

    Operators compute with it, and ``x[mask] = part`` writes it back. So ``x[mask] += y`` and
    ``x[mask] = 2 * y[mask]`` work, as they do not need the number of elements. Every other use
    raises JitError.

    The part is stored as a tensor with the axes of x. Elements where the mask is False are 1: there
    each operator has a finite value and derivative, so no NaN from these elements reaches a
    gradient.
    """

    __slots__ = ("_mask", "_source", "_whole", "_wide")

    def __init__(self, source: Any, mask: Any) -> None:
        self._source = source._of(source.uop)
        self._mask = mask._of(mask.uop)
        self._wide = source._fitted_mask(self._mask)
        self._whole = self._filled(source)

    def _filled(self, whole: Any) -> Any:
        return self._source._select(self._wide, whole, 1)

    def _with(self, whole: Any) -> MaskedPart:
        part = MaskedPart.__new__(MaskedPart)
        part._source, part._mask, part._wide = self._source, self._mask, self._wide
        part._whole = self._filled(whole)
        return part

    def _operand(self, other: object) -> Any:
        """Return the other operand, with one element for each element of this part's tensor."""
        if isinstance(other, MaskedPart):
            return other.under(self._source, self._mask)

        if as_scalar(other) is not None or number_node(other) is not None:
            return other
        value = self._source._lift(other, "other")
        return self._filled(self._source._under(self._mask, value))

    def under(self, target: Any, mask: Any) -> Any:
        """Return the part's tensor for ``target[mask] = part``.

        Raises
        ------
        JitError
            `mask` is not the mask of the part, or `target` has another number of axes.
        """
        if mask.uop is not self._mask.uop or target.ndim != self._source.ndim:
            raise unknown_count()
        return self._whole

    def __getattr__(self, name: str) -> NoReturn:
        raise unknown_count()

    def __repr__(self) -> str:
        return "<elements under a mask that is not known while a function is traced>"

    def _refused(self, *_: object) -> NoReturn:
        raise unknown_count()

    __getitem__ = __setitem__ = __len__ = __iter__ = __bool__ = __contains__ = _refused
    __int__ = __float__ = __index__ = __complex__ = __matmul__ = __rmatmul__ = _refused
    __lt__ = __le__ = __gt__ = __ge__ = __divmod__ = __rdivmod__ = _refused
    __eq__ = __ne__ = _refused
    __hash__ = object.__hash__

    __neg__, __pos__ = _unary(operator.neg), _unary(operator.pos)
    __abs__, __invert__ = _unary(operator.abs), _unary(operator.invert)

    __add__, __radd__ = _binary(operator.add), _binary(operator.add, reverse=True)
    __sub__, __rsub__ = _binary(operator.sub), _binary(operator.sub, reverse=True)
    __mul__, __rmul__ = _binary(operator.mul), _binary(operator.mul, reverse=True)
    __truediv__, __rtruediv__ = _binary(operator.truediv), _binary(operator.truediv, reverse=True)
    __floordiv__ = _binary(operator.floordiv)
    __rfloordiv__ = _binary(operator.floordiv, reverse=True)
    __mod__, __rmod__ = _binary(operator.mod), _binary(operator.mod, reverse=True)
    __pow__, __rpow__ = _binary(operator.pow), _binary(operator.pow, reverse=True)
    __and__, __rand__ = _binary(operator.and_), _binary(operator.and_, reverse=True)
    __or__, __ror__ = _binary(operator.or_), _binary(operator.or_, reverse=True)
    __xor__, __rxor__ = _binary(operator.xor), _binary(operator.xor, reverse=True)
    __lshift__, __rlshift__ = _binary(operator.lshift), _binary(operator.lshift, reverse=True)
    __rshift__, __rrshift__ = _binary(operator.rshift), _binary(operator.rshift, reverse=True)

    __iadd__, __isub__ = _in_place(operator.add, "+="), _in_place(operator.sub, "-=")
    __imul__, __itruediv__ = _in_place(operator.mul, "*="), _in_place(operator.truediv, "/=")
    __ifloordiv__, __imod__ = _in_place(operator.floordiv, "//="), _in_place(operator.mod, "%=")
    __ipow__, __iand__ = _in_place(operator.pow, "**="), _in_place(operator.and_, "&=")
    __ior__, __ixor__ = _in_place(operator.or_, "|="), _in_place(operator.xor, "^=")
    __ilshift__ = _in_place(operator.lshift, "<<=")
    __irshift__ = _in_place(operator.rshift, ">>=")

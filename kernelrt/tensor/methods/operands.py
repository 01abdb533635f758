"""Conversion of operands to one dtype and one shape."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, Self, cast
from weakref import WeakValueDictionary

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.ir import UOp
from kernelrt.ir.shape import is_static
from kernelrt.native.thread_modes import local
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.promotion import (
    Weak,
    as_scalar,
    check_fits,
    constant,
    element,
    operand,
    result_type,
)
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from kernelrt.tensor.base import TensorBase as _Below
    from kernelrt.tensor.free_functions import creation
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object
    creation = Module("kernelrt.tensor.free_functions.creation")

__all__ = ["OperandMethods"]

#: Nodes of numbers, by dtype and shape of the other operand.
_numbers: dict[tuple[object, ...], UOp] = {}
_MOST_NUMBERS: Final = 512
#: Larger arrays that operations create are not cached.
_LITERAL_BYTES: Final = 1 << 16


#: Buffers of arrays that operations create, for as long as a graph or a template uses them.
_literals: WeakValueDictionary[tuple[bytes, str], Buffer] = WeakValueDictionary()


@functools.lru_cache(256)
def _literal(data: bytes, shape: tuple[int, ...], kind: str) -> UOp:
    buffer = _literals.get((data, kind))
    if buffer is None:
        values = np.frombuffer(data, kind)
        buffer = Buffer(values.size, dt.from_numpy(values.dtype))
        buffer.copyin(values)
        buffer.constant = True
        _literals[data, kind] = buffer
    return build.reshape(build.memory(buffer), shape)


class OperandMethods(_Below):
    """Conversion of operands."""

    __slots__ = ()

    def _lift(self, value: object, name: str, *, like: bool = False) -> Self:
        """Return `value` as a tensor; arrays are copied.

        With `like`, a number that promotes to this tensor's dtype gets that dtype, in full
        precision.
        """
        if isinstance(value, TensorBase):
            return value  # type: ignore[return-value]

        number = as_scalar(value) if like else None
        if number is not None and dt.of_scalar(number, self.dtype) is self.dtype:
            value = element(number, self.dtype, name)
            return creation.from_data(type(self), value, name, self.dtype)
        return creation.from_data(type(self), value, name)

    def _literal(self, values: np.ndarray[Any, Any]) -> Self:
        """Return as a tensor an array that an operation creates from sizes and numbers alone.

        Equal arrays share memory, so equal operations have equal graphs. Large arrays do not share
        memory, because caches of graphs would keep this memory alive.
        """
        if local.trace is not None or values.nbytes > _LITERAL_BYTES:
            return self._lift(values, "values")
        return self._of(_literal(values.tobytes(), values.shape, values.dtype.str))

    def _as_number(self, value: object, name: str) -> UOp | float | None:
        """Return a weakly typed operand as a number or a node; return None for a tensor."""
        found = operand(self, value, name)
        if isinstance(found, Weak):
            return found.node
        return None if isinstance(found, UOp) else found

    def _promote(self, *operands: tuple[str, object], exact: bool = False) -> list[UOp]:
        """Promote `operands`, pairs of name and value, to one dtype and one shape.

        Python integers outside of the range of the dtype wrap, as sums, products and bit operations
        allow. With `exact`, such integers raise DTypeError.
        """
        values = [operand(self, value, name) for name, value in operands]
        dtype = result_type(values)
        if exact:
            for (name, _), value in zip(operands, values, strict=True):
                check_fits(value, dtype, name)
        return build.align(
            *(
                v.cast(dtype) if isinstance(v, UOp | Weak) else constant(v, dtype, name)
                for (name, _), v in zip(operands, values, strict=True)
            )
        )

    def _unify(self, *others: tuple[str, object], exact: bool = False) -> list[UOp]:
        """Promote this tensor and `others` to one dtype and one shape."""
        if len(others) == 1:
            other = others[0][1]
            kind = type(other)
            if kind is float or kind is int:
                return self._beside(cast("float", other), others[0][0], exact)
            if kind is type(self):
                a, b = self.uop, cast("TensorBase", other).uop
                # The common case: equal dtypes and equal shapes of plain numbers.
                if a.dtype is b.dtype and a.shape == b.shape and is_static(a.shape):
                    return [a, b]
        return self._promote(("self", self), *others, exact=exact)

    def _beside(self, number: float, name: str, exact: bool) -> list[UOp]:
        """Unify this tensor and `number`; cache the number's node for tensors like this one."""
        a = self.uop
        key = a.dtype, a.shape, type(number), number, exact
        found = _numbers.get(key)
        if found is None:
            x, found = self._promote(("self", self), (name, number), exact=exact)
            if x is not a or number == 0:  # 0.0 and -0.0 are equal keys, but different numbers
                return [x, found]
            if len(_numbers) >= _MOST_NUMBERS:
                _numbers.clear()
            _numbers[key] = found
        return [a, found]

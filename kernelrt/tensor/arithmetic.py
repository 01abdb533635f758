"""More arithmetic on each element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.conversion import ConversionMethods as _Below
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object

__all__ = ["ArithmeticMethods"]


@operations()
class ArithmeticMethods(_Below):
    """Arithmetic on each element that is made of several ops."""

    __slots__ = ()

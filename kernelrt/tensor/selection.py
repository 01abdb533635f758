"""What masks and lists of positions select."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.conversion import ConversionMethods as _Below
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object

__all__ = ["SelectionMethods"]


@operations()
class SelectionMethods(_Below):
    """What masks and lists of positions select."""

    __slots__ = ()

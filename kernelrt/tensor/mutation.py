"""Operations that assign their result to the tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.conversion import ConversionMethods as _Below
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object

__all__ = ["InPlaceMethods"]


@operations()
class InPlaceMethods(_Below):
    """Operations that assign their result to the tensor."""

    __slots__ = ()

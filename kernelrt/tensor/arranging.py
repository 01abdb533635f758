"""Diagonals, rotations, windows and parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.conversion import ConversionMethods as _Below
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object

__all__ = ["ArrangingMethods"]


@operations()
class ArrangingMethods(_Below):
    """Diagonals, rotations, windows and parts."""

    __slots__ = ()

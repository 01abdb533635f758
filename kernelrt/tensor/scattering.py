"""Writes to places that are data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.conversion import ConversionMethods as _Below
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object

__all__ = ["ScatteringMethods"]


@operations()
class ScatteringMethods(_Below):
    """Writes to places that are data: results are new tensors."""

    __slots__ = ()

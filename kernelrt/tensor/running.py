"""Running products and extrema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.conversion import ConversionMethods as _Below
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object

__all__ = ["RunningMethods"]


@operations()
class RunningMethods(_Below):
    """Folds of the elements up to each one."""

    __slots__ = ()

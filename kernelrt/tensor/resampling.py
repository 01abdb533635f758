"""Images at other sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.conversion import ConversionMethods as _Below
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object

__all__ = ["ResamplingMethods"]


@operations()
class ResamplingMethods(_Below):
    """Images at other sizes."""

    __slots__ = ()

"""Padding layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt.errors import DTypeError
from kernelrt.nn.module import Module
from kernelrt.tensor.nodes.arguments import real, whole

if TYPE_CHECKING:
    from kernelrt.tensor import Tensor

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d",
    "ConstantPad3d", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
    "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip

Widths = int | tuple[int, ...]


class _Pad(Module):
    """One that pads the last axes.

    Parameters
    ----------
    padding : int or sequence of int
        One width for all ends, or pairs (before, behind), the last axis first. Negative numbers
        cut elements off.
    """

    _axes: ClassVar[int]
    _mode: ClassVar[str] = "constant"
    value: float | None = None

    def __init__(self, padding: Widths) -> None:
        given: Any = padding if isinstance(padding, tuple | list) else (padding,) * 2 * self._axes
        widths = tuple(width for width in map(whole, given) if width is not None)
        if len(given) != 2 * self._axes or len(widths) != len(given):
            raise DTypeError(
                f"padding: expected an int or {2 * self._axes} of them, not {padding!r}"
            )
        self.padding = widths

    def forward(self, input: Tensor) -> Tensor:
        """Pad `x`."""
        return input.pad(self.padding, self._mode, self.value)

    def extra_repr(self) -> str:
        """Give the widths."""
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """One that adds a number.

    Parameters
    ----------
    padding : int or sequence of int
        One width for all ends, or pairs (before, behind), the last axis first. Negative numbers
        cut elements off.
    value : float
        The number.
    """

    def __init__(self, padding: Widths, value: float) -> None:
        super().__init__(padding)
        self.value = real(value, "value")

    def extra_repr(self) -> str:
        """Give the widths and the number."""
        return f"padding={self.padding}, value={self.value}"


class ZeroPad1d(_Pad):
    """Zeros at the ends of the last axis; see ``Tensor.pad``."""

    _axes = 1


class ZeroPad2d(_Pad):
    """Zeros at the ends of the last two axes; see ``Tensor.pad``."""

    _axes = 2


class ZeroPad3d(_Pad):
    """Zeros at the ends of the last three axes; see ``Tensor.pad``."""

    _axes = 3


class ConstantPad1d(_ConstantPad):
    """A number at the ends of the last axis; see ``Tensor.pad``."""

    _axes = 1


class ConstantPad2d(_ConstantPad):
    """A number at the ends of the last two axes; see ``Tensor.pad``."""

    _axes = 2


class ConstantPad3d(_ConstantPad):
    """A number at the ends of the last three axes; see ``Tensor.pad``."""

    _axes = 3


class ReflectionPad1d(_Pad):
    """Mirrored elements at the ends of the last axis; see ``Tensor.pad``."""

    _axes, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Mirrored elements at the ends of the last two axes; see ``Tensor.pad``."""

    _axes, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Mirrored elements at the ends of the last three axes; see ``Tensor.pad``."""

    _axes, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """The outermost elements at the ends of the last axis; see ``Tensor.pad``."""

    _axes, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The outermost elements at the ends of the last two axes; see ``Tensor.pad``."""

    _axes, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """The outermost elements at the ends of the last three axes; see ``Tensor.pad``."""

    _axes, _mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Elements of the other end at the ends of the last axis; see ``Tensor.pad``."""

    _axes, _mode = 1, "circular"


class CircularPad2d(_Pad):
    """Elements of the other end at the ends of the last two axes; see ``Tensor.pad``."""

    _axes, _mode = 2, "circular"


class CircularPad3d(_Pad):
    """Elements of the other end at the ends of the last three axes; see ``Tensor.pad``."""

    _axes, _mode = 3, "circular"

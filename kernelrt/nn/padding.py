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
    """Base of layers that pad the last axes.

    Parameters
    ----------
    padding : int or sequence of int
        One width for all sides, or pairs (before, after), last axis first. Negative widths
        remove elements.
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
        """Pad `input`."""
        return input.pad(self.padding, self._mode, self.value)

    def extra_repr(self) -> str:
        """Return the widths as text."""
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """Base of layers that pad with a constant.

    Parameters
    ----------
    padding : int or sequence of int
        One width for all sides, or pairs (before, after), last axis first. Negative widths
        remove elements.
    value : float
        Value of the padding.
    """

    def __init__(self, padding: Widths, value: float) -> None:
        super().__init__(padding)
        self.value = real(value, "value")

    def extra_repr(self) -> str:
        """Return the widths and the value as text."""
        return f"padding={self.padding}, value={self.value}"


class ZeroPad1d(_Pad):
    """Pad the last axis with zeros; see ``Tensor.pad``."""

    _axes = 1


class ZeroPad2d(_Pad):
    """Pad the last two axes with zeros; see ``Tensor.pad``."""

    _axes = 2


class ZeroPad3d(_Pad):
    """Pad the last three axes with zeros; see ``Tensor.pad``."""

    _axes = 3


class ConstantPad1d(_ConstantPad):
    """Pad the last axis with a constant; see ``Tensor.pad``."""

    _axes = 1


class ConstantPad2d(_ConstantPad):
    """Pad the last two axes with a constant; see ``Tensor.pad``."""

    _axes = 2


class ConstantPad3d(_ConstantPad):
    """Pad the last three axes with a constant; see ``Tensor.pad``."""

    _axes = 3


class ReflectionPad1d(_Pad):
    """Pad the last axis with mirrored elements; see ``Tensor.pad``."""

    _axes, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Pad the last two axes with mirrored elements; see ``Tensor.pad``."""

    _axes, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Pad the last three axes with mirrored elements; see ``Tensor.pad``."""

    _axes, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Pad the last axis with its outermost elements; see ``Tensor.pad``."""

    _axes, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Pad the last two axes with their outermost elements; see ``Tensor.pad``."""

    _axes, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Pad the last three axes with their outermost elements; see ``Tensor.pad``."""

    _axes, _mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Pad the last axis with elements of its other end; see ``Tensor.pad``."""

    _axes, _mode = 1, "circular"


class CircularPad2d(_Pad):
    """Pad the last two axes with elements of their other ends; see ``Tensor.pad``."""

    _axes, _mode = 2, "circular"


class CircularPad3d(_Pad):
    """Pad the last three axes with elements of their other ends; see ``Tensor.pad``."""

    _axes, _mode = 3, "circular"

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
        """Map ``(*, *sizes)`` to ``(*, *padded)``; each padded size includes both widths."""
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
    """Pad the last axis with zeros; see ``Tensor.pad``.

    Maps ``(*, n)`` to ``(*, before + n + after)``.

    Parameters
    ----------
    padding : int or (int, int)
        One width for both ends, or the widths (before, after). Negative widths remove elements.

    Examples
    --------
    >>> krt.nn.ZeroPad1d((1, 2))(krt.tensor([[3.0, 4.0]])).tolist()
    [[0.0, 3.0, 4.0, 0.0, 0.0]]
    """

    _axes = 1


class ZeroPad2d(_Pad):
    """Pad the last two axes with zeros; see ``Tensor.pad``.

    Maps ``(*, rows, columns)`` to ``(*, top + rows + bottom, left + columns + right)``.

    Parameters
    ----------
    padding : int or (int, int, int, int)
        One width for all sides, or the widths (left, right, top, bottom). Negative widths remove
        elements.

    Examples
    --------
    >>> krt.nn.ZeroPad2d((1, 0, 0, 1))(krt.tensor([[3.0, 4.0]])).tolist()
    [[0.0, 3.0, 4.0], [0.0, 0.0, 0.0]]
    """

    _axes = 2


class ZeroPad3d(_Pad):
    """Pad the last three axes with zeros; see ``Tensor.pad``.

    Maps ``(*, depth, rows, columns)`` to the same with the widths added to these sizes.

    Parameters
    ----------
    padding : int or sequence of six int
        One width for all sides, or the widths (left, right, top, bottom, front, back). Negative
        widths remove elements.

    Examples
    --------
    >>> krt.nn.ZeroPad3d((1, 1, 2, 2, 3, 3))(krt.ones(5, 4, 4, 4)).shape
    (5, 10, 8, 6)
    """

    _axes = 3


class ConstantPad1d(_ConstantPad):
    """Pad the last axis with a constant; see ``Tensor.pad``.

    Maps ``(*, n)`` to ``(*, before + n + after)``.

    Parameters
    ----------
    padding : int or (int, int)
        One width for both ends, or the widths (before, after). Negative widths remove elements.
    value : float
        Value of the padding.

    Examples
    --------
    >>> krt.nn.ConstantPad1d(1, 9.0)(krt.tensor([[3.0, 4.0]])).tolist()
    [[9.0, 3.0, 4.0, 9.0]]
    """

    _axes = 1


class ConstantPad2d(_ConstantPad):
    """Pad the last two axes with a constant; see ``Tensor.pad``.

    Maps ``(*, rows, columns)`` to ``(*, top + rows + bottom, left + columns + right)``.

    Parameters
    ----------
    padding : int or (int, int, int, int)
        One width for all sides, or the widths (left, right, top, bottom). Negative widths remove
        elements.
    value : float
        Value of the padding.

    Examples
    --------
    >>> krt.nn.ConstantPad2d((1, 0, 0, 1), 9.0)(krt.tensor([[3.0, 4.0]])).tolist()
    [[9.0, 3.0, 4.0], [9.0, 9.0, 9.0]]
    """

    _axes = 2


class ConstantPad3d(_ConstantPad):
    """Pad the last three axes with a constant; see ``Tensor.pad``.

    Maps ``(*, depth, rows, columns)`` to the same with the widths added to these sizes.

    Parameters
    ----------
    padding : int or sequence of six int
        One width for all sides, or the widths (left, right, top, bottom, front, back). Negative
        widths remove elements.
    value : float
        Value of the padding.

    Examples
    --------
    >>> krt.nn.ConstantPad3d((1, 0, 0, 0, 0, 0), 9.0)(krt.tensor([[[3.0, 4.0]]])).tolist()
    [[[9.0, 3.0, 4.0]]]
    """

    _axes = 3


class ReflectionPad1d(_Pad):
    """Pad the last axis with mirrored elements; the outermost element is not repeated.

    Maps ``(batch, channels, n)`` to ``(batch, channels, before + n + after)``; the batch may be
    missing. See ``Tensor.pad``.

    Parameters
    ----------
    padding : int or (int, int)
        One width for both ends, or the widths (before, after), below n. Negative widths remove
        elements.

    Examples
    --------
    >>> krt.nn.ReflectionPad1d(2)(krt.tensor([[1.0, 2.0, 3.0]])).tolist()
    [[3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0]]
    """

    _axes, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Pad the last two axes with mirrored elements; the outermost elements are not repeated.

    Maps ``(batch, channels, rows, columns)`` to ``(batch, channels, top + rows + bottom,
    left + columns + right)``; the batch may be missing. See ``Tensor.pad``.

    Parameters
    ----------
    padding : int or (int, int, int, int)
        One width for all sides, or the widths (left, right, top, bottom), each below the size of
        its axis. Negative widths remove elements.

    Examples
    --------
    >>> krt.nn.ReflectionPad2d((1, 1, 0, 0))(krt.tensor([[[1.0, 2.0, 3.0]]])).tolist()
    [[[2.0, 1.0, 2.0, 3.0, 2.0]]]
    """

    _axes, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Pad the last three axes with mirrored elements; the outermost elements are not repeated.

    Maps ``(batch, channels, depth, rows, columns)`` to the same with the widths added to the last
    three sizes; the batch may be missing. See ``Tensor.pad``.

    Parameters
    ----------
    padding : int or sequence of six int
        One width for all sides, or the widths (left, right, top, bottom, front, back), each below
        the size of its axis. Negative widths remove elements.

    Examples
    --------
    >>> krt.nn.ReflectionPad3d(1)(krt.ones(5, 4, 4, 4)).shape
    (5, 6, 6, 6)
    """

    _axes, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Pad the last axis with copies of its outermost elements; see ``Tensor.pad``.

    Maps ``(batch, channels, n)`` to ``(batch, channels, before + n + after)``; the batch may be
    missing.

    Parameters
    ----------
    padding : int or (int, int)
        One width for both ends, or the widths (before, after). Negative widths remove elements.

    Examples
    --------
    >>> krt.nn.ReplicationPad1d(2)(krt.tensor([[1.0, 2.0]])).tolist()
    [[1.0, 1.0, 1.0, 2.0, 2.0, 2.0]]
    """

    _axes, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Pad the last two axes with copies of their outermost elements; see ``Tensor.pad``.

    Maps ``(batch, channels, rows, columns)`` to ``(batch, channels, top + rows + bottom,
    left + columns + right)``; the batch may be missing.

    Parameters
    ----------
    padding : int or (int, int, int, int)
        One width for all sides, or the widths (left, right, top, bottom). Negative widths remove
        elements.

    Examples
    --------
    >>> krt.nn.ReplicationPad2d((1, 0, 0, 1))(krt.tensor([[[1.0, 2.0]]])).tolist()
    [[[1.0, 1.0, 2.0], [1.0, 1.0, 2.0]]]
    """

    _axes, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Pad the last three axes with copies of their outermost elements; see ``Tensor.pad``.

    Maps ``(batch, channels, depth, rows, columns)`` to the same with the widths added to the last
    three sizes; the batch may be missing.

    Parameters
    ----------
    padding : int or sequence of six int
        One width for all sides, or the widths (left, right, top, bottom, front, back). Negative
        widths remove elements.

    Examples
    --------
    >>> krt.nn.ReplicationPad3d(1)(krt.ones(5, 4, 4, 4)).shape
    (5, 6, 6, 6)
    """

    _axes, _mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Pad the last axis with elements of its other end; see ``Tensor.pad``.

    Maps ``(batch, channels, n)`` to ``(batch, channels, before + n + after)``; the batch may be
    missing.

    Parameters
    ----------
    padding : int or (int, int)
        One width for both ends, or the widths (before, after), at most n. Negative widths remove
        elements.

    Examples
    --------
    >>> krt.nn.CircularPad1d((1, 2))(krt.tensor([[1.0, 2.0, 3.0]])).tolist()
    [[3.0, 1.0, 2.0, 3.0, 1.0, 2.0]]
    """

    _axes, _mode = 1, "circular"


class CircularPad2d(_Pad):
    """Pad the last two axes with elements of their other ends; see ``Tensor.pad``.

    Maps ``(batch, channels, rows, columns)`` to ``(batch, channels, top + rows + bottom,
    left + columns + right)``; the batch may be missing.

    Parameters
    ----------
    padding : int or (int, int, int, int)
        One width for all sides, or the widths (left, right, top, bottom), each at most the size of
        its axis. Negative widths remove elements.

    Examples
    --------
    >>> krt.nn.CircularPad2d((1, 0, 0, 1))(krt.tensor([[[1.0, 2.0]]])).tolist()
    [[[2.0, 1.0, 2.0], [2.0, 1.0, 2.0]]]
    """

    _axes, _mode = 2, "circular"


class CircularPad3d(_Pad):
    """Pad the last three axes with elements of their other ends; see ``Tensor.pad``.

    Maps ``(batch, channels, depth, rows, columns)`` to the same with the widths added to the last
    three sizes; the batch may be missing.

    Parameters
    ----------
    padding : int or sequence of six int
        One width for all sides, or the widths (left, right, top, bottom, front, back), each at most
        the size of its axis. Negative widths remove elements.

    Examples
    --------
    >>> krt.nn.CircularPad3d(1)(krt.ones(5, 4, 4, 4)).shape
    (5, 6, 6, 6)
    """

    _axes, _mode = 3, "circular"

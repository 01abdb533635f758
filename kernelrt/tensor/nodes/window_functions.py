"""Window functions of signal processing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.device.registry import check_device
from kernelrt.errors import DTypeError
from kernelrt.tensor.free_functions.creation import arange, ones
from kernelrt.tensor.nodes.arguments import flag, integer, real

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.tensor.tensor import Tensor

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]


def _window(
    length: int, periodic: bool, rule: Callable[[Tensor], Tensor], dtype: object, device: object,
    requires_grad: bool,
) -> Tensor:  # fmt: skip
    """Return the window given by `rule`, a function of positions from 0 to 1, in float64."""
    check_device(device)
    count = integer(length, "window_length", 0)
    kind = dt.float32 if dtype is None else dt.parse(dtype)
    if not kind.is_float:
        raise DTypeError(f"dtype: expected a floating type, not {kind.name}")
    if count < 2:
        out = ones(count, dtype=kind)
    else:
        last = count if flag(periodic, "periodic") else count - 1
        out = rule(arange(count, dtype=dt.float64) / last).cast(kind)
    return out.requires_grad_() if flag(requires_grad, "requires_grad") else out


def _waves(*factors: float) -> Callable[[Tensor], Tensor]:
    """Return the rule of a sum of cosines with 0, 1, 2, ... periods."""

    def rule(x: Tensor) -> Tensor:
        out = x * 0 + factors[0]
        for k, factor in enumerate(factors[1:], 1):
            out = out + (x * (2 * math.pi * k)).cos() * factor
        return out

    return rule


def hann_window(
    window_length: int, periodic: bool = True, *, dtype: object = None, device: object = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Hann window ``0.5 - 0.5 * cos(2 * pi * x)``, a raised cosine.

    Position x goes from 0 to 1.

    Parameters
    ----------
    window_length : int
        Number of elements.
    periodic : bool
        Whether to return a periodic window: position 1 would be element `window_length`. If False,
        the window is symmetric: its last element is at position 1.
    dtype : DType or str, optional
        Floating dtype; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients.

    Returns
    -------
    Tensor
        Vector of shape (window_length,). A window of one element is 1.

    Raises
    ------
    DTypeError
        `dtype` is no floating dtype.
    ShapeError
        `window_length` is negative.

    Examples
    --------
    >>> krt.hann_window(4).tolist(), krt.hann_window(5, periodic=False).tolist()
    ([0.0, 0.5, 1.0, 0.5], [0.0, 0.5, 1.0, 0.5, 0.0])
    """
    return _window(window_length, periodic, _waves(0.5, -0.5), dtype, device, requires_grad)


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *,
    dtype: object = None, device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Hamming window ``alpha - beta * cos(2 * pi * x)``; see :func:`hann_window`.

    Parameters
    ----------
    window_length : int
        Number of elements.
    periodic : bool
        Whether to return a periodic window. If False, the window is symmetric.
    alpha, beta : float
        Mean and amplitude of the window.
    dtype : DType or str, optional
        Floating dtype; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients.

    Returns
    -------
    Tensor
        Vector of shape (window_length,). A window of one element is 1.

    Raises
    ------
    DTypeError
        `dtype` is no floating dtype.
    ShapeError
        `window_length` is negative.

    Examples
    --------
    >>> krt.hamming_window(4).tolist()
    [0.0799..., 0.540..., 1.0, 0.540...]
    """
    rule = _waves(real(alpha, "alpha"), -real(beta, "beta"))
    return _window(window_length, periodic, rule, dtype, device, requires_grad)


def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: object = None, device: object = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Blackman window ``0.42 - 0.5 * cos(2 * pi * x) + 0.08 * cos(4 * pi * x)``.

    Position x goes from 0 to 1, as for :func:`hann_window`.

    Parameters
    ----------
    window_length : int
        Number of elements.
    periodic : bool
        Whether to return a periodic window. If False, the window is symmetric.
    dtype : DType or str, optional
        Floating dtype; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients.

    Returns
    -------
    Tensor
        Vector of shape (window_length,). A window of one element is 1.

    Raises
    ------
    DTypeError
        `dtype` is no floating dtype.
    ShapeError
        `window_length` is negative.

    Examples
    --------
    >>> krt.blackman_window(4)[1:].tolist()
    [0.340..., 1.0, 0.340...]
    """
    rule = _waves(0.42, -0.5, 0.08)
    return _window(window_length, periodic, rule, dtype, device, requires_grad)


def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: object = None, device: object = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the triangular Bartlett window ``1 - abs(2 * x - 1)``.

    Position x goes from 0 to 1, as for :func:`hann_window`.

    Parameters
    ----------
    window_length : int
        Number of elements.
    periodic : bool
        Whether to return a periodic window. If False, the window is symmetric.
    dtype : DType or str, optional
        Floating dtype; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients.

    Returns
    -------
    Tensor
        Vector of shape (window_length,). A window of one element is 1.

    Raises
    ------
    DTypeError
        `dtype` is no floating dtype.
    ShapeError
        `window_length` is negative.

    Examples
    --------
    >>> krt.bartlett_window(4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """

    def rule(x: Tensor) -> Tensor:
        return 1 - (2 * x - 1).abs()

    return _window(window_length, periodic, rule, dtype, device, requires_grad)


def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: object = None,
    device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Kaiser window ``i0(beta * sqrt(1 - (2 * x - 1) ** 2)) / i0(beta)``.

    Position x goes from 0 to 1, as for :func:`hann_window`; ``i0`` is a Bessel function, see
    :meth:`Tensor.i0`.

    Parameters
    ----------
    window_length : int
        Number of elements.
    periodic : bool
        Whether to return a periodic window. If False, the window is symmetric.
    beta : float
        Shape of the window: the greater it is, the narrower is the window.
    dtype : DType or str, optional
        Floating dtype; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients.

    Returns
    -------
    Tensor
        Vector of shape (window_length,). A window of one element is 1.

    Raises
    ------
    DTypeError
        `dtype` is no floating dtype.
    ShapeError
        `window_length` is negative.

    Examples
    --------
    >>> krt.kaiser_window(4, beta=0.0).tolist(), krt.kaiser_window(4)[1:].tolist()
    ([1.0, 1.0, 1.0, 1.0], [0.215..., 1.0, 0.215...])
    """
    width = real(beta, "beta")

    def rule(x: Tensor) -> Tensor:
        inside = (1 - (2 * x - 1).square()).clamp(min=0)
        return (inside.sqrt() * width).i0() / (x * 0 + width).i0()

    return _window(window_length, periodic, rule, dtype, device, requires_grad)

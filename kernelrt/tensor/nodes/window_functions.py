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
    """Return the Hann window, a raised cosine.

    Parameters
    ----------
    window_length : int
        Number of elements.
    periodic : bool
        Whether to return a periodic window. If False, the window is symmetric.
    dtype : DType or str, optional
        Floating dtype; float32 by default.
    device : str, optional
        "cpu".
    requires_grad : bool
        Whether to accumulate gradients.
    """
    return _window(window_length, periodic, _waves(0.5, -0.5), dtype, device, requires_grad)


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *,
    dtype: object = None, device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Hamming window ``alpha - beta * cos``; for the rest see :func:`hann_window`."""
    rule = _waves(real(alpha, "alpha"), -real(beta, "beta"))
    return _window(window_length, periodic, rule, dtype, device, requires_grad)


def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: object = None, device: object = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Blackman window; for the parameters see :func:`hann_window`."""
    rule = _waves(0.42, -0.5, 0.08)
    return _window(window_length, periodic, rule, dtype, device, requires_grad)


def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: object = None, device: object = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the triangular Bartlett window; for the parameters see :func:`hann_window`."""

    def rule(x: Tensor) -> Tensor:
        return 1 - (2 * x - 1).abs()

    return _window(window_length, periodic, rule, dtype, device, requires_grad)


def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: object = None,
    device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Kaiser window with shape `beta`; for the rest see :func:`hann_window`."""
    width = real(beta, "beta")

    def rule(x: Tensor) -> Tensor:
        inside = (1 - (2 * x - 1).square()).clamp(min=0)
        return (inside.sqrt() * width).i0() / (x * 0 + width).i0()

    return _window(window_length, periodic, rule, dtype, device, requires_grad)

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
    """What `rule` gives for the places from 0 to 1, computed in float64."""
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
    """A sum of cosines of 0, 1, 2 ... turns."""

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
    """The Hann window, a raised cosine.

    Parameters
    ----------
    window_length : int
        How many numbers.
    periodic : bool
        Whether the one behind the last would be the first; else the last equals the first.
    dtype : DType or str, optional
        A floating type; float32 if not given.
    device : str, optional
        "cpu".
    requires_grad : bool
        Whether gradients are collected for it.
    """
    return _window(window_length, periodic, _waves(0.5, -0.5), dtype, device, requires_grad)


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *,
    dtype: object = None, device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``alpha - beta * cos``; the other parameters are those of :func:`hann_window`."""
    rule = _waves(real(alpha, "alpha"), -real(beta, "beta"))
    return _window(window_length, periodic, rule, dtype, device, requires_grad)


def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: object = None, device: object = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The Blackman window, of three cosines; for the parameters see :func:`hann_window`."""
    rule = _waves(0.42, -0.5, 0.08)
    return _window(window_length, periodic, rule, dtype, device, requires_grad)


def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: object = None, device: object = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A triangle; for the parameters see :func:`hann_window`."""

    def rule(x: Tensor) -> Tensor:
        return 1 - (2 * x - 1).abs()

    return _window(window_length, periodic, rule, dtype, device, requires_grad)


def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: object = None,
    device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The Kaiser window with the shape `beta`; the others are those of :func:`hann_window`."""
    width = real(beta, "beta")

    def rule(x: Tensor) -> Tensor:
        inside = (1 - (2 * x - 1).square()).clamp(min=0)
        return (inside.sqrt() * width).i0() / (x * 0 + width).i0()

    return _window(window_length, periodic, rule, dtype, device, requires_grad)

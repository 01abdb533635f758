"""Dropout of elements and channels, by PyTorch's names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt.errors import ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.tensor.nodes.arguments import flag, real
from kernelrt.tensor.rng.random import bernoulli

if TYPE_CHECKING:
    from kernelrt.tensor import Tensor

__all__ = ["alpha_dropout", "dropout1d", "dropout2d", "dropout3d",
           "feature_alpha_dropout", "probability"]  # fmt: skip

#: What SELU tends to below: minus its scale times its alpha (Klambauer et al., arXiv:1706.02515).
_FLOOR: Final = -1.0507009873554804934193349852946 * 1.6732632423543772848170429916717


def probability(p: object) -> float:
    """`p` as a number from 0 to 1."""
    value = real(p, "p")
    if not 0.0 <= value <= 1.0:
        raise ShapeError(f"p: expected a probability from 0 to 1, not {p}")
    return value


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False  # noqa: A002
) -> Tensor:
    """Zero whole channels of (batch, channels, length) or (channels, length).

    Parameters
    ----------
    input : Tensor
        Of a floating type.
    p : float
        The probability of each channel, from 0 to 1; those that stay are scaled by ``1 / (1 - p)``.
    training : bool
        Whether to do that at all.
    inplace : bool
        For programs that say it: the result is returned either way, and `input` stays.
    """
    return _channels(input, p, training, inplace, "dropout1d", (3,), (2,))


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False  # noqa: A002
) -> Tensor:
    """Zero whole channels of (batch, channels, rows, columns); see :func:`dropout1d`.

    Three axes are taken for (batch, channels, length), as PyTorch does.
    """
    return _channels(input, p, training, inplace, "dropout2d", (3, 4), ())


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False  # noqa: A002
) -> Tensor:
    """Zero whole channels of (batch, channels, depth, rows, columns); see :func:`dropout1d`.

    Four axes are those without batch.
    """
    return _channels(input, p, training, inplace, "dropout3d", (5,), (4,))


def _channels(
    x: Tensor, p: float, training: bool, inplace: bool, name: str, batched: tuple[int, ...],
    single: tuple[int, ...],
) -> Tensor:  # fmt: skip
    p = probability(p)
    flag(inplace, "inplace")
    if x.ndim not in (*batched, *single):
        known = " or ".join(map(str, sorted((*batched, *single))))
        raise ShapeError(f"{name}: expected {known} axes, not shape {format_shape(x.dims)}")
    if not flag(training, "training") or p == 0:
        return x
    if p == 1:
        return x.dropout(p)
    lead = 2 if x.ndim in batched else 1
    return x._without(_dropped(x, p, lead).expand(x.dims), 1 / (1 - p))


def _dropped(x: Tensor, p: float, lead: int) -> Tensor:
    return bernoulli((*x.dims[:lead], *(1,) * (x.ndim - lead)), p)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False  # noqa: A002
) -> Tensor:
    """Set elements to the floor of SELU, and scale and shift all so that mean and variance stay.

    Klambauer et al., arXiv:1706.02515, section 3.

    Parameters
    ----------
    input : Tensor
        Of a floating type.
    p : float
        The probability of each element, from 0 to 1; with 1 all are 0.
    training : bool
        Whether to do that at all.
    inplace : bool
        For programs that say it: the result is returned either way, and `input` stays.
    """
    return _keeping_moments(input, p, training, inplace, input.ndim)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False  # noqa: A002
) -> Tensor:
    """:func:`alpha_dropout` of whole channels of (batch, channels, ...)."""
    if input.ndim < 2:
        raise ShapeError(
            "feature_alpha_dropout: expected shape (batch, channels, ...), not "
            f"{format_shape(input.dims)}"
        )
    return _keeping_moments(input, p, training, inplace, 2)


def _keeping_moments(
    x: Tensor, p: float, training: bool, inplace: bool, lead: int
) -> Tensor:
    p = probability(p)
    flag(inplace, "inplace")
    if not flag(training, "training") or p == 0:
        return x
    if p == 1:
        return x.dropout(p)
    scale = 1 / math.sqrt((1 - p) * (1 + p * _FLOOR * _FLOOR))
    drop = _dropped(x, p, lead).expand(x.dims)
    # What drops becomes the floor before all are scaled and shifted.
    return x._without(drop, scale) + drop.to(x.dtype) * (scale * _FLOOR) - scale * p * _FLOOR

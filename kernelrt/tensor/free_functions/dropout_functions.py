"""Dropout of elements and channels, with the names of PyTorch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt.errors import DomainError, ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.tensor.nodes.arguments import flag, real
from kernelrt.tensor.rng.random import bernoulli

if TYPE_CHECKING:
    from kernelrt.tensor import Tensor

__all__ = ["alpha_dropout", "dropout1d", "dropout2d", "dropout3d",
           "feature_alpha_dropout", "probability"]  # fmt: skip

#: Limit of SELU for x -> -inf: -scale * alpha (Klambauer et al., arXiv:1706.02515).
_FLOOR: Final = -1.0507009873554804934193349852946 * 1.6732632423543772848170429916717


def probability(p: object) -> float:
    """Return `p` as a float; raise DomainError if it is not between 0 and 1."""
    value = real(p, "p")
    if not 0.0 <= value <= 1.0:
        raise DomainError(f"p: expected a probability from 0 to 1, not {p}")
    return value


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False  # noqa: A002
) -> Tensor:
    """Set random channels of (batch, channels, length) or (channels, length) to zero.

    Parameters
    ----------
    input : Tensor
        Tensor of a floating dtype.
    p : float
        Probability of dropping a channel, from 0 to 1. The others are scaled by ``1 / (1 - p)``.
    training : bool
        Whether to apply dropout; if False, return `input`.
    inplace : bool
        Accepted for compatibility with PyTorch. `input` is never modified.

    Returns
    -------
    Tensor
        Tensor of the shape and dtype of `input`.

    Raises
    ------
    DomainError
        `p` lies outside of [0, 1].
    ShapeError
        `input` has another number of axes.
    DTypeError
        `input` does not hold floats.

    Examples
    --------
    >>> x = krt.nn.functional.dropout1d(krt.ones(1, 100, 2), 0.5)
    >>> x.unique().tolist()
    [0.0, 2.0]
    >>> (x[..., 0] == x[..., 1]).all().item()  # whole channels are dropped
    True
    """
    return _channels(input, p, training, inplace, "dropout1d", (3,), (2,))


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False  # noqa: A002
) -> Tensor:
    """Set random channels of (batch, channels, rows, columns) to zero; see :func:`dropout1d`.

    Three axes mean (batch, channels, length), as in PyTorch.

    Parameters
    ----------
    input : Tensor
        Tensor of a floating dtype.
    p : float
        Probability of dropping a channel, from 0 to 1. The others are scaled by ``1 / (1 - p)``.
    training : bool
        Whether to apply dropout; if False, return `input`.
    inplace : bool
        Accepted for compatibility with PyTorch. `input` is never modified.

    Returns
    -------
    Tensor
        Tensor of the shape and dtype of `input`.

    Raises
    ------
    ShapeError, DTypeError
        As for :func:`dropout1d`.

    Examples
    --------
    >>> krt.nn.functional.dropout2d(krt.ones(1, 1, 2, 2), 1.0).tolist()
    [[[[0.0, 0.0], [0.0, 0.0]]]]
    """
    return _channels(input, p, training, inplace, "dropout2d", (3, 4), ())


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False  # noqa: A002
) -> Tensor:
    """Set random channels of (batch, channels, depth, rows, columns) to zero.

    Four axes mean an input without a batch axis. See :func:`dropout1d`.

    Parameters
    ----------
    input : Tensor
        Tensor of a floating dtype.
    p : float
        Probability of dropping a channel, from 0 to 1. The others are scaled by ``1 / (1 - p)``.
    training : bool
        Whether to apply dropout; if False, return `input`.
    inplace : bool
        Accepted for compatibility with PyTorch. `input` is never modified.

    Returns
    -------
    Tensor
        Tensor of the shape and dtype of `input`.

    Raises
    ------
    ShapeError, DTypeError
        As for :func:`dropout1d`.

    Examples
    --------
    >>> krt.nn.functional.dropout3d(krt.ones(1, 1, 1, 2), 1.0).tolist()
    [[[[0.0, 0.0]]]]
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
    """Set random elements to the lower limit of SELU, and rescale all to keep mean and variance.

    The method is from Klambauer et al., arXiv:1706.02515, section 3.

    Parameters
    ----------
    input : Tensor
        Tensor of a floating dtype.
    p : float
        Probability of dropping an element, from 0 to 1. With 1, all elements become 0.
    training : bool
        Whether to apply dropout; if False, return `input`.
    inplace : bool
        Accepted for compatibility with PyTorch. `input` is never modified.

    Returns
    -------
    Tensor
        Tensor of the shape and dtype of `input`.

    Raises
    ------
    DomainError
        `p` lies outside of [0, 1].
    DTypeError
        `input` does not hold floats.

    Examples
    --------
    >>> x = krt.alpha_dropout(krt.randn(100_000), 0.2, training=True)
    >>> abs(x.mean().item()) < 0.05, abs(x.std().item() - 1) < 0.05
    (True, True)
    """
    return _keeping_moments(input, p, training, inplace, input.ndim)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False  # noqa: A002
) -> Tensor:
    """Apply :func:`alpha_dropout` to whole channels of (batch, channels, ...).

    Parameters
    ----------
    input : Tensor
        Tensor of a floating dtype.
    p : float
        Probability of dropping a channel, from 0 to 1. With 1, all elements become 0.
    training : bool
        Whether to apply dropout; if False, return `input`.
    inplace : bool
        Accepted for compatibility with PyTorch. `input` is never modified.

    Returns
    -------
    Tensor
        Tensor of the shape and dtype of `input`.

    Raises
    ------
    DomainError
        `p` lies outside of [0, 1].
    ShapeError
        `input` has fewer than two axes.
    DTypeError
        `input` does not hold floats.

    Examples
    --------
    >>> x = krt.feature_alpha_dropout(krt.ones(1, 4, 2), 0.5, training=True)
    >>> (x[..., 0] == x[..., 1]).all().item()  # whole channels are dropped
    True
    """
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
    # Dropped elements become _FLOOR before all elements are scaled and shifted.
    return x._without(drop, scale) + drop.to(x.dtype) * (scale * _FLOOR) - scale * p * _FLOOR

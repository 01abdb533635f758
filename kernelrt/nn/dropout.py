"""Dropout layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kernelrt.nn.module import Module
from kernelrt.tensor.free_functions import dropout_functions
from kernelrt.tensor.free_functions.dropout_functions import probability
from kernelrt.tensor.nodes.arguments import flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.tensor import Tensor

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d",
           "FeatureAlphaDropout"]  # fmt: skip


class _Dropout(Module):
    """Base of dropout layers.

    Parameters
    ----------
    p : float
        Probability, from 0 to 1.
    inplace : bool
        Accepted for compatibility, without effect: the input never changes.
    """

    _function: ClassVar[Callable[..., Tensor]]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        self.p, self.inplace = probability(p), flag(inplace, "inplace")

    def forward(self, input: Tensor) -> Tensor:
        """Drop parts of `input` and keep its shape; in evaluation mode, return `input` itself."""
        return self._function(input, self.p, self.training)

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        return f"p={self.p}" + ", inplace=True" * self.inplace


class Dropout(_Dropout):
    """Zero elements with probability `p` in training and scale the others by ``1 / (1 - p)``.

    Input and output have the same, arbitrary shape. In evaluation mode the input is returned.

    Parameters
    ----------
    p : float, default 0.5
        Probability of zeroing an element, from 0 to 1.
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Raises
    ------
    DomainError
        `p` is not from 0 to 1.

    Notes
    -----
    Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014.

    Examples
    --------
    >>> drop = krt.nn.Dropout(0.5)
    >>> sorted(set(drop(krt.ones(1000)).tolist()))
    [0.0, 2.0]
    >>> drop.eval()(krt.tensor([1.0, 3.0])).tolist()
    [1.0, 3.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements of `input` and keep its shape; in evaluation mode return `input` itself."""
        return input.dropout(self.p, self.training)


class Dropout1d(_Dropout):
    """Zero whole channels of sequences with probability `p` in training, and scale the others.

    Input and output have shape ``(batch, channels, length)`` or ``(channels, length)``. In
    evaluation mode the input is returned. See :func:`kernelrt.nn.functional.dropout1d`.

    Parameters
    ----------
    p : float, default 0.5
        Probability of zeroing a channel, from 0 to 1; the others are scaled by ``1 / (1 - p)``.
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Examples
    --------
    >>> x = krt.nn.Dropout1d(0.5)(krt.ones(100, 10, 3))
    >>> x.shape, sorted(set(x.sum(-1).flatten().tolist()))
    ((100, 10, 3), [0.0, 6.0])
    """

    _function = staticmethod(dropout_functions.dropout1d)


class Dropout2d(_Dropout):
    """Zero whole channels of images with probability `p` in training, and scale the others.

    Input and output have shape ``(batch, channels, rows, columns)``. In evaluation mode the input
    is returned. See :func:`kernelrt.nn.functional.dropout2d`.

    Parameters
    ----------
    p : float, default 0.5
        Probability of zeroing a channel, from 0 to 1; the others are scaled by ``1 / (1 - p)``.
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Examples
    --------
    >>> x = krt.nn.Dropout2d(0.5)(krt.ones(100, 10, 2, 2))
    >>> x.shape, sorted(set(x.sum((-2, -1)).flatten().tolist()))
    ((100, 10, 2, 2), [0.0, 8.0])
    """

    _function = staticmethod(dropout_functions.dropout2d)


class Dropout3d(_Dropout):
    """Zero whole channels of volumes with probability `p` in training, and scale the others.

    Input and output have shape ``(batch, channels, depth, rows, columns)``; the batch may be
    missing. In evaluation mode the input is returned. See :func:`kernelrt.nn.functional.dropout3d`.

    Parameters
    ----------
    p : float, default 0.5
        Probability of zeroing a channel, from 0 to 1; the others are scaled by ``1 / (1 - p)``.
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Examples
    --------
    >>> krt.nn.Dropout3d(1.0)(krt.ones(1, 2, 1, 1, 1)).flatten().tolist()
    [0.0, 0.0]
    """

    _function = staticmethod(dropout_functions.dropout3d)


class AlphaDropout(_Dropout):
    """In training, replace random elements such that mean and variance stay the same.

    It is meant for networks of :class:`SELU`.

    Input and output have the same, arbitrary shape. In evaluation mode the input is returned. See
    :func:`kernelrt.nn.functional.alpha_dropout`.

    Parameters
    ----------
    p : float, default 0.5
        Probability of dropping an element, from 0 to 1. With 1, all elements become 0.
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Notes
    -----
    Klambauer et al., "Self-normalizing neural networks", 2017.

    Examples
    --------
    >>> layer = krt.nn.AlphaDropout(0.25).eval()
    >>> layer(krt.tensor([1.0, 3.0])).tolist()
    [1.0, 3.0]
    """

    _function = staticmethod(dropout_functions.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """In training, replace random channels such that mean and variance stay the same.

    This is :class:`AlphaDropout` of whole channels. Input and output have shape
    ``(batch, channels, *)``. In evaluation mode the input is returned. See
    :func:`kernelrt.nn.functional.feature_alpha_dropout`.

    Parameters
    ----------
    p : float, default 0.5
        Probability of dropping a channel, from 0 to 1. With 1, all elements become 0.
    inplace : bool, default False
        Accepted for compatibility, without effect: the input never changes.

    Examples
    --------
    >>> x = krt.nn.FeatureAlphaDropout(0.25)(krt.ones(4, 6, 5))
    >>> x.shape, (x == x[:, :, :1]).all().item()
    ((4, 6, 5), True)
    """

    _function = staticmethod(dropout_functions.feature_alpha_dropout)

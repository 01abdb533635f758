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
        Accepted for compatibility: the input never changes, and the result is returned.
    """

    _function: ClassVar[Callable[..., Tensor]]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        self.p, self.inplace = probability(p), flag(inplace, "inplace")

    def forward(self, input: Tensor) -> Tensor:
        """Drop parts of `input`; return `input` itself in evaluation mode."""
        return self._function(input, self.p, self.training)

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        return f"p={self.p}" + ", inplace=True" * self.inplace


class Dropout(_Dropout):
    """Zero elements with probability `p` in training and scale the others by ``1 / (1 - p)``."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements of `input`; return `input` itself in evaluation mode."""
        return input.dropout(self.p, self.training)


class Dropout1d(_Dropout):
    """Zero whole channels of sequences in training; see ``nn.functional.dropout1d``."""

    _function = staticmethod(dropout_functions.dropout1d)


class Dropout2d(_Dropout):
    """Zero whole channels of images in training; see ``nn.functional.dropout2d``."""

    _function = staticmethod(dropout_functions.dropout2d)


class Dropout3d(_Dropout):
    """Zero whole channels of volumes in training; see ``nn.functional.dropout3d``."""

    _function = staticmethod(dropout_functions.dropout3d)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean and variance, for SELU; see ``nn.functional.alpha_dropout``."""

    _function = staticmethod(dropout_functions.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """:class:`AlphaDropout` of channels; see ``nn.functional.feature_alpha_dropout``."""

    _function = staticmethod(dropout_functions.feature_alpha_dropout)

"""Optimizers: what is in :mod:`kernelrt.nn.optim`, under the name that PyTorch has for it."""

from typing import TYPE_CHECKING, Any

from kernelrt.nn import optim as _optim
from kernelrt.nn.optim import *  # noqa: F403 - an alias

__all__ = list(_optim.__all__)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return getattr(_optim, name)

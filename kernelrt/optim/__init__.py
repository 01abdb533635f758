"""Optimizers: an alias of :mod:`kernelrt.nn.optim`, as in PyTorch."""

from typing import TYPE_CHECKING, Any

from kernelrt.nn import optim as _optim
from kernelrt.nn.optim import *  # noqa: F403 - an alias

__all__ = list(_optim.__all__)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return getattr(_optim, name)

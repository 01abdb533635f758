"""Optimizers, by PyTorch's names, formulas and defaults."""

from typing import TYPE_CHECKING

from kernelrt._lacking import OPTIM, of_module
from kernelrt.nn.optim.adam import Adam, AdamW
from kernelrt.nn.optim.optimizer import Optimizer
from kernelrt.nn.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]

if not TYPE_CHECKING:  # else any name would pass for one that is there
    __getattr__ = of_module("kernelrt.nn.optim", OPTIM, __all__)

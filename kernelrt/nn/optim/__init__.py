"""Optimizers, by PyTorch's names, formulas and defaults."""

from kernelrt.nn.optim.adam import Adam, AdamW
from kernelrt.nn.optim.optimizer import Optimizer
from kernelrt.nn.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]

"""Schedules of learning rates, by PyTorch's names, formulas and defaults.

A schedule sets ``group["lr"]`` of an optimizer's groups each time that its ``step`` is called. The
learning rate lies in memory that plans read, so a jitted training step sees each new one and is
never traced again for it.
"""

from kernelrt.nn.optim.lr_scheduler.chained import (
    ChainedScheduler,
    ReduceLROnPlateau,
    SequentialLR,
)
from kernelrt.nn.optim.lr_scheduler.cycles import (
    CosineAnnealingWarmRestarts,
    CyclicLR,
    OneCycleLR,
)
from kernelrt.nn.optim.lr_scheduler.decay import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from kernelrt.nn.optim.lr_scheduler.lr_base import LRScheduler

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

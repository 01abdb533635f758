"""Learning rate schedules, with PyTorch's names, formulas and defaults.

A schedule sets ``group["lr"]`` of an optimizer's groups each time its ``step`` is called. Plans
read the learning rate from memory, so a jitted training step uses each new value without being
traced again.
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

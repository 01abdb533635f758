"""Learning rate schedules: an alias of :mod:`kernelrt.nn.optim.lr_scheduler`."""

from kernelrt.nn.optim import lr_scheduler as _lr_scheduler
from kernelrt.nn.optim.lr_scheduler import *  # noqa: F403 - an alias

__all__ = list(_lr_scheduler.__all__)

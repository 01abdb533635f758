"""Weight averaging: an alias of :mod:`kernelrt.nn.optim.swa_utils`."""

from kernelrt.nn.optim import swa_utils as _swa_utils
from kernelrt.nn.optim.swa_utils import *  # noqa: F403 - an alias

__all__ = list(_swa_utils.__all__)

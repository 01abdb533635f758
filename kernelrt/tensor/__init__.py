"""Tensor: lazy arrays with PyTorch's names, their gradients, and how they are computed."""

from kernelrt.tensor.tensor import Tensor
from kernelrt.tensor.tracing.trace import Trace, is_tracing

__all__ = ["Tensor", "Trace", "is_tracing"]

"""torch's variances and standard deviations, computed around the mean.

torch's one-pass formula may be off by fifty units in the last place in float64.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["around_the_mean"]

_METHODS = {False: torch.Tensor.var, True: torch.Tensor.std}


def _spread(
    x: torch.Tensor, root: bool, dim: Any = None, unbiased: bool | None = None,
    keepdim: bool = False, *, correction: int = 1,
) -> torch.Tensor:  # fmt: skip
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    correction = correction if unbiased is None else int(unbiased)
    axis = tuple(range(x.ndim)) if dim is None or dim == () else np.atleast_1d(dim).tolist()
    rest = (math.prod(x.shape[a] for a in axis) if x.ndim else 1) - correction
    if rest <= 0 or not x.ndim or x.dtype is not torch.float64:
        return _METHODS[root](x, dim, correction=correction, keepdim=keepdim)
    out = (x - x.mean(axis, keepdim=True)).square().sum(axis, keepdim=keepdim) / rest
    if not root:
        return out
    # The gradient of the root at 0 is defined as 0.
    return torch.where(out == 0, out, torch.where(out == 0, 1, out).sqrt())


@contextlib.contextmanager
def around_the_mean() -> Iterator[None]:
    """Compute ``x.var`` and ``x.std`` of float64 tensors by their definition."""

    def var(x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        return _spread(x, False, *args, **options)

    def std(x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        return _spread(x, True, *args, **options)

    before = torch.Tensor.var, torch.Tensor.std
    torch.Tensor.var, torch.Tensor.std = var, std
    try:
        yield
    finally:
        torch.Tensor.var, torch.Tensor.std = before

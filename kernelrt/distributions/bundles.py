"""Transforms to constrained vectors and matrices: simplex, Cholesky factors."""

# ruff: noqa: D102 - methods that override inherit the docstrings of Transform

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from kernelrt.distributions import constraints
from kernelrt.distributions.distribution import static
from kernelrt.distributions.multivariate import factor
from kernelrt.distributions.transforms import Transform
from kernelrt.errors import ShapeError
from kernelrt.tensor.free_functions.creation import arange, eye, ones_like, tensor
from kernelrt.tensor.free_functions.joining import cat

if TYPE_CHECKING:
    from kernelrt.distributions.distribution import Shape
    from kernelrt.tensor import Tensor

__all__ = ["CorrCholeskyTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform",
           "SoftmaxTransform", "StickBreakingTransform"]  # fmt: skip


class SoftmaxTransform(Transform):
    """Transform vectors to ``softmax(x)``; the inverse is ``log``.

    Many vectors give the same output.

    Examples
    --------
    >>> krt.distributions.SoftmaxTransform()(krt.zeros(2)).tolist()
    [0.5, 0.5]
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    event_dim = 1
    bijective = False

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(Transform):
    """Transform n numbers to n + 1 shares that sum to 1 (stick breaking), along the last axis.

    The shares before share i leave a rest. Number i decides which fraction of this rest share i
    takes. The last share takes the rest. Zeros give equal shares.

    Examples
    --------
    >>> t = krt.distributions.StickBreakingTransform()
    >>> t(krt.zeros(3)).round(decimals=4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    event_dim = 1

    def forward_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], static(shape[-1], "x") + 1)

    def inverse_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], static(shape[-1], "y") - 1)

    def _even(self, size: int, like: Tensor) -> Tensor:
        """Return, for each share but the last, the log of the number of shares after it."""
        return arange(size, 0, -1, dtype=like.dtype).log()

    def _call(self, x: Tensor) -> Tensor:
        part = x - self._even(static(x.dims[-1], "x"), x)
        left = (-part).sigmoid().cumprod(-1)
        one = ones_like(x[..., :1])
        return cat([part.sigmoid(), one], -1) * cat([one, left], -1)

    def _inverse(self, y: Tensor) -> Tensor:
        first = y[..., :-1]
        left = (1 - first.cumsum(-1)).clamp(min=2.0**-126 if y.dtype.bits > 16 else 2.0**-14)
        return first.log() - left.log() + self._even(static(y.dims[-1], "y") - 1, y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        part = x - self._even(static(x.dims[-1], "x"), x)
        return (y[..., :-1].log() - part.softplus()).sum(-1)


class LowerCholeskyTransform(Transform):
    """Transform a matrix to its lower triangle, whose diagonal elements become exponentials.

    Examples
    --------
    >>> krt.distributions.LowerCholeskyTransform()(krt.tensor([[0.0, 9.0], [3.0, 0.0]])).tolist()
    [[1.0, 0.0], [3.0, 1.0]]
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky
    event_dim = 2
    bijective = False

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(0, -2, -1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(0, -2, -1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """Transform a matrix to ``L @ L.mT``, where L is its :class:`LowerCholeskyTransform`.

    Examples
    --------
    >>> krt.distributions.PositiveDefiniteTransform()(krt.tensor([[0.0, 9.0], [3.0, 0.0]])).tolist()
    [[1.0, 3.0], [3.0, 10.0]]
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite
    event_dim = 2
    bijective = False

    def _call(self, x: Tensor) -> Tensor:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(factor(y))


class CorrCholeskyTransform(Transform):
    """Transform n (n - 1) / 2 numbers to the Cholesky factor of an n x n correlation matrix.

    The numbers belong to the elements below the diagonal, row by row. Each row of the result has
    length 1. The element for a number x is ``tanh(x) * sqrt(1 - s)``, where s is the sum of the
    squares of the elements before it in its row (Stan Reference Manual, Cholesky factors of
    correlation matrices).

    Raises
    ------
    ShapeError
        The last axis has no size n (n - 1) / 2.

    Examples
    --------
    >>> lower = krt.distributions.CorrCholeskyTransform()(krt.zeros(3))
    >>> lower.tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    event_dim = 1

    @property
    def out_dim(self) -> int:
        return 2

    def forward_shape(self, shape: Shape) -> Shape:
        count = static(shape[-1], "x")
        side = (1 + math.isqrt(1 + 8 * count)) // 2
        if side * (side - 1) // 2 != count:
            raise ShapeError(
                "x: expected n (n - 1) / 2 numbers along the last axis, for matrices of n rows, "
                f"such as 1, 3 or 6, not {count}"
            )
        return (*shape[:-1], side, side)

    def inverse_shape(self, shape: Shape) -> Shape:
        side = static(shape[-1], "y")
        return (*shape[:-2], side * (side - 1) // 2)

    def _call(self, x: Tensor) -> Tensor:
        side = static(self.forward_shape(x.dims)[-1], "x")
        rows, columns = np.tril_indices(side, -1)
        places = np.zeros((side, side), np.int64)
        places[rows, columns] = np.arange(rows.size)
        if rows.size == 0:
            return eye(side, dtype=x.dtype).expand((*x.dims[:-1], side, side))
        parts = x.tanh()[..., tensor(places)].tril(-1)
        left = (1 - parts.square()).sqrt().cumprod(-1)
        whole = parts + eye(side, dtype=x.dtype)
        return whole * cat([ones_like(left[..., :1]), left[..., :-1]], -1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = 1 - y.square().cumsum(-1)
        before = cat([ones_like(left[..., :1]), left[..., :-1]], -1)
        return (_below(y, -1) / _below(before, -1).sqrt()).atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = _below(1 - y.square().cumsum(-1), -2).log().sum(-1)
        return 0.5 * left + 2 * (math.log(2) - x - (-2 * x).softplus()).sum(-1)


def _below(matrix: Tensor, diagonal: int) -> Tensor:
    """Return the elements on and below a diagonal, row by row."""
    side = static(matrix.dims[-1], "y")
    rows, columns = np.tril_indices(side, diagonal)
    flat = matrix.reshape((*matrix.dims[:-2], side * side))
    return flat[..., tensor(rows * side + columns)]

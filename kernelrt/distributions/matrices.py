"""Distributions of matrices: Wishart, LKJCholesky."""

# ruff: noqa: D102 - methods that override inherit the docstrings of Distribution

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt.distributions import constraints
from kernelrt.distributions.distribution import Distribution, as_params
from kernelrt.distributions.multivariate import Factored, solve_lower
from kernelrt.distributions.noise import log_gamma
from kernelrt.distributions.positive import Beta
from kernelrt.tensor import is_tracing
from kernelrt.tensor.free_functions.creation import arange
from kernelrt.tensor.free_functions.joining import cat
from kernelrt.tensor.methods.comparison import where
from kernelrt.tensor.nodes.arguments import integer
from kernelrt.tensor.rng import random
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.ir import Dim
    from kernelrt.tensor import Tensor

__all__ = ["LKJCholesky", "Wishart"]


class Wishart(Factored):
    """The Wishart distribution: sums of outer products of normal vectors.

    For a whole `df`, a sample is distributed like ``sum(z z^T)`` over `df` normal vectors z with
    the given covariance. Samples are drawn by the Bartlett decomposition (1933) and have gradients.

    The event shape is (n, n), and the batch shape is that of the other axes of the parameters. The
    density of a symmetric positive definite matrix x, with the covariance V, its determinant
    ``|V|`` and the multivariate gamma function::

        |x|**((df - n - 1) / 2) * exp(-trace(inv(V) @ x) / 2)
            / (2**(df * n / 2) * |V|**(df / 2) * Gamma_n(df / 2))

    Parameters
    ----------
    df : float or Tensor
        Degrees of freedom, above n - 1.
    covariance_matrix, precision_matrix : Tensor, optional
        Symmetric and positive definite, shape (..., n, n).
    scale_tril : Tensor, optional
        Lower triangular Cholesky factor of the covariance, instead of one of the two matrices.
    validate_args : bool, optional
        Whether to check parameters and values.

    Raises
    ------
    DomainError
        A matrix is not of the required form, or `df` is too small.
    ShapeError
        None or several of the three matrices are given.

    Examples
    --------
    >>> p = krt.distributions.Wishart(3.0, krt.eye(2))
    >>> p.mean.tolist(), p.rsample((4,)).shape
    ([[3.0, 0.0], [0.0, 3.0]], (4, 2, 2))
    """

    arg_constraints: ClassVar = {"df": constraints.positive}
    has_rsample = True
    _params = ("df", *Factored._params)  # noqa: SLF001 - its base

    def __init__(
        self, df: float | Tensor, covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        checks = validate_args is not False and not is_tracing()
        (held,) = as_params(df=df)
        batch = self._hold_factor(
            covariance_matrix, precision_matrix, scale_tril, None, held.dims, checks=checks
        )
        self.df = held.cast(self.scale_tril.dtype).expand(batch)
        size = self._side
        super().__init__(batch, (size, size), validate_args)
        if checks:
            least = self._side - 1
            self._demand("df", self.df, constraints.Constraint(
                f"a number above {least}", lambda x: x > least))  # fmt: skip

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples: symmetric positive definite matrices."""
        return constraints.positive_definite

    @property
    def mean(self) -> Tensor:
        """The mean: ``df * covariance_matrix``."""
        return self._df * self.covariance_matrix

    @property
    def _df(self) -> Tensor:
        return self.df.unsqueeze(-1).unsqueeze(-1)

    @property
    def mode(self) -> Tensor:
        """The mode; NaN if `df` is at most n + 1."""
        factor = self._df - self._side - 1
        return where(factor > 0, factor, math.nan) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        """The variance of each element."""
        whole = self.covariance_matrix
        own = whole.diagonal(0, -2, -1)
        return self._df * (whole.square() + own.unsqueeze(-1) * own.unsqueeze(-2))

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        shape, kind = self._extended(sample_shape), self.scale_tril.dtype
        # Element i of the diagonal is the root of a chi-squared variate of df - i.
        halves = 0.5 * (self.df.unsqueeze(-1) - arange(self._side, dtype=kind))
        roots = (0.5 * (log_gamma(halves, shape[:-1]) + math.log(2))).exp()
        inner = random.randn(shape, dtype=kind).tril(-1) + roots.diag_embed()
        lower = self.scale_tril @ inner
        return lower @ lower.mT

    def _log_norm(self) -> Tensor:
        """Return half the log determinant of twice the covariance."""
        half = self.scale_tril.diagonal(0, -2, -1).log().sum(-1)
        return half + 0.5 * self._side * math.log(2)

    def log_prob(self, value: Any) -> Tensor:
        found, n = self._value(value), self._side
        lower = self.scale_tril
        # The trace of the inverse covariance times the value.
        left = solve_lower(lower, found)
        trace = solve_lower(lower, left.mT).diagonal(0, -2, -1).sum(-1)
        size = found.cast(found.dtype.accumulator).slogdet()[1].cast(found.dtype)
        norm = self.df * self._log_norm() + (0.5 * self.df).mvlgamma(n)
        return 0.5 * (self.df - n - 1) * size - 0.5 * trace - norm

    def entropy(self) -> Tensor:
        n, half = self._side, 0.5 * self.df
        found = self.df * self._log_norm() + half.mvlgamma(n) + half * n
        return found - 0.5 * (self.df - n - 1) * self._mean_log_det()

    def _mean_log_det(self) -> Tensor:
        """Return the mean of the log determinant."""
        halves = 0.5 * (self.df.unsqueeze(-1) - arange(self._side, dtype=self.df.dtype))
        return halves.digamma().sum(-1) + 2 * self._log_norm()

    def _divergence(self, other: Wishart) -> Tensor:
        """Return the Kullback-Leibler divergence of `other` from this distribution."""
        n, df = self._side, other.df
        trace = solve_lower(other.scale_tril, self.scale_tril).square().sum((-2, -1))
        mean = 0.5 * (df - n - 1) * self._mean_log_det() - 0.5 * self.df * trace
        norm = df * other._log_norm() + (0.5 * df).mvlgamma(n)
        return norm - mean - self.entropy()


class LKJCholesky(Distribution):
    """The LKJ distribution of correlation matrices, given by their Cholesky factors.

    Samples use the onion method (Lewandowski, Kurowicka and Joe, Generating random correlation
    matrices based on vines and extended onion method, Journal of Multivariate Analysis 100, 2009).
    For the Cholesky factor L of a correlation matrix ``C = L @ L.mT``, the density of C is
    proportional to ``|C|**(concentration - 1)``; the density of L, which :meth:`log_prob` returns,
    is this times the Jacobian determinant of the map from L to C.

    Parameters
    ----------
    dim : int
        Number of rows and columns of a matrix, at least 2.
    concentration : float or Tensor
        Concentration, above 0. At 1 all correlation matrices are equally likely; larger values
        concentrate them around the identity.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.LKJCholesky(3, 0.5)
    >>> p.sample((4,)).shape, p.event_shape
    ((4, 3, 3), (3, 3))
    """

    arg_constraints: ClassVar = {"concentration": constraints.positive}
    _params = ("concentration",)

    def __init__(
        self, dim: int, concentration: float | Tensor = 1.0, validate_args: bool | None = None
    ) -> None:
        self.dim = integer(dim, "dim", least=2)
        (self.concentration,) = as_params(concentration=concentration)
        super().__init__(self.concentration.dims, (self.dim, self.dim), validate_args)

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples: Cholesky factors of correlation matrices."""
        return constraints.corr_cholesky

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        shape, kind = self._extended(sample_shape), self.concentration.dtype
        with no_grad():
            # A beta variate is the share of row i's squared length off the diagonal; the direction
            # is uniform.
            row = arange(1, self.dim, dtype=kind)
            rest = self.concentration.unsqueeze(-1) + 0.5 * (self.dim - 1 - row)
            share = Beta(0.5 * row, rest, False).sample(shape[: len(shape) - 2 - rest.ndim + 1])
            noise = random.randn((*shape[:-2], self.dim - 1, self.dim), dtype=kind).tril()
            length = noise.square().sum(-1, keepdim=True).sqrt()
            off = share.sqrt().unsqueeze(-1) * noise / length
            off = cat([off[..., :1, :] * 0, off], -2)
            own = cat([share[..., :1] * 0 + 1, (1 - share).sqrt()], -1)
            return off + own.diag_embed()

    def log_prob(self, value: Any) -> Tensor:
        found, n, c = self._value(value), self.dim, self.concentration
        powers = 2 * (c - 1).unsqueeze(-1) + (n - arange(2, n + 1, dtype=c.dtype))
        size = (powers * found.diagonal(0, -2, -1)[..., 1:].log()).sum(-1)
        # Equation 16 of Lewandowski et al., as a product of beta functions.
        less = n - 1
        top = c + 0.5 * less
        norm = 0.5 * less * math.log(math.pi) + (top - 0.5).mvlgamma(less) - less * top.lgamma()
        return size - norm

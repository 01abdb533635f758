"""Normal distributions of vectors."""

# ruff: noqa: D102 - methods that override inherit the docstrings of Distribution

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt.distributions import constraints
from kernelrt.distributions.distribution import Distribution, as_params, static
from kernelrt.errors import ShapeError
from kernelrt.ir.shape import broadcast, prod
from kernelrt.linalg import cholesky, solve_triangular
from kernelrt.tensor import is_tracing
from kernelrt.tensor.free_functions.creation import eye
from kernelrt.tensor.rng import random

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.distributions.distribution import Shape
    from kernelrt.ir import Dim
    from kernelrt.tensor import Tensor

__all__ = ["Factored", "LowRankMultivariateNormal", "MultivariateNormal", "NormalVectors",
           "factor", "solve_lower"]  # fmt: skip


def solve_lower(lower: Tensor, right: Tensor) -> Tensor:
    """Solve ``lower @ x = right`` for shapes (..., n, n) and (..., n, m)."""
    wide = right.dtype.accumulator
    return solve_triangular(lower.cast(wide), right.cast(wide), upper=False).cast(right.dtype)


def factor(matrix: Tensor) -> Tensor:
    """Return the lower Cholesky factor."""
    return cholesky(matrix.cast(matrix.dtype.accumulator)).cast(matrix.dtype)


def _lower_of(name: str, matrix: Tensor) -> Tensor:
    """Return the Cholesky factor of the covariance, given as matrix `name`."""
    if name == "scale_tril":
        return matrix
    if name == "covariance_matrix":
        return factor(matrix)
    # The precision is L L^T, so the covariance is (J L' J)^-1 of the flipped factor.
    flipped = factor(matrix.flip((-2, -1))).flip((-2, -1)).mT
    one = eye(static(matrix.dims[-1], name), dtype=matrix.dtype).expand(matrix.dims)
    return solve_lower(flipped, one)


class Factored(Distribution):
    """Base class of distributions with a covariance, kept as its Cholesky factor `scale_tril`."""

    _params: ClassVar[tuple[str, ...]] = ("scale_tril", "_covariance_matrix", "_precision_matrix")
    scale_tril: Tensor

    def _hold_factor(
        self, covariance_matrix: Tensor | None, precision_matrix: Tensor | None,
        scale_tril: Tensor | None, size: Dim | None, batch: Shape, *, checks: bool,
    ) -> Shape:  # fmt: skip
        """Keep the given matrix and the Cholesky factor; return the batch shape."""
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
                 "scale_tril": scale_tril}  # fmt: skip
        kind = type(self).__name__
        named = [(name, value) for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise ShapeError(
                f"{', '.join(given)}: {kind} takes exactly one of them, not "
                f"{' and '.join(name for name, _ in named) or 'none'}"
            )
        name, value = named[0]
        (matrix,) = as_params(**{name: value})
        side = matrix.dims[-1] if size is None and matrix.ndim else size
        if matrix.ndim < 2 or tuple(matrix.dims[-2:]) != (side, side):
            wanted = "n, n" if size is None else f"{size}, {size}"
            ending = "" if size is None else f" for a loc of {size} numbers"
            raise ShapeError(f"{name}: expected shape (..., {wanted}){ending}, not {matrix.shape}")
        is_factor = name == "scale_tril"
        if checks:
            kinds = constraints.lower_cholesky, constraints.positive_definite
            self._demand(name, matrix, kinds[0] if is_factor else kinds[1])
        found = broadcast(matrix.dims[:-2], batch)
        whole = (*found, *matrix.dims[-2:])
        if not is_factor:
            self.__dict__["_" + name] = matrix.expand(whole)
        self.scale_tril = _lower_of(name, matrix).expand(whole)
        return found

    @property
    def _side(self) -> int:
        return static(self.scale_tril.dims[-1], "covariance_matrix")

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariance, shape (..., n, n)."""
        given: Tensor | None = self.__dict__.get("_covariance_matrix")
        return self.scale_tril @ self.scale_tril.mT if given is None else given

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance, shape (..., n, n)."""
        given: Tensor | None = self.__dict__.get("_precision_matrix")
        if given is not None:
            return given
        one = eye(self._side, dtype=self.scale_tril.dtype).expand(self.scale_tril.dims)
        whitening = solve_lower(self.scale_tril, one)
        return whitening.mT @ whitening


class NormalVectors(Distribution):
    """Base class of normal distributions of vectors with the mean `loc`."""

    has_rsample = True
    loc: Tensor

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples: real vectors."""
        return constraints.real_vector

    @property
    def mean(self) -> Tensor:
        """The mean: `loc`."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The mode: `loc`."""
        return self.loc

    def _log_size(self) -> Tensor:
        """Return half the log determinant of the covariance."""
        raise NotImplementedError

    def _lengths(self, columns: Tensor) -> Tensor:
        """Return the squared Mahalanobis lengths of columns."""
        raise NotImplementedError

    def _trace(self, diagonal: Tensor) -> Tensor:
        """Return the trace of the inverse covariance times a diagonal matrix."""
        raise NotImplementedError

    def _spread(self) -> tuple[Tensor, Tensor | None]:
        """Return (F, d): the covariance is ``F @ F.mT + diag(d)``. If d is None, it counts as 0."""
        raise NotImplementedError

    def divergence(self, other: NormalVectors) -> Tensor:
        """Return the Kullback-Leibler divergence of `other` from this distribution.

        Parameters
        ----------
        other : MultivariateNormal or LowRankMultivariateNormal
            Distribution of vectors of the same size.
        """
        factors, diagonal = self._spread()
        spread = other._lengths(factors).sum(-1)
        if diagonal is not None:
            spread = spread + other._trace(diagonal)
        away = other._lengths((other.loc - self.loc).unsqueeze(-1)).squeeze(-1)
        sizes = other._log_size() - self._log_size()
        return sizes + 0.5 * (spread + away - static(self.event_shape[0], "loc"))

    def log_prob(self, value: Any) -> Tensor:
        away = self._value(value) - self.loc
        # The sample axes become columns, so that one Cholesky factor serves all samples.
        before = away.ndim - self.loc.ndim
        draws = prod(away.dims[:before])
        columns = away.reshape((draws, *self.loc.dims)).movedim(0, -1) if before else (
            away.unsqueeze(-1))  # fmt: skip
        found = self._lengths(columns)
        square = found.movedim(-1, 0).reshape(away.dims[:-1]) if before else found.squeeze(-1)
        size = static(self.event_shape[0], "loc")
        return (square + size * math.log(2 * math.pi)) * -0.5 - self._log_size()

    def entropy(self) -> Tensor:
        size = static(self.event_shape[0], "loc")
        found = self._log_size() + 0.5 * size * (1 + math.log(2 * math.pi))
        return found.expand(self.batch_shape)


class MultivariateNormal(Factored, NormalVectors):
    """The multivariate normal distribution.

    The event shape is (n,), and the batch shape is that of the other axes. The density of a vector
    x, with the covariance C::

        exp(-(x - loc).T @ inv(C) @ (x - loc) / 2) / sqrt((2 * pi)**n * det(C))

    Parameters
    ----------
    loc : Tensor
        Mean, shape (..., n).
    covariance_matrix, precision_matrix : Tensor, optional
        Symmetric and positive definite, shape (..., n, n).
    scale_tril : Tensor, optional
        Lower triangular Cholesky factor of the covariance, instead of one of the two matrices.
    validate_args : bool, optional
        Whether to check parameters and values.

    Raises
    ------
    DomainError
        A matrix is not of the required form.
    ShapeError
        None or several of the three matrices are given, or shapes disagree.
    LinAlgError
        At run time, if a matrix whose values were not checked is not positive definite.

    Examples
    --------
    >>> p = krt.distributions.MultivariateNormal(krt.zeros(2), krt.tensor([[4.0, 2.0], [2.0, 2.0]]))
    >>> p.scale_tril.round(decimals=4).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    >>> p.rsample((5,)).shape, p.log_prob(krt.zeros(5, 2)).shape
    ((5, 2), (5,))
    """

    arg_constraints: ClassVar = {"loc": constraints.real_vector}
    _params = ("loc", *Factored._params)  # noqa: SLF001 - its base

    def __init__(
        self, loc: Tensor, covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        (center,) = as_params(loc=loc)
        if center.ndim < 1:
            raise ShapeError("loc: MultivariateNormal expected at least one axis, not a scalar")
        size = center.dims[-1]
        batch = self._hold_factor(
            covariance_matrix, precision_matrix, scale_tril, size, center.dims[:-1],
            checks=validate_args is not False and not is_tracing(),
        )  # fmt: skip
        self.loc = center.expand((*batch, size))
        super().__init__(batch, (size,), validate_args)

    @property
    def variance(self) -> Tensor:
        """The variance of each element: the diagonal of the covariance."""
        return self.scale_tril.square().sum(-1)

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        noise = random.randn(self._extended(sample_shape), dtype=self.loc.dtype)
        return self.loc + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def _log_size(self) -> Tensor:
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def _lengths(self, columns: Tensor) -> Tensor:
        return solve_lower(self.scale_tril, columns).square().sum(-2)

    def _trace(self, diagonal: Tensor) -> Tensor:
        return self._lengths(diagonal.sqrt().diag_embed()).sum(-1)

    def _spread(self) -> tuple[Tensor, Tensor | None]:
        return self.scale_tril, None


class LowRankMultivariateNormal(NormalVectors):
    """The multivariate normal distribution with a low-rank plus diagonal covariance.

    The covariance is ``cov_factor @ cov_factor.mT + diag(cov_diag)``. Densities need only a
    Cholesky factor of shape (m, m) (the Woodbury identity), so vectors may be long. The batch
    shape is the shape to which the parameters broadcast, without the axes n and m. The event shape
    is (n,).

    Parameters
    ----------
    loc : Tensor
        Mean, shape (..., n).
    cov_factor : Tensor
        Factor of the low-rank part, shape (..., n, m).
    cov_diag : Tensor
        Diagonal part, above 0, shape (..., n).
    validate_args : bool, optional
        Whether to check parameters and values.

    Raises
    ------
    DomainError
        An element of `cov_diag` is not above 0, or a parameter holds NaN.
    ShapeError
        Shapes disagree.

    References
    ----------
    Petersen and Pedersen, The Matrix Cookbook, 2012, sections 3.2.2 and 3.2.4.

    Examples
    --------
    >>> p = krt.distributions.LowRankMultivariateNormal(
    ...     krt.zeros(2), krt.tensor([[1.0], [0.0]]), krt.ones(2))
    >>> p.covariance_matrix.tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    >>> p.rsample((3,)).shape
    (3, 2)
    """

    arg_constraints: ClassVar = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }  # fmt: skip
    _params = ("loc", "cov_factor", "cov_diag")

    def __init__(
        self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None
    ) -> None:
        (center,), (factors,), (diagonal,) = (
            as_params(loc=loc), as_params(cov_factor=cov_factor), as_params(cov_diag=cov_diag),
        )  # fmt: skip
        if center.ndim < 1:
            raise ShapeError(
                "loc: LowRankMultivariateNormal expected at least one axis, not a scalar"
            )
        size = center.dims[-1]
        if factors.ndim < 2 or factors.dims[-2] != size:
            raise ShapeError(f"cov_factor: expected shape (..., {size}, m) for a loc of {size} "
                             f"numbers, not {factors.shape}")  # fmt: skip
        if diagonal.ndim < 1 or diagonal.dims[-1] != size:
            raise ShapeError(f"cov_diag: expected shape (..., {size}) for a loc of {size} numbers, "
                             f"not {diagonal.shape}")  # fmt: skip
        batch = broadcast(center.dims[:-1], factors.dims[:-2], diagonal.dims[:-1])
        self.loc = center.expand((*batch, size))
        self.cov_factor = factors.expand((*batch, *factors.dims[-2:]))
        self.cov_diag = diagonal.expand((*batch, size))
        super().__init__(batch, (size,), validate_args)
        # Computed from the unexpanded parameters: once for a batch that shares them.
        directions = factors / diagonal.sqrt().unsqueeze(-1)
        one = eye(static(factors.dims[-1], "cov_factor"), dtype=factors.dtype)
        self._inner = factor(one + directions.mT @ directions)

    def _directions(self) -> Tensor:
        """Return `cov_factor` in coordinates where the diagonal part is the identity."""
        return self.cov_factor / self.cov_diag.sqrt().unsqueeze(-1)

    @property
    def variance(self) -> Tensor:
        """The variance of each element: the diagonal of the covariance."""
        return self.cov_factor.square().sum(-1) + self.cov_diag

    @property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance, shape (..., n, n)."""
        directions = self._directions()
        one = eye(static(self.event_shape[0], "loc"), dtype=directions.dtype)
        return self.cov_diag.sqrt().unsqueeze(-1) * factor(one + directions @ directions.mT)

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariance, shape (..., n, n)."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance, shape (..., n, n)."""
        bent = self._bent()
        return self.cov_diag.reciprocal().diag_embed() - bent.mT @ bent

    def _bent(self) -> Tensor:
        """Return the matrix B for which ``diag(1 / cov_diag) - B.mT @ B`` is the precision."""
        return solve_lower(self._inner, (self.cov_factor / self.cov_diag.unsqueeze(-1)).mT)

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        shape, kind = self._extended(sample_shape), self.loc.dtype
        along = random.randn((*shape[:-1], self.cov_factor.dims[-1]), dtype=kind)
        moved = (self.cov_factor @ along.unsqueeze(-1)).squeeze(-1)
        return self.loc + moved + self.cov_diag.sqrt() * random.randn(shape, dtype=kind)

    def _log_size(self) -> Tensor:
        return self._inner.diagonal(0, -2, -1).log().sum(-1) + 0.5 * self.cov_diag.log().sum(-1)

    def _lengths(self, columns: Tensor) -> Tensor:
        # The length is the minimum over s of |y - A s|^2 + |s|^2: no difference of large numbers.
        directions = self._directions()
        y = columns / self.cov_diag.sqrt().unsqueeze(-1)
        half = solve_lower(self._inner, directions.mT @ y)
        wide = half.dtype.accumulator
        s = solve_triangular(self._inner.mT.cast(wide), half.cast(wide), upper=True)
        s = s.cast(half.dtype)
        return (y - directions @ s).square().sum(-2) + s.square().sum(-2)

    def _trace(self, diagonal: Tensor) -> Tensor:
        taken = (self._bent().square() * diagonal.unsqueeze(-2)).sum((-2, -1))
        return (diagonal / self.cov_diag).sum(-1) - taken

    def _spread(self) -> tuple[Tensor, Tensor | None]:
        return self.cov_factor, self.cov_diag

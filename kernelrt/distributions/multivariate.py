"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt.distributions import constraints
from kernelrt.distributions.base import Distribution, as_params, static
from kernelrt.errors import ShapeError
from kernelrt.ir.shape import broadcast
from kernelrt.linalg import cholesky, solve_triangular
from kernelrt.tensor import is_tracing, random
from kernelrt.tensor.creation import eye

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.base import Shape
    from kernelrt.distributions.constraints import Constraint
    from kernelrt.ir import Dim
    from kernelrt.tensor import Tensor

__all__ = ["Factored", "MultivariateNormal", "factor", "solve_lower"]


def solve_lower(lower: Tensor, right: Tensor) -> Tensor:
    """The x of ``lower @ x = right``, for shapes (..., n, n) and (..., n, m)."""
    wide = right.dtype.accumulator
    return solve_triangular(lower.cast(wide), right.cast(wide), upper=False).cast(right.dtype)


def factor(matrix: Tensor) -> Tensor:
    """The lower Cholesky factor."""
    return cholesky(matrix.cast(matrix.dtype.accumulator)).cast(matrix.dtype)


def _lower_of(name: str, matrix: Tensor) -> Tensor:
    """The Cholesky factor of the covariance."""
    if name == "scale_tril":
        return matrix
    if name == "covariance_matrix":
        return factor(matrix)
    # The precision is L L^T, so the covariance is (J L' J)^-1 of the flipped factor.
    flipped = factor(matrix.flip((-2, -1))).flip((-2, -1)).mT
    one = eye(static(matrix.dims[-1], name), dtype=matrix.dtype).expand(matrix.dims)
    return solve_lower(flipped, one)


class Factored(Distribution):
    """A distribution with a covariance, which has the Cholesky factor `scale_tril`."""

    _params: ClassVar[tuple[str, ...]] = ("scale_tril", "_covariance_matrix", "_precision_matrix")
    scale_tril: Tensor

    def _hold_factor(
        self, covariance_matrix: Tensor | None, precision_matrix: Tensor | None,
        scale_tril: Tensor | None, size: Dim | None, batch: Shape, *, checks: bool,
    ) -> Shape:  # fmt: skip
        """Keep the one matrix that is given and the factor; the shape of the batch."""
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
                 "scale_tril": scale_tril}  # fmt: skip
        kind = type(self).__name__
        named = [(name, value) for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise ShapeError(f"{', '.join(given)}: {kind} takes one of them")
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
        """The covariance."""
        given: Tensor | None = self.__dict__.get("_covariance_matrix")
        return self.scale_tril @ self.scale_tril.mT if given is None else given

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        given: Tensor | None = self.__dict__.get("_precision_matrix")
        if given is not None:
            return given
        one = eye(self._side, dtype=self.scale_tril.dtype).expand(self.scale_tril.dims)
        whitening = solve_lower(self.scale_tril, one)
        return whitening.mT @ whitening


class MultivariateNormal(Factored):
    """The normal distribution of vectors.

    Parameters
    ----------
    loc : Tensor
        The mean, shape (..., n).
    covariance_matrix, precision_matrix : Tensor, optional
        Symmetric and positive definite, shape (..., n, n).
    scale_tril : Tensor, optional
        In their place: the Cholesky factor of the covariance, lower triangular.
    validate_args : bool, optional
        Whether values are checked.

    Raises
    ------
    LinAlgError
        At run time, where a matrix is not positive definite and its values were not checked.
    """

    arg_constraints: ClassVar = {"loc": constraints.real_vector}
    has_rsample = True
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
    def support(self) -> Constraint:
        """What samples may be."""
        return constraints.real_vector

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.scale_tril.square().sum(-1)

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        """Draw values that gradients pass, to the parameters."""
        noise = random.randn(self._extended(sample_shape), dtype=self.loc.dtype)
        return self.loc + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def _log_size(self) -> Tensor:
        """Half the logarithm of the determinant."""
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, of `value`."""
        away = self._value(value) - self.loc
        square = self._lengths(away)
        return (square + self._side * math.log(2 * math.pi)) * -0.5 - self._log_size()

    def _lengths(self, away: Tensor) -> Tensor:
        """Squares of lengths where the covariance is the unit matrix: one factor for all draws."""
        before = away.ndim - self.loc.ndim
        columns = away.reshape((-1, *self.loc.dims)).movedim(0, -1) if before else (
            away.unsqueeze(-1))  # fmt: skip
        found = solve_lower(self.scale_tril, columns).square().sum(-2)
        if not before:
            return found.squeeze(-1)
        return found.movedim(-1, 0).reshape(away.dims[:-1])

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        return self._log_size() + 0.5 * self._side * (1 + math.log(2 * math.pi))

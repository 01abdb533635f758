"""Constraints on parameters and samples, with PyTorch's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt import linalg
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.tensor import Tensor
from kernelrt.tensor.nodes.arguments import integer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Constraint", "MixtureSameFamilyConstraint", "boolean", "corr_cholesky", "dependent",
           "dependent_property", "greater_than", "greater_than_eq", "half_open_interval",
           "independent", "integer_interval", "interval", "is_dependent", "less_than",
           "lower_cholesky", "lower_triangular", "multinomial", "nonnegative",
           "nonnegative_integer", "one_hot", "positive", "positive_definite", "positive_integer",
           "positive_semidefinite", "real", "real_vector", "simplex", "square", "symmetric",
           "unit_interval"]  # fmt: skip


class Constraint:
    """A condition on values.

    Subclasses define :meth:`check`, and `event_dim` and `is_discrete` if they differ from 0 and
    False.

    Parameters
    ----------
    text : str, optional
        Description of allowed values, for errors.
    check : callable, optional
        Takes a tensor or an array and returns bools, without the last `event_dim` axes.
    event_dim : int, optional
        Number of axes of one value.
    is_discrete : bool, optional
        Whether values are integers.

    Examples
    --------
    >>> from kernelrt.distributions import constraints
    >>> even = constraints.Constraint("an even number", lambda x: x % 2 == 0, is_discrete=True)
    >>> even.check(krt.tensor([1, 2])).tolist()
    [False, True]
    """

    text = "a value that satisfies its constraint"
    event_dim = 0
    is_discrete = False

    def __init__(
        self, text: str | None = None, check: Callable[[Any], Any] | None = None,
        event_dim: int | None = None, is_discrete: bool | None = None,
    ) -> None:  # fmt: skip
        self._check = check
        for name, value in (
            ("text", text), ("event_dim", event_dim), ("is_discrete", is_discrete),
        ):  # fmt: skip
            if value is not None:
                setattr(self, name, value)

    def check(self, value: Any) -> Any:
        """Return bools: whether each value satisfies the constraint.

        Parameters
        ----------
        value : Tensor or array
            Values, of shape ``(*n, *event)`` with `event_dim` axes in ``event``.

        Returns
        -------
        Tensor or array of bools
            Result of shape ``n``, of the same kind as `value`.

        Examples
        --------
        >>> from kernelrt.distributions import constraints
        >>> constraints.positive.check(krt.tensor([-1.0, 0.0, 2.0])).tolist()
        [False, False, True]
        >>> constraints.simplex.check(np.array([[0.25, 0.75], [1.0, 1.0]])).tolist()
        [True, False]
        """
        if self._check is None:
            raise NotImplementedError(
                f"{type(self).__name__} defines no check; a subclass of Constraint must define it"
            )
        return self._check(value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text})"


class Dependent(Constraint):
    """A constraint that depends on other parameters, like the support of a uniform distribution.

    Parameters
    ----------
    event_dim : int, optional
        Number of axes of one value, if known.
    is_discrete : bool, optional
        Whether values are integers, if known.

    Examples
    --------
    >>> from kernelrt.distributions import constraints
    >>> constraints.is_dependent(constraints.dependent), constraints.is_dependent(constraints.real)
    (True, False)
    """

    text = "a value that other parameters allow"

    def __call__(
        self, *, is_discrete: bool | None = None, event_dim: int | None = None
    ) -> Dependent:
        """Return a dependent constraint with these properties."""
        return Dependent(event_dim=event_dim, is_discrete=is_discrete)

    def check(self, value: Any) -> Any:  # noqa: ARG002 - interface
        """Raise ShapeError, since this placeholder cannot check values."""
        raise ShapeError(
            "check: a dependent constraint cannot check values; use the constraint of a "
            "distribution instance, as in Uniform(0.0, 1.0).support"
        )


class DependentProperty(property, Dependent):
    """A property that is a constraint for an instance, and a dependent constraint for the class.

    Parameters
    ----------
    fn : callable
        The getter.
    event_dim : int, optional
        Number of axes of one value.
    is_discrete : bool, optional
        Whether values are integers.

    Examples
    --------
    >>> from kernelrt.distributions import Distribution, constraints
    >>> class Mine(Distribution):
    ...     @constraints.dependent_property(event_dim=0, is_discrete=False)
    ...     def support(self):
    ...         return constraints.greater_than(3)
    >>> constraints.is_dependent(Mine.support), Mine().support
    (True, GreaterThan(a number above 3))
    """

    def __init__(
        self, fn: Callable[[Any], Any] | None = None, *, is_discrete: bool | None = None,
        event_dim: int | None = None,
    ) -> None:  # fmt: skip
        property.__init__(self, fn)
        Dependent.__init__(self, event_dim=event_dim, is_discrete=is_discrete)

    def __call__(self, fn: Callable[[Any], Any]) -> DependentProperty:  # type: ignore[override]
        """Return the property with this getter."""
        return DependentProperty(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: object) -> bool:
    """Return whether a constraint depends on other values, so that it cannot check values alone.

    Parameters
    ----------
    constraint : object
        Usually a Constraint.

    Returns
    -------
    bool
        True for :data:`dependent` and for the supports of distribution classes.

    Examples
    --------
    >>> from kernelrt.distributions import constraints
    >>> constraints.is_dependent(constraints.positive)
    False
    """
    return isinstance(constraint, Dependent)


class Independent(Constraint):
    """A constraint on each element of a value.

    Parameters
    ----------
    base_constraint : Constraint
        Constraint on each element.
    reinterpreted_batch_ndims : int
        Number of further axes of one value.

    Raises
    ------
    DTypeError
        `base_constraint` is not a Constraint.

    Examples
    --------
    >>> from kernelrt.distributions import constraints
    >>> vector = constraints.independent(constraints.positive, 1)
    >>> vector.check(krt.tensor([[1.0, 2.0], [-1.0, 1.0]])).tolist()
    [True, False]
    """

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        if not isinstance(base_constraint, Constraint):
            raise DTypeError(
                f"base_constraint: expected a Constraint, not {type(base_constraint).__name__}"
            )
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = integer(
            reinterpreted_batch_ndims, "reinterpreted_batch_ndims", least=0
        )
        super().__init__(
            f"for each element {base_constraint.text}",
            event_dim=base_constraint.event_dim + self.reinterpreted_batch_ndims,
            is_discrete=base_constraint.is_discrete,
        )

    def check(self, value: Any) -> Any:
        """Return bools: whether all elements of each value satisfy the constraint."""
        found = self.base_constraint.check(value)
        if found.ndim < self.reinterpreted_batch_ndims:
            raise ShapeError(
                f"value: expected at least {self.event_dim} axes, not {len(value.shape)}"
            )
        for _ in range(self.reinterpreted_batch_ndims):
            found = found.all(-1)
        return found


class MixtureSameFamilyConstraint(Constraint):
    """A constraint that holds for every component of a mixture.

    Parameters
    ----------
    base_constraint : Constraint
        Constraint of the components, which are along the last axis of the batch.

    Examples
    --------
    >>> from kernelrt.distributions import constraints
    >>> ends = constraints.interval(0, krt.tensor([1.0, 2.0]))
    >>> constraints.MixtureSameFamilyConstraint(ends).check(krt.tensor([0.5, 1.5])).tolist()
    [True, False]
    """

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint
        super().__init__(
            base_constraint.text, event_dim=base_constraint.event_dim,
            is_discrete=base_constraint.is_discrete,
        )  # fmt: skip

    def check(self, value: Any) -> Any:
        """Return bools: whether each value satisfies the constraints of all components."""
        axis = -1 - self.event_dim
        each = value.unsqueeze(axis) if isinstance(value, Tensor) else np.expand_dims(value, axis)
        return self.base_constraint.check(each).all(-1)


class Interval(Constraint):
    """A number in a closed interval.

    Parameters
    ----------
    lower_bound, upper_bound : float or Tensor
        Ends of the interval.

    Examples
    --------
    >>> from kernelrt.distributions import constraints
    >>> constraints.interval(-1, 3).check(krt.tensor([-2.0, 3.0])).tolist()
    [False, True]
    """

    def __init__(self, lower_bound: Tensor | float, upper_bound: Tensor | float) -> None:
        self.lower_bound, self.upper_bound = lower_bound, upper_bound
        super().__init__(f"a number from {_told(lower_bound)} to {_told(upper_bound)}")

    def check(self, value: Any) -> Any:
        return (value >= _like(self.lower_bound, value)) & (value <= _like(self.upper_bound, value))


class HalfOpenInterval(Interval):
    """A number in a half-open interval, which contains its lower end but not its upper end.

    Parameters
    ----------
    lower_bound, upper_bound : float or Tensor
        Ends of the interval.

    Examples
    --------
    >>> from kernelrt.distributions import constraints
    >>> constraints.half_open_interval(-1, 3).check(krt.tensor([-1.0, 3.0])).tolist()
    [True, False]
    """

    def __init__(self, lower_bound: Tensor | float, upper_bound: Tensor | float) -> None:
        super().__init__(lower_bound, upper_bound)
        self.text = f"a number of at least {_told(lower_bound)} and below {_told(upper_bound)}"

    def check(self, value: Any) -> Any:
        return (value >= _like(self.lower_bound, value)) & (value < _like(self.upper_bound, value))


class IntegerInterval(Interval):
    """An integer in a closed interval.

    Parameters
    ----------
    lower_bound, upper_bound : float or Tensor
        Ends of the interval.

    Examples
    --------
    >>> from kernelrt.distributions import constraints
    >>> constraints.integer_interval(0, 3).check(krt.tensor([0.5, 3.0])).tolist()
    [False, True]
    """

    is_discrete = True

    def __init__(self, lower_bound: Tensor | float, upper_bound: Tensor | float) -> None:
        super().__init__(lower_bound, upper_bound)
        self.text = f"a whole number from {_told(lower_bound)} to {_told(upper_bound)}"

    def check(self, value: Any) -> Any:
        return _is_whole(value) & super().check(value)


class GreaterThan(Constraint):
    """A number above `lower_bound`.

    Parameters
    ----------
    lower_bound : float or Tensor
        Exclusive lower bound.

    Examples
    --------
    >>> from kernelrt.distributions import constraints
    >>> constraints.greater_than(1).check(krt.tensor([1.0, 2.0])).tolist()
    [False, True]
    """

    def __init__(self, lower_bound: Tensor | float) -> None:
        self.lower_bound = lower_bound
        super().__init__(f"a number above {_told(lower_bound)}")

    def check(self, value: Any) -> Any:
        return value > _like(self.lower_bound, value)


class GreaterThanEq(Constraint):
    """A number of at least `lower_bound`.

    Parameters
    ----------
    lower_bound : float or Tensor
        Inclusive lower bound.

    Examples
    --------
    >>> from kernelrt.distributions import constraints
    >>> constraints.greater_than_eq(1).check(krt.tensor([0.0, 1.0])).tolist()
    [False, True]
    """

    def __init__(self, lower_bound: Tensor | float) -> None:
        self.lower_bound = lower_bound
        super().__init__(f"a number of at least {_told(lower_bound)}")

    def check(self, value: Any) -> Any:
        return value >= _like(self.lower_bound, value)


class IntegerGreaterThan(GreaterThanEq):
    """An integer of at least `lower_bound`.

    Parameters
    ----------
    lower_bound : float or Tensor
        Inclusive lower bound.

    Examples
    --------
    >>> from kernelrt.distributions import constraints
    >>> constraints.positive_integer.check(krt.tensor([0.0, 1.5, 2.0])).tolist()
    [False, False, True]
    """

    is_discrete = True

    def __init__(self, lower_bound: Tensor | float) -> None:
        super().__init__(lower_bound)
        self.text = f"a whole number of at least {_told(lower_bound)}"

    def check(self, value: Any) -> Any:
        return _is_whole(value) & super().check(value)


class LessThan(Constraint):
    """A number below `upper_bound`.

    Parameters
    ----------
    upper_bound : float or Tensor
        Exclusive upper bound.

    Examples
    --------
    >>> from kernelrt.distributions import constraints
    >>> constraints.less_than(1).check(krt.tensor([0.0, 1.0])).tolist()
    [True, False]
    """

    def __init__(self, upper_bound: Tensor | float) -> None:
        self.upper_bound = upper_bound
        super().__init__(f"a number below {_told(upper_bound)}")

    def check(self, value: Any) -> Any:
        return value < _like(self.upper_bound, value)


class Multinomial(Constraint):
    """Nonnegative integers with the sum `upper_bound`.

    Parameters
    ----------
    upper_bound : int
        The sum.

    Examples
    --------
    >>> from kernelrt.distributions import constraints
    >>> constraints.multinomial(3).check(krt.tensor([[1.0, 2.0], [1.0, 1.0]])).tolist()
    [True, False]
    """

    event_dim = 1
    is_discrete = True

    def __init__(self, upper_bound: int) -> None:
        self.upper_bound = upper_bound
        super().__init__(f"whole numbers of at least 0 that sum to {upper_bound}")

    def check(self, value: Any) -> Any:
        return (_is_whole(value) & (value >= 0)).all(-1) & (value.sum(-1) == self.upper_bound)


def _is_real(x: Any) -> Any:
    return x == x  # not NaN


def _is_whole(x: Any) -> Any:
    return x % 1 == 0


def _is_simplex(x: Any) -> Any:
    # Values rounded to 16 bits sum to 1 only approximately.
    near = 1e-6 if x.dtype.itemsize > 2 else 0.02
    return (x >= 0).all(-1) & (abs(x.sum(-1, dtype="float64") - 1) < near)


def _is_one_hot(x: Any) -> Any:
    return ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1)


def _is_lower_triangular(x: Any) -> Any:
    lower = x.tril() if isinstance(x, Tensor) else np.tril(x)
    return (x == lower).all(-1).all(-1)


def _is_lower_cholesky(x: Any) -> Any:
    return _is_lower_triangular(x) & (x.diagonal(0, -2, -1) > 0).all(-1)


def _is_square(x: Any) -> Any:
    rows, columns = (x.dims if isinstance(x, Tensor) else x.shape)[-2:]
    # The sum over no columns gives one bool for each matrix.
    return (x[..., :0].sum((-2, -1)) == 0) & (rows == columns)


def _is_symmetric(x: Any) -> Any:
    rows, columns = (x.dims if isinstance(x, Tensor) else x.shape)[-2:]
    if rows != columns:
        return _is_square(x)
    turned = x.mT if isinstance(x, Tensor) else np.swapaxes(x, -1, -2)
    return (abs(x - turned) <= 1e-5 * abs(x) + 1e-6).all(-1).all(-1)


def _eigenvalues(x: Any) -> Any:
    # Eigenvalue routines fail on NaN and infinity.
    if isinstance(x, Tensor):
        return linalg.eigvalsh(x.double().nan_to_num(0, 0, 0))
    fine = np.nan_to_num(x.astype(np.float64), nan=0, posinf=0, neginf=0)
    return np.linalg.eigvalsh(fine)


def _is_positive_definite(x: Any) -> Any:
    values = _eigenvalues(x)
    # Rounding moves the zero eigenvalue of a singular matrix to either side of 0.
    return _is_symmetric(x) & (values[..., 0] > 1e-15 * abs(values[..., -1]))


def _is_positive_semidefinite(x: Any) -> Any:
    values = _eigenvalues(x)
    return _is_symmetric(x) & (values[..., 0] >= -1e-6 * abs(values[..., -1]))


def _like(value: Tensor | float, x: Any) -> Any:
    """Return the end of an interval as an array if `value` is an array."""
    if isinstance(value, Tensor) and not isinstance(x, Tensor):
        return value.numpy()
    return value


def _told(value: Tensor | float) -> str:
    if not isinstance(value, Tensor):
        return str(value)
    return str(value.item()) if value.numel() == 1 else "its lower or upper end"


dependent = Dependent()
dependent_property = DependentProperty
independent = Independent
interval = Interval
half_open_interval = HalfOpenInterval
integer_interval = IntegerInterval
greater_than = GreaterThan
greater_than_eq = GreaterThanEq
less_than = LessThan
multinomial = Multinomial

real = Constraint("a number, not NaN", _is_real)
real_vector = Independent(real, 1)
positive = GreaterThan(0)
nonnegative = GreaterThanEq(0)
unit_interval = Interval(0, 1)
boolean = Constraint("0 or 1", lambda x: (x == 0) | (x == 1), is_discrete=True)
nonnegative_integer = IntegerGreaterThan(0)
positive_integer = IntegerGreaterThan(1)
simplex = Constraint("numbers of at least 0 that sum to 1", _is_simplex, 1)
one_hot = Constraint("a single 1 among zeros", _is_one_hot, 1, is_discrete=True)
lower_triangular = Constraint("a lower triangular matrix", _is_lower_triangular, 2)
lower_cholesky = Constraint(
    "a lower triangular matrix with a positive diagonal", _is_lower_cholesky, 2
)
corr_cholesky = Constraint(
    "a lower triangular matrix with a positive diagonal and rows of length 1",
    lambda x: _is_lower_cholesky(x) & (abs((x * x).sum(-1) - 1) < 1e-5).all(-1), 2,
)  # fmt: skip
square = Constraint("a square matrix", _is_square, 2)
symmetric = Constraint("a symmetric matrix", _is_symmetric, 2)
positive_semidefinite = Constraint(
    "a symmetric positive semidefinite matrix", _is_positive_semidefinite, 2
)
positive_definite = Constraint("a symmetric positive definite matrix", _is_positive_definite, 2)

"""Transforms from real numbers to the values that a constraint allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from kernelrt.distributions import constraints
from kernelrt.distributions.bundles import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SoftmaxTransform,
    StickBreakingTransform,
)
from kernelrt.distributions.constraints import Constraint
from kernelrt.distributions.distribution import UnsupportedError
from kernelrt.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    IndependentTransform,
    SigmoidTransform,
    Transform,
    identity_transform,
)
from kernelrt.errors import DTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

_F = TypeVar("_F", bound="Callable[[Any], Transform]")


class ConstraintRegistry:
    """A table from constraints to functions that make their transforms.

    There are two instances. The transforms of ``transform_to`` map any real numbers to allowed
    values, for parameters that an optimizer updates. The transforms of ``biject_to`` are also
    bijective and have a log absolute Jacobian determinant, for samplers. The two tables have
    different transforms for ``simplex``. Of the matrix constraints, ``biject_to`` has only
    ``corr_cholesky``.

    Examples
    --------
    >>> from kernelrt.distributions import Normal, biject_to, constraints, transform_to
    >>> raw = krt.tensor([0.0, 0.0])
    >>> transform_to(Normal.arg_constraints["scale"])(raw).tolist()
    [1.0, 1.0]
    >>> transform_to(constraints.interval(-1, 3))(raw).tolist()
    [1.0, 1.0]
    >>> transform_to(constraints.simplex)(raw).tolist(), biject_to(constraints.simplex)(raw).shape
    ([0.5, 0.5], (3,))
    """

    def __init__(self) -> None:
        self._factories: dict[Constraint | type[Constraint], Callable[[Any], Transform]] = {}

    @overload
    def register(self, constraint: Constraint | type[Constraint], factory: _F) -> _F: ...
    @overload
    def register(
        self, constraint: Constraint | type[Constraint], factory: None = None
    ) -> Callable[[_F], _F]: ...

    def register(
        self, constraint: Constraint | type[Constraint], factory: _F | None = None
    ) -> _F | Callable[[_F], _F]:
        """Register a function that makes the transforms of a class of constraints.

        Parameters
        ----------
        constraint : Constraint or type
            A subclass of Constraint, or an instance of one, which stands for its class. An instance
            of Constraint itself, such as ``real``, stands for itself alone.
        factory : callable, optional
            Returns the Transform of a constraint. Without it, `register` returns a decorator.

        Returns
        -------
        callable
            `factory`, or a decorator.

        Raises
        ------
        DTypeError
            `constraint` is neither a Constraint nor a subclass.

        Examples
        --------
        >>> from kernelrt.distributions import ExpTransform, constraints, transform_to
        >>> class Prime(constraints.Constraint):
        ...     pass
        >>> @transform_to.register(Prime)
        ... def made(constraint):
        ...     return ExpTransform()
        >>> transform_to(Prime())
        ExpTransform()
        """
        given: Any = constraint
        key = _key(given) if isinstance(given, Constraint) else given
        if not isinstance(key, Constraint | type) or (
            isinstance(key, type) and not issubclass(key, Constraint)
        ):
            raise DTypeError(f"constraint: expected a Constraint or a subclass, not {given!r}")

        def keep(factory: _F) -> _F:
            self._factories[key] = factory
            return factory

        return keep if factory is None else keep(factory)

    def __call__(self, constraint: Constraint) -> Transform:
        """Return the transform to the values that a constraint allows.

        Parameters
        ----------
        constraint : Constraint
            Constraint on the results of the transform.

        Returns
        -------
        Transform
            Transform whose domain is all real numbers, vectors or matrices.

        Raises
        ------
        UnsupportedError
            No transform is registered for the constraint.
        """
        if not isinstance(constraint, Constraint):
            raise DTypeError(
                f"constraint: expected a Constraint, not {type(constraint).__name__}"
            )
        factory = self._factories.get(_key(constraint))
        if factory is None:
            raise UnsupportedError(
                f"constraint: no transform is registered for {constraint!r}; add one with "
                "register()"
            )
        return factory(constraint)


def _key(constraint: Constraint) -> Constraint | type[Constraint]:
    return constraint if type(constraint) is Constraint else type(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(*kinds: Constraint | type[Constraint]) -> Callable[[_F], _F]:
    def keep(factory: _F) -> _F:
        for kind in kinds:
            biject_to.register(kind, factory)
            transform_to.register(kind, factory)
        return factory

    return keep


@_both(constraints.real)
def _identity(_: Constraint) -> Transform:
    return identity_transform


@_both(constraints.GreaterThan, constraints.GreaterThanEq)
def _above(constraint: constraints.GreaterThan | constraints.GreaterThanEq) -> Transform:
    return _moved(ExpTransform(), constraint.lower_bound, 1)


@_both(constraints.LessThan)
def _below(constraint: constraints.LessThan) -> Transform:
    return _moved(ExpTransform(), constraint.upper_bound, -1)


@_both(constraints.Interval, constraints.HalfOpenInterval)
def _between(constraint: constraints.Interval) -> Transform:
    low = constraint.lower_bound
    return _moved(SigmoidTransform(), low, constraint.upper_bound - low)


def _moved(transform: Transform, loc: Any, scale: Any) -> Transform:
    numbers = isinstance(loc, int | float) and isinstance(scale, int | float)
    if numbers and (loc, scale) == (0, 1):
        return transform
    return ComposeTransform([transform, AffineTransform(loc, scale)])


@_both(constraints.corr_cholesky)
def _correlations(_: Constraint) -> Transform:
    return CorrCholeskyTransform()


@biject_to.register(constraints.simplex)
def _sticks(_: Constraint) -> Transform:
    return StickBreakingTransform()


@transform_to.register(constraints.simplex)
def _softmax(_: Constraint) -> Transform:
    return SoftmaxTransform()


@transform_to.register(constraints.lower_cholesky)
def _lower(_: Constraint) -> Transform:
    return LowerCholeskyTransform()


@transform_to.register(constraints.positive_semidefinite)
@transform_to.register(constraints.positive_definite)
def _definite(_: Constraint) -> Transform:
    return PositiveDefiniteTransform()


@biject_to.register(constraints.Independent)
def _bijections(constraint: constraints.Independent) -> Transform:
    inner = biject_to(constraint.base_constraint)
    return IndependentTransform(inner, constraint.reinterpreted_batch_ndims)


@transform_to.register(constraints.Independent)
def _transforms(constraint: constraints.Independent) -> Transform:
    inner = transform_to(constraint.base_constraint)
    return IndependentTransform(inner, constraint.reinterpreted_batch_ndims)

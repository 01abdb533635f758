"""Distribution, the base class: shapes, argument checks and derived quantities."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np

from kernelrt import dtype as dt
from kernelrt.distributions.constraints import is_dependent, unit_interval
from kernelrt.errors import DomainError, DTypeError, GradientError, KernelrtError, ShapeError
from kernelrt.ir.shape import broadcast
from kernelrt.tensor import Tensor, is_tracing
from kernelrt.tensor.free_functions.creation import tensor
from kernelrt.tensor.nodes.arguments import flag, shape_of
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.ir import Dim

__all__ = ["Distribution", "Shape", "UnsupportedError", "as_params", "static"]

Shape: TypeAlias = "tuple[Dim, ...]"


class UnsupportedError(KernelrtError, NotImplementedError):
    """A distribution has no closed form for the requested quantity.

    Estimate the quantity from samples instead, for example the entropy as the mean of
    ``-p.log_prob(x)`` over samples ``x`` of ``p``.

    Examples
    --------
    >>> krt.distributions.Poisson(1.0).entropy()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    kernelrt.distributions.distribution.UnsupportedError: Poisson has no entropy in closed form...
    """


class Distribution:
    """Base class of distributions.

    A subclass defines :meth:`log_prob`, and :meth:`rsample` or :meth:`sample`. The
    distributions of this package broadcast their parameters to one shape: the batch shape, followed
    by the event shape if one sample is a vector or a matrix. Parameters that are numbers become
    tensors: float32, or of the type of the other parameters if these are tensors.

    Parameters
    ----------
    batch_shape : tuple of int
        Shape of the batch of independent distributions.
    event_shape : tuple of int
        Shape of one sample of one distribution.
    validate_args : bool, optional
        Whether to check parameters and values, as far as they are known; True by default.

    Attributes
    ----------
    arg_constraints : dict of str to Constraint
        Constraint on each parameter.
    has_rsample : bool
        Whether :meth:`rsample` is available.
    has_enumerate_support : bool
        Whether :meth:`enumerate_support` is available.

    Raises
    ------
    DomainError
        A parameter violates its constraint. The message names the parameter and the value.
    ShapeError
        Parameters do not broadcast.

    Examples
    --------
    >>> p = krt.distributions.Uniform(krt.zeros(3, 1), krt.tensor([2.0, 4.0]))
    >>> p.batch_shape, p.event_shape, p.sample((5,)).shape
    ((3, 2), (), (5, 3, 2))
    >>> p.mean[0].tolist()
    [1.0, 2.0]
    >>> krt.distributions.Normal(0.0, -1.0)
    Traceback (most recent call last):
    kernelrt.errors.DomainError: scale: Normal expected a number above 0, not -1.0
    """

    #: Constraint on each parameter.
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    has_rsample: ClassVar[bool] = False
    has_enumerate_support: ClassVar[bool] = False
    #: Attributes whose first axes are the batch's.
    _params: ClassVar[tuple[str, ...]] = ()
    #: Attributes that are distributions of the same batch shape.
    _parts: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, batch_shape: Shape = (), event_shape: Shape = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape = tuple(batch_shape)
        self._event_shape = tuple(event_shape)
        self._validates = validate_args is None or flag(validate_args, "validate_args")
        if self._validates and not is_tracing():
            for name, constraint in self.arg_constraints.items():
                if (value := self._given(name)) is not None:
                    self._demand(name, value, constraint)

    def _given(self, name: str) -> Tensor | None:
        """Return the parameter of that name, or None if it was not given."""
        value: Tensor | None = self.__dict__.get(name)
        return value

    def _demand(self, name: str, value: Tensor, constraint: Constraint) -> None:
        if is_dependent(constraint):
            return
        # NumPy checks small arrays faster than a plan would; it has no bfloat16.
        brief = value.dtype is dt.bfloat16
        values = (value.float() if brief else value).numpy()
        with np.errstate(invalid="ignore"):
            holds = np.asarray(constraint.check(value.detach() if brief else values))
        if not holds.all():
            place = np.argwhere(~holds)[0]
            event = values.shape[values.ndim - constraint.event_dim :]
            whole = np.broadcast_to(values, (*holds.shape, *event))
            raise DomainError(
                f"{name}: {type(self).__name__} expected {constraint.text}, not "
                f"{whole[tuple(place)].tolist()}"
            )

    # ---- shapes

    @property
    def batch_shape(self) -> Shape:
        """Shape of the batch of independent distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Shape:
        """Shape of one sample of one distribution."""
        return self._event_shape

    def _extended(self, sample_shape: Sequence[Dim] = ()) -> Shape:
        """Return the full shape of samples: sample, batch and event shape."""
        return (*shape_of((tuple(sample_shape),)), *self._batch_shape, *self._event_shape)

    def expand(self, batch_shape: Sequence[Dim]) -> Self:
        """Return this distribution expanded to another batch shape.

        Parameters
        ----------
        batch_shape : sequence of int
            Shape that the present batch shape broadcasts to.

        Returns
        -------
        Distribution
            Distribution of the same class. Its parameters are views, not copies.

        Raises
        ------
        ShapeError
            The batch shape does not broadcast to `batch_shape`.

        Examples
        --------
        >>> krt.distributions.Normal(krt.zeros(2), 1.0).expand((3, 2)).batch_shape
        (3, 2)
        """
        wanted = shape_of((tuple(batch_shape),))
        if broadcast(self._batch_shape, wanted) != wanted:
            raise ShapeError(
                f"batch_shape: the batch shape {self._batch_shape} of the distribution does not "
                f"broadcast to {wanted}"
            )
        made = copy.copy(self)
        rank = len(self._batch_shape)
        for name in self._params:
            if (value := self.__dict__.get(name)) is not None:
                made.__dict__[name] = value.expand((*wanted, *value.dims[rank:]))
        for name in self._parts:
            made.__dict__[name] = self.__dict__[name].expand(wanted)
        made.__dict__["_batch_shape"] = wanted
        return made

    # ---- properties; a subclass defines those with a closed form

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples.

        Examples
        --------
        >>> krt.distributions.Uniform(0.0, 2.0).support
        Interval(a number from 0.0 to 2.0)
        """
        raise UnsupportedError(
            f"{type(self).__name__} defines no support; a subclass of Distribution must define it"
        )

    @property
    def mean(self) -> Tensor:
        """The mean, of shape ``(*batch_shape, *event_shape)``."""
        raise UnsupportedError(
            f"{type(self).__name__} has no mean in closed form; estimate it from samples"
        )

    @property
    def mode(self) -> Tensor:
        """The mode: the value of the highest density or probability."""
        raise UnsupportedError(
            f"{type(self).__name__} has no mode in closed form; estimate it from samples"
        )

    @property
    def variance(self) -> Tensor:
        """The variance of each element, of shape ``(*batch_shape, *event_shape)``."""
        raise UnsupportedError(
            f"{type(self).__name__} has no variance in closed form; estimate it from samples"
        )

    @property
    def stddev(self) -> Tensor:
        """The standard deviation: the square root of the variance."""
        return self.variance.sqrt()

    def log_prob(self, value: Any) -> Tensor:  # noqa: ARG002 - for subclasses
        """Return the log density, or the log probability, of `value`.

        Parameters
        ----------
        value : array_like
            Values whose last axes have the event shape; the other axes broadcast with the batch
            shape.

        Returns
        -------
        Tensor
            One number for each value, in natural logarithms: the broadcast shape without the axes
            of the event.

        Raises
        ------
        DomainError
            `value` lies outside of :attr:`support`.
        ShapeError
            `value` has a shape that does not fit.

        Examples
        --------
        >>> krt.distributions.Exponential(1.0).log_prob(krt.tensor([0.0, 3.0])).tolist()
        [0.0, -3.0]
        """
        raise UnsupportedError(
            f"{type(self).__name__} defines no log_prob; a subclass of Distribution must define it"
        )

    def cdf(self, value: Any) -> Tensor:  # noqa: ARG002 - for subclasses
        """Return the cumulative probability of `value`.

        Parameters
        ----------
        value : array_like
            Numbers that broadcast with the batch shape.

        Returns
        -------
        Tensor
            Probability of samples up to `value`, from 0 to 1, of the broadcast shape.

        Raises
        ------
        DomainError
            `value` lies outside of :attr:`support`.
        ShapeError
            `value` has a shape that does not fit.
        UnsupportedError
            There is no closed form.

        Examples
        --------
        >>> krt.distributions.Uniform(0.0, 4.0).cdf(krt.tensor([1.0, 2.0])).tolist()
        [0.25, 0.5]
        """
        raise UnsupportedError(
            f"{type(self).__name__} has no cdf in closed form; estimate it from samples"
        )

    def icdf(self, value: Any) -> Tensor:  # noqa: ARG002 - for subclasses
        """Return the quantile of the cumulative probability `value`: the inverse of :meth:`cdf`.

        Parameters
        ----------
        value : array_like
            Probabilities from 0 to 1, that broadcast with the batch shape.

        Returns
        -------
        Tensor
            Numbers of the broadcast shape.

        Raises
        ------
        DomainError
            `value` is not from 0 to 1.
        ShapeError
            `value` has a shape that does not fit.
        UnsupportedError
            There is no closed form.

        Examples
        --------
        >>> krt.distributions.Uniform(0.0, 4.0).icdf(krt.tensor([0.25, 0.5])).tolist()
        [1.0, 2.0]
        """
        raise UnsupportedError(
            f"{type(self).__name__} has no icdf in closed form; estimate quantiles from samples"
        )

    def entropy(self) -> Tensor:
        """Return the entropy, in nats.

        Returns
        -------
        Tensor
            One number for each distribution: the batch shape.

        Raises
        ------
        UnsupportedError
            There is no closed form.

        Examples
        --------
        >>> krt.distributions.Uniform(0.0, 1.0).entropy().item()
        0.0
        """
        raise UnsupportedError(
            f"{type(self).__name__} has no entropy in closed form; estimate it as the mean of "
            "-log_prob(x) of samples x"
        )

    def perplexity(self) -> Tensor:
        """Return the exponential of the entropy.

        Returns
        -------
        Tensor
            One number for each distribution. For n equally likely values it is n.

        Examples
        --------
        >>> round(krt.distributions.Categorical(krt.ones(4)).perplexity().item(), 4)
        4.0
        """
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:  # noqa: ARG002 - for subclasses
        """Return all values of the support, along a new first axis.

        Parameters
        ----------
        expand : bool
            Whether to repeat the values for each distribution of the batch. Otherwise the axes of
            the batch have size 1.

        Returns
        -------
        Tensor
            Values of shape ``(number of values, *batch_shape, *event_shape)``.

        Raises
        ------
        UnsupportedError
            The support is not finite.

        Examples
        --------
        >>> krt.distributions.Bernoulli(krt.tensor([0.25, 0.5])).enumerate_support().tolist()
        [[0.0, 0.0], [1.0, 1.0]]
        """
        raise UnsupportedError(
            f"{type(self).__name__} has no finite support, so its values cannot be listed; draw "
            "samples instead"
        )

    # ---- draws

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        """Draw samples without gradients.

        :func:`kernelrt.manual_seed` sets the seed. Each call of a jitted function draws new
        samples.

        Parameters
        ----------
        sample_shape : sequence of int
            Shape of the samples, in front of the batch shape.

        Returns
        -------
        Tensor
            Samples of shape ``(*sample_shape, *batch_shape, *event_shape)`` in the dtype of the
            parameters; int64 for :class:`Categorical`.

        Examples
        --------
        >>> krt.distributions.Normal(krt.zeros(2), 1.0).sample((5,)).shape
        (5, 2)
        """
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:  # noqa: ARG002 - for subclasses
        """Draw samples that pass gradients to the parameters.

        Parameters
        ----------
        sample_shape : sequence of int
            Shape of the samples, in front of the batch shape.

        Returns
        -------
        Tensor
            Samples of shape ``(*sample_shape, *batch_shape, *event_shape)``.

        Raises
        ------
        GradientError
            Samples of the distribution have no gradient: ``has_rsample`` is false.

        Examples
        --------
        >>> loc = krt.tensor([1.0, 2.0], requires_grad=True)
        >>> krt.distributions.Normal(loc, 1.0).rsample((5,)).sum().backward()
        >>> loc.grad.tolist()
        [5.0, 5.0]
        """
        raise GradientError(
            f"rsample: samples of {type(self).__name__} have no gradient with respect to its "
            "parameters; use sample() and log_prob(), as in REINFORCE"
        )

    def __repr__(self) -> str:
        named = ((n.removeprefix("_"), self.__dict__.get(n)) for n in self._params)
        parts = [f"{n}: {_text(value)}" for n, value in named if value is not None]
        return f"{type(self).__name__}({', '.join(parts)})"

    # ---- values

    def _share(self, value: Any) -> Tensor:
        """Return a checked probability for icdf."""
        found = value if isinstance(value, Tensor) else tensor(value, dtype=dt.float32)
        if self._validates and not is_tracing():
            self._demand("value", found, unit_interval)
        return found

    def _value(self, value: Any) -> Tensor:
        """Return a checked value for log_prob and cdf."""
        found = value if isinstance(value, Tensor) else tensor(value)
        shape = (*self._batch_shape, *self._event_shape)
        tail = len(self._event_shape)
        if tail and tuple(found.dims[len(found.dims) - tail :]) != self._event_shape:
            raise ShapeError(
                f"value: expected a shape that ends in {self._event_shape}, not {found.shape}"
            )
        try:
            broadcast(found.dims, shape)
        except KernelrtError as error:
            raise ShapeError(
                f"value: cannot broadcast shape {found.shape} with {shape}, the batch shape and "
                "event shape of the distribution"
            ) from error
        if self._validates and not is_tracing():
            try:
                support = self.support
            except UnsupportedError:
                return found
            self._demand("value", found, support)
        return found


def static(size: Dim, name: str) -> int:
    """Return a size as an int; raise ShapeError if it is dynamic."""
    if not isinstance(size, int):
        raise ShapeError(
            f"{name}: expected an event size that is fixed, not {size}, which is known only at run "
            "time"
        )
    return size


def _text(value: Any) -> str:
    if not isinstance(value, Tensor) or is_tracing() or value.ndim:
        return str(getattr(value, "shape", value))
    return str(value.item())


def as_params(**given: Any) -> list[Tensor]:
    """Return parameters as floating tensors of one shape; numbers get the type of the tensors."""
    kinds = [v.dtype for v in given.values() if isinstance(v, Tensor)]
    arrays = [tensor(v).dtype for v in given.values() if isinstance(v, np.ndarray | np.generic)]
    floats = [k for k in (*kinds, *arrays) if k.is_float]
    kind = dt.promote(*floats) if floats else dt.float32
    found: list[Tensor] = []
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(
            value, int | float | Tensor | np.ndarray | np.generic | list | tuple
        ):
            raise DTypeError(f"{name}: expected a number or a Tensor, not {type(value).__name__}")
        held = value if isinstance(value, Tensor) else tensor(value, dtype=kind)
        found.append(held if held.dtype.is_float else held.cast(kind))
    shape = broadcast(*(v.dims for v in found))
    return [v if v.dims == shape else v.expand(shape) for v in found]

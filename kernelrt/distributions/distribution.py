"""Distribution, the base class: shapes, argument checks and derived quantities."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np

from kernelrt import dtype as dt
from kernelrt.distributions.constraints import is_dependent, unit_interval
from kernelrt.errors import DTypeError, GradientError, KernelrtError, ShapeError
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
    """A distribution has no closed form for the requested quantity."""


class Distribution:
    """Base class of distributions.

    Parameters
    ----------
    batch_shape : tuple of int
        Shape of the batch of independent distributions.
    event_shape : tuple of int
        Shape of one sample of one distribution.
    validate_args : bool, optional
        Whether to check parameters and values, as far as they are known; True by default.
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
            raise ShapeError(
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
        """Return this distribution expanded to another batch shape."""
        wanted = shape_of((tuple(batch_shape),))
        if broadcast(self._batch_shape, wanted) != wanted:
            raise ShapeError(f"batch_shape: {self._batch_shape} does not broadcast to {wanted}")
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
        """Constraint on the values of samples."""
        raise UnsupportedError(f"{type(self).__name__} defines no support")

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise UnsupportedError(f"{type(self).__name__} has no mean in closed form")

    @property
    def mode(self) -> Tensor:
        """The mode: the value of the highest density or probability."""
        raise UnsupportedError(f"{type(self).__name__} has no mode in closed form")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise UnsupportedError(f"{type(self).__name__} has no variance in closed form")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def log_prob(self, value: Any) -> Tensor:  # noqa: ARG002 - for subclasses
        """Return the log density, or the log probability, of `value`."""
        raise UnsupportedError(f"{type(self).__name__} has no log_prob")

    def cdf(self, value: Any) -> Tensor:  # noqa: ARG002 - for subclasses
        """Return the cumulative probability of `value`."""
        raise UnsupportedError(f"{type(self).__name__} has no cdf in closed form")

    def icdf(self, value: Any) -> Tensor:  # noqa: ARG002 - for subclasses
        """Return the quantile of the cumulative probability `value`."""
        raise UnsupportedError(f"{type(self).__name__} has no icdf in closed form")

    def entropy(self) -> Tensor:
        """Return the entropy, in nats."""
        raise UnsupportedError(f"{type(self).__name__} has no entropy in closed form")

    def perplexity(self) -> Tensor:
        """Return the exponential of the entropy."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:  # noqa: ARG002 - for subclasses
        """Return all values of the support, along a new first axis."""
        raise UnsupportedError(f"{type(self).__name__} has no finite support")

    # ---- draws

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        """Draw samples without gradients.

        Parameters
        ----------
        sample_shape : sequence of int
            Shape of the samples, in front of the batch shape.
        """
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:  # noqa: ARG002 - for subclasses
        """Draw samples that pass gradients to the parameters.

        Raises
        ------
        GradientError
            Samples of this distribution have no gradient.
        """
        raise GradientError(
            f"rsample: samples of {type(self).__name__} have no gradient by its parameters; use "
            "sample() and log_prob(), as in REINFORCE"
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
            raise ShapeError(f"value: cannot broadcast shape {found.shape} with {shape}") from error
        if self._validates and not is_tracing():
            try:
                support = self.support
            except UnsupportedError:
                return found
            self._demand("value", found, support)
        return found


def static(size: Dim, name: str) -> int:
    """Return a size, which has to be a fixed number."""
    if not isinstance(size, int):
        raise ShapeError(f"{name}: the event size must be fixed, not known only at run time")
    return size


def _text(value: Any) -> str:
    if not isinstance(value, Tensor) or is_tracing() or value.ndim:
        return str(getattr(value, "shape", value))
    return str(value.item())


def as_params(**given: Any) -> list[Tensor]:
    """Return parameters as floating tensors of one shape; numbers take the tensors' type."""
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

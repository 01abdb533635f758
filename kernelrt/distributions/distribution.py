"""Distribution, the base class: shapes, checked arguments and derived quantities."""

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
    """A distribution has no closed form for what is asked."""


class Distribution:
    """Base class of distributions.

    Parameters
    ----------
    batch_shape : tuple of int
        The shape of distributions that are independent of each other.
    event_shape : tuple of int
        The shape of one sample of one of them.
    validate_args : bool, optional
        Whether values are checked, where they are known; True by default.
    """

    #: What each parameter has to be.
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    has_rsample: ClassVar[bool] = False
    has_enumerate_support: ClassVar[bool] = False
    #: Attributes that have the batch's axes in front.
    _params: ClassVar[tuple[str, ...]] = ()
    #: Other distributions with the batch's axes.
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
        """The parameter of that name, where it was given."""
        value: Tensor | None = self.__dict__.get(name)
        return value

    def _demand(self, name: str, value: Tensor, constraint: Constraint) -> None:
        if is_dependent(constraint):
            return
        # Small arrays are looked at faster than a plan runs; NumPy has no bfloat16.
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
        """The shape of distributions that are independent of each other."""
        return self._batch_shape

    @property
    def event_shape(self) -> Shape:
        """The shape of one sample of one of them."""
        return self._event_shape

    def _extended(self, sample_shape: Sequence[Dim] = ()) -> Shape:
        """The shape of so many samples of all of them."""
        return (*shape_of((tuple(sample_shape),)), *self._batch_shape, *self._event_shape)

    def expand(self, batch_shape: Sequence[Dim]) -> Self:
        """This distribution repeated to another batch shape."""
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

    # ---- what a distribution tells; each has what has a closed form

    @property
    def support(self) -> Constraint:
        """What samples may be."""
        raise UnsupportedError(f"{type(self).__name__} tells no support")

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise UnsupportedError(f"{type(self).__name__} has no mean in closed form")

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        raise UnsupportedError(f"{type(self).__name__} has no mode in closed form")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise UnsupportedError(f"{type(self).__name__} has no variance in closed form")

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def log_prob(self, value: Any) -> Tensor:  # noqa: ARG002 - of those derived from it
        """The logarithm of the density, or of the probability, of `value`."""
        raise UnsupportedError(f"{type(self).__name__} has no log_prob")

    def cdf(self, value: Any) -> Tensor:  # noqa: ARG002 - of those derived from it
        """The probability of values up to `value`."""
        raise UnsupportedError(f"{type(self).__name__} has no cdf in closed form")

    def icdf(self, value: Any) -> Tensor:  # noqa: ARG002 - of those derived from it
        """The value up to which others have the probability `value`."""
        raise UnsupportedError(f"{type(self).__name__} has no icdf in closed form")

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        raise UnsupportedError(f"{type(self).__name__} has no entropy in closed form")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:  # noqa: ARG002 - as above
        """All values, along a new first axis."""
        raise UnsupportedError(f"{type(self).__name__} has no finite support")

    # ---- draws

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        """Draw values, of which gradients know nothing.

        Parameters
        ----------
        sample_shape : sequence of int
            How many, put before the batch shape.
        """
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:  # noqa: ARG002 - as above
        """Draw values that gradients pass, to the parameters.

        Raises
        ------
        GradientError
            The draw cannot be differentiated.
        """
        raise GradientError(
            f"rsample: draws of {type(self).__name__} have no gradient by its parameters; use "
            "sample() and log_prob(), as in REINFORCE"
        )

    def __repr__(self) -> str:
        named = ((n.removeprefix("_"), self.__dict__.get(n)) for n in self._params)
        parts = [f"{n}: {_text(value)}" for n, value in named if value is not None]
        return f"{type(self).__name__}({', '.join(parts)})"

    # ---- values

    def _share(self, value: Any) -> Tensor:
        """A checked probability, for icdf."""
        found = value if isinstance(value, Tensor) else tensor(value, dtype=dt.float32)
        if self._validates and not is_tracing():
            self._demand("value", found, unit_interval)
        return found

    def _value(self, value: Any) -> Tensor:
        """A checked value for log_prob and cdf."""
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
            raise ShapeError(f"value: shape {found.shape} does not fit {shape}") from error
        if self._validates and not is_tracing():
            try:
                support = self.support
            except UnsupportedError:
                return found
            self._demand("value", found, support)
        return found


def static(size: Dim, name: str) -> int:
    """A size that has to be known."""
    if not isinstance(size, int):
        raise ShapeError(f"{name}: the size of an event has to be fixed, not known at run time")
    return size


def _text(value: Any) -> str:
    if not isinstance(value, Tensor) or is_tracing() or value.ndim:
        return str(getattr(value, "shape", value))
    return str(value.item())


def as_params(**given: Any) -> list[Tensor]:
    """Parameters as tensors of one shape; numbers take the type of the tensors beside them."""
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

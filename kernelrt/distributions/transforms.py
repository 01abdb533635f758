"""Transforms (bijectors) with the log of their Jacobian determinant."""

# ruff: noqa: D102 - methods that override inherit the docstrings of Transform

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

from kernelrt.distributions import constraints
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir.shape import broadcast
from kernelrt.tensor import Tensor
from kernelrt.tensor.free_functions.creation import tensor, zeros, zeros_like
from kernelrt.tensor.nodes.arguments import integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.distributions.distribution import Distribution, Shape

__all__ = ["AbsTransform", "AffineTransform", "ComposeTransform",
           "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform",
           "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftplusTransform",
           "TanhTransform", "Transform", "identity_transform", "widened"]  # fmt: skip


class Transform:
    """Base class of transforms: functions of tensors with an inverse (changes of variables).

    Call a transform to apply it. As long as the output tensor lives, kernelrt keeps the input
    tensor, and :meth:`inv` of the output returns it. So the inverse is exact even where the
    transform is flat, as tanh is far from 0.

    A transform of your own defines ``_call``, ``_inverse`` and :meth:`log_abs_det_jacobian`.

    Parameters
    ----------
    cache_size : int
        Ignored. In PyTorch it enables this cache.

    Attributes
    ----------
    domain, codomain : Constraint
        Constraints on inputs and outputs.
    event_dim : int
        Number of axes of one input value: 0 for numbers, 1 for vectors, 2 for matrices.
    bijective : bool
        Whether each output value has exactly one input value.

    Examples
    --------
    >>> t = krt.distributions.TanhTransform()
    >>> x = krt.tensor([0.0, 50.0])
    >>> y = t(x)
    >>> y.tolist(), t.inv(y).tolist()
    ([0.0, 1.0], [0.0, 50.0])
    """

    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real
    #: Number of axes of one input value.
    event_dim = 0
    #: Whether each output value has exactly one input value.
    bijective = True

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise DomainError(f"cache_size: expected 0 or 1, not {cache_size}")

    @property
    def sign(self) -> Any:
        """For transforms of numbers: 1 if the transform increases, -1 if it decreases."""
        return 1

    @property
    def out_dim(self) -> int:
        """Number of axes of one output value."""
        return self.event_dim

    def forward_shape(self, shape: Shape) -> Shape:
        """Return the output shape for an input shape.

        Parameters
        ----------
        shape : tuple of int
            Shape of an input.

        Returns
        -------
        tuple of int
            Shape of its output.

        Raises
        ------
        ShapeError
            The transform does not accept this shape.

        Examples
        --------
        >>> krt.distributions.StickBreakingTransform().forward_shape((5, 2))
        (5, 3)
        """
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        """Return the input shape for an output shape.

        Parameters
        ----------
        shape : tuple of int
            Shape of an output.

        Returns
        -------
        tuple of int
            Shape of its input.

        Raises
        ------
        ShapeError
            The transform has no output of this shape.

        Examples
        --------
        >>> krt.distributions.StickBreakingTransform().inverse_shape((5, 3))
        (5, 2)
        """
        return shape

    def __call__(self, x: Tensor) -> Tensor:
        """Return the transformed `x`."""
        y = self._call(x)
        _remember(self, x, y)
        return y

    def inv(self, y: Tensor) -> Tensor:
        """Return the input that gives `y`.

        Parameters
        ----------
        y : Tensor
            Output, or any value of the codomain.

        Returns
        -------
        Tensor
            The very tensor that `y` was computed from, or else the inverse function of `y`.

        Examples
        --------
        >>> krt.distributions.AffineTransform(1.0, 2.0).inv(krt.tensor([5.0])).tolist()
        [2.0]
        """
        found = _recall(self, y)
        return self._inverse(y) if found is None else found

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(
            f"{type(self).__name__} defines no _call; a subclass of Transform must define it"
        )

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(
            f"{type(self).__name__} defines no _inverse; a subclass must define it to be inverted"
        )

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log absolute Jacobian determinant at `x`, where `y` is the transformed `x`.

        Parameters
        ----------
        x, y : Tensor
            Input and its output.

        Returns
        -------
        Tensor
            Natural logarithms, one for each value: the shape of `x` without its last `event_dim`
            axes.

        Examples
        --------
        >>> t = krt.distributions.ExpTransform()
        >>> x = krt.tensor([0.0, 2.0])
        >>> t.log_abs_det_jacobian(x, t(x)).tolist()
        [0.0, 2.0]
        """
        raise NotImplementedError(
            f"{type(self).__name__} defines no log_abs_det_jacobian; a subclass must define "
            "it to transform densities"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


#: From the id of an output: a weak reference to it, its transform, and the input.
_origins: dict[int, tuple[weakref.ref[Tensor], Transform, Tensor]] = {}


def _remember(made_by: Transform, x: Tensor, y: Tensor) -> None:
    if y is x:
        return
    place = id(y)

    def forget(_: object) -> None:
        _origins.pop(place, None)

    _origins[place] = (weakref.ref(y, forget), made_by, x)


def _recall(made_by: Transform, y: Tensor) -> Tensor | None:
    found = _origins.get(id(y))
    if found is None or found[0]() is not y or found[1] is not made_by:
        return None
    return found[2]


def widened(constraint: Constraint, event_dim: int) -> Constraint:
    """Return a constraint on values with at least `event_dim` axes.

    Parameters
    ----------
    constraint : Constraint
        Constraint on values of any number of axes.
    event_dim : int
        Number of axes that the constraint must cover.

    Returns
    -------
    Constraint
        `constraint` itself if it covers as many axes; otherwise one that checks it on all elements
        along the axes that it lacks.

    Examples
    --------
    >>> from kernelrt.distributions import constraints, transforms
    >>> transforms.widened(constraints.real, 1).event_dim
    1
    """
    more = event_dim - constraint.event_dim
    return constraints.independent(constraint, more) if more > 0 else constraint


class ExpTransform(Transform):
    """Transform numbers elementwise to numbers above 0: ``exp(x)``.

    Examples
    --------
    >>> krt.distributions.ExpTransform()(krt.tensor([0.0])).tolist()
    [1.0]
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - interface
        return x


class SigmoidTransform(Transform):
    """Transform elementwise to numbers strictly between 0 and 1: ``1 / (1 + exp(-x))``.

    Examples
    --------
    >>> krt.distributions.SigmoidTransform()(krt.tensor([0.0])).tolist()
    [0.5]
    """

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        least = 2.0 ** (1 - x.dtype.digits)
        return x.sigmoid().clamp(2.0**-126 if x.dtype.bits > 16 else 2.0**-14, 1 - least)

    def _inverse(self, y: Tensor) -> Tensor:
        least = 2.0 ** (1 - y.dtype.digits)
        safe = y.clamp(2.0**-126 if y.dtype.bits > 16 else 2.0**-14, 1 - least)
        return safe.log() - (-safe).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - interface
        return -(-x).softplus() - x.softplus()


class TanhTransform(Transform):
    """Transform numbers elementwise to numbers from -1 to 1: ``tanh(x)``.

    Examples
    --------
    >>> krt.distributions.TanhTransform()(krt.tensor([0.0, 50.0])).tolist()
    [0.0, 1.0]
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - interface
        # log(1 - tanh(x)**2) without cancellation.
        return 2 * (math.log(2) - x - (-2 * x).softplus())


class AffineTransform(Transform):
    """Scale and shift: ``loc + scale * x``.

    Parameters
    ----------
    loc, scale : float or Tensor
        Offset and factor.
    event_dim : int
        Number of axes of one value.
    cache_size : int
        Ignored.

    Examples
    --------
    >>> krt.distributions.AffineTransform(1.0, 2.0)(krt.tensor([0.0, 2.0])).tolist()
    [1.0, 5.0]
    """

    def __init__(
        self, loc: float | Tensor, scale: float | Tensor, event_dim: int = 0, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        for name, value in (("loc", loc), ("scale", scale)):
            if not isinstance(value, int | float | Tensor):
                raise DTypeError(f"{name}: expected a number or a Tensor, not "
                                 f"{type(value).__name__}")  # fmt: skip
        self.loc, self.scale, self.event_dim = loc, scale, event_dim
        self.domain = self.codomain = widened(constraints.real, event_dim)

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return 1 if self.scale > 0 else -1 if self.scale < 0 else 0

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def forward_shape(self, shape: Shape) -> Shape:
        given = (v for v in (self.loc, self.scale) if isinstance(v, Tensor))
        return broadcast(shape, *(v.dims for v in given))

    inverse_shape = forward_shape

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - interface
        if isinstance(self.scale, Tensor):
            size = self.scale.abs().log() + zeros_like(x)
        else:
            size = zeros_like(x) + math.log(abs(self.scale))
        for _ in range(self.event_dim):
            size = size.sum(-1)
        return size


class ComposeTransform(Transform):
    """Apply several transforms one after another.

    Parameters
    ----------
    parts : sequence of Transform
        Transforms, in the order in which they are applied.
    cache_size : int
        Ignored.

    Raises
    ------
    DTypeError
        An item of `parts` is not a Transform.

    Examples
    --------
    >>> t = krt.distributions.ComposeTransform(
    ...     [krt.distributions.AffineTransform(1.0, 2.0), krt.distributions.AbsTransform()])
    >>> t(krt.tensor([-3.0, 1.0])).tolist(), t.bijective
    ([5.0, 3.0], False)
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        for i, part in enumerate(parts):
            if not isinstance(part, Transform):
                raise DTypeError(f"parts[{i}]: expected a Transform, not {type(part).__name__}")
        self.parts = list(parts)
        self.event_dim = 0
        for part in reversed(self.parts):
            self.event_dim = max(self.event_dim - part.out_dim, 0) + part.event_dim
        self.bijective = all(part.bijective for part in self.parts)
        if self.parts:
            self.domain = widened(self.parts[0].domain, self.event_dim)
            self.codomain = widened(self.parts[-1].codomain, self.out_dim)

    @property
    def sign(self) -> Any:
        found: Any = 1
        for part in self.parts:
            found = found * part.sign
        return found

    @property
    def out_dim(self) -> int:
        found = self.event_dim
        for part in self.parts:
            found += part.out_dim - part.event_dim
        return found

    def forward_shape(self, shape: Shape) -> Shape:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - interface
        total: Tensor | None = None
        axes = self.event_dim
        for part in self.parts:
            after = part(x)
            size = part.log_abs_det_jacobian(x, after)
            for _ in range(axes - part.event_dim):
                size = size.sum(-1)
            total = size if total is None else total + size
            x, axes = after, axes + part.out_dim - part.event_dim
        return zeros_like(x) if total is None else total


#: The identity transform.
identity_transform = ComposeTransform([])


class AbsTransform(Transform):
    """Transform elementwise to ``abs(x)``; the inverse gives the nonnegative input.

    Examples
    --------
    >>> krt.distributions.AbsTransform()(krt.tensor([-2.0, 1.0])).tolist()
    [2.0, 1.0]
    """

    codomain = constraints.nonnegative
    bijective = False

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class PowerTransform(Transform):
    """Transform numbers above 0 elementwise to ``x ** exponent``.

    Parameters
    ----------
    exponent : float or Tensor
        Exponent, not 0.
    cache_size : int
        Ignored.

    Examples
    --------
    >>> krt.distributions.PowerTransform(2.0)(krt.tensor([3.0])).tolist()
    [9.0]
    """

    domain = constraints.positive
    codomain = constraints.positive

    def __init__(self, exponent: float | Tensor, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = tensor(exponent) if isinstance(exponent, int | float) else exponent

    @property
    def sign(self) -> Any:
        return self.exponent.sign()

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def forward_shape(self, shape: Shape) -> Shape:
        return broadcast(shape, self.exponent.dims)

    inverse_shape = forward_shape

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()


class SoftplusTransform(Transform):
    """Transform numbers elementwise to numbers above 0: ``log(1 + exp(x))``.

    Examples
    --------
    >>> t = krt.distributions.SoftplusTransform()
    >>> t.inv(t(krt.tensor([-3.0, 3.0]))).round(decimals=4).tolist()
    [-3.0, 3.0]
    """

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.softplus()

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - interface
        return -(-x).softplus()


class CumulativeDistributionTransform(Transform):
    """Transform to cumulative probabilities: maps samples of a distribution to uniform samples.

    Parameters
    ----------
    distribution : Distribution
        Distribution of numbers with a cdf, and an icdf for the inverse.
    cache_size : int
        Ignored.

    Examples
    --------
    >>> t = krt.distributions.CumulativeDistributionTransform(krt.distributions.Uniform(0.0, 4.0))
    >>> t(krt.tensor([1.0, 2.0])).tolist()
    [0.25, 0.5]
    """

    codomain = constraints.unit_interval

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - interface
        return self.distribution.log_prob(x)


class IndependentTransform(Transform):
    """A transform whose last batch axes become event axes.

    Parameters
    ----------
    base_transform : Transform
        Base transform.
    reinterpreted_batch_ndims : int
        Number of batch axes to move to the event.
    cache_size : int
        Ignored.

    Raises
    ------
    DTypeError
        `base_transform` is not a Transform.

    Examples
    --------
    >>> t = krt.distributions.IndependentTransform(krt.distributions.ExpTransform(), 1)
    >>> x = krt.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> t.event_dim, t.log_abs_det_jacobian(x, t(x)).tolist()
    (1, [3.0, 7.0])
    """

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        if not isinstance(base_transform, Transform):
            raise DTypeError(
                f"base_transform: expected a Transform, not {type(base_transform).__name__}"
            )
        self.base_transform = base_transform
        self.reinterpreted_batch_ndims = integer(
            reinterpreted_batch_ndims, "reinterpreted_batch_ndims", least=0
        )
        self.event_dim = base_transform.event_dim + self.reinterpreted_batch_ndims
        self.domain, self.codomain = (
            constraints.independent(held, self.reinterpreted_batch_ndims)
            for held in (base_transform.domain, base_transform.codomain)
        )
        self.bijective = base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    @property
    def out_dim(self) -> int:
        return self.base_transform.out_dim + self.reinterpreted_batch_ndims

    def forward_shape(self, shape: Shape) -> Shape:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return self.base_transform.inverse_shape(shape)

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        size = self.base_transform.log_abs_det_jacobian(x, y)
        for _ in range(self.reinterpreted_batch_ndims):
            size = size.sum(-1)
        return size


class ReshapeTransform(Transform):
    """A reshape of each value.

    Parameters
    ----------
    in_shape, out_shape : sequence of int
        Shapes of one input value and of one output value.
    cache_size : int
        Ignored.

    Raises
    ------
    ShapeError
        The two shapes have different numbers of elements.

    Examples
    --------
    >>> krt.distributions.ReshapeTransform((4,), (2, 2))(krt.zeros(3, 4)).shape
    (3, 2, 2)
    """

    def __init__(
        self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ShapeError(
                f"in_shape, out_shape: expected equal numbers of elements, not {self.in_shape} and "
                f"{self.out_shape}"
            )
        self.event_dim = len(self.in_shape)
        self.domain = widened(constraints.real, len(self.in_shape))
        self.codomain = widened(constraints.real, len(self.out_shape))

    @property
    def out_dim(self) -> int:
        return len(self.out_shape)

    def forward_shape(self, shape: Shape) -> Shape:
        return _exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return _exchanged(shape, self.out_shape, self.in_shape)

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.dims))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.dims))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - interface
        return zeros(x.dims[: x.ndim - self.event_dim], dtype=x.dtype)


def _exchanged(shape: Shape, tail: Shape, other: Shape) -> Shape:
    cut = len(shape) - len(tail)
    if cut < 0 or shape[cut:] != tail:
        raise ShapeError(f"shape: expected a shape that ends in {tail}, not {shape}")
    return (*shape[:cut], *other)

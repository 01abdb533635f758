"""Changes of variables that can be taken back, with the logarithm of how they stretch."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

from kernelrt.distributions import constraints
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.tensor import Tensor
from kernelrt.tensor.creation import tensor, zeros_like

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint

__all__ = ["AffineTransform", "ComposeTransform", "ExpTransform", "SigmoidTransform",
           "TanhTransform", "Transform"]  # fmt: skip


class Transform:
    """Base class of changes of variables, each of which goes up or down all along.

    What a value came from is remembered while the value lives, so that the way back of a sample
    is exact also where the transform is flat, as tanh is far from 0.

    Parameters
    ----------
    cache_size : int
        As in PyTorch, where it turns that on; it changes nothing.
    """

    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real
    #: How many axes make one value.
    event_dim = 0

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ShapeError(f"cache_size: expected 0 or 1, not {cache_size}")

    @property
    def sign(self) -> Any:
        """1 where it goes up, -1 where it goes down."""
        return 1

    def __call__(self, x: Tensor) -> Tensor:
        """The value that `x` becomes."""
        y = self._call(x)
        _remember(self, x, y)
        return y

    def inv(self, y: Tensor) -> Tensor:
        """What becomes `y`."""
        found = _recall(self, y)
        return self._inverse(y) if found is None else found

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} defines no _call")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} defines no _inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the size of the derivative at `x`, which becomes `y`."""
        raise NotImplementedError(f"{type(self).__name__} defines no log_abs_det_jacobian")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


#: By the identity of a value: a weak reference to it, which transform made it, and of what.
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


class ExpTransform(Transform):
    """``exp(x)``."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - of others
        """The logarithm of the size of the derivative at `x`, which becomes `y`."""
        return x


class SigmoidTransform(Transform):
    """``1 / (1 + exp(-x))``."""

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        least = 2.0 ** (1 - x.dtype.digits)
        return x.sigmoid().clamp(2.0**-126 if x.dtype.bits > 16 else 2.0**-14, 1 - least)

    def _inverse(self, y: Tensor) -> Tensor:
        least = 2.0 ** (1 - y.dtype.digits)
        safe = y.clamp(2.0**-126 if y.dtype.bits > 16 else 2.0**-14, 1 - least)
        return safe.log() - (-safe).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - of others
        """The logarithm of the size of the derivative at `x`, which becomes `y`."""
        return -(-x).softplus() - x.softplus()


class TanhTransform(Transform):
    """``tanh(x)``."""

    codomain = constraints.between(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - of others
        # log(1 - tanh(x)**2) without the difference of what is nearly equal.
        """The logarithm of the size of the derivative at `x`, which becomes `y`."""
        return 2 * (math.log(2) - x - (-2 * x).softplus())


class AffineTransform(Transform):
    """``loc + scale * x``.

    Parameters
    ----------
    loc, scale : float or Tensor
        Where 0 goes, and by what it is stretched.
    event_dim : int
        How many axes make one value.
    cache_size : int
        Changes nothing.
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

    @property
    def sign(self) -> Any:
        """1 where it goes up, -1 where it goes down."""
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return 1 if self.scale > 0 else -1 if self.scale < 0 else 0

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - of others
        """The logarithm of the size of the derivative at `x`, which becomes `y`."""
        if isinstance(self.scale, Tensor):
            size = self.scale.abs().log() + zeros_like(x)
        else:
            size = zeros_like(x) + math.log(abs(self.scale))
        for _ in range(self.event_dim):
            size = size.sum(-1)
        return size


class ComposeTransform(Transform):
    """Several transforms, one after the other.

    Parameters
    ----------
    parts : sequence of Transform
        The first to be done comes first.
    cache_size : int
        Changes nothing.
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        for i, part in enumerate(parts):
            if not isinstance(part, Transform):
                raise DTypeError(f"parts[{i}]: expected a Transform, not {type(part).__name__}")
        self.parts = list(parts)
        self.event_dim = max((p.event_dim for p in self.parts), default=0)
        if self.parts:
            self.domain, self.codomain = self.parts[0].domain, self.parts[-1].codomain

    @property
    def sign(self) -> Any:
        """1 where it goes up, -1 where it goes down."""
        found: Any = 1
        for part in self.parts:
            found = found * part.sign
        return found

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - of others
        """The logarithm of the size of the derivative at `x`, which becomes `y`."""
        total: Tensor | None = None
        for part in self.parts:
            after = part(x)
            size = part.log_abs_det_jacobian(x, after)
            for _ in range(self.event_dim - part.event_dim):
                size = size.sum(-1)
            total = size if total is None else total + size
            x = after
        return tensor(0.0) if total is None else total

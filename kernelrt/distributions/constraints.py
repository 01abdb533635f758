"""What values parameters and samples may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt import linalg
from kernelrt.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Constraint", "at_least", "between", "boolean", "corr_cholesky", "counts_of",
           "integer_between", "lower_cholesky", "nonnegative", "nonnegative_integer", "one_hot",
           "positive", "positive_definite", "real", "real_vector", "simplex",
           "unit_interval"]  # fmt: skip


class Constraint:
    """A condition on values.

    Parameters
    ----------
    text : str
        What is expected, for errors.
    check : callable
        Gives bools of a tensor, or of an array, without the last `event_dim` axes.
    event_dim : int
        How many axes make one value.
    is_discrete : bool
        Whether values are whole.
    """

    def __init__(
        self, text: str, check: Callable[[Any], Any], event_dim: int = 0,
        is_discrete: bool = False,
    ) -> None:  # fmt: skip
        self.text = text
        self._check = check
        self.event_dim = event_dim
        self.is_discrete = is_discrete

    def check(self, value: Any) -> Any:
        """Bools that tell where the condition holds, of a Tensor or an array."""
        return self._check(value)

    def __repr__(self) -> str:
        return f"Constraint({self.text})"


def _is_real(x: Any) -> Any:
    return x == x  # not NaN


def _is_whole(x: Any) -> Any:
    return x % 1 == 0


def _is_simplex(x: Any) -> Any:
    # What was rounded to 16 bits sums to no more than about 1.
    near = 1e-6 if x.dtype.itemsize > 2 else 0.02
    return (x >= 0).all(-1) & (abs(x.sum(-1, dtype="float64") - 1) < near)


def _is_one_hot(x: Any) -> Any:
    return ((x == 0) | (x == 1)).all(-1) & (x.sum(-1) == 1)


def _is_lower_cholesky(x: Any) -> Any:
    lower = x.tril() if isinstance(x, Tensor) else np.tril(x)
    rest = (x == lower).all(-1).all(-1)
    return rest & (x.diagonal(0, -2, -1) > 0).all(-1)


def _is_positive_definite(x: Any) -> Any:
    is_tensor = isinstance(x, Tensor)
    turned = x.mT if is_tensor else np.swapaxes(x, -1, -2)
    even = (abs(x - turned) <= 1e-5 * abs(x) + 1e-6).all(-1).all(-1)
    # No routine finds eigenvalues of NaN.
    fine = x.double().nan_to_num(0, 0, 0) if is_tensor else np.nan_to_num(
        x.astype(np.float64), nan=0, posinf=0, neginf=0)  # fmt: skip
    return even & ((linalg if is_tensor else np.linalg).eigvalsh(fine)[..., 0] > 0)


real = Constraint("a number, not NaN", _is_real)
real_vector = Constraint("numbers, not NaN", lambda x: _is_real(x).all(-1), 1)
positive = Constraint("a number above 0", lambda x: x > 0)
nonnegative = Constraint("a number of at least 0", lambda x: x >= 0)
unit_interval = Constraint("a number from 0 to 1", lambda x: (x >= 0) & (x <= 1))
boolean = Constraint("0 or 1", lambda x: (x == 0) | (x == 1), is_discrete=True)
nonnegative_integer = Constraint(
    "a whole number of at least 0", lambda x: _is_whole(x) & (x >= 0), is_discrete=True
)
simplex = Constraint("numbers of at least 0 that sum to 1", _is_simplex, 1)
one_hot = Constraint("a single 1 among zeros", _is_one_hot, 1, is_discrete=True)
lower_cholesky = Constraint(
    "a lower triangular matrix with a positive diagonal", _is_lower_cholesky, 2
)

corr_cholesky = Constraint(
    "a lower triangular matrix with a positive diagonal and rows of length 1",
    lambda x: _is_lower_cholesky(x) & (abs((x * x).sum(-1) - 1) < 1e-5).all(-1), 2,
)  # fmt: skip
positive_definite = Constraint("a symmetric positive definite matrix", _is_positive_definite, 2)


def between(low: Tensor | float, high: Tensor | float) -> Constraint:
    """A number of an interval, the ends among them."""
    return Constraint(f"a number from {_told(low)} to {_told(high)}",
                      lambda x: (x >= _like(low, x)) & (x <= _like(high, x)))  # fmt: skip


def at_least(low: Tensor | float) -> Constraint:
    """A number of at least `low`."""
    return Constraint(f"a number of at least {_told(low)}", lambda x: x >= _like(low, x))


def integer_between(low: Tensor | float, high: Tensor | float) -> Constraint:
    """A whole number of an interval, the ends among them."""
    return Constraint(
        f"a whole number from {_told(low)} to {_told(high)}",
        lambda x: _is_whole(x) & (x >= _like(low, x)) & (x <= _like(high, x)), is_discrete=True,
    )  # fmt: skip


def counts_of(total: int) -> Constraint:
    """Whole numbers of at least 0 with this sum."""
    return Constraint(
        f"whole numbers of at least 0 that sum to {total}",
        lambda x: (_is_whole(x) & (x >= 0)).all(-1) & (x.sum(-1) == total), 1, is_discrete=True,
    )  # fmt: skip


def _like(value: Tensor | float, x: Any) -> Any:
    """An end of an interval in the kind of what is compared with it."""
    if isinstance(value, Tensor) and not isinstance(x, Tensor):
        return value.numpy()
    return value


def _told(value: Tensor | float) -> str:
    if isinstance(value, int | float):
        return str(value)
    return str(value.item()) if value.numel() == 1 else "its lower or upper end"



"""Elementwise functions that differ from kernelrt's own.

In the standard, a 0-d tensor takes part in type promotion like any other tensor. In the functions
and operators of PyTorch and kernelrt, the types of the tensors with axes decide.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import kernelrt as krt
from kernelrt import Tensor
from kernelrt.tensor.nodes.promotion import is_number, joint_type

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "clip", "copysign", "divide", "equal", "floor_divide", "greater",
    "greater_equal", "hypot", "less", "less_equal", "logaddexp", "logical_and", "logical_or",
    "logical_xor", "maximum", "minimum", "multiply", "nextafter", "not_equal", "of_one_type",
    "pow", "real", "remainder", "sign", "subtract", "where",
]  # fmt: skip

_Operand: TypeAlias = "Tensor | bool | int | float"
_TWO: Final = inspect.Signature([
    inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in ("x1", "x2")
])  # fmt: skip


def of_one_type(*values: Any) -> tuple[Any, ...]:
    """Cast the tensors in `values` to their promoted type, to which 0-d tensors contribute, too."""
    nodes = [v.uop for v in values if isinstance(v, Tensor)]
    if len({n.dtype for n in nodes}) < 2 or any(map(is_number, nodes)):
        return values
    kind = joint_type(nodes)
    return tuple(v.cast(kind) if isinstance(v, Tensor) else v for v in values)


def _of_two(function: Callable[..., Tensor], name: str) -> Callable[[Any, Any], Tensor]:
    """Wrap a function of two operands that take part in type promotion equally."""

    def call(x1: Any, x2: Any, /) -> Tensor:
        return function(*of_one_type(x1, x2))

    functools.update_wrapper(call, function, ("__doc__",), ())
    del call.__wrapped__  # type: ignore[attr-defined]  # it has other parameters
    call.__name__ = call.__qualname__ = name
    call.__signature__ = _TWO  # type: ignore[attr-defined]
    return call


add = _of_two(krt.add, "add")
atan2 = _of_two(krt.atan2, "atan2")
bitwise_and = _of_two(krt.bitwise_and, "bitwise_and")
bitwise_left_shift = _of_two(krt.bitwise_left_shift, "bitwise_left_shift")
bitwise_or = _of_two(krt.bitwise_or, "bitwise_or")
bitwise_right_shift = _of_two(krt.bitwise_right_shift, "bitwise_right_shift")
bitwise_xor = _of_two(krt.bitwise_xor, "bitwise_xor")
copysign = _of_two(krt.copysign, "copysign")
divide = _of_two(krt.divide, "divide")
equal = _of_two(krt.eq, "equal")
floor_divide = _of_two(krt.floor_divide, "floor_divide")
greater = _of_two(krt.greater, "greater")
greater_equal = _of_two(krt.greater_equal, "greater_equal")
hypot = _of_two(krt.hypot, "hypot")
less = _of_two(krt.less, "less")
less_equal = _of_two(krt.less_equal, "less_equal")
logaddexp = _of_two(krt.logaddexp, "logaddexp")
logical_and = _of_two(krt.logical_and, "logical_and")
logical_or = _of_two(krt.logical_or, "logical_or")
logical_xor = _of_two(krt.logical_xor, "logical_xor")
maximum = _of_two(krt.maximum, "maximum")
minimum = _of_two(krt.minimum, "minimum")
multiply = _of_two(krt.multiply, "multiply")
nextafter = _of_two(krt.nextafter, "nextafter")
not_equal = _of_two(krt.not_equal, "not_equal")
pow = _of_two(krt.pow, "pow")
remainder = _of_two(krt.remainder, "remainder")
subtract = _of_two(krt.subtract, "subtract")


def clip(x: Tensor, /, min: _Operand | None = None, max: _Operand | None = None) -> Tensor:
    """Clamp elements to the range from `min` to `max`; the result has the type of `x`.

    Parameters
    ----------
    x : Tensor
        Numbers of any shape.
    min, max : Tensor or number, optional
        Bounds, of shapes that broadcast with `x`; None is no bound.

    Returns
    -------
    Tensor
        Clamped numbers in the type of `x`.

    Examples
    --------
    >>> krt.array_api.clip(krt.tensor([-2, 1, 5]), 0, 3).tolist()
    [0, 1, 3]
    """
    if min is None and max is None:
        return x.clone()
    return x.clamp(*of_one_type(x, min, max)[1:]).cast(x.dtype)


def real(x: Tensor, /) -> Tensor:
    """Return `x` itself, because kernelrt has no complex types.

    Parameters
    ----------
    x : Tensor
        Numbers of any shape.

    Returns
    -------
    Tensor
        `x`.

    Examples
    --------
    >>> krt.array_api.real(krt.tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    return x


def sign(x: Tensor, /) -> Tensor:
    """Return the sign of each element: -1, 0 or 1, or NaN for NaN.

    Parameters
    ----------
    x : Tensor
        Numbers of any shape.

    Returns
    -------
    Tensor
        The shape and type of `x`.

    Examples
    --------
    >>> krt.array_api.sign(krt.tensor([-2.0, 0.0, 5.0])).tolist()
    [-1.0, 0.0, 1.0]
    """
    out = x.sign()
    return krt.where(x.isnan(), x, out) if x.dtype.is_float else out


def where(condition: Tensor, x1: _Operand, x2: _Operand, /) -> Tensor:
    """Return `x1` where the condition holds, else `x2`.

    Parameters
    ----------
    condition : Tensor of bools
        Choice for each element.
    x1, x2 : Tensor or number
        Values; all three shapes broadcast.

    Returns
    -------
    Tensor
        The broadcast shape, in the promoted type of `x1` and `x2`.

    Examples
    --------
    >>> krt.array_api.where(krt.tensor([True, False]), krt.tensor([1, 2]), 0.5).tolist()
    [1.0, 0.5]
    """
    first, second = of_one_type(x1, x2)
    return krt.where(condition, first, second)

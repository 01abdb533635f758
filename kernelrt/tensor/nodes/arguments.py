"""Checks of arguments: numbers, axes and shapes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.dlpack import kind_name, nothing
from kernelrt.device.registry import check_device, is_device
from kernelrt.errors import AxisError, DTypeError, ShapeError
from kernelrt.ir import Dim, UOp
from kernelrt.ir.shape import difference, dim_span, format_size
from kernelrt.ir.size import plain
from kernelrt.native.array_handle import ArrayHandle
from kernelrt.native.fast_paths import LazyHandle
from kernelrt.native.thread_modes import several_of, with_starred
from kernelrt.tensor import state
from kernelrt.tensor.nodes.promotion import element, expression, number_node
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelrt.dtype import DType
    from kernelrt.tensor import tensor as tensor_module
    from kernelrt.tensor.methods import masked
else:
    masked = Module("kernelrt.tensor.methods.masked")
    tensor_module = Module("kernelrt.tensor.tensor")

__all__ = ["SIZE", "PerAxis", "axes_of", "axis_of", "check_bools", "check_floats", "check_sizes",
           "flag", "index_of", "integer", "lacking", "own_axis", "per_axis", "python_number",
           "real", "shape_of", "size_of", "sized", "sized_after", "take_by_value", "tensor_of",
           "type_of_to", "whole"]  # fmt: skip

_INTEGERS = (int, np.integer)
_F = TypeVar("_F", bound=Callable[..., Any])
#: One number for all axes, or one number per axis.
PerAxis: TypeAlias = int | Sequence[int]


def whole(value: object) -> int | None:
    """Return a Python or NumPy integer as an int; None for other values, including bools."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, _INTEGERS):
        return None
    return int(value)


SIZE: Final = "a size or a position"
"""What :func:`index_of` calls the elements of shapes, and similar numbers."""
#: Advice for errors: alternatives to passing a tensor as an int in a traced function.
_INT_INSTEAD: Final = "pass a Python int, which makes a new plan for each value"
#: Advice for an int that is a size or a position in an axis.
_PLACE_INSTEAD: Final = (
    "index with the tensor, as in x[:, i] and x[:, i] = value, or with index_select() and "
    "index_copy_(); or keep the whole axis, and mask it with kernelrt.arange(size) < n; or pass a "
    f"size such as x.shape[0], whose axis can be dynamic; or {_INT_INSTEAD}"
)


def index_of(value: object, name: str, place: str = "") -> object:
    """Return an integer tensor without axes as an int, and other values unchanged.

    As with ``range()``, the value must be known: in a traced function a tensor raises JitError,
    which names the argument. `place` says what the int is if it is a size or a position.
    """
    if isinstance(value, LazyHandle):
        tensor: Any = value
        if tensor.dtype.is_int and tensor.ndim == 0:
            asked = f"{name}: using a tensor as {place or 'an int'}"
            return tensor._as_index(asked, _PLACE_INSTEAD if place else _INT_INSTEAD)
    return value


def integer(value: object, name: str, least: int | None = None) -> int:
    """Return `value` as an int; raise an error if it is not an int, or below `least`."""
    number = whole(index_of(value, name))
    if number is None:
        raise DTypeError(f"{name}: expected an int, not {type(value).__name__} ({value!r})")
    if least is not None and number < least:
        raise ShapeError(f"{name}: expected at least {least}, not {number}")
    return number


def flag(value: object, name: str) -> bool:
    """Return a Python or NumPy bool as a Python bool; raise DTypeError for other values."""
    if value is True or value is False:
        return value
    if not isinstance(value, np.bool_):
        raise DTypeError(f"{name}: expected a bool, not {type(value).__name__} ({value!r})")
    return bool(value)


def tensor_of(value: object, name: str, *, floats: bool = False) -> tensor_module.Tensor:
    """Return `value`; raise DTypeError unless it is a Tensor and, with `floats`, floating."""
    if not isinstance(value, tensor_module.Tensor):
        masked.refuse_part(value)
        raise DTypeError(f"{name}: expected a Tensor, not {kind_name(value)}{nothing(value)}")
    if floats:
        check_floats(value.dtype, name)
    return value


def type_of_to(args: Sequence[object], dtype: object, device: object) -> object:
    """Return the dtype requested by arguments of ``Tensor.to``, or None; check the device.

    Positional arguments are a dtype, a device or a tensor with the dtype, followed by flags.
    """
    for arg in args:
        if is_device(arg):
            device = arg
        elif isinstance(arg, tensor_module.Tensor):
            dtype = arg.dtype
        elif arg is not None and not isinstance(arg, bool):
            dtype = arg
    check_device(device)
    return dtype


def check_bools(dtype: DType, name: str) -> None:
    """Raise DTypeError if a condition is not a bool tensor."""
    if not dtype.is_bool:
        raise DTypeError(
            f"{name}: expected bools, not {dtype.name}; use a comparison, as in x != 0"
        )


def check_floats(dtype: DType, name: str) -> None:
    """Raise DTypeError if a dtype is not floating."""
    if not dtype.is_float:
        raise DTypeError(
            f"{name}: expected a floating type, not {dtype.name}; cast the tensor first, as in "
            "x.float()"
        )


def take_by_value(value: Any) -> Any:
    """Return `value`, or the number that it holds if it is a float argument of a jitted function.

    In a trace such an argument has no value. So the function is traced again, with the number as a
    constant.
    """
    if not isinstance(value, ArrayHandle):
        return value
    if state.local.trace is not None:
        state.local.trace.take_by_value([value])
        return value
    return python_number(value)


def python_number(value: Any) -> Any:
    """Return `value`, or in step-by-step mode the number that it holds as a float argument."""
    if not state.local.stepwise or number_node(value) is None:
        return value
    return value.item()


def real(value: Any, name: str) -> float:
    """Return a Python or NumPy number as a Python number; raise DTypeError for other values."""
    value = take_by_value(value)
    if not isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
        raise DTypeError(f"{name}: expected a number, not {type(value).__name__} ({value!r})")
    number = value.item() if isinstance(value, np.generic) else value
    element(number, dt.float64, name)
    return number


def size_of(value: object, name: str) -> Dim:
    """Return a size or count: an int of at least 0, or an integer expression of Variables."""
    (size,) = shape_of(((value,),), name)
    check_sizes((size,), name)
    return size


def check_sizes(sizes: Iterable[Dim], name: str) -> None:
    """Raise ShapeError if a size or count is negative, or may be."""
    for size in sizes:
        if isinstance(size, int) and size >= 0:
            continue
        if (end := lacking(size, 0)) is not None:
            raise ShapeError(f"{name}: expected at least 0, not {format_size(size)}{end}")


def lacking(have: Dim, need: Dim) -> str | None:
    """Return None if `have` is always at least `need`; otherwise, the end of an error message."""
    low, high = dim_span(difference(have, need))
    if low >= 0:
        return None
    if high < 0:
        return ""
    return (
        f"; whether {format_size(have)} is at least {format_size(need)} is known only at run time, "
        "so raise the lower bound of its Variable"
    )


def axis_of(dim: object, ndim: int, name: str = "dim") -> int:
    """Return an axis counted from the front; raise AxisError if it is out of range."""
    if type(dim) is int and -ndim <= dim < ndim:
        return dim % ndim
    dim = index_of(dim, name)
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer):
        raise DTypeError(f"{name}: expected an int, not {type(dim).__name__}")
    limit = max(ndim, 1)
    if not -limit <= dim < limit:
        raise AxisError(
            f"{name}: axis {dim} is out of range for a tensor with {ndim} axes; expected {-limit} "
            f"to {limit - 1}"
        )
    return int(dim) % limit


def own_axis(dim: object, ndim: int, name: str = "dim") -> int:
    """Return an axis as :func:`axis_of` does, but raise AxisError for a scalar."""
    axis = axis_of(dim, ndim, name)
    if ndim == 0:
        raise AxisError(
            f"{name}: axis {dim} is out of range for a tensor with 0 axes; expected at least 1 axis"
        )
    return axis


def axes_of(dim: object, ndim: int, name: str = "dim") -> tuple[int, ...]:
    """Return axes counted from the front; all axes for None."""
    if dim is None:
        return tuple(range(ndim))
    dims = dim if isinstance(dim, tuple | list) else (dim,)
    axes = tuple(axis_of(d, ndim, name) for d in dims)
    if len(set(axes)) < len(axes):
        raise ShapeError(f"{name}: {dim} names an axis twice; give each axis once")
    return () if ndim == 0 else axes


def shape_of(args: Sequence[object], name: str = "shape") -> tuple[Dim, ...]:
    """Return a shape given as one sequence or as several numbers."""
    if len(args) == 1 and isinstance(args[0], tuple | list):
        args = args[0]
    out: list[Dim] = []
    for d in map(plain, args):
        if isinstance(d, UOp):
            out.append(expression(d, name))
        elif isinstance(d, int | np.integer) and not isinstance(d, bool):
            out.append(int(d))
        elif (number := whole(index_of(d, name, SIZE))) is not None:
            out.append(number)
        else:
            raise DTypeError(
                f"{name}: expected integers or Variables, not {type(d).__name__} ({d!r})"
            )
    return tuple(out)


def sized(function: _F) -> _F:
    """Make the starred parameter also accept its name, as in ``zeros(size=(2, 3))``."""
    return sized_after(0)(function)


def sized_after(more: int) -> Callable[[_F], _F]:
    """Return a decorator like :func:`sized`, for up to `more` starred arguments before the size."""

    def decorate(function: _F) -> _F:
        several = several_of(function)
        assert several is not None
        before = function.__code__.co_argcount + more

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if not options.keys().isdisjoint(several):
                args = with_starred(function.__name__, several, before, args, options)
            return function(*args, **options)

        made: Any = call
        # Errors, profiles and the grad_fn take the function's name from its code object.
        made.__code__ = made.__code__.replace(
            co_name=function.__name__, co_qualname=function.__qualname__
        )
        return cast("_F", made)

    return decorate


def per_axis(value: object, n: int, name: str, *, least: int = 0) -> tuple[int, ...]:
    """Return a tuple of `n` ints from one number for all axes or one number per axis."""
    given = tuple(value) if isinstance(value, tuple | list) else (value,) * n
    if len(given) == 1:
        given *= n
    values: tuple[int, ...] = ()
    for v in given:
        number = whole(index_of(v, name))
        if number is None:
            raise DTypeError(f"{name}: expected integers, not {type(v).__name__}")
        values += (number,)
    if len(values) != n or min(values) < least:
        raise ShapeError(f"{name}: expected {n} numbers of at least {least}, not {value!r}")
    return values

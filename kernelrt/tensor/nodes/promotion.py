"""Type promotion of operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.dlpack import kind_name, nothing
from kernelrt.errors import DTypeError
from kernelrt.ir import UOp, const
from kernelrt.ir.shape import dim_span, format_size
from kernelrt.ir.size import plain
from kernelrt.native.array_handle import ArrayHandle
from kernelrt.tensor import state
from kernelrt.tensor.nodes import build
from kernelrt.tensor.tracing import weak_types
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.dtype import DType
    from kernelrt.tensor.methods import masked
    from kernelrt.tensor.methods.operands import OperandMethods
else:
    masked = Module("kernelrt.tensor.methods.masked")

__all__ = ["Weak", "as_scalar", "check_fits", "check_size", "constant", "element", "expression",
           "is_number", "joint_type", "number_node", "operand", "result_type"]  # fmt: skip


class Weak:
    """An expression of Variables; a weak type in promotion, as Python scalars are."""

    __slots__ = ("node",)

    def __init__(self, node: UOp) -> None:
        self.node = node

    def cast(self, dtype: DType) -> UOp:
        """Return the value in another dtype."""
        return self.node.cast(dtype)


class _Argument(Weak):
    """A float argument of a traced function, or a number computed from such arguments."""

    __slots__ = ()


def is_number(node: UOp) -> bool:
    """Return whether `node` counts as a Python number, in a trace or in step-by-step mode."""
    trace = state.local.trace
    if trace is not None:
        return trace.numbers.made_of(node)
    numbers = weak_types.stepwise.numbers if state.local.stepwise else None
    return numbers is not None and numbers.made_of(node)


def number_node(value: object) -> UOp | None:
    """Return the node, of shape (), of a tensor that counts as a Python number; None for others."""
    if not isinstance(value, ArrayHandle):
        return None
    node: UOp = cast("OperandMethods", value).uop
    return build.reshape(node, ()) if is_number(node) else None


def as_scalar(value: object) -> bool | int | float | None:
    """Return a Python or NumPy number as a Python number; both are weak. None for other values."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, bool | int | float) else None


def joint_type(nodes: Iterable[UOp]) -> DType:
    """Return the promoted dtype of values that are concatenated."""
    nodes = list(nodes)
    strong = [node.dtype for node in nodes if not is_number(node)]
    if not strong:
        return dt.promote(*(node.dtype for node in nodes))
    result = dt.promote(*strong)
    return result if len(strong) == len(nodes) else dt.of_scalar(0.0, result)


_Value: TypeAlias = "UOp | Weak | bool | int | float"


def operand(tensor: OperandMethods, value: object, name: str) -> _Value:
    """Return `value` in the form that type promotion uses: a node, Weak, or a Python number."""
    number = as_scalar(value)
    if number is not None:
        return number
    value = plain(value)
    if isinstance(value, UOp):
        return Weak(value if value.dtype.is_float else expression(value, name))
    if isinstance(value, ArrayHandle | np.ndarray):
        node = tensor._lift(value, name).uop
        return _Argument(node) if is_number(node) else node

    masked.refuse_part(value)
    raise DTypeError(
        f"{name}: expected a Tensor, a number or a NumPy array, not {kind_name(value)}"
        + (nothing(value) or "; convert it with kernelrt.tensor")
    )


def check_fits(value: _Value, dtype: DType, name: str) -> None:
    """Raise DTypeError if a Python integer or a size is, or may be, out of range for `dtype`."""
    if not dtype.is_int:
        return
    if isinstance(value, int) and not dt.holds(dtype, value):
        raise _misfit(value, dtype, name)
    if type(value) is Weak and value.node.dtype.is_int:
        low, high = dim_span(value.node)
        if not (dt.holds(dtype, low) and dt.holds(dtype, high)):
            raise DTypeError(
                f"{name}: {format_size(value.node)} goes from {low} to {high}, but {dtype.name} "
                f"holds {dtype.min} to {dtype.max}; use a wider dtype, or narrow the bounds of the "
                "Variables"
            )


def check_size(value: object, dtype: DType, name: str) -> None:
    """Call :func:`check_fits` if `value` is a size."""
    node = plain(value)
    if isinstance(node, UOp):
        check_fits(Weak(node), dtype, name)


def _misfit(value: float, dtype: DType, name: str) -> DTypeError:
    # Python refuses to format integers with thousands of digits.
    long = isinstance(value, int) and value.bit_length() > 256
    shown = f"an integer of {int(value).bit_length()} bits" if long else f"{value}"
    if dtype.is_float:
        return DTypeError(
            f"{name}: {shown} is out of range for float64, the widest dtype; pass math.inf instead"
        )
    return DTypeError(
        f"{name}: {shown} is out of range for {dtype.name}, which holds {dtype.min} to "
        f"{dtype.max}; use a wider dtype"
    )


def constant(value: float, dtype: DType, name: str) -> UOp:
    """Return a Python number as a constant node; integers wrap to an integer dtype."""
    try:
        return const(value, dtype)
    except OverflowError:
        raise _misfit(value, dt.float64, name) from None


def element(value: float, dtype: DType, name: str) -> bool | float:
    """Return a number as an element of a tensor; integer dtypes truncate it.

    Raises
    ------
    DTypeError
        The number is out of range for `dtype`.
    """
    if isinstance(value, np.generic):
        value = value.item()  # comparing NumPy's bool with Python's large integers overflows
    if dtype.is_float:
        constant(value, dtype, name)
        return value
    if dtype.is_bool:
        return bool(value)
    if not dt.has_whole(dtype, value):
        raise _misfit(value, dtype, name)
    return int(value)


def expression(value: UOp, name: str) -> UOp:
    """Return `value`; raise DTypeError if it is not an integer expression of Variables."""
    if value.shape != () or value.dtype is not dt.int64:
        raise DTypeError(f"{name}: expected an integer expression over Variables, not {value!r}")
    return value


def _category(dtype: DType) -> int:
    return 0 if dtype.is_bool else 1 if dtype.is_int else 2


def result_type(values: Sequence[_Value]) -> DType:
    """Return the promoted dtype by PyTorch's rule.

    Dtypes of tensors with axes count most, then those of tensors without axes, then numbers and
    expressions.
    """
    if not any(isinstance(v, UOp) for v in values) and any(
        isinstance(v, _Argument) for v in values
    ):
        return dt.float64
    axes = [v.dtype for v in values if isinstance(v, UOp) and v.shape]
    points = [v.dtype for v in values if isinstance(v, UOp) and not v.shape]
    result = dt.promote(*axes) if axes else None
    if points:
        point = dt.promote(*points)
        if result is None:
            result = point
        elif _category(point) > _category(result):
            result = dt.promote(result, point)
    for value in values:
        if not isinstance(value, UOp):
            result = dt.of_scalar(_example(value), result)
    assert result is not None
    return result


def _example(value: Weak | bool | float) -> bool | float:
    """Return a Python number that promotes as `value` does."""
    if isinstance(value, Weak):
        return 0.0 if value.node.dtype.is_float else 0
    return value

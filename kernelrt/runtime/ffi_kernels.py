"""FFI: C functions of the user as kernels, Python functions as plan operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir.ffi import FfiFunction, size_of
from kernelrt.ir.kernel_spec import verify_kernel
from kernelrt.ir.nest import NOTHING
from kernelrt.ir.origin import Origin, summary
from kernelrt.ir.shape import format_shape
from kernelrt.native.op_structs import Addressed
from kernelrt.native.routines import EACH, EACH_MOST
from kernelrt.runtime.kernel import CachedKernel, FunctionProgram
from kernelrt.runtime.plan_ops import PreparedCustomFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.device.registry import Device
    from kernelrt.dtype import DType
    from kernelrt.ir import UOp
    from kernelrt.ir.ffi import Form
    from kernelrt.schedule.types import KernelItem

__all__ = ["PreparedForeignCall", "foreign_kernel", "host_call"]

#: Stack bytes that a C function may use; the same as for routines.
_STACK_BYTES: Final = 1 << 16


# ---- C functions


def foreign_kernel(ast: UOp, device: Device) -> CachedKernel:
    """Return the kernel that calls a C function.

    Nothing is known about the function. Its running time may be long, so a plan that contains it
    releases the GIL. It may access any memory, so no other op of the plan runs at the same time.

    Parameters
    ----------
    ast : UOp
        A SINK over a CALL.
    device : Device
        Device whose kernels run in this process's memory.

    Raises
    ------
    SpecError
        The AST breaks a rule.
    """
    verify_kernel(ast)
    (call,) = ast.src
    callee: FfiFunction = call.arg
    slots = tuple(range(len(call.src)))
    n, last = callee.n_results, len(slots) - callee.fails
    numbers = _vals_for_call(callee)
    address = EACH if _in_rows(callee) else callee.address
    return CachedKernel(
        FunctionProgram(callee.name, address, callee), device.spec.name, "", callee.name, ast,
        (), tuple(numbers), slots, slots[:n] + slots[last:], slots[n:last], len(slots),
        host_parallel_safe=False, may_fail=callee.fails, target=device.spec,
        stack_bytes=_STACK_BYTES, numbers=numbers,
    )  # fmt: skip


def _vals_for_call(callee: FfiFunction) -> dict[str, int]:
    """Return the values in `vals` for a C function. No Variable can have the names of these values.

    Raises
    ------
    ShapeError
        The function has too many operands and results to be called once per row.
    """
    forms = (*callee.results, *callee.operands)
    # The function does not receive the operand that only orders calls.
    seen = [(k, size_of(form), form[1].itemsize) for k, form in enumerate(forms)]
    if callee.ordered:
        seen.pop()
    if callee.fails:  # one word for all rows
        seen.append((len(forms), 1, 0))
    sizes = {f"#size{k}": n for k, n, _ in seen}
    if not _in_rows(callee):
        return sizes
    if len(seen) > EACH_MOST:
        raise ShapeError(
            f"{callee.name}: {len(seen)} operands and results together, but a C function that vmap "
            f"maps, or that is called with pure=False, takes at most {EACH_MOST}"
        )
    head = {"#rows": callee.calls, "#bufs": len(seen), "#function": callee.address}
    slots = {f"#slot{k}": k for k, _, _ in seen}
    widths = {f"#bytes{k}": n * itemsize for k, n, itemsize in seen}
    return head | slots | widths | sizes


def _in_rows(callee: FfiFunction) -> bool:
    """Return whether the EACH routine calls the function, instead of the plan."""
    return bool(callee.rows) or callee.ordered


# ---- Python functions


@dataclass(slots=True, eq=False)
class PreparedForeignCall(PreparedCustomFunction):
    """A call of a Python function that takes copies of its operands and returns new arrays.

    Attributes
    ----------
    callee : FfiFunction
        Function to call.
    origins : tuple of Origin
        User code lines of the call.
    """

    callee: FfiFunction = field(kw_only=True)
    origins: tuple[Origin, ...] = field(default=(), kw_only=True)

    @property
    def label(self) -> str:
        """Name of the op in errors."""
        where = summary(self.origins)
        return f"function {self.callee.name!r} (op {self.id}{f', {where}' if where else ''})"

    def at_addresses(self) -> Addressed:
        """Return the function that the C core calls in each run, with the buffers' addresses."""
        nbytes = [size * dtype.itemsize for dtype, size in self.callee.slots]
        return Addressed(_Caller(self.callee, self.function), nbytes, self.callee.n_results)


def host_call(ident: int, item: KernelItem, buffer_indices: Sequence[int]) -> PreparedForeignCall:
    """Return the plan operation for a schedule item that calls a Python function.

    Parameters
    ----------
    ident : int
        Id of the operation.
    item : KernelItem
        Schedule item.
    buffer_indices : sequence of int
        Index of the plan's buffer for each slot.
    """
    callee: FfiFunction = item.ast.src[0].arg
    function: Any = callee.function
    return PreparedForeignCall(
        ident, function, tuple(buffer_indices), item.writes, callee=callee, origins=item.origins
    )


class _Caller:
    """Wraps memory as arrays, calls the function, and checks and stores its results.

    The function gets copies of the operands, so it may keep and change them. All results are
    checked before the first is written, so a call that fails writes nothing.
    """

    __slots__ = ("_bits", "_callee", "_count", "_function", "_n")

    def __init__(self, callee: FfiFunction, function: Callable[..., Any]) -> None:
        self._callee = callee
        self._function = function
        self._n = callee.n_results
        forms = (*callee.results, *callee.operands)
        self._bits = [((*callee.rows, *shape), _bits(dtype)) for shape, dtype in forms]
        self._count = len(forms) - callee.ordered

    def __call__(self, views: list[memoryview]) -> None:
        n, callee = self._n, self._callee
        arrays = [np.ndarray(*form, view) for form, view in zip(self._bits, views, strict=True)]
        results, operands = arrays[:n], [array.copy() for array in arrays[n : self._count]]
        if not callee.rows:
            for result, value in zip(results, self._once(operands), strict=True):
                result[...] = value
            return
        rows = [*np.ndindex(*callee.rows)]
        # Indexing an array by all its axes gives a scalar; asarray makes it a 0-d array.
        given = []
        for row in rows:
            values = self._once([np.asarray(operand[row]) for operand in operands])
            # Copy: the function may return the same array each time.
            given.append([np.array(value) for value in values])
        for row, values in zip(rows, given, strict=True):
            for result, value in zip(results, values, strict=True):
                result[row] = value

    def _once(self, operands: list[Any]) -> list[Any]:
        returned = self._function(*operands)
        callee, nest = self._callee, self._callee.nest
        if nest is None or nest == NOTHING:
            return [0]
        leaves = nest.leaves(returned, "result")
        return [
            _result(value, form, name)
            for (name, value), form in zip(leaves, callee.results, strict=True)
        ]


def _result(value: Any, form: Form, name: str) -> Any:
    """Check a value that a function returned, and return it as an array or number.

    Raises
    ------
    ShapeError, DTypeError
        Shape or dtype differ from `form`. A Python number matches every dtype that can hold it.
    """
    shape, dtype = form
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        return _number(value, form, name)
    found = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
    if found.shape != shape:
        raise ShapeError(
            f"{name}: expected shape {format_shape(shape)}, not {format_shape(found.shape)}; "
            "return this shape or change `out`"
        )
    if found.dtype != _bits(dtype):
        raise DTypeError(
            f"{name}: expected {dtype.name}{' as bits in uint16' * (dtype is dt.bfloat16)}, not "
            f"{found.dtype}; convert it in the function with .astype({_bits(dtype).name!r}) or "
            "change `out`"
        )
    return found


def _number(value: bool | float, form: Form, name: str) -> bool | float:
    shape, dtype = form
    if shape != ():
        raise ShapeError(
            f"{name}: expected shape {format_shape(shape)}, not the number {value!r}; return this "
            "shape or change `out`"
        )
    if dtype is dt.bfloat16 or dt.of_scalar(value, dtype) is not dtype or (
        not isinstance(value, float) and not dt.holds(dtype, value) and not dtype.is_float
    ):
        raise DTypeError(
            f"{name}: expected {dtype.name}, not the number {value!r}; convert it in the function "
            "or change `out`"
        )
    return value


def _bits(dtype: DType) -> np.dtype[Any]:
    return np.dtype(np.uint16) if dtype is dt.bfloat16 else dt.to_numpy(dtype)


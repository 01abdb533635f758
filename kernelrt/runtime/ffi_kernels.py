"""User functions in plans: C functions as kernels, Python functions as calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir.ffi import ForeignFunction, size_of
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

#: What a C function may take of the stack of the thread that runs it, as routines may.
_STACK_BYTES: Final = 1 << 16


# ---- C functions


def foreign_kernel(ast: UOp, device: Device) -> CachedKernel:
    """The kernel that calls a C function.

    It says nothing of what it takes, so a plan that holds it lets go of the GIL; and nothing of
    what else it touches, so nothing else of the plan runs beside it.

    Parameters
    ----------
    ast : UOp
        A SINK over a CALL.
    device : Device
        A device whose kernels lie in this process's memory.

    Raises
    ------
    SpecError
        The AST breaks a rule.
    """
    verify_kernel(ast)
    (call,) = ast.src
    callee: ForeignFunction = call.arg
    slots = tuple(range(len(call.src)))
    n, last = callee.n_results, len(slots) - callee.fails
    numbers = _told(callee)
    address = EACH if _in_rows(callee) else callee.address
    return CachedKernel(
        FunctionProgram(callee.name, address, callee), device.spec.name, "", callee.name, ast,
        (), tuple(numbers), slots, slots[:n] + slots[last:], slots[n:last], len(slots),
        host_parallel_safe=False, may_fail=callee.fails, target=device.spec,
        stack_bytes=_STACK_BYTES, numbers=numbers,
    )  # fmt: skip


def _told(callee: ForeignFunction) -> dict[str, int]:
    """What is in `vals` where a C function is called, by names that no Variable has.

    Raises
    ------
    ShapeError
        It has too many operands and results to be called for each of several rows.
    """
    forms = (*callee.results, *callee.operands)
    # What is there for the order alone the function does not see.
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
            f"{callee.name}: {len(seen)} operands and results; a C function that is mapped, or not "
            f"pure, has at most {EACH_MOST}"
        )
    head = {"#rows": callee.calls, "#bufs": len(seen), "#function": callee.address}
    slots = {f"#slot{k}": k for k, _, _ in seen}
    widths = {f"#bytes{k}": n * itemsize for k, n, itemsize in seen}
    return head | slots | widths | sizes


def _in_rows(callee: ForeignFunction) -> bool:
    """Whether it is not called by the plan itself."""
    return bool(callee.rows) or callee.ordered


# ---- Python functions


@dataclass(slots=True, eq=False)
class PreparedForeignCall(PreparedCustomFunction):
    """A call of a Python function with arrays of its own, which gives arrays.

    Attributes
    ----------
    callee : ForeignFunction
        What is called.
    origins : tuple of Origin
        The user's lines.
    """

    callee: ForeignFunction = field(kw_only=True)
    origins: tuple[Origin, ...] = field(default=(), kw_only=True)

    @property
    def label(self) -> str:
        """What errors call this op."""
        where = summary(self.origins)
        return f"function {self.callee.name!r} (op {self.id}{f', {where}' if where else ''})"

    def at_addresses(self) -> Addressed:
        """What the C core calls: it is told where the buffers lie in each run."""
        nbytes = [size * dtype.itemsize for dtype, size in self.callee.slots]
        return Addressed(_Caller(self.callee, self.function), nbytes, self.callee.n_results)


def host_call(ident: int, item: KernelItem, places: Sequence[int]) -> PreparedForeignCall:
    """The operation of a plan that makes the call of an item.

    Parameters
    ----------
    ident : int
        The operation's id.
    item : KernelItem
        What it is made for.
    places : sequence of int
        The plan's buffer for each slot.
    """
    callee: ForeignFunction = item.ast.src[0].arg
    function: Any = callee.function
    return PreparedForeignCall(
        ident, function, tuple(places), item.writes, callee=callee, origins=item.origins
    )


class _Caller:
    """Makes arrays of memory, calls, and takes apart what comes back.

    The function may keep its operands and change them: they are copies. Results are written when
    all of them were checked, so a call that fails has written nothing.
    """

    __slots__ = ("_bits", "_callee", "_count", "_function", "_n")

    def __init__(self, callee: ForeignFunction, function: Callable[..., Any]) -> None:
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
        places = [*np.ndindex(*callee.rows)]
        # What a place picks of an array without axes of its own is a scalar.
        given = []
        for p in places:
            values = self._once([np.asarray(operand[p]) for operand in operands])
            # The function may give the same array each time.
            given.append([np.array(value) for value in values])
        for place, values in zip(places, given, strict=True):
            for result, value in zip(results, values, strict=True):
                result[place] = value

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
    """What a function returned, as something to put into an array of a form.

    Raises
    ------
    ShapeError, DTypeError
        It has another shape or type; numbers of Python have any type that holds them.
    """
    shape, dtype = form
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        return _number(value, form, name)
    found = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
    if found.shape != shape:
        raise ShapeError(
            f"{name}: expected shape {format_shape(shape)}, not {format_shape(found.shape)}; `out` "
            "says what the function returns"
        )
    if found.dtype != _bits(dtype):
        raise DTypeError(
            f"{name}: expected {dtype.name}{' as bits in uint16' * (dtype is dt.bfloat16)}, not "
            f"{found.dtype}; convert it in the function, as by .astype({_bits(dtype).name!r}), or "
            "say the type in `out`"
        )
    return found


def _number(value: bool | float, form: Form, name: str) -> bool | float:
    shape, dtype = form
    if shape != ():
        raise ShapeError(
            f"{name}: expected shape {format_shape(shape)}, not the number {value!r}"
        )
    if dtype is dt.bfloat16 or dt.of_scalar(value, dtype) is not dtype or (
        not isinstance(value, float) and not dt.holds(dtype, value) and not dtype.is_float
    ):
        raise DTypeError(f"{name}: expected {dtype.name}, not the number {value!r}")
    return value


def _bits(dtype: DType) -> np.dtype[Any]:
    return np.dtype(np.uint16) if dtype is dt.bfloat16 else dt.to_numpy(dtype)


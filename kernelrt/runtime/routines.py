"""Kernels that are routines: C functions of csrc/, which no code is generated for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelrt._routines import ADDRESSES
from kernelrt.device.costs import costs_of
from kernelrt.device.program import CORE_ID
from kernelrt.ir.foreign import ForeignFunction
from kernelrt.ir.kernel_spec import verify_kernel
from kernelrt.ir.routine import is_call
from kernelrt.runtime.foreign import foreign_kernel, told
from kernelrt.runtime.kernel import CachedKernel, FunctionProgram

if TYPE_CHECKING:
    from kernelrt.device.registry import Device
    from kernelrt.ir import UOp
    from kernelrt.ir.routine import Routine

__all__ = ["numbers_of", "routine_kernel"]

#: Chunks at most, as of kernels that are generated (codegen/chunking.py).
_MOST_CHUNKS: Final = 64
#: What a routine may take of the stack of the thread that runs it.
_STACK_BYTES: Final = 1 << 16


def routine_kernel(ast: UOp, device: Device) -> CachedKernel:
    """The kernel that calls a routine, or a C function of the user's.

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
    if isinstance(ast.src[0].arg, ForeignFunction):
        return foreign_kernel(ast, device)
    verify_kernel(ast)
    (call,) = ast.src
    routine: Routine = call.arg
    widest = max(bits for bits in ADDRESSES if bits <= max(128, device.spec.vector_bits))
    address = ADDRESSES[widest][routine.name]
    slots = tuple(range(len(call.src)))
    fails = bool(routine.failure)
    outs = (0, slots[-1]) if fails else (0,)
    names = (*_names(routine), CORE_ID)
    return CachedKernel(
        FunctionProgram(routine.name, address, None), device.spec.name, "", routine.name, ast,
        (), names, slots, outs, tuple(slot for slot in slots if slot not in outs), len(slots),
        may_fail=fails, global_size=(_chunks(routine, device), 1, 1), cycles=routine.cycles,
        bytes=sum(p.arg[1] * p.dtype.itemsize for p in call.src), target=device.spec,
        stack_bytes=_STACK_BYTES,
    )  # fmt: skip


def numbers_of(kernel: CachedKernel) -> dict[str, int]:
    """What a routine is told in each call, by name; nothing for kernels that are none."""
    if not is_call(kernel.ast):
        return {}
    routine: Routine | ForeignFunction = kernel.ast.src[0].arg
    if isinstance(routine, ForeignFunction):
        return told(routine)
    chunks = kernel.global_size[0]
    assert isinstance(chunks, int)
    values = (routine.rows, chunks, *routine.numbers)
    return dict(zip(_names(routine), values, strict=True))


def _names(routine: Routine) -> list[str]:
    """Names that no Variable has."""
    return [f"#{name}" for name in ("rows", "chunks", *routine.signature.numbers)]


def _chunks(routine: Routine, device: Device) -> int:
    """By the sizes alone, as of all kernels, so that results do not depend on cores."""
    worth = int(routine.cycles / costs_of(device.spec).chunk)
    return max(1, min(_MOST_CHUNKS, routine.rows, worth))

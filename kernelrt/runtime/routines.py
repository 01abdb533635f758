"""Routine kernels: C functions of csrc/ instead of generated code."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt.device.costs import costs_of
from kernelrt.device.program import CORE_ID
from kernelrt.ir import Op
from kernelrt.ir.ffi import FfiFunction
from kernelrt.ir.kernel_spec import verify_kernel
from kernelrt.ir.shape import as_dim, as_uop, dim_max
from kernelrt.native.routines import ADDRESSES
from kernelrt.runtime.ffi_kernels import foreign_kernel
from kernelrt.runtime.kernel import CachedKernel, FunctionProgram
from kernelrt.runtime.sizes import variables_of

if TYPE_CHECKING:
    from kernelrt.device.registry import Device
    from kernelrt.ir import Dim, UOp
    from kernelrt.ir.routine import Routine

__all__ = ["routine_kernel"]

#: Maximum number of chunks; the same as for generated kernels (loops/partition.py).
_MOST_CHUNKS: Final = 64
#: Stack bytes that a routine may use.
_STACK_BYTES: Final = 1 << 16


def routine_kernel(ast: UOp, device: Device) -> CachedKernel:
    """Return the kernel that calls a routine, or a C function of the user.

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
    if isinstance(ast.src[0].arg, FfiFunction):
        return foreign_kernel(ast, device)
    verify_kernel(ast)
    (call,) = ast.src
    routine: Routine = call.arg
    widest = max(bits for bits in ADDRESSES if bits <= max(128, device.spec.vector_bits))
    address = ADDRESSES[widest][routine.name]
    slots = tuple(range(len(call.src)))
    fails = bool(routine.failure)
    outs = (0, slots[-1]) if fails else (0,)
    chunks = _chunks(routine, device)
    # No Variable can have names with "#".
    names = [f"#{name}" for name in ("rows", "chunks", *routine.signature.numbers)]
    numbers = dict(zip(names, (routine.rows, chunks, *routine.numbers), strict=True))
    return CachedKernel(
        FunctionProgram(routine.name, address, None), device.spec.name, "", routine.name, ast,
        tuple(variables_of(numbers.values())), (*names, CORE_ID), slots, outs,
        tuple(slot for slot in slots if slot not in outs), len(slots), may_fail=fails,
        global_size=(chunks, 1, 1), cycles=routine.cycles,
        bytes=sum(p.arg[1] * p.dtype.itemsize for p in call.src), target=device.spec,
        stack_bytes=_STACK_BYTES, numbers=numbers,
    )  # fmt: skip


def _chunks(routine: Routine, device: Device) -> Dim:
    """Return the number of chunks. It depends only on sizes, so results do not depend on cores."""
    each = math.ceil(costs_of(device.spec).chunk)
    if isinstance(routine.cycles, int):
        return max(1, min(_MOST_CHUNKS, dim_max(routine.parts), routine.cycles // each))
    few = (routine.cycles // each).alu(Op.MIN, as_uop(_MOST_CHUNKS))
    return as_dim(few.alu(Op.MIN, as_uop(routine.parts)).alu(Op.MAX, as_uop(1)))

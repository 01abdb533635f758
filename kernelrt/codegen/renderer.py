"""Kernel AST in, LLVM IR out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.codegen.analysis import Analysis, kernel_cost, merge_reductions
from kernelrt.codegen.emitter import Emitter
from kernelrt.codegen.math import MATH
from kernelrt.codegen.tiling import choose
from kernelrt.device.program import CORE_ID, ProgramSpec
from kernelrt.ir.fingerprint import fingerprint
from kernelrt.ir.ops import Op
from kernelrt.ir.rewrite import rewrite
from kernelrt.ir.shape import as_dim

if TYPE_CHECKING:
    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp

__all__ = ["LLVMRenderer"]


class LLVMRenderer:
    """Writes kernels for one target.

    Parameters
    ----------
    device : DeviceSpec
        The target; nothing here needs it to be the machine this runs on.
    """

    def __init__(self, device: DeviceSpec) -> None:
        self._device = device

    @property
    def device(self) -> DeviceSpec:
        """The target that sources are written for."""
        return self._device

    def render(self, ast: UOp) -> ProgramSpec:
        """The program of the kernel `ast` (a SINK).

        Raises
        ------
        CompileError
            When an op of `ast` has no code.
        """
        cost = kernel_cost(Analysis(ast))
        lowered = rewrite([merge_reductions(ast)], MATH)[0]
        info = Analysis(lowered)
        tiling = choose(info, self._device, cost)
        name = f"k_{fingerprint(ast)}"
        emitter = Emitter(info, tiling, self._device)
        source = emitter.write(name) + self._attributes()
        program = ProgramSpec(name, source, self._device, ast)
        for variable in emitter.variables:
            program.add_var(variable)
        if tiling.chunked is not None:
            program.set_var_names([*program.var_names, CORE_ID])
        program.set_work_sizes((tiling.chunks, 1, 1))
        slots = [u.arg[0] for u in info.nodes if u.op is Op.PARAM]
        outs = {u.src[0].arg[0] for u in info.nodes if u.op is Op.STORE}
        ins = {u.src[0].arg[0] for u in info.nodes if u.op is Op.LOAD}
        status = {u.src[2].arg[0] for u in info.nodes if u.op is Op.BOUND}
        program.set_buffer_metadata(outs | status, ins, max(slots, default=-1) + 1)
        program.flops, program.bytes = as_dim(cost.flops), as_dim(cost.bytes)
        program.may_fail = bool(status)
        return program

    def _attributes(self) -> str:
        width = self._device.vector_bits
        return (
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" '
            f'"min-legal-vector-width"="{width}" }}\n!0 = !{{}}\n'
        )

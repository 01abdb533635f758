"""LLVMRenderer: renders a kernel AST as LLVM IR text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt.backend.llvm.emitter import Emitter
from kernelrt.device.costs import costs_of
from kernelrt.device.program import CORE_ID, ProgramSpec, Variant
from kernelrt.ir.fingerprint import fingerprint
from kernelrt.ir.ops import Op
from kernelrt.ir.rewrite import rewrite
from kernelrt.ir.shape import as_dim
from kernelrt.loops.analysis import Analysis, kernel_cost
from kernelrt.loops.chunk_footprint import chunk_bytes
from kernelrt.loops.loop_ir import build
from kernelrt.loops.math.decompositions import decompositions
from kernelrt.loops.passes.cache_blocking import block
from kernelrt.loops.passes.fuse_loops import merge_passes
from kernelrt.loops.passes.pack_operands import pack, repeated
from kernelrt.loops.passes.packed_dot import in_words
from kernelrt.loops.passes.tile_rows import block_rows
from kernelrt.loops.print_loops import outline
from kernelrt.loops.reduction_order import order_of_sums
from kernelrt.loops.search_space import candidates, verify
from kernelrt.loops.tile_heuristic import choose
from kernelrt.loops.tiling import Tiling
from kernelrt.loops.verify_loops import verify_loops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Cost
    from kernelrt.loops.loop_ir import LoopNest

__all__ = ["LLVMRenderer"]


class LLVMRenderer:
    """Renders kernels for one target.

    Parameters
    ----------
    device : DeviceSpec
        The target; it need not be the machine of this process.
    """

    def __init__(self, device: DeviceSpec) -> None:
        self._device = device

    @property
    def device(self) -> DeviceSpec:
        """Target of the generated code."""
        return self._device

    def render(self, ast: UOp, variant: str | None = None) -> ProgramSpec:
        """Render the kernel `ast` (a SINK).

        Parameters
        ----------
        ast : UOp
            The kernel AST.
        variant : str, optional
            A tiling in JSON form, as returned by :meth:`variants`. By default, the tiling with the
            smallest estimated time.

        Raises
        ------
        CompileError
            An op of `ast` has no code.
        SpecError
            `variant` is not a valid tiling of `ast`.
        """
        # Rewriting may drop values that are not needed; the arguments stay those of `ast`.
        given = Analysis(ast)
        variables = [u for u in given.nodes if u.op is Op.VAR]
        info, tiling, nest, cost, _ = self._nest(given, variant)
        name = _name(given)
        emitter = Emitter(info, self._device, variables)
        source = emitter.write(name, nest) + self._attributes(probed=bool(info.locals))
        program = ProgramSpec(name, source, self._device, ast)
        for variable in variables:
            program.add_var(variable)
        if tiling.chunked is not None:
            program.set_var_names([*program.var_names, CORE_ID])
        program.set_work_sizes((tiling.chunks, 1, 1))
        slots = [u.arg[0] for u in given.nodes if u.op is Op.PARAM]
        outs = {u.src[0].arg[0] for u in given.nodes if u.op is Op.STORE}
        loaded = (u.src[0] for u in given.nodes if u.op is Op.LOAD)
        ins = {source.arg[0] for source in loaded if source.op is Op.PARAM}
        status = {u.src[2].arg[0] for u in given.nodes if u.op is Op.BOUND}
        program.set_buffer_metadata(outs | status, ins, max(slots, default=-1) + 1)
        scratch_outputs = {int(param.arg[0]) for param, _ in nest.scratch_outputs.values()}
        program.scratch_outputs = sorted(scratch_outputs | repeated(info))
        program.chunk_bytes = chunk_bytes(info, tiling, nest.scratch_outputs)
        program.flops, program.bytes = as_dim(cost.flops), as_dim(cost.bytes)
        program.cycles = as_dim(cost.cycles)
        program.may_fail = bool(status)
        program.variant = tiling.text()
        program.stack_bytes = emitter.memory.allocated_bytes()
        return program

    def variants(self, ast: UOp, around: str | None = None) -> Iterator[Variant]:
        """Yield tilings of `ast` that are worth timing; see ``search_space.candidates``.

        Parameters
        ----------
        ast : UOp
            The kernel AST.
        around : str, optional
            Variant to start from; by default :meth:`render`'s choice. It is yielded first.

        Raises
        ------
        SpecError
            `around` is not a valid tiling of `ast`.
        """
        info, cost = self._loops(Analysis(ast), {})
        own = choose(info, self._device, cost, self._length_of(info))
        order = order_of_sums(build(info, own, self._device))
        start = own
        if around is not None and around != own.text():
            start = Tiling.parse(around, info)
            verify(info, self._device, start)
        for tiling, cycles in candidates(info, self._device, cost, start):
            keeps_bits = order_of_sums(build(info, tiling, self._device)) == order
            yield Variant(tiling.text(), keeps_bits, cycles)

    def outline(self, ast: UOp, variant: str | None = None) -> str:
        """Return the loops of the kernel `ast`, and their contents, as readable text.

        A `variant` sets the tiling, as in :meth:`render`.

        Examples
        --------
        >>> from kernelrt import dtype
        >>> from kernelrt.device.spec import DeviceSpec
        >>> from kernelrt.ir import UOp, const
        >>> i = UOp(Op.RANGE, dtype.int64, (const(96, dtype.int64),), 0)
        >>> x, y = (UOp(Op.PARAM, dtype.float32, (), (slot, 96)) for slot in (1, 0))
        >>> value = UOp(Op.LOAD, dtype.float32, (x, i)) * 2
        >>> ast = UOp(Op.SINK, value.dtype, (UOp(Op.STORE, value.dtype, (y, i, value)),))
        >>> print(LLVMRenderer(DeviceSpec.avx2()).outline(ast))
        for i in 96 by 32: vectors of 8
            p0[i] = p1[i] * 2.0
        """
        *_, nest, _, written = self._nest(Analysis(ast), variant)
        return outline(nest, written)

    def _nest(
        self, given: Analysis, variant: str | None = None
    ) -> tuple[Analysis, Tiling, LoopNest, Cost, dict[UOp, UOp]]:
        """Return the kernel with functions lowered, its tiling, loop nest and cost.

        The last result maps nodes of the given kernel to those that replace them.
        """
        written: dict[UOp, UOp] = {}
        info, cost = self._loops(given, written)
        if variant is None:
            tiling = choose(info, self._device, cost, self._length_of(info))
        else:
            tiling = Tiling.parse(variant, info)
            verify(info, self._device, tiling)
        nest = build(info, tiling, self._device)
        verify_loops(nest, info)
        return info, tiling, nest, cost, written

    def _length_of(self, info: Analysis) -> Callable[[Tiling], int]:
        """Return a function from a tiling of the kernel to the length of its text in bytes."""
        variables = [u for u in info.nodes if u.op is Op.VAR]

        def length(tiling: Tiling) -> int:
            nest = build(info, tiling, self._device)
            text = Emitter(info, self._device, variables).write(_name(info), nest)
            return len(text) + len(self._attributes(probed=True))

        return length

    def _loops(self, given: Analysis, written: dict[UOp, UOp]) -> tuple[Analysis, Cost]:
        """Prepare a kernel: merge passes, pack panels, and replace functions by polynomials.

        The replacement of each node is added to `written`.
        """
        sink = merge_passes(block_rows(given.sink, self._device))
        sink = in_words(sink, self._device)
        sink = pack(block(sink, self._device), self._device)
        info = Analysis(rewrite([sink], decompositions(self._device), written)[0])
        return info, kernel_cost(given, info, costs_of(self._device))

    def _attributes(self, *, probed: bool) -> str:
        width = self._device.vector_bits
        # If arrays take more than a page of the stack, each page is touched in order. So a stack
        # overflow faults at the guard page and never reaches another thread's memory.
        probe = '"probe-stack"="inline-asm" ' if probed else ""
        # Spilled vectors are aligned: a vector across two pages takes ten times as long.
        aligned = f"alignstack={width // 8} " if width > 128 else ""
        return (
            f'attributes #0 = {{ nounwind {aligned}{probe}"prefer-vector-width"="{width}" '
            f'"min-legal-vector-width"="{width}" }}\n!0 = !{{}}\n'
        )


def _name(info: Analysis) -> str:
    """Return a kernel's name, made of its operation, its loops, and the hash of its content.

    If the kernel sums products, the name begins like ``contract_64x128_over_32``. If it has other
    reductions, the name begins like ``reduce_64_over_10``, otherwise like ``map_8192``.
    """
    stores = info.sink.src
    computed = [s for s in stores if s.src[2].op is not Op.CONST] or stores
    outer = sorted(
        {r for s in computed for x in s.src for r in info.deps[x]}, key=lambda r: int(r.arg)
    )
    kind, inner = "map", ""
    if info.reduces:
        widest = max(info.reduces, key=lambda u: _extent(u.src[1:]))
        products = widest.arg is Op.ADD and widest.src[0].op is Op.MUL
        kind = "contract" if products and len(info.loads(widest.src[0])) > 1 else "reduce"
        inner = f"_over_{_sizes(widest.src[1:])}"
    return f"{kind}_{_sizes(outer) or 'scalar'}{inner}_{fingerprint(info.sink)[:12]}"


def _extent(ranges: Iterable[UOp]) -> int:
    return math.prod(r.src[0].vmax for r in ranges)


def _sizes(ranges: Iterable[UOp]) -> str:
    """Return the extents of loops as text, such as ``64x128``.

    A Variable is given by its name, another symbolic extent by its maximum.
    """
    sizes = [r.src[0] for r in ranges]
    return "x".join(str(s.arg[0] if s.op is Op.VAR else s.vmax) for s in sizes)

"""The CPU backend: LLVM turns IR text into objects, and objects into code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt._late import load
from kernelrt.backend.cpu.compiler import LLVMCompiler
from kernelrt.backend.cpu.loader import LLVMLoader
from kernelrt.backend.cpu.object_cache import ObjectCache
from kernelrt.device.registry import Device
from kernelrt.device.spec import DeviceSpec, host
from kernelrt.device.tuned import Tuned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelrt.codegen import LLVMRenderer
    from kernelrt.device.program import ProgramSpec, Variant
    from kernelrt.ir import UOp

__all__ = ["LLVMCompiler", "LLVMLoader", "ObjectCache", "open_device"]


class _Renderer:
    """The code generator, imported when the first AST is rendered."""

    def __init__(self, device: DeviceSpec) -> None:
        self.device = device

    def render(self, ast: UOp, variant: str | None = None) -> ProgramSpec:
        return self._renderer().render(ast, variant)

    def variants(self, ast: UOp, around: str | None = None) -> Iterator[Variant]:
        return self._renderer().variants(ast, around)

    def outline(self, ast: UOp, variant: str | None = None) -> str:
        return self._renderer().outline(ast, variant)

    def _renderer(self) -> LLVMRenderer:
        load("kernelrt.codegen")
        from kernelrt.codegen import LLVMRenderer

        return LLVMRenderer(self.device)


def open_device() -> Device:
    """Open the CPU that this process runs on."""
    spec = host()
    cache = ObjectCache.default()
    compiler = LLVMCompiler(spec, cache=cache)
    return Device(spec, _Renderer(spec), compiler, LLVMLoader(compiler), Tuned(spec, cache))

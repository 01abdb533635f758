"""The CPU backend: LLVM turns IR text into objects, and objects into code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt._late import load
from kernelrt.backend.cpu.compiler import LLVMCompiler
from kernelrt.backend.cpu.loader import LLVMLoader
from kernelrt.backend.cpu.object_cache import ObjectCache
from kernelrt.device.registry import Device
from kernelrt.device.spec import DeviceSpec, host

if TYPE_CHECKING:
    from kernelrt.device.program import ProgramSpec
    from kernelrt.ir import UOp

__all__ = ["LLVMCompiler", "LLVMLoader", "ObjectCache", "open_device"]


class _Renderer:
    """The code generator, imported when the first AST is rendered."""

    def __init__(self, device: DeviceSpec) -> None:
        self.device = device

    def render(self, ast: UOp) -> ProgramSpec:
        load("kernelrt.codegen")
        from kernelrt.codegen import LLVMRenderer

        return LLVMRenderer(self.device).render(ast)

    def outline(self, ast: UOp) -> str:
        load("kernelrt.codegen")
        from kernelrt.codegen import LLVMRenderer

        return LLVMRenderer(self.device).outline(ast)


def open_device() -> Device:
    """Open the CPU that this process runs on."""
    spec = host()
    compiler = LLVMCompiler(spec, cache=ObjectCache.default())
    return Device(spec, _Renderer(spec), compiler, LLVMLoader(compiler))

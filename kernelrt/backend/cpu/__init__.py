"""The CPU backend: LLVM turns IR text into objects, and objects into code."""

from __future__ import annotations

from kernelrt.backend.cpu.compiler import LLVMCompiler
from kernelrt.backend.cpu.object_loader import LLVMLoader
from kernelrt.backend.cpu.rendered import StoredRenderer
from kernelrt.device.registry import Device
from kernelrt.device.spec import host
from kernelrt.device.tuned import Tuned
from kernelrt.util.object_cache import ObjectCache

__all__ = ["LLVMCompiler", "LLVMLoader", "ObjectCache", "open_device"]


def open_device() -> Device:
    """Open the CPU of this process as a device."""
    spec = host()
    cache = ObjectCache.default()
    compiler = LLVMCompiler(spec, cache=cache)
    renderer = StoredRenderer(spec, cache)
    return Device(spec, renderer, compiler, LLVMLoader(compiler), Tuned(spec, cache))

"""Devices: targets, buffers and their memory, and the protocols that a backend implements."""

from kernelrt.device.buffer import Buffer
from kernelrt.device.program import (
    CompiledSpec,
    Compiler,
    Loader,
    Program,
    ProgramSpec,
    Renderer,
    Sizes,
)
from kernelrt.device.registry import Device
from kernelrt.device.spec import DeviceSpec

__all__ = [
    "Buffer",
    "CompiledSpec",
    "Compiler",
    "Device",
    "DeviceSpec",
    "Loader",
    "Program",
    "ProgramSpec",
    "Renderer",
    "Sizes",
]

"""Backends: one package a device. Importing this registers them; opening one imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt._late import Module
from kernelrt.device.registry import register

if TYPE_CHECKING:
    from kernelrt.backend import cpu
    from kernelrt.device.registry import Device
else:
    cpu = Module("kernelrt.backend.cpu")

__all__: list[str] = []


def _cpu() -> Device:
    return cpu.open_device()


register("CPU", _cpu)

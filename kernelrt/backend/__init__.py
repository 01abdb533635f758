"""Backends: one package a device. Importing this registers them; opening one imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt._late import load
from kernelrt.device.registry import register

if TYPE_CHECKING:
    from kernelrt.device.registry import Device

__all__: list[str] = []


def _cpu() -> Device:
    load("kernelrt.backend.cpu")
    from kernelrt.backend.cpu import open_device

    return open_device()


register("CPU", _cpu)

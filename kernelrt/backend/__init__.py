"""Backends: one package a device, imported when the device is opened, and the LLVM printer."""

__all__: list[str] = []

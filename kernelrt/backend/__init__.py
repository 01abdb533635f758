"""Backends: one package a device, which is imported when the device is opened."""

__all__: list[str] = []

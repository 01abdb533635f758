"""Devices: targets, buffers and their memory, and the protocols that a backend implements."""

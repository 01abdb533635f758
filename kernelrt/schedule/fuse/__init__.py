"""Fusion: decides which values get a buffer, and which kernels compute them."""

__all__: list[str] = []

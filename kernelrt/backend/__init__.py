"""Backends: the printer of LLVM IR, and one package for each kind of device."""

__all__: list[str] = []

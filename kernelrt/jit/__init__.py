"""jit: trace a function once per argument signature, then replay its plan in C."""

from kernelrt.jit.function import JitFunction, jit

__all__ = ["JitFunction", "jit"]

"""jit: trace a function once for each kind of arguments, replay its plan in C from then on."""

from kernelrt.jit.function import JitFunction, jit

__all__ = ["JitFunction", "jit"]

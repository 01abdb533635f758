"""Prints kernel ASTs as LLVM IR text, for any target: the target machine is not needed."""

from kernelrt.backend.llvm.renderer import LLVMRenderer

__all__ = ["LLVMRenderer"]

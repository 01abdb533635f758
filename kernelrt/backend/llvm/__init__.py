"""Prints LLVM IR: takes a kernel AST, returns text. It does not need the target machine."""

from kernelrt.backend.llvm.renderer import LLVMRenderer

__all__ = ["LLVMRenderer"]

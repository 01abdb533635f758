"""Prints LLVM IR: a kernel AST in, text out. Nothing here needs the target to be present."""

from kernelrt.backend.llvm.renderer import LLVMRenderer

__all__ = ["LLVMRenderer"]

"""Code generation: kernel AST in, LLVM IR out. Nothing here needs the target to be present."""

from kernelrt.codegen.renderer import LLVMRenderer

__all__ = ["LLVMRenderer"]

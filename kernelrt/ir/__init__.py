"""The graph language: ops, hash-consed nodes, rewriting, integer expressions, stage rules."""

from kernelrt.ir import bounds, shape  # noqa: F401 - nodes ask them at any time
from kernelrt.ir.ops import Op
from kernelrt.ir.rewrite import rewrite, substitute
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.uop import Dim, UOp, Variable, const, toposort

__all__ = ["Dim", "Op", "UOp", "Variable", "const", "rewrite", "simplify", "substitute", "toposort"]

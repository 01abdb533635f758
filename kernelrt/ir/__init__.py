"""Graph IR: ops, hash-consed nodes, rewriting, integer expressions and stage verifiers."""

from kernelrt.ir import bounds, shape  # noqa: F401 - nodes use them lazily
from kernelrt.ir.ops import Op
from kernelrt.ir.rewrite import rewrite, substitute
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.uop import Dim, UOp, Variable, const, toposort

__all__ = ["Dim", "Op", "UOp", "Variable", "const", "rewrite", "simplify", "substitute", "toposort"]

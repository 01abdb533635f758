"""UOp: the one node type of every graph in kernelrt.

Nodes are immutable and hash-consed: equal nodes are the same object, so nodes are compared and
memoized by identity. A node has an operation (`op`), a scalar type (`dtype`), operands (`src`)
and plain, hashable data (`arg`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

from kernelrt import dtype as dt
from kernelrt.errors import VariableError
from kernelrt.ir.ops import ALU, COMPARE, Op
from kernelrt.native.graph_key import _name_ops
from kernelrt.native.node import Node, _infer_with, _make_nodes_of, _name_detach, toposort
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.ir import bounds, shape
else:
    shape = Module("kernelrt.ir.shape")
    bounds = Module("kernelrt.ir.bounds")

__all__ = ["Dim", "UOp", "Variable", "const", "toposort"]

#: A dimension: an int, or an integer expression over Variables.
Dim = Union[int, "UOp"]


class UOp(Node):
    """A node of a graph.

    Parameters
    ----------
    op : Op
        Operation.
    dtype : DType
        Scalar type of the value; of the stored value for STORE and SINK.
    src : tuple of UOp
        Operands.
    arg : hashable
        Data known at build time, such as a constant, axes or a shape.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return UOp, (self.op, self.dtype, self.src, self.arg)

    def __repr__(self) -> str:
        arg = "" if self.arg is None else f" {self.arg!r}"
        return f"<{self.op.name} {self.dtype.name}{arg} /{len(self.src)}>"

    def const_like(self, value: bool | float) -> UOp:
        """Return a constant of this node's scalar type."""
        return const(value, self.dtype)

    def cast(self, dtype: DType) -> UOp:
        """Return this value converted to `dtype`."""
        return self if dtype is self.dtype else UOp(Op.CAST, dtype, (self,))

    def alu(self, op: Op, *operands: UOp | bool | float) -> UOp:
        """Apply `op` to this value and `operands`. Python numbers get this node's type."""
        if len(operands) == 1 and type(operands[0]) is UOp:  # the common case: no loop
            return UOp(op, dt.bool_ if op in COMPARE else self.dtype, (self, operands[0]))
        rest = tuple(o if isinstance(o, UOp) else self.const_like(o) for o in operands)
        dtype = dt.bool_ if op in COMPARE else rest[0].dtype if op is Op.WHERE else self.dtype
        return UOp(op, dtype, (self, *rest))

    # Operators build expressions without simplifying them (see symbolic.simplify).
    def __add__(self, other: UOp | float) -> UOp:
        return self.alu(Op.ADD, other)

    def __radd__(self, other: float) -> UOp:
        return self.const_like(other).alu(Op.ADD, self)

    def __sub__(self, other: UOp | float) -> UOp:
        return self.alu(Op.SUB, other)

    def __rsub__(self, other: float) -> UOp:
        return self.const_like(other).alu(Op.SUB, self)

    def __mul__(self, other: UOp | float) -> UOp:
        return self.alu(Op.MUL, other)

    def __rmul__(self, other: float) -> UOp:
        return self.const_like(other).alu(Op.MUL, self)

    def __truediv__(self, other: UOp | float) -> UOp:
        return self.alu(Op.DIV, other)

    def __floordiv__(self, other: UOp | int) -> UOp:
        return self.alu(Op.IDIV, other)

    def __mod__(self, other: UOp | int) -> UOp:
        return self.alu(Op.MOD, other)

    def __neg__(self) -> UOp:
        return self.alu(Op.NEG)

    def __and__(self, other: UOp | int) -> UOp:
        return self.alu(Op.AND, other)

    def __or__(self, other: UOp | int) -> UOp:
        return self.alu(Op.OR, other)

    def __xor__(self, other: UOp | int) -> UOp:
        return self.alu(Op.XOR, other)

    def __lshift__(self, other: UOp | int) -> UOp:
        return self.alu(Op.SHL, other)

    def __rshift__(self, other: UOp | int) -> UOp:
        return self.alu(Op.SHR, other)

    def __invert__(self) -> UOp:
        return self.alu(Op.NOT)

    def __lt__(self, other: UOp | float) -> UOp:
        return self.alu(Op.LT, other)

    def __le__(self, other: UOp | float) -> UOp:
        return self.alu(Op.LE, other)

    def __gt__(self, other: UOp | float) -> UOp:
        return (other if isinstance(other, UOp) else self.const_like(other)).alu(Op.LT, self)

    def __ge__(self, other: UOp | float) -> UOp:
        return (other if isinstance(other, UOp) else self.const_like(other)).alu(Op.LE, self)

    def eq(self, other: UOp | float) -> UOp:
        """Return elementwise equality, while ``==`` compares nodes."""
        return self.alu(Op.EQ, other)

    def ne(self, other: UOp | float) -> UOp:
        """Return elementwise inequality, while ``!=`` compares nodes."""
        return self.alu(Op.NE, other)

    def where(self, yes: UOp, no: UOp) -> UOp:
        """Return `yes` where this bool is true, else `no`."""
        return UOp(Op.WHERE, yes.dtype, (self, yes, no))


def _infer_shape(node: UOp) -> None:
    for operand in node.src:
        if operand.cached_shape is None:
            break
    else:  # the common case while a graph is built
        node.cached_shape = shape.infer(node)
        return
    for below in toposort([node], stop=lambda u: u.cached_shape is not None):
        if below.cached_shape is None:
            below.cached_shape = shape.infer(below)


def _infer_bounds(node: UOp) -> None:
    # The bounds of floats do not depend on their operands.
    for below in toposort([node], stop=lambda u: u.dtype.is_float or u.cached_bounds is not None):
        if below.cached_bounds is None:
            below.cached_bounds = bounds.infer(below)


_make_nodes_of(UOp)
_infer_with(
    _infer_shape, _infer_bounds,
    frozenset({*ALU, Op.FLIP, Op.SCATTER, Op.CONTIGUOUS, Op.DETACH, Op.BOUND}),
)  # fmt: skip
_name_detach(Op.DETACH)
_name_ops(
    Op.BUFFER, Op.CONST, Op.DETACH, dt.int64, tuple(d for d in dt.ALL if d.is_float),
    frozenset({Op.RESHAPE, Op.EXPAND}), Op.SHRINK, Op.PAD, Op.IM2COL, Op.COL2IM,
)  # fmt: skip


def const(value: bool | float, dtype: DType) -> UOp:
    """Return a scalar constant. Floats are rounded to `dtype`; integers wrap to its width."""
    if dtype.is_float:
        float(value)  # raises OverflowError for an int beyond every float type
        return UOp(Op.CONST, dtype, (), dt.nearest(value, dtype))
    if dtype.is_bool:
        return UOp(Op.CONST, dtype, (), bool(value))
    return UOp(Op.CONST, dtype, (), dt.wrapped(int(value), dtype))


def Variable(name: str, min_val: int, max_val: int) -> UOp:  # noqa: N802 - the public noun
    """Return an integer variable that is set at run time, within two inclusive bounds.

    Parameters
    ----------
    name : str
        Name for ``execute_with_vars``; an identifier other than ``core_id``.
    min_val, max_val : int
        Inclusive bounds.

    Examples
    --------
    >>> batch = Variable("batch", 1, 256)
    >>> (batch * 4).bounds
    (4, 1024)
    """
    given: object = name
    if not (isinstance(given, str) and given.isidentifier()) or given == "core_id":
        raise VariableError(
            f"name: {name!r} cannot name a Variable; use an identifier other than 'core_id'"
        )
    for bound in (min_val, max_val):
        if isinstance(bound, bool) or not hasattr(bound, "__index__"):
            raise VariableError(f"Variable {name!r}: expected integers as bounds, not {bound!r}")
    if min_val > max_val:
        raise VariableError(
            f"Variable {name!r}: min_val {min_val} is above max_val {max_val}; swap them"
        )
    if min_val < dt.int64.min or max_val > dt.int64.max:
        raise VariableError(
            f"Variable {name!r}: bounds {min_val} and {max_val} do not fit 64-bit integers; use "
            "smaller bounds"
        )
    return UOp(Op.VAR, dt.int64, (), (name, int(min_val), int(max_val)))

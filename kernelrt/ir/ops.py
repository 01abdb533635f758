"""Op: the operations of the graph language."""

from __future__ import annotations

import enum
from typing import Final

__all__ = [
    "ALU",
    "ASSOCIATIVE",
    "BINARY",
    "COMMUTATIVE",
    "COMPARE",
    "ELEMENTWISE",
    "FUNCTIONS",
    "MOVEMENT",
    "PRODUCTS",
    "REDUCERS",
    "TERNARY",
    "UNARY",
    "Op",
    "is_fused",
]


class Op(enum.IntEnum):
    """Kinds of :class:`~kernelrt.ir.uop.UOp`. See docs/architecture/ir.md for each op's sources."""

    # That of Enum hashes the name, in Python.
    __hash__ = int.__hash__

    # Leaves
    CONST = enum.auto()
    VAR = enum.auto()
    BUFFER = enum.auto()
    IOTA = enum.auto()
    PARAM = enum.auto()
    RANGE = enum.auto()
    # Unary
    NEG = enum.auto()
    ABS = enum.auto()
    NOT = enum.auto()
    SQRT = enum.auto()
    EXP = enum.auto()
    EXP2 = enum.auto()
    EXPM1 = enum.auto()
    LOG = enum.auto()
    LOG2 = enum.auto()
    LOG10 = enum.auto()
    LOG1P = enum.auto()
    SIN = enum.auto()
    COS = enum.auto()
    TAN = enum.auto()
    ASIN = enum.auto()
    ACOS = enum.auto()
    ATAN = enum.auto()
    SINH = enum.auto()
    COSH = enum.auto()
    TANH = enum.auto()
    ASINH = enum.auto()
    ACOSH = enum.auto()
    ATANH = enum.auto()
    ERF = enum.auto()
    ERFC = enum.auto()
    LGAMMA = enum.auto()
    FLOOR = enum.auto()
    CEIL = enum.auto()
    TRUNC = enum.auto()
    ROUND = enum.auto()
    CAST = enum.auto()
    BITCAST = enum.auto()
    # Binary
    ADD = enum.auto()
    SUB = enum.auto()
    MUL = enum.auto()
    DIV = enum.auto()
    IDIV = enum.auto()
    MOD = enum.auto()
    POW = enum.auto()
    ATAN2 = enum.auto()
    MAX = enum.auto()
    MIN = enum.auto()
    AND = enum.auto()
    OR = enum.auto()
    XOR = enum.auto()
    SHL = enum.auto()
    SHR = enum.auto()
    LT = enum.auto()
    LE = enum.auto()
    EQ = enum.auto()
    NE = enum.auto()
    # Ternary
    WHERE = enum.auto()
    FMA = enum.auto()
    # Index checked at run time
    BOUND = enum.auto()
    # Movement
    RESHAPE = enum.auto()
    PERMUTE = enum.auto()
    EXPAND = enum.auto()
    SHRINK = enum.auto()
    PAD = enum.auto()
    FLIP = enum.auto()
    WINDOW = enum.auto()
    UNWINDOW = enum.auto()
    # Other tensor ops
    REDUCE_AXIS = enum.auto()
    GATHER = enum.auto()
    SCATTER = enum.auto()
    CAT = enum.auto()
    CALL = enum.auto()
    REGION = enum.auto()
    CONTIGUOUS = enum.auto()
    DETACH = enum.auto()
    # Kernel ops
    RARE = enum.auto()
    DOT = enum.auto()
    WORDS = enum.auto()
    REDUCE = enum.auto()
    LOCAL = enum.auto()
    LOAD = enum.auto()
    STORE = enum.auto()
    SINK = enum.auto()
    # While scheduling
    ELEMENT = enum.auto()


for _op in Op:
    # Members as plain attributes, as in Python 3.12: before, each access is a Python call.
    type.__setattr__(Op, _op.name, _op)

UNARY: Final = frozenset(op for op in Op if Op.NEG <= op <= Op.BITCAST)
BINARY: Final = frozenset(op for op in Op if Op.ADD <= op <= Op.NE)
#: Functions of one float that are no single instruction anywhere.
FUNCTIONS: Final = frozenset(op for op in Op if Op.EXP <= op <= Op.LGAMMA)
TERNARY: Final = frozenset({Op.WHERE, Op.FMA})
ALU: Final = UNARY | BINARY | TERNARY
#: What is computed of elements of its operands alone.
ELEMENTWISE: Final = ALU | {Op.DOT}
#: What sums take in with an instruction of their own, or a cheap one beside it.
PRODUCTS: Final = frozenset({Op.MUL, Op.DOT})
COMPARE: Final = frozenset({Op.LT, Op.LE, Op.EQ, Op.NE})
COMMUTATIVE: Final = frozenset(
    {Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR, Op.EQ, Op.NE}
)
ASSOCIATIVE: Final = frozenset({Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR})
#: At which a run may end.
FAILING: Final = frozenset({Op.BOUND, Op.CALL, Op.REGION})
REDUCERS: Final = frozenset({Op.ADD, Op.MUL, Op.MAX, Op.MIN})
MOVEMENT: Final = frozenset(op for op in Op if Op.RESHAPE <= op <= Op.UNWINDOW)


def is_fused(reducer: Op, value: Op, *, is_float: bool) -> bool:
    """Whether accumulating `value` by `reducer` takes no longer than computing `value` alone.

    Processors have one instruction for a float product and its sum, and for a DOT and its sum.
    """
    return reducer is Op.ADD and value in PRODUCTS and (is_float or value is Op.DOT)

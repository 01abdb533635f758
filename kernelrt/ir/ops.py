"""Op: the operations of the graph language, each with its record."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ALU",
    "ASSOCIATIVE",
    "BINARY",
    "COMMUTATIVE",
    "COMPARE",
    "ELEMENTWISE",
    "EXPANSIONS",
    "FAILING",
    "FUNCTIONS",
    "HALVES",
    "MOVEMENT",
    "PRODUCTS",
    "REDUCERS",
    "TERNARY",
    "UNARY",
    "Expansion",
    "Form",
    "Op",
    "Parts",
]

Group = Literal["leaf", "unary", "binary", "ternary", "movement", "other"]
#: Types of operands: "numbers" are all but bool, "bits" are integers and bool. Ops with "own" have
#: rules of their own in ``node_spec.py``.
Types = Literal["all", "numbers", "floats", "integers", "bits", "own"]


@dataclass(frozen=True, slots=True)
class Expansion:
    """Numbers of vector instructions that a transcendental op is lowered to.

    Attributes
    ----------
    instructions : int
        All instructions except loads and stores.
    floats : int
        Floating-point additions and multiplications, fused ones included.
    fused : int
        Fused multiply-adds.
    divisions : int
        Divisions and square roots, not counted in `floats`.
    """

    instructions: int
    floats: int
    fused: int
    divisions: int = 0


@dataclass(frozen=True, slots=True)
class Form:
    """Properties of an operation that every stage needs.

    Attributes
    ----------
    group : str
        Category of the operation. Elementwise operations are unary, binary or ternary.
    types : str
        Types that the operands of an elementwise operation may have. All operands have the same
        type, and so has the result, except that the result of a comparison is bool.
    expansion : tuple of Expansion, optional
        Cost of a transcendental op for float32 and for float64. ``kernelrt.loops.math`` lowers it.
    associative, commutative : bool
        Whether operands may be regrouped (associative), and exchanged (commutative).
    compares : bool
        Whether the operation is a comparison.
    reduces : bool
        Whether REDUCE_AXIS and REDUCE can combine elements by it.
    fails : bool
        Whether it may stop a run with an error.
    """

    group: Group = "other"
    types: Types = "own"
    expansion: tuple[Expansion, Expansion] | None = None
    associative: bool = False
    commutative: bool = False
    compares: bool = False
    reduces: bool = False
    fails: bool = False


def _leaf() -> Form:
    return Form("leaf")


def _unary(types: Types) -> Form:
    return Form("unary", types)


def _function(narrow: tuple[int, ...], wide: tuple[int, ...], group: Group = "unary") -> Form:
    """Return the form of a transcendental op.

    Parameters
    ----------
    narrow, wide : tuple of int
        Fields of the :class:`Expansion` for float32 and for float64. Count them in the assembly of
        an AVX-512 loop (``LLVMCompiler.assembly``). If float32 is computed with float64
        instructions, these count twice. Instructions of cold paths do not count. Narrower floats
        are computed as float32.
    group : str
        "unary" or "binary".
    """
    return Form(group, "floats", (Expansion(*narrow), Expansion(*wide)))


def _binary(types: Types, *flags: str) -> Form:
    return Form("binary", types, **dict.fromkeys(flags, True))  # type: ignore[arg-type]


def _movement() -> Form:
    return Form("movement")


def _other(*flags: str) -> Form:
    return Form("other", **dict.fromkeys(flags, True))  # type: ignore[arg-type]


class Op(enum.IntEnum):
    """Kinds of :class:`~kernelrt.ir.uop.UOp`. See docs/architecture/ir.md for each op's sources."""

    form: Form

    def __new__(cls, form: Form) -> Op:  # noqa: D102, PYI034
        number = len(cls.__members__) + 1
        op = int.__new__(cls, number)
        op._value_ = number
        op.form = form
        return op

    # That of Enum hashes the name, in Python.
    __hash__ = int.__hash__

    # Leaves
    CONST = _leaf()
    VAR = _leaf()
    BUFFER = _leaf()
    IOTA = _leaf()
    PARAM = _leaf()
    RANGE = _leaf()
    # Unary
    NEG = _unary("numbers")
    ABS = _unary("numbers")
    NOT = _unary("bits")
    SQRT = _unary("floats")
    EXP = _function((17, 13, 10), (23, 19, 16))
    EXP2 = _function((17, 12, 9), (23, 18, 15))
    EXPM1 = _function((25, 17, 8), (31, 23, 14))
    LOG = _function((29, 16, 10), (34, 21, 9, 1))
    LOG2 = _function((32, 16, 11), (35, 19, 11, 1))
    LOG10 = _function((33, 17, 12), (37, 20, 12, 1))
    LOG1P = _function((38, 23, 11), (42, 27, 11, 1))
    SIN = _function((27, 15, 10), (44, 33, 18))
    COS = _function((26, 15, 10), (45, 33, 18))
    TAN = _function((36, 24, 12, 1), (43, 31, 19, 1))
    ASIN = _function((22, 13, 7, 1), (29, 20, 14, 1))
    ACOS = _function((24, 14, 6, 1), (31, 21, 13, 1))
    ATAN = _function((20, 13, 9, 1), (31, 24, 20, 1))
    SINH = _function((33, 22, 7), (39, 28, 13))
    COSH = _function((31, 23, 7), (37, 29, 13))
    TANH = _function((22, 14, 9, 1), (30, 22, 15, 1))
    ASINH = _function((50, 30, 11, 2), (54, 34, 11, 3))
    ACOSH = _function((51, 33, 12, 1), (56, 37, 12, 2))
    ATANH = _function((48, 32, 14, 1), (52, 36, 14, 2))
    ERF = _function((24, 12, 8), (58, 29, 25))
    ERFC = _function((90, 72, 37, 1), (115, 97, 62, 1))
    LGAMMA = _function((292, 149, 93, 3), (195, 144, 81, 2))
    FLOOR = _unary("floats")
    CEIL = _unary("floats")
    TRUNC = _unary("floats")
    ROUND = _unary("floats")
    CAST = _unary("own")
    BITCAST = _unary("own")
    # Binary
    ADD = _binary("all", "associative", "commutative", "reduces")
    SUB = _binary("all")
    MUL = _binary("all", "associative", "commutative", "reduces")
    DIV = _binary("floats")
    IDIV = _binary("numbers")
    MOD = _binary("numbers")
    POW = _function((77, 41, 17, 1), (128, 80, 38, 1), "binary")
    ATAN2 = _function((35, 13, 9, 1), (47, 24, 20, 1), "binary")
    MAX = _binary("all", "associative", "commutative", "reduces")
    MIN = _binary("all", "associative", "commutative", "reduces")
    AND = _binary("bits", "associative", "commutative")
    OR = _binary("bits", "associative", "commutative")
    XOR = _binary("bits", "associative", "commutative")
    SHL = _binary("integers")
    SHR = _binary("integers")
    LT = _binary("all", "compares")
    LE = _binary("all", "compares")
    EQ = _binary("all", "compares", "commutative")
    NE = _binary("all", "compares", "commutative")
    # Ternary
    WHERE = Form("ternary")
    FMA = Form("ternary", "floats")
    # Index checked at run time
    BOUND = _other("fails")
    # Movement
    RESHAPE = _movement()
    PERMUTE = _movement()
    EXPAND = _movement()
    SHRINK = _movement()
    PAD = _movement()
    FLIP = _movement()
    IM2COL = _movement()
    COL2IM = _movement()
    # Other tensor ops
    REDUCE_AXIS = _other()
    GATHER = _other()
    SCATTER = _other()
    CAT = _other()
    CALL = _other("fails")
    REGION = _other("fails")
    CONTIGUOUS = _other()
    DETACH = _other()
    # Kernel ops
    COLD = _other()
    DOT = _other()
    WORDS = _other()
    REDUCE = _other()
    LOCAL = _other()
    LOAD = _other()
    STORE = _other()
    SINK = _other()
    # While scheduling
    ELEMENT = _other()


for _op in Op:
    # Make members plain attributes, as Python 3.12 does. Before, each access runs Python code.
    type.__setattr__(Op, _op.name, _op)


def _of_group(group: Group) -> frozenset[Op]:
    return frozenset(op for op in Op if op.form.group == group)


UNARY: Final = _of_group("unary")
BINARY: Final = _of_group("binary")
TERNARY: Final = _of_group("ternary")
MOVEMENT: Final = _of_group("movement")
#: Costs of transcendental ops for float32 and float64.
EXPANSIONS: Final[Mapping[Op, tuple[Expansion, Expansion]]] = {
    op: op.form.expansion for op in Op if op.form.expansion is not None
}
#: Transcendental ops of one operand.
FUNCTIONS: Final = UNARY.intersection(EXPANSIONS)
ALU: Final = UNARY | BINARY | TERNARY
#: Ops whose elements depend on the operands' elements at the same index alone.
ELEMENTWISE: Final = ALU | {Op.DOT}
#: Ops whose sums are contractions.
PRODUCTS: Final = frozenset({Op.MUL, Op.DOT})
COMPARE: Final = frozenset(op for op in Op if op.form.compares)
COMMUTATIVE: Final = frozenset(op for op in Op if op.form.commutative)
ASSOCIATIVE: Final = frozenset(op for op in Op if op.form.associative)
#: Ops that may stop a run with an error.
FAILING: Final = frozenset(op for op in Op if op.form.fails)
REDUCERS: Final = frozenset(op for op in Op if op.form.reduces)


class Parts(NamedTuple):
    """The arg of a DOT: how it reads the 32-bit words of its two operands.

    Attributes
    ----------
    number : int
        Number of parts of a word: 4 bytes, or 2 halves of 16 bits.
    signed, other_signed : bool
        True if the first (second) operand has signed parts. Floats count as signed.
    """

    number: int
    signed: bool
    other_signed: bool


#: Two signed 16-bit integers, or two bfloat16 numbers.
HALVES: Final = Parts(2, True, True)

"""User functions whose results are values of graphs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from types import MethodType
from typing import TYPE_CHECKING, Final

from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from typing import TypeAlias

    from kernelrt.dtype import DType
    from kernelrt.ir.nest import Nest
    from kernelrt.ir.uop import UOp

    #: Shape and type of an operand or a result.
    Form: TypeAlias = "tuple[tuple[int, ...], DType]"

__all__ = ["Foreign", "ForeignFunction", "is_host_call", "size_of"]

#: What it means where a function fails, of Python or of C.
_RAISED: Final = "the function raised"
_REPORTED: Final = "the function reported failure"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ForeignFunction:
    """What is called, with what, and what that gives: the `arg` of a kernel that is a CALL.

    Two are equal that call the same function with the same forms. Methods are the same that are of
    the same object, other callables that are the same object, and C functions by address.

    Attributes
    ----------
    name : str
        What errors and profiles call it.
    function : object
        A Python callable; of a C function, what keeps its code alive.
    address : int
        Of the C function ``void (*)(void *const *bufs, const int64_t *vals)``; 0 for Python's. No
        text holds it: what is kept on disk never knows where anything lies.
    operands, results : tuple of (shape, DType)
        Of one call.
    nest : Nest, optional
        How a Python function nests what it returns; None for one of C.
    rows : tuple of int
        Axes that operands and results have before these: it is called for each place along them.
    vectorized : bool
        Whether it takes operands with more axes in front in one call.
    fails : bool
        Whether a C function is given a status word, behind its operands.
    ordered : bool
        Whether the last operand only says what comes before; Python functions do not get it.
    """

    name: str
    function: object
    address: int
    operands: tuple[Form, ...]
    results: tuple[Form, ...]
    nest: Nest | None = None
    rows: tuple[int, ...] = ()
    vectorized: bool = False
    fails: bool = False
    ordered: bool = False
    _key: tuple[object, ...] = field(init=False)
    _hash: int = field(init=False)

    def __post_init__(self) -> None:
        f = self.function
        same: object = id(f)
        if self.address:
            same = self.address, "C"
        elif isinstance(f, MethodType):
            same = id(f.__self__), id(f.__func__)
        forms = self.operands, self.results, self.nest
        key = same, self.name, *forms, self.rows, self.vectorized, self.fails, self.ordered
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "_hash", hash(key))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, ForeignFunction) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        forms = [
            ", ".join(f"{dtype.name}{[*self.rows, *shape]}" for shape, dtype in some)
            for some in (self.operands, self.results)
        ]
        return f"{self.name}({forms[0]}) -> ({forms[1]})"

    @property
    def n_results(self) -> int:
        """How many of the slots of a kernel are results; they come first."""
        return len(self.results)

    @property
    def calls(self) -> int:
        """How often it is called."""
        return math.prod(self.rows)

    @property
    def slots(self) -> tuple[tuple[DType, int], ...]:
        """Type and number of elements of each result and each operand."""
        both = (*self.results, *self.operands)
        return tuple((dtype, self.calls * math.prod(shape)) for shape, dtype in both)

    @property
    def failure(self) -> str:
        """What it means if it fails; empty if it cannot say so."""
        if self.address:
            return _REPORTED if self.fails else ""
        return _RAISED

    @property
    def takes_status(self) -> bool:
        """Whether a kernel of it is given a status word."""
        return self.fails

    def mapped(self, count: int) -> ForeignFunction:
        """The function for `count` values of each operand, along an axis before the others."""
        if not self.vectorized:
            return replace(self, rows=(count, *self.rows))
        forms = [
            tuple(((count, *shape), dtype) for shape, dtype in some)
            for some in (self.operands, self.results)
        ]
        return replace(self, operands=forms[0], results=forms[1])


@dataclass(frozen=True, slots=True)
class Foreign:
    """One result of a function; the `arg` of a CALL among tensors.

    The CALLs of all results of one function with the same operands are one call.
    """

    callee: ForeignFunction
    index: int

    @property
    def name(self) -> str:
        """Of the function."""
        return self.callee.name

    @property
    def dtype(self) -> DType:
        """Of the result."""
        return self.callee.results[self.index][1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        return (*self.callee.rows, *self.callee.results[self.index][0])

    @property
    def failure(self) -> str:
        """What it means if the function fails; empty if it cannot say so."""
        return self.callee.failure


def size_of(form: Form) -> int:
    """How many elements there are of a form."""
    return math.prod(form[0])


def is_host_call(ast: UOp) -> bool:
    """Whether a kernel AST is the call of a Python function, which no kernel can make."""
    if ast.op is not Op.SINK or len(ast.src) != 1 or ast.src[0].op is not Op.CALL:
        return False
    callee = ast.src[0].arg
    return isinstance(callee, ForeignFunction) and not callee.address

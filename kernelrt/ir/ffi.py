"""FFI: user functions in graphs."""

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

__all__ = ["FfiFunction", "FfiResult", "is_host_call", "size_of"]

#: Error text if a Python or a C function fails.
_RAISED: Final = "the function raised"
_REPORTED: Final = "the function reported failure"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FfiFunction:
    """A user function with its operands and results: the `arg` of the CALL in a kernel.

    Two objects are equal if they call the same function with the same shapes and dtypes. Methods
    are the same if object and function are, other callables by identity, and C functions by
    address.

    Attributes
    ----------
    name : str
        Name in errors and profiles.
    function : object
        Python callable; for a C function, an object that keeps its code alive.
    address : int
        Address of the C function ``void (*)(void *const *bufs, const int64_t *vals)``; 0 for a
        Python function. Texts of graphs leave it out, so that no file on disk depends on addresses.
    operands, results : tuple of (shape, DType)
        Shapes and dtypes of one call.
    nest : Nest, optional
        Structure of the return value of a Python function; None for a C function.
    rows : tuple of int
        Leading batch axes of operands and results. The function is called once for each index along
        them.
    vectorized : bool
        Whether the function takes operands with additional leading axes in one call.
    fails : bool
        Whether a C function takes a status word after its operands.
    ordered : bool
        Whether the last operand only makes this call wait for an earlier one. Python functions do
        not receive it.
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
        return isinstance(other, FfiFunction) and self._key == other._key

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
        """Number of slots of a kernel that are results; they come first."""
        return len(self.results)

    @property
    def calls(self) -> int:
        """Number of calls of the function."""
        return math.prod(self.rows)

    @property
    def slots(self) -> tuple[tuple[DType, int], ...]:
        """(dtype, number of elements) of each result and each operand."""
        both = (*self.results, *self.operands)
        return tuple((dtype, self.calls * math.prod(shape)) for shape, dtype in both)

    @property
    def failure(self) -> str:
        """Error text if the function fails; empty if it cannot report failure."""
        if self.address:
            return _REPORTED if self.fails else ""
        return _RAISED

    @property
    def takes_status(self) -> bool:
        """Whether a kernel with this function takes a status word."""
        return self.fails

    def mapped(self, count: int) -> FfiFunction:
        """Return the function for operands with an additional leading axis of size `count`."""
        if not self.vectorized:
            return replace(self, rows=(count, *self.rows))
        forms = [
            tuple(((count, *shape), dtype) for shape, dtype in some)
            for some in (self.operands, self.results)
        ]
        return replace(self, operands=forms[0], results=forms[1])


@dataclass(frozen=True, slots=True)
class FfiResult:
    """One result of a function; the `arg` of a tensor-stage CALL.

    If several CALLs have the same function and operands, the function is called once for all these
    results.
    """

    callee: FfiFunction
    index: int

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.callee.name

    @property
    def dtype(self) -> DType:
        """Dtype of the result."""
        return self.callee.results[self.index][1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (*self.callee.rows, *self.callee.results[self.index][0])

    @property
    def failure(self) -> str:
        """Error text if the function fails; empty if it cannot report failure."""
        return self.callee.failure


def size_of(form: Form) -> int:
    """Return the number of elements of an operand or a result."""
    return math.prod(form[0])


def is_host_call(ast: UOp) -> bool:
    """Return whether a kernel AST is the call of a Python function, which needs the host."""
    if ast.op is not Op.SINK or len(ast.src) != 1 or ast.src[0].op is not Op.CALL:
        return False
    callee = ast.src[0].arg
    return isinstance(callee, FfiFunction) and not callee.address

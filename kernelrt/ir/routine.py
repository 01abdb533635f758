"""Routines: C functions for values that loops over elements cannot express."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.errors import SpecError, VariableError
from kernelrt.ir.ops import Op
from kernelrt.ir.shape import as_dim, dim_max, dim_span, format_shape, is_static, prod

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernelrt.dtype import DType
    from kernelrt.ir.uop import Dim, UOp

__all__ = ["SIGNATURES", "Routine", "Signature", "is_call"]


def is_call(ast: UOp) -> bool:
    """Whether a kernel AST is the call of a routine."""
    return ast.op is Op.SINK and len(ast.src) == 1 and ast.src[0].op is Op.CALL


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Signature:
    """What a routine reads and writes in one problem, by its own numbers, and what that costs.

    Attributes
    ----------
    numbers : tuple of str
        Sizes and options that the function is told, in their order.
    operands : tuple of callable
        Elements of each operand, by the numbers.
    result : callable
        Elements of the result and of what the function works in behind it.
    cycles : callable
        What one problem takes on one core, by estimate.
    reads, gives : DType
        Of the operands and of the result.
    failure : str
        What it means if the function reports that it failed, for people; empty if it never does.
        One that has a number ``checked`` reports it only where that is not 0.
    symbolic : bool
        Whether numbers may depend on Variables; then all that is callable takes dimensions.
    """

    numbers: tuple[str, ...]
    operands: tuple[Callable[..., Dim], ...]
    result: Callable[..., Dim]
    cycles: Callable[..., Dim]
    reads: DType
    gives: DType
    failure: str = ""
    symbolic: bool = False


@dataclass(frozen=True, slots=True)
class Routine:
    """What a CALL computes; its `arg`.

    A routine solves `rows` independent problems of one kind. Its result and its operands hold
    those of the problems one after the other. How it is called is said in ``csrc/routines.h``.

    Attributes
    ----------
    name : str
        The C function, without its prefix ``krt_``; a key of :data:`SIGNATURES`.
    rows : Dim
        Problems, which may be solved side by side.
    numbers : tuple of Dim
        Sizes and options that the function is told.

    Raises
    ------
    SpecError
        There is no such routine, or it takes other numbers.
    """

    name: str
    rows: Dim
    numbers: tuple[Dim, ...]

    def __post_init__(self) -> None:
        known = SIGNATURES.get(self.name)
        if known is None:
            raise SpecError(f"there is no routine {self.name!r}")
        given = (self.rows, *self.numbers)
        if len(self.numbers) != len(known.numbers) or min(dim_span(n)[0] for n in given) < 0:
            raise SpecError(
                f"routine {self.name}: expected numbers {known.numbers} of at least 0 for each of "
                f"some rows, not {self.numbers} for {self.rows}"
            )
        if not (known.symbolic or is_static(self.numbers)):
            raise VariableError(
                f"{self.name}: the size {format_shape(self.numbers)} depends on a Variable; "
                "this takes fixed sizes"
            )

    @property
    def callee(self) -> Routine:
        """What a kernel calls: the `arg` of its CALL."""
        return self

    @property
    def n_results(self) -> int:
        """How many of the slots of a kernel are results."""
        return 1

    @property
    def slots(self) -> tuple[tuple[DType, int], ...]:
        """Type and greatest number of elements of the result and of each operand."""
        known = self.signature
        rows, width = self.shape
        reads = ((known.reads, dim_max(size)) for size in self.operands)
        return (known.gives, dim_max(prod((rows, width)))), *reads

    @property
    def takes_status(self) -> bool:
        """Whether a kernel of it is given a status word."""
        return bool(self.failure)

    @property
    def signature(self) -> Signature:
        """What it reads and writes."""
        return SIGNATURES[self.name]

    @property
    def shape(self) -> tuple[Dim, Dim]:
        """Of the result: a row for each problem."""
        return self.rows, as_dim(self.signature.result(*self.numbers))

    @property
    def operands(self) -> tuple[Dim, ...]:
        """Elements of each operand."""
        return tuple(prod((self.rows, size(*self.numbers))) for size in self.signature.operands)

    @property
    def cycles(self) -> Dim:
        """What all problems take on one core, by estimate."""
        return prod((self.rows, self.signature.cycles(*self.numbers)))

    @property
    def failure(self) -> str:
        """What it means if it fails; empty if it never does."""
        known = self.signature
        told = dict(zip(known.numbers, self.numbers, strict=True))
        return "" if told.get("checked") == 0 else known.failure


_SINGULAR: Final = "the matrix is singular or holds NaN"
_INDEFINITE: Final = "the matrix is not positive definite or holds NaN"
_ENDLESS: Final = "the matrix has elements that are not finite, or no factors were found"


def _matrix(
    numbers: str,
    operands: tuple[Callable[..., int], ...],
    result: Callable[..., int],
    cycles: Callable[..., int],
    failure: str = "",
) -> Mapping[str, Signature]:
    """In single and in double precision."""
    return {
        f"f{kind.bits}": Signature(
            tuple(numbers.split()), operands, result, cycles, kind, kind, failure
        )
        for kind in (dt.float32, dt.float64)
    }


#: KRT_BLOCK and KRT_FRAME of csrc/linalg.h.
_BLOCK: Final = 16
_FRAME: Final = 4096


def _wide(n: int) -> int:
    return (n + _BLOCK - 1) // _BLOCK * _BLOCK


def _beside(work: int) -> int:
    """Numbers behind those asked for, where `work` are worked in."""
    return work + _BLOCK if work > _FRAME else 0


def _svd_work(m: int, n: int) -> int:
    return (3 * n + 10) * _wide(n) + (n * m + n if m > n else 0)


#: Of csrc/linalg.h, where each is described. Cycles by bench/routines.py, on vectors of 512 bits:
#: of cholesky, eigh and svd as fitted to 16 to 128 rows; in the others a multiplication and
#: addition counts as one (solve of 8 to 64 rows).
_LINALG: Final = {
    "cholesky": _matrix(
        "n checked", (lambda n, _: n * n,), lambda n, _: n * n + _beside(n * _wide(n)),
        lambda n, _: 110 * n + n**3 // 25, _INDEFINITE,
    ),
    "lu": _matrix(
        "m n", (lambda m, n: m * n,), lambda m, n: m * n + m + min(m, n),
        lambda m, n: m * n * min(m, n),
    ),
    "exchange": _matrix(
        "n m steps back", (lambda _n, _m, steps, _: steps, lambda n, m, *_: n * m),
        lambda n, m, *_: n * m, lambda n, m, *_: n * m,
    ),
    "solve": _matrix(
        "n m checked", (lambda n, *_: n * n, lambda n, m, _: n * m),
        lambda n, m, _: n * m + n * n + n, lambda n, m, _: 2 * n**3 // 3 + 2 * n * n * m, _SINGULAR,
    ),
    "triangular": _matrix(
        "n m upper unit", (lambda n, *_: n * n, lambda n, m, *_: n * m),
        lambda n, m, *_: n * m, lambda n, m, *_: n * n * m + n * m,
    ),
    "qr": _matrix(
        "m n k", (lambda m, n, _: m * n,),
        lambda m, n, k: m * k + k * n + (m + 1) * max(m, n) + min(m, n),
        lambda m, n, k: 2 * m * min(m, n) * (n + k),
    ),
    "eigh": _matrix(
        "n", (lambda n: n * n,), lambda n: n * n + n + _beside((2 * n + 5) * _wide(n)),
        lambda n: 70 * n * n + n**3 // 3, _ENDLESS,
    ),
    "svd": _matrix(
        "m n", (lambda m, n: m * n,), lambda m, n: n * m + n + n * n + _beside(_svd_work(m, n)),
        lambda m, n: 150 * n * n + n**3 // 2 + 4 * n * n * (m - n), _ENDLESS,
    ),
}  # fmt: skip

#: Every routine, by the name of its C function.
SIGNATURES: Final[Mapping[str, Signature]] = {
    # Of csrc/sort.h; cycles for each key by bench/routines.py.
    "argsort_u32": Signature(
        ("n",), (lambda n: n,), lambda n: 2 * n, lambda n: 20 * n, dt.uint32, dt.int64,
        symbolic=True,
    ),
    "argsort_u64": Signature(
        ("n",), (lambda n: n,), lambda n: 4 * n, lambda n: 60 * n, dt.uint64, dt.int64,
        symbolic=True,
    ),
    **{f"{name}_{kind}": found for name, kinds in _LINALG.items() for kind, found in kinds.items()},
}

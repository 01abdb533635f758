"""Routines: C functions for operations that loops over elements cannot express."""

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
    """Return whether a kernel AST is the call of a routine or a user function."""
    return ast.op is Op.SINK and len(ast.src) == 1 and ast.src[0].op is Op.CALL


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Signature:
    """Operands, result and cost of a routine for one problem, as functions of its numbers.

    Attributes
    ----------
    numbers : tuple of str
        Names of the sizes and options that the function takes, in order.
    operands : tuple of callable
        Number of elements of each operand, from the numbers.
    result : callable
        Number of elements of the result, including the workspace that follows it.
    cycles : callable
        Estimated cycles of one problem on one core.
    reads, gives : DType
        Dtypes of the operands and of the result.
    failure : str
        Error text if the function reports failure; empty if it never does. A function with a number
        ``checked`` reports failure only if that number is not 0.
    symbolic : bool
        Whether numbers may depend on Variables. If so, the callables accept symbolic dimensions.
    parts : callable
        Number of parts of a problem that threads may share, from the numbers.
    """

    numbers: tuple[str, ...]
    operands: tuple[Callable[..., Dim], ...]
    result: Callable[..., Dim]
    cycles: Callable[..., Dim]
    reads: DType
    gives: DType
    failure: str = ""
    symbolic: bool = False
    parts: Callable[..., Dim] = lambda *_: 1


@dataclass(frozen=True, slots=True)
class Routine:
    """The operation of a CALL; its `arg`.

    A routine solves `rows` independent problems of the same sizes. Each operand contains the
    operands of all problems, one after the other, and so does the result. ``csrc/routines.h``
    describes the calling convention.

    Attributes
    ----------
    name : str
        Name of the C function without its prefix ``krt_``; a key of :data:`SIGNATURES`.
    rows : Dim
        Number of problems.
    numbers : tuple of Dim
        Sizes and options that the function takes.

    Raises
    ------
    SpecError
        No routine has that name, or it takes other numbers.
    VariableError
        A number depends on a Variable, and the routine takes fixed sizes.
    """

    name: str
    rows: Dim
    numbers: tuple[Dim, ...]

    def __post_init__(self) -> None:
        known = SIGNATURES.get(self.name)
        if known is None:
            names = ", ".join(SIGNATURES)
            raise SpecError(f"there is no routine {self.name!r}; expected one of {names}")
        given = (self.rows, *self.numbers)
        if len(self.numbers) != len(known.numbers) or min(dim_span(n)[0] for n in given) < 0:
            raise SpecError(
                f"routine {self.name}: expected the numbers {known.numbers} and rows, all at least "
                f"0, not {self.numbers} and rows {self.rows}"
            )
        if not (known.symbolic or is_static(self.numbers)):
            raise VariableError(
                f"{self.name}: the size {format_shape(self.numbers)} depends on a Variable; this "
                "operation takes fixed sizes only; leave the axis out of jit(dynamic=...)"
            )

    @property
    def callee(self) -> Routine:
        """Return this routine, which is the `arg` of a CALL in a kernel."""
        return self

    @property
    def n_results(self) -> int:
        """Number of slots of a kernel that are results."""
        return 1

    @property
    def slots(self) -> tuple[tuple[DType, int], ...]:
        """(dtype, maximum number of elements) of the result and of each operand."""
        known = self.signature
        rows, width = self.shape
        reads = ((known.reads, dim_max(size)) for size in self.operands)
        return (known.gives, dim_max(prod((rows, width)))), *reads

    @property
    def takes_status(self) -> bool:
        """Whether a kernel with this routine takes a status word."""
        return bool(self.failure)

    @property
    def signature(self) -> Signature:
        """Signature of the routine."""
        return SIGNATURES[self.name]

    @property
    def shape(self) -> tuple[Dim, Dim]:
        """Shape of the result: one row per problem."""
        return self.rows, as_dim(self.signature.result(*self.numbers))

    @property
    def operands(self) -> tuple[Dim, ...]:
        """Number of elements of each operand."""
        return tuple(prod((self.rows, size(*self.numbers))) for size in self.signature.operands)

    @property
    def cycles(self) -> Dim:
        """Estimated cycles of all problems on one core."""
        return prod((self.rows, self.signature.cycles(*self.numbers)))

    @property
    def parts(self) -> Dim:
        """Number of parts of all problems that threads may share."""
        return prod((self.rows, self.signature.parts(*self.numbers)))

    @property
    def failure(self) -> str:
        """Error text if the routine fails; empty if it never does."""
        known = self.signature
        told = dict(zip(known.numbers, self.numbers, strict=True))
        return "" if told.get("checked") == 0 else known.failure


_SINGULAR: Final = "the matrix is singular or holds NaN"
_INDEFINITE: Final = "the matrix is not positive definite or holds NaN"
_ENDLESS: Final = "the matrix has non-finite elements, or the algorithm did not converge"


def _matrix(
    numbers: str,
    operands: tuple[Callable[..., int], ...],
    result: Callable[..., int],
    cycles: Callable[..., int],
    failure: str = "",
) -> Mapping[str, Signature]:
    """Return the signatures of a routine for float32 and for float64."""
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
    """Return the number of elements to add to the result for `work` elements of workspace.

    The number is 0 if the workspace fits on the stack.
    """
    return work + _BLOCK if work > _FRAME else 0


def _svd_work(m: int, n: int) -> int:
    return (3 * n + 10) * _wide(n) + (n * m + n if m > n else 0)


#: Routines of csrc/linalg.h, which describes each. Cycles from bench/routines.py, on vectors of 512
#: bits: fitted to 16 to 128 rows for cholesky, eigh and svd; one cycle per multiply-add for the
#: others (solve of 8 to 64 rows).
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

#: KRT_SUM_STRIP of csrc/cumsum.h and KRT_RUN_STRIP of csrc/running.h.
_STRIP: Final = 512


def _along(
    kind: DType, gives: DType, cycles: int, options: tuple[str, ...] = (), operands: int = 1
) -> Signature:
    """Return the signature of a cumulative routine; `cycles` is the number for one element."""
    return Signature(
        ("n", "inner", *options), (lambda n, inner, *_: prod((n, inner)),) * operands,
        lambda n, inner, *_: prod((n, inner)), lambda n, inner, *_: prod((cycles, n, inner)),
        kind, gives, symbolic=True, parts=lambda _n, inner, *_: (inner + _STRIP - 1) // _STRIP,
    )  # fmt: skip


#: Routines of csrc/cumsum.h and csrc/running.h.
_CUMULATIVE: Final = {
    **{
        f"cumsum_{kind.name}": _along(
            kind, kind if kind.is_float else dt.int64, 1 + kind.is_float, ("reverse",)
        )
        for kind in dt.ALL
        if not kind.is_narrow
    },
    **{
        f"{where}{name}_{kind.name}": _along(kind, dt.int64 if where else kind, 1)
        for kind in dt.ALL
        if not kind.is_narrow
        for name in ("cummax", "cummin")
        for where in ("", "arg")
    },
    **{
        f"cumprod_{kind.name}": _along(kind, kind, 2)
        for kind in (dt.int64, dt.float32, dt.float64)
    },
    **{
        f"{name}_{kind.name}": _along(kind, kind, *rest)
        for kind in (dt.float32, dt.float64)
        for name, *rest in (("recurrence", 3, ("reverse",), 2), ("level", 1), ("slopes", 6, (), 2))
    },
}

#: All routines, by the name of their C functions.
SIGNATURES: Final[Mapping[str, Signature]] = {
    # Routines of csrc/sort.h; cycles per key from bench/routines.py.
    "argsort_u32": Signature(
        ("n",), (lambda n: n,), lambda n: 2 * n, lambda n: 20 * n, dt.uint32, dt.int64,
        symbolic=True,
    ),
    "argsort_u64": Signature(
        ("n",), (lambda n: n,), lambda n: 4 * n, lambda n: 60 * n, dt.uint64, dt.int64,
        symbolic=True,
    ),
    **_CUMULATIVE,
    **{f"{name}_{kind}": found for name, kinds in _LINALG.items() for kind, found in kinds.items()},
}

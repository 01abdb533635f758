"""Rows: one line for each way of calling an operation, from which every check draws its inputs.

A table is a module of `tables/` with a list ``ROWS``; what is there is found and tested:

    from surface.rows import Index, Row

    ROWS = [
        Row("logaddexp", lambda k, x, y: k.logaddexp(x, y), ("a b", "a b")),
        Row("index_select", lambda k, x, i: k.index_select(x, 0, i), ("n c", Index("m", "n"))),
    ]
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Array = np.ndarray[Any, Any]

__all__ = [
    "Bool",
    "In",
    "Index",
    "Pos",
    "Row",
    "draw",
    "functions",
    "letters",
    "method",
    "sizes",
    "tables",
]

#: Sizes that letters are drawn from, without repetition as long as it lasts.
SIZES = (2, 3, 4, 5)


@dataclass(frozen=True)
class In:
    """Floats drawn evenly from an interval; what a plain string stands for, from -2 to 2.

    Parameters
    ----------
    shape : str
        Letters, one size each, and numbers, which stay; empty for a scalar.
    low, high : float
        The interval.
    grad : bool
        Whether it has a gradient.
    """

    shape: str
    low: float = -2.0
    high: float = 2.0
    grad: bool = True
    floats = True


def Pos(shape: str, *, grad: bool = True) -> In:  # noqa: N802 - reads as the classes do
    """Positive floats."""
    return In(shape, 0.25, 4.0, grad)


@dataclass(frozen=True)
class Index:
    """Integers of int64.

    Parameters
    ----------
    shape : str
        As of :class:`In`.
    below : str
        A letter or a number: they are less than that, and at least 0.
    low : int
        Where they start instead of 0; negative numbers count from the end.
    distinct : bool
        No integer occurs twice along the last axis.
    """

    shape: str
    below: str
    low: int = 0
    distinct: bool = False
    floats = grad = False


@dataclass(frozen=True)
class Bool:
    """Bools."""

    shape: str
    floats = grad = False


Spec = str | In | Index | Bool


@dataclass(frozen=True)
class Row:
    """A way of calling an operation.

    Attributes
    ----------
    name : str
        Test id, unique in its table.
    call : callable
        ``call(k, *tensors)`` where `k` is the module kernelrt or torch. Gives a tensor, a number,
        or tuples, lists and dicts of such.
    shapes : tuple of str, In, Index or Bool
        The operands. The same letter is the same size in all of them.
    grad : bool
        Whether there are gradients.
    second : bool
        Whether gradients have gradients (those that are zero count as some).
    ints : bool
        Whether it is also run on integers.
    zero : bool or str
        Whether it is run with each letter as 0 and as 1; or the letters with which it is.
    special : bool or tuple of int
        Whether it is run on infinities, NaN and signed zeros; or the operands that have some.
    half : bool
        Whether it is run in the float16 and bfloat16.
    transposed : bool
        Whether it is run on operands that are views of other tensors.
    jit : bool
        Whether it can be traced.
    why : str
        Why one of the above is left out; `grad` needs no reason.
    tol : float
        By how much tolerances are wider than those of a well-conditioned function.
    tol64 : float
        By how much more those of float64 are wider, where torch has few digits.
    torch : callable, optional
        ``torch(t, *tensors)``, where torch is called otherwise.
    sizes : mapping of str to int
        Sizes of letters that are not drawn.
    """

    name: str
    call: Callable[..., Any]
    shapes: tuple[Spec, ...]
    grad: bool = True
    second: bool = True
    ints: bool = False
    zero: bool | str = True
    special: bool | tuple[int, ...] = True
    half: bool = True
    transposed: bool = True
    jit: bool = True
    why: str = ""
    tol: float = 1.0
    tol64: float = 1.0
    torch: Callable[..., Any] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        whole = (self.zero is True, self.special is True)
        ways = (*whole, self.half, self.transposed, self.jit)
        left_out = not all(ways) or (self.grad and not self.second)
        assert not left_out or self.why, f"{self.name}: say why a check is left out"
        assert isinstance(self.shapes, tuple), f"{self.name}: shapes is a tuple"
        assert not self.grad or any(spec.grad for spec in self.specs), f"{self.name}: no floats"

    @property
    def specs(self) -> tuple[In | Index | Bool, ...]:
        """The operands."""
        return tuple(In(s) if isinstance(s, str) else s for s in self.shapes)

    @property
    def floats(self) -> bool:
        """Whether any operand is of floats."""
        return any(spec.floats for spec in self.specs)

    def peer(self, torch: Any, *tensors: Any) -> Any:
        """What torch computes."""
        return (self.torch or self.call)(torch, *tensors)


def method(name: str, *args: Any, **options: Any) -> Callable[..., Any]:
    """A call of a method: ``x.name(y, ..., *args, **options)``."""
    return lambda k, x, *others: getattr(x, name)(*others, *args, **options)


class _Methods:
    """Methods of Tensor, called as functions."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda x, *args, **options: getattr(x, name)(*args, **options)


def functions(k: Any) -> Any:
    """The functions of torch that are methods of Tensor here: those of torch.nn.functional."""
    return k.nn.functional if k.__name__ == "torch" else _Methods()


def letters(row: Row) -> list[str]:
    """The letters of the shapes of a row."""
    words: list[str] = []
    for spec in row.specs:
        words += spec.shape.split()
        words += [spec.below] if isinstance(spec, Index) else []
    return list(dict.fromkeys(w for w in words if not w.isdigit()))


def sizes(row: Row, **given: int) -> dict[str, int]:
    """A size for each letter: those `given`, those of the row, the others drawn."""
    rng = np.random.default_rng(zlib.crc32(row.name.encode()))
    names = letters(row)
    drawn = [int(n) for _ in range(0, len(names), len(SIZES)) for n in rng.permutation(SIZES)]
    return {**dict(zip(names, drawn, strict=False)), **row.sizes, **given}


def draw(row: Row, of: Mapping[str, int], seed: int = 0) -> list[Array]:
    """Operands in float64, int64 and bool."""
    rng = np.random.default_rng([seed, zlib.crc32(row.name.encode())])
    return [_operand(rng, spec, of) for spec in row.specs]


def _operand(rng: np.random.Generator, spec: In | Index | Bool, of: Mapping[str, int]) -> Array:
    shape = tuple(_size(word, of) for word in spec.shape.split())
    if isinstance(spec, Bool):
        return np.asarray(rng.random(shape) < 0.5)
    if isinstance(spec, Index):
        return _indices(rng, spec, shape, _size(spec.below, of))
    # Numbers of float32: the same in both types, and hence the results comparable.
    return np.asarray(rng.uniform(spec.low, spec.high, shape), np.float32).astype(np.float64)


def _indices(rng: np.random.Generator, spec: Index, shape: tuple[int, ...], below: int) -> Array:
    if below <= spec.low:
        return np.zeros(shape, np.int64)  # there is none to point at
    if not spec.distinct:
        return np.asarray(rng.integers(spec.low, below, shape))
    lines = math.prod(shape[:-1])
    of_line = [rng.permutation(np.arange(spec.low, below))[: shape[-1]] for _ in range(lines)]
    return np.array(of_line, np.int64).reshape(shape)


def _size(word: str, of: Mapping[str, int]) -> int:
    return int(word) if word.isdigit() else of[word]


def as_integers(row: Row, arrays: Sequence[Array], signed: bool) -> list[Array]:
    """Small integers in the place of the floats, from the same intervals, not below zero if not
    `signed`.
    """
    out = []
    for spec, array in zip(row.specs, arrays, strict=True):
        whole = array
        if isinstance(spec, In):
            low, high = math.ceil(spec.low), math.floor(spec.high)
            whole = np.clip(np.rint(array * 2), low, max(low, high)).astype(np.int64)
            whole = whole if signed else np.abs(whole)
        out.append(whole)
    return out


def sprinkled(row: Row, arrays: Sequence[Array], values: Sequence[float], seed: int) -> list[Array]:
    """The floats with half of them replaced by `values`, the first of which always occur."""
    rng = np.random.default_rng([seed, zlib.crc32(row.name.encode())])
    out = []
    for i, array in enumerate(arrays):
        mixed = array.copy()
        if array.dtype.kind == "f" and (row.special is True or i in row.special):
            places = rng.permutation(array.size)[: (array.size + 1) // 2]
            mixed.reshape(-1)[places] = np.resize(values, len(places))
        out.append(mixed)
    return out


def tables() -> Iterator[tuple[str, Row]]:
    """Every row with the name of its table."""
    from surface import tables as package

    for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
        rows = importlib.import_module(f"surface.tables.{module}").ROWS
        names = [row.name for row in rows]
        twice = {name for name in names if names.count(name) > 1}
        assert not twice, f"{module}: rows named alike: {sorted(twice)}"
        yield from ((module, row) for row in rows)

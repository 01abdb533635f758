"""Rows: the one table of ops. Every test that runs all ops takes them from here.

A row is one way of calling an op. A table is a module of `tables/` with a list ``ROWS``. A new op
needs one row:

    from surface.rows import Index, Row, each

    ROWS = [
        Row("logaddexp", "x.logaddexp(y)", ("...", "...")),
        Row("index_select", "x.index_select(0, i)", ("n c", Index("m", "n")), ints=True),
        *each("x.sum({d}, {k}); x.prod({d}, {k})", "...", ints=True),
    ]

The call is text which means the same to kernelrt and to torch: `T` is the library, ``F.f(x)`` the
activation, loss or layer called f, and single letters are the operands in the order in which they
appear. Letters of shapes are sizes. ``...`` stands for any number of axes; operands that have
no others broadcast. :data:`WORDS` lists the words in braces, which stand for drawn arguments.

The rows serve

- the grid of `tests/surface`: each row in every type, at the edges, in a jit, against torch;
- `tests/ops/test_cases.py` and its neighbours: rows of ops that `tests/support/numpy_truth.py`
  has, without torch;
- `tests/support/op_cases.py`: random calls, which draw sizes, layouts, types, values and words;
- `tests/soak/grammar.py`: lines of random programs, whose operands are what the program has.
"""

from __future__ import annotations

import ast
import functools
import importlib
import math
import pkgutil
import re
import warnings
import zlib
from dataclasses import dataclass, field, replace
from functools import cached_property
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
    "each",
    "function",
    "functions",
    "leaves",
    "letters",
    "method",
    "settled",
    "sizes",
    "tables",
    "templates",
    "true_rows",
]

#: Sizes that letters are drawn from, without repetition as long as it lasts.
SIZES = (2, 3, 4, 5)
#: Axes that ``...`` stands for in the grid, and the letters of these axes.
RANK, AXES = 2, "ABCDE"
WORD = re.compile(r"\{([a-z]+)\}")
NUMBERS = ("2", "-1", "0.1", "3", "0.5", "-2.5", "1e4", "7", "0", "1", "float('inf')", "1e-6",
           "100", "np.float32(1.5)", "np.int64(3)", "np.float64(0.3)", "-0.0")  # fmt: skip


@dataclass(frozen=True)
class In:
    """Uniform floats from an interval. A plain string is ``In(shape)``, from -2 to 2.

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
    op : str or callable
        The call as text; or ``op(k, *tensors)`` where `k` is kernelrt or torch. Gives a tensor, a
        number, or tuples, lists and dicts of such.
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
    torch : str or callable, optional
        The call of torch where it is another.
    sizes : mapping of str to int
        Sizes of letters that are not drawn.
    grid : bool
        Whether the grid runs the row. False for a template whose cases are separate rows.
    kinds : str
        The types of random calls: f(loats), n (floats but float64, where torch has few digits),
        i(ntegers), b(ools); "f", or "fi" if `ints`, if empty.
    values : str
        What random calls draw numbers from: "unit" (of size one, and within the intervals), "ties"
        (few, many of them equal), "apart" (all different), "any" (of any size, infinities and NaN
        among them), "nonzero", or "shift" (integers less than the width of their type).
    most : int
        The greatest size that random calls draw.
    """

    name: str
    op: str | Callable[..., Any]
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
    torch: str | Callable[..., Any] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    grid: bool = True
    kinds: str = ""
    values: str = "unit"
    most: int = 65

    def __post_init__(self) -> None:
        whole = (self.zero is True, self.special is True)
        ways = (*whole, self.half, self.transposed, self.jit)
        left_out = self.grid and (not all(ways) or (self.grad and not self.second))
        assert not left_out or self.why, f"{self.name}: say why a check is left out"
        assert isinstance(self.shapes, tuple), f"{self.name}: shapes is a tuple"
        assert not self.grad or any(spec.grad for spec in self.specs), f"{self.name}: no floats"
        if isinstance(self.op, str):
            names = self.operands
            rest = ", ".join(names[1:])
            line = self.op.replace("*others", rest)
            line = line.replace("(, ", "(").replace(", , ", ", ").replace(", )", ")")
            object.__setattr__(self, "op", line)
            assert len(names) == len(self.shapes), f"{self.name}: operands {names}"

    @property
    def specs(self) -> tuple[In | Index | Bool, ...]:
        """The operands."""
        return tuple(In(s) if isinstance(s, str) else s for s in self.shapes)

    @property
    def floats(self) -> bool:
        """Whether any operand is of floats."""
        return any(spec.floats for spec in self.specs)

    @cached_property
    def operands(self) -> list[str]:
        """The letters of the operands, in the order of `shapes`."""
        assert isinstance(self.op, str)
        if "*others" in self.op:
            return list("xyzwuvst"[: len(self.shapes)])
        tree = ast.parse(WORD.sub("0", self.op), mode="eval")
        found = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and len(n.id) == 1]
        found.sort(key=lambda n: n.col_offset)
        bound = {n.id for n in found if isinstance(n.ctx, ast.Store)}
        return list(dict.fromkeys(n.id for n in found if n.id.islower() and n.id not in bound))

    def call(self, k: Any, *tensors: Any) -> Any:
        """What the library `k` computes."""
        return self._run(self.op, k, tensors)

    def peer(self, torch: Any, *tensors: Any) -> Any:
        """What torch computes."""
        return self._run(self.torch or self.op, torch, tensors)

    def truth(self, *arrays: Array) -> list[Any] | None:
        """The tensors and numbers that NumPy computes in float64, None where it has no such op."""
        from support.numpy_truth import NUMPY, Peer, peer

        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of no degrees of freedom, of empty means
                found = list(leaves(self.call(NUMPY, *map(peer, arrays))))
        except (AttributeError, TypeError):  # no such op, or not with these arguments
            return None
        return [x.array if isinstance(x, Peer) else x for x in found]

    def _run(self, op: str | Callable[..., Any], k: Any, tensors: Sequence[Any]) -> Any:
        if not isinstance(op, str):
            return op(k, *tensors)
        return _compiled(op, ("T", "F", *self.operands))(k, functions(k), *tensors)


@functools.cache
def _compiled(text: str, names: tuple[str, ...]) -> Callable[..., Any]:
    """A function of `names`."""
    found: Callable[..., Any] = eval(f"lambda {', '.join(names)}: {text}", {"np": np})  # noqa: S307
    return found


def leaves(out: Any) -> Iterator[Any]:
    """The tensors and numbers of what a row gives."""
    if isinstance(out, dict):
        for key in sorted(out):
            yield from leaves(out[key])
    elif isinstance(out, tuple | list):
        for item in out:
            yield from leaves(item)
    else:
        yield out


def method(name: str, *args: Any, **options: Any) -> str:
    """The text of a call of a method: ``x.name(y, ..., *args, **options)``."""
    return f"x.{name}({_arguments('*others', args, options)})"


def function(name: str, *args: Any, **options: Any) -> str:
    """The text of a call of a function: ``name(x, y, ..., *args, **options)``."""
    return f"{name}({_arguments('x, *others', args, options)})"


def each(lines: str, *shapes: Spec, label: str = "", **options: Any) -> list[Row]:
    """Rows that are named as their calls, which semicolons part."""
    calls = [line.strip() for line in lines.split(";")]
    return [Row(call + label, call, shapes, **options) for call in calls]


def _arguments(first: str, args: Sequence[Any], options: Mapping[str, Any]) -> str:
    """Arguments as text; infinity is no literal of Python's."""
    texts = [repr(a) for a in args] + [f"{k}={v!r}" for k, v in options.items()]
    return ", ".join([first, *(re.sub(r"\binf\b", "float('inf')", t) for t in texts)])


class Methods:
    """Methods as functions: ``Methods().add(x, y)`` is ``x.add(y)``."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda x, *args, **options: getattr(x, name)(*args, **options)


def functions(k: Any) -> Any:
    """The functions of torch that are methods of Tensor here: those of torch.nn.functional."""
    return k.nn.functional if k.__name__ == "torch" else Methods()


def _axis(rng: np.random.Generator, rank: int) -> int:
    return int(rng.integers(-rank, rank)) if rank else 0


def _axes(rng: np.random.Generator, rank: int) -> int | tuple[int, ...] | None:
    one, other = _axis(rng, rank), _axis(rng, rank)
    some = tuple(sorted({one % rank, other % rank})) if rank else ()
    choices = (one, some, None)
    return choices[rng.integers(len(choices))]


#: Placeholders of templates, written in braces: name to ``draw(rng, rank of the first operand)``.
WORDS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "d": _axis,  # an axis
    "e": _axis,  # another axis
    "u": lambda rng, rank: rng.integers(-rank - 1, rank + 1),  # the position of a new axis
    "ds": _axes,  # one axis, several, or None for all
    "k": lambda rng, _: bool(rng.integers(2)),  # keepdim
    "o": lambda rng, _: rng.integers(0, 2),  # a correction
    "s": lambda rng, _: rng.integers(-2, 3),  # a shift
    "c": lambda rng, _: NUMBERS[rng.integers(len(NUMBERS))],  # a scalar
    "r": lambda rng, _: repr(str(rng.choice(["mean", "sum", "none"]))),  # a reduction
    "n": lambda rng, _: rng.integers(1, 4),  # the size of a window
    "t": lambda rng, _: rng.integers(1, 4),  # its stride
    "p": lambda rng, _: rng.integers(0, 3),  # its padding
    "q": lambda rng, _: rng.integers(1, 3),  # its dilation
}


def settled(row: Row, rng: np.random.Generator, rank: int = RANK, spread: bool = False) -> Row:
    """A row without words and without ``...``, which stands for `rank` axes.

    If `spread`, some of these axes are 1 or are not there, in operands that have no others.
    """
    if isinstance(row.op, str) and (WORD.search(row.op) or "..." in repr(row.shapes)):
        shapes = tuple(_with_axes(spec, rng, rank, spread) for spec in row.shapes)
        first = Row("", row.op, shapes, grad=False).specs[0].shape.split()
        words = {word: draw(rng, len(first)) for word, draw in WORDS.items()}
        texts = {
            name: WORD.sub(lambda m: str(words[m[1]]), text)
            for name in ("op", "torch")
            if isinstance(text := getattr(row, name), str)
        }
        return replace(row, shapes=shapes, **texts)
    return row


def _with_axes(spec: Spec, rng: np.random.Generator, rank: int, spread: bool) -> Spec:
    shape = spec if isinstance(spec, str) else spec.shape
    if "..." not in shape:
        return spec
    axes = list(AXES[:rank])
    if spread and shape == "..." and rng.integers(2):
        axes = ["1" if rng.integers(4) == 0 else axis for axis in axes]
        axes = axes[rng.integers(rank + 1) :] if rng.integers(3) == 0 else axes
    shape = shape.replace("...", " ".join(axes)).strip()
    return shape if isinstance(spec, str) else replace(spec, shape=shape)


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
    if isinstance(spec, Bool):
        return np.asarray(rng.random(shape(spec, of)) < 0.5)
    if isinstance(spec, Index):
        return indices(rng, spec, shape(spec, of), of)
    # Numbers of float32: the same in both types, and hence the results comparable.
    drawn = rng.uniform(spec.low, spec.high, shape(spec, of))
    return np.asarray(drawn, np.float32).astype(np.float64)


def shape(spec: In | Index | Bool, of: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an operand."""
    return tuple(size(word, of) for word in spec.shape.split())


def indices(
    rng: np.random.Generator, spec: Index, shape: tuple[int, ...], of: Mapping[str, int]
) -> Array:
    """Integers of a shape."""
    below = size(spec.below, of)
    if below <= spec.low:
        return np.zeros(shape, np.int64)  # there is none to point at
    if not spec.distinct:
        return np.asarray(rng.integers(spec.low, below, shape))
    lines = math.prod(shape[:-1])
    of_line = [rng.permutation(np.arange(spec.low, below))[: shape[-1]] for _ in range(lines)]
    return np.array(of_line, np.int64).reshape(shape)


def fits(spec: In | Index | Bool, of: Mapping[str, int]) -> bool:
    """Whether there are as many different integers as an operand has."""
    if not isinstance(spec, Index) or not spec.distinct:
        return True
    return shape(spec, of)[-1] <= size(spec.below, of) - spec.low


def size(word: str, of: Mapping[str, int]) -> int:
    """The size that a letter or a number stands for."""
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


@functools.cache
def templates() -> tuple[tuple[str, Row], ...]:
    """Every row as it is written, with the name of its table."""
    from surface import tables as package

    found = []
    for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
        rows = importlib.import_module(f"surface.tables.{module}").ROWS
        names = [row.name for row in rows]
        twice = {name for name in names if names.count(name) > 1}
        assert not twice, f"{module}: rows named alike: {sorted(twice)}"
        found += [(module, row) for row in rows]
    return tuple(found)


@functools.cache
def true_rows() -> tuple[tuple[str, Row], ...]:
    """The rows that NumPy has a truth of, with the names of their tables."""
    return tuple((t, r) for t, r in tables() if r.truth(*draw(r, sizes(r))) is not None)


def tables() -> Iterator[tuple[str, Row]]:
    """Every row with the name of its table, with words and axes that are always the same."""
    for module, row in templates():
        if not row.grid:
            continue
        rng = np.random.default_rng(zlib.crc32(row.name.encode()))
        yield module, settled(row, rng)

"""Lines of random programs: rows of `tests/surface/tables` over the values of a program.

torch decides whether a line fits: it is drawn, tried, and dropped if torch refuses it.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if str(Path(__file__).parents[1]) not in sys.path:
    sys.path.insert(0, str(Path(__file__).parents[1]))  # tests/surface is imported as `surface`

from surface import rows
from surface.rows import Bool, In, Index

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from surface.rows import Row

Shape = tuple[int, ...]

#: Maximum number of rows to try for a line.
TRIES = 20
#: Calls that depend on more than numbers, or change the program's common type.
_OTHERS = re.compile(
    r"np\.|bitcast|nextafter|frexp|element_size|histogram|half|float|double|\.to\(|\.type\("
)


@functools.cache
def lines() -> tuple[Row, ...]:
    """Return the rows that can be lines: text for both libraries, of floats, and exact."""
    return tuple(
        row for table, row in rows.templates()
        if isinstance(row.op, str) and row.torch is None and row.jit and row.transposed
        and "f" in (row.kinds or "f") and any(spec.floats for spec in row.specs)
        and row.tol <= 8 and row.tol64 == 1 and table not in ("linalg", "dropping")
        and row.values != "apart"  # torch does not specify the choice among equal elements
        and row.name != "ldexp_below_0"  # torch computes its gradient with 2 ** y in integers
        and not _OTHERS.search(row.op)
    )  # fmt: skip


def draw(rng: np.random.Generator, names: list[str], shape: Callable[[str], Any]) -> str:
    """Draw the right side of a line over `names`, later ones more often."""
    for _ in range(TRIES):
        row = lines()[rng.integers(len(lines()))]
        line = _Line(rng, {name: tuple(shape(name)) for name in names}).of(row)
        if line is not None:
            return line
    return names[-1]


@dataclass
class _Line:
    """A row over the tensors of a program."""

    rng: np.random.Generator
    shapes: dict[str, Shape]

    def of(self, row: Row) -> str | None:
        """Return the line; None if there are no operands for it."""
        first = next(i for i, spec in enumerate(row.specs) if spec.floats)
        name = self._pick(list(self.shapes))
        words = row.specs[first].shape.split()
        rank = len(self.shapes[name]) - sum(word != "..." for word in words)
        if rank < 0 or (rank and "..." not in words):
            return None
        plain = rows.settled(row, self.rng, min(rank, len(rows.AXES)))
        sizes: dict[str, int] = {}
        if not _bind(plain.specs[first].shape, self.shapes[name], sizes):
            return None
        operands = []
        for i, (spec, written) in enumerate(zip(plain.specs, row.specs, strict=True)):
            chosen = name if i == first else None
            text = self._operand(spec, chosen, sizes, anything=written.shape == "...")
            if text is None:
                return None
            operands.append(text)
        assert isinstance(plain.op, str)
        return _put(plain.op, plain.operands, operands)

    def _pick(self, names: list[str]) -> str:
        return names[-1 - min(int(self.rng.geometric(0.35)) - 1, len(names) - 1)]

    def _operand(
        self, spec: In | Index | Bool, name: str | None, sizes: dict[str, int], *, anything: bool
    ) -> str | None:
        if isinstance(spec, Index):
            return self._indices(spec, sizes)
        if name is None:
            fitting = [
                other for other, shape in self.shapes.items()
                if anything or _bind(spec.shape, shape, dict(sizes))
            ]  # fmt: skip
            name = self._pick(fitting) if fitting else self._made(spec.shape, sizes)
            if fitting and not anything:
                _bind(spec.shape, self.shapes[name], sizes)
        if isinstance(spec, Bool):
            return f"({name} > 0.25)"
        low, high = spec.low, spec.high
        if low <= -2 and high >= 2:
            return name
        return f"({name}.abs() + {low})" if low > 0 and high > 2 else f"{name}.clamp({low}, {high})"

    def _shape(self, words: str, sizes: dict[str, int]) -> Shape:
        """Return the shape of an operand; letters without a size get a small one."""
        for word in words.split():
            if not word.isdigit():
                sizes.setdefault(word, int(self.rng.integers(1, 4)))
        return tuple(int(w) if w.isdigit() else sizes[w] for w in words.split())

    def _made(self, words: str, sizes: dict[str, int]) -> str:
        """Return a tensor of few distinct numbers, if the program has none that fits."""
        shape = self._shape(words, sizes)
        return f"(T.arange({math.prod(shape)}).reshape({shape}) % 7 * 0.25 - 0.5)"

    def _indices(self, spec: Index, sizes: dict[str, int]) -> str | None:
        shape = self._shape(f"{spec.shape} {spec.below}", sizes)[:-1]
        if not rows.fits(spec, sizes) or rows.size(spec.below, sizes) <= spec.low:
            return None
        found = rows.indices(self.rng, spec, shape, sizes)
        kind = "" if found.size else ", dtype=T.int64"  # an empty list makes a float tensor
        return f"T.tensor({found.tolist()}{kind})"


def _bind(words: str, shape: Shape, sizes: dict[str, int]) -> bool:
    """Return whether a shape matches `words`, and bind the letters to its sizes."""
    parts = words.split()
    return len(parts) == len(shape) and all(
        int(word) == n if word.isdigit() else sizes.setdefault(word, n) == n
        for word, n in zip(parts, shape, strict=True)
    )


def _put(line: str, letters: list[str], operands: list[str]) -> str:
    """Return a line with operands in place of letters."""
    of = dict(zip(letters, operands, strict=True))
    return re.sub(r"(?<![\w.])([a-z])(?![\w=(])", lambda m: of.get(m[1], m[1]), line)

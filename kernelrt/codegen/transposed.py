"""Blocks of memory loaded by rows and had by columns: shuffles of registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.codegen.llvm import Value

if TYPE_CHECKING:
    from kernelrt.codegen.llvm import Text

__all__ = ["transpose"]

#: A vector, and which (row, column) of a block each of its lanes holds.
_Labelled = tuple[Value, list[tuple[int, int]]]


def transpose(text: Text, rows: list[Value]) -> list[Value]:
    """Columns of a block given by rows; the number of columns is a power of two.

    Each round puts the even lanes of two neighbouring rows into one vector and the odd lanes
    into another. That moves the lowest bit of the column number from the lanes to the
    vectors, and the lowest bit of the row number to the top of the lanes.
    """
    height, width = len(rows), rows[0].lanes
    full = 1 << (height - 1).bit_length()
    block = [(row, [(r, c) for c in range(width)]) for r, row in enumerate(rows)]
    block += [(rows[-1], [(r, c) for c in range(width)]) for r in range(height, full)]
    for _ in range(min(full, width).bit_length() - 1):
        block = _round(text, block, 0) + _round(text, block, 1)
    return [_column(text, block, c, height) for c in range(width)]


def _round(text: Text, block: list[_Labelled], parity: int) -> list[_Labelled]:
    out = []
    for (a, names_a), (b, names_b) in zip(block[0::2], block[1::2], strict=True):
        lanes = range(parity, a.lanes, 2)
        picked = text.shuffle(a, b, [*lanes, *(a.lanes + i for i in lanes)])
        out.append((picked, [names_a[i] for i in lanes] + [names_b[i] for i in lanes]))
    return out


def _column(text: Text, block: list[_Labelled], column: int, height: int) -> Value:
    """One column, from the few vectors that hold its parts."""
    parts = []
    for value, names in block:
        lanes = [i for i, (r, c) in enumerate(names) if c == column and r < height]
        if lanes:
            whole = lanes == list(range(value.lanes))
            part = value if whole else text.shuffle(value, None, lanes)
            parts.append((names[lanes[0]][0], part))
    vectors = [part for _, part in sorted(parts, key=lambda p: p[0])]
    while len(vectors) > 1:
        vectors = [
            _join(text, *vectors[i : i + 2]) if i + 1 < len(vectors) else vectors[i]
            for i in range(0, len(vectors), 2)
        ]
    return vectors[0]


def _join(text: Text, a: Value, b: Value) -> Value:
    """Two vectors end to end."""
    lanes = max(a.lanes, b.lanes)
    if lanes == 1:
        return text.pack([a, b])
    first, second = _extend(text, a, lanes), _extend(text, b, lanes)
    picks = [*range(a.lanes), *(lanes + i for i in range(b.lanes))]
    return text.shuffle(first, second, picks)


def _extend(text: Text, value: Value, lanes: int) -> Value:
    if value.lanes == lanes:
        return value
    if value.lanes == 1:
        return text.splat(value, lanes)
    open_lanes = [-1] * (lanes - value.lanes)
    return text.shuffle(value, None, [*range(value.lanes), *open_lanes])

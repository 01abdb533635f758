"""Transposes blocks of registers by vector shuffles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.backend.llvm.llvm_types import Value

if TYPE_CHECKING:
    from kernelrt.backend.llvm.llvm_types import Text

__all__ = ["transpose"]

#: Bytes of a 128-bit part of a register; most shuffles stay within parts.
_PART = 16
#: A vector, and the (row, column) of a block that each of its lanes holds.
_Labelled = tuple[Value, list[tuple[int, int]]]


def transpose(text: Text, rows: list[Value]) -> list[Value]:
    """Transpose a block that is given by its rows. The number of columns must be a power of two.

    Each round combines each pair of adjacent vectors into two new ones. After a round, the number
    of a vector contains one bit of the column number, and the number of a lane contains the lowest
    bit of the row number. The first rounds move elements within 128-bit parts. Later rounds move
    whole parts. Processors have instructions for both.
    """
    height, width = len(rows), rows[0].lanes
    full = 1 << (height - 1).bit_length()
    block = [(row, [(r, c) for c in range(width)]) for r, row in enumerate(rows)]
    block += [(rows[-1], [(r, c) for c in range(width)]) for r in range(height, full)]
    part = min(width, _PART // rows[0].dtype.accumulator.itemsize)
    rounds = min(full, width).bit_length() - 1
    for number in range(rounds):
        picks = _side_by_side(width, part, 1 << number)
        if 1 << number >= part:
            picks = _whole_parts(width, part)
        block = [pair for pick in picks for pair in _round(text, block, pick)]
        if rounds > 1 and number + 1 == (rounds + 1) // 2 and rows[0].dtype.is_float:
            # LLVM searches for one shuffle that replaces several, in vain. The fence avoids that:
            # the search takes half of a block's compile time.
            block = [(text.fence(value), names) for value, names in block]
    return [_column(text, block, c, height) for c in range(width)]


def _side_by_side(width: int, part: int, size: int) -> tuple[list[int], list[int]]:
    """Return two lists of lanes that interleave two vectors, `size` lanes at a time.

    The first list interleaves the first halves of all parts, the second list the second halves.
    Lanes of the second vector are numbered from `width` on.
    """
    halves = []
    for half in (0, part // 2):
        inside = range(half, half + part // 2, size)
        starts = [at + i for at in range(0, width, part) for i in inside]
        halves.append(
            [vector + start + i for start in starts for vector in (0, width) for i in range(size)]
        )
    return halves[0], halves[1]


def _whole_parts(width: int, part: int) -> tuple[list[int], list[int]]:
    """Return the lanes of the even parts of two vectors, and those of their odd parts."""
    first = [at + i for at in range(0, 2 * width, 2 * part) for i in range(part)]
    return first, [lane + part for lane in first]


def _round(text: Text, block: list[_Labelled], picks: list[int]) -> list[_Labelled]:
    out = []
    for (a, names_a), (b, names_b) in zip(block[0::2], block[1::2], strict=True):
        names = names_a + names_b
        out.append((text.shuffle(a, b, picks), [names[lane] for lane in picks]))
    return out


def _column(text: Text, block: list[_Labelled], column: int, height: int) -> Value:
    """Assemble one column from the vectors that hold its parts."""
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
    """Concatenate two vectors."""
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

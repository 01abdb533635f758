"""Local arrays of kernels: their elements, order and memory limits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from kernelrt import dtype as dt
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.uop import UOp, const

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.dtype import DType

__all__ = [
    "BLOCK_BYTES", "LOCAL_BYTES", "LONG_ROW", "ROWS_BYTES", "RowBlock", "flat_index", "local_bytes",
    "local_itemsize", "most_elements", "row_blocks",
]  # fmt: skip

#: Bytes that the local arrays of one kernel may take together, unless one of the following says
#: more. They lie on the stack of the thread that runs it, and in the cache of its core.
#: `ProgramSpec.stack_bytes` tells the plan, which calls its kernels elsewhere where a thread has
#: too little left.
LOCAL_BYTES: Final = 256 * 1024

#: The same of a block of sums, and of the parts of both operands that are copied for it.
BLOCK_BYTES: Final = 512 * 1024

#: The same where a contraction walks the rows that they hold: all of a long row has to be there.
ROWS_BYTES: Final = 4 * 1024 * 1024

#: Elements from which rows that a contraction walks are computed in blocks of several. For
#: attention of 8 heads of 64 on one core blocks take 0.74 to 0.87 of the time at length 512, 0.76
#: at 1024 and 0.34 at 2048; with its gradient 1.01 at 512 and 0.94 at 1024
#: (`bench.rows.attention`).
LONG_ROW: Final = 512
#: Rows of a block, and elements of each that one part has, the largest first. What is taken of them
#: is what the caches hold (`tile_rows.HELD`). A causal mask leaves whole parts out: of 512 elements
#: parts of 256 compute three quarters, of 128 five eighths; without a mask both take as long.
_BLOCKS: Final = (64, 32, 16)
_PARTS: Final = (128, 64)


class RowBlock(NamedTuple):
    """Rows of a block, and how much of the depth one part is."""

    rows: int
    part: int


def row_blocks(rows: int, depth: int, lanes: int) -> list[RowBlock]:
    """Blocks in which so many rows are computed that a contraction walks, the largest first.

    None where they are too short, or do not come out even.

    Parameters
    ----------
    rows, depth : int
        How many there are, and their elements.
    lanes : int
        Elements of a vector, which goes across rows.
    """
    if depth < LONG_ROW:
        return []
    return [
        RowBlock(high, part)
        for high in _BLOCKS
        for part in _PARTS
        if rows % high == 0 and depth % part == 0 and high % lanes == 0
    ]


def local_itemsize(dtype: DType) -> int:
    """Bytes of an element of a local array: the narrow floats stay as wide as in a register."""
    return 4 if dtype.is_float and dtype.itemsize < 4 else dtype.itemsize


def most_elements(ranges: Iterable[UOp]) -> int:
    """The greatest number of elements of an array over `ranges`."""
    return math.prod(max(0, r.src[0].vmax) for r in ranges)


def local_bytes(dtype: DType, ranges: Iterable[UOp]) -> int:
    """Bytes that a LOCAL of values of `dtype` over its own `ranges` takes at most."""
    return local_itemsize(dtype) * most_elements(ranges)


def flat_index(ranges: Sequence[UOp]) -> UOp:
    """The row-major index of the element of an array over `ranges` that they are at."""
    total = const(0, dt.int64)
    for r in ranges:
        total = total * r.src[0] + r
    return simplify(total)

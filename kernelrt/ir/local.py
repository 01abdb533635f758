"""Local arrays of kernels: elements, layout and memory limits."""

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

#: Maximum total bytes of the local arrays of one kernel, except for the cases below. They lie on
#: the stack of the running thread and should fit the cache of its core. `ProgramSpec.stack_bytes`
#: tells the plan their size; the plan runs the kernel on another thread if the stack is too small.
LOCAL_BYTES: Final = 256 * 1024

#: Maximum bytes of the local arrays of a matrix product that is computed in blocks: a block of sums
#: and the copied (packed) parts of both operands.
BLOCK_BYTES: Final = 512 * 1024

#: Maximum bytes of the local arrays if a contraction iterates over rows in them, because such
#: arrays hold entire long rows.
ROWS_BYTES: Final = 4 * 1024 * 1024

#: Minimum length of contracted rows that are computed in blocks of several rows, on a target with
#: many registers, and on one with few (`DeviceSpec.few_registers`). For attention of 8 heads of 64
#: on one core with AVX-512, blocks take 0.74 to 0.87 of the time at length 512, 0.76 at 1024 and
#: 0.34 at 2048; with its gradient 1.01 at 512 and 0.94 at 1024. With AVX2 they take 0.65 of the
#: time at length 256, 0.88 at 128 and 64 (`bench.rows.attention`).
LONG_ROW: Final = (512, 64)
#: The possible numbers of rows of a block, the largest first. The caches limit the choice
#: (`tile_rows.HELD`).
_BLOCKS: Final = ((64, 32, 16), (32, 16))
#: Number of elements of a row that are computed together (a part of the row). A causal mask skips
#: whole parts: of 512 elements, parts of 128 compute five eighths, parts of 64 nine sixteenths.
_PART: Final = (64, 32)


class RowBlock(NamedTuple):
    """Number of rows in a block, and number of elements of each row that are computed together."""

    rows: int
    part: int


def row_blocks(rows: int, depth: int, lanes: int, *, few_registers: bool) -> list[RowBlock]:
    """Return the possible blocks for rows that a contraction iterates over, the largest first.

    The list is empty if the rows are too short or no block divides them.

    Parameters
    ----------
    rows, depth : int
        Number of rows, and of elements in a row.
    lanes : int
        Number of vector lanes; a vector spans several rows.
    few_registers : bool
        Whether the target has few vector registers.
    """
    part = _PART[few_registers]
    if depth < LONG_ROW[few_registers] or depth % part:
        return []
    heights = (n for n in _BLOCKS[few_registers] if rows % n == 0 and n % lanes == 0)
    return [RowBlock(n, part) for n in heights]


def local_itemsize(dtype: DType) -> int:
    """Return the bytes of an element of a local array. Floats take at least 4, as in registers."""
    return 4 if dtype.is_float and dtype.itemsize < 4 else dtype.itemsize


def most_elements(ranges: Iterable[UOp]) -> int:
    """Return the maximum number of elements of an array over `ranges`."""
    return math.prod(max(0, r.src[0].vmax) for r in ranges)


def local_bytes(dtype: DType, ranges: Iterable[UOp]) -> int:
    """Return the maximum bytes of a LOCAL with elements of `dtype` over `ranges`."""
    return local_itemsize(dtype) * most_elements(ranges)


def flat_index(ranges: Sequence[UOp]) -> UOp:
    """Return the row-major index into an array over `ranges`, as an expression of them."""
    total = const(0, dt.int64)
    for r in ranges:
        total = total * r.src[0] + r
    return simplify(total)

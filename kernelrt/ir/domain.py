"""Checks of data values, and their encoding in the index of a BOUND.

A BOUND with a :class:`Domain` in its `arg` checks data instead of an index. If the data is valid,
the index of the BOUND lies within its axis, so the check passes. If a number is invalid, the index
is negative: it encodes the invalid number.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from kernelrt.ir.status import NUMBER_BITS

__all__ = ["CUT", "Domain", "decoded"]

#: The code of a float32 is -1 minus its bits. The code of a float64 is -1 - WIDE minus its bits
#: shifted right by CUT, so that the code fits a status word.
WIDE: Final = 1 << 32
CUT: Final = NUMBER_BITS + 2


@dataclass(frozen=True, slots=True)
class Domain:
    """The numbers that an argument of an operation may contain.

    Attributes
    ----------
    name : str
        Name of the argument.
    expected : str
        Description of the valid numbers.
    """

    name: str
    expected: str


def decoded(code: int) -> float:
    """Return the number that a code encodes."""
    bits = -1 - code
    value: float
    if bits < WIDE:
        (value,) = struct.unpack("<f", struct.pack("<I", bits))
        return float(f"{value:.7g}")
    (value,) = struct.unpack("<d", struct.pack("<Q", ((bits - WIDE) << CUT) & ((1 << 64) - 1)))
    # The lowest CUT bits are unknown: show no digits that depend on them.
    return float(f"{value:.12g}")

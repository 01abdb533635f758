"""Conditions on data, and their encoding in the index of a BOUND.

A BOUND that has a :class:`Domain` for its `arg` checks data. Where they are fine its index lies
within the axis; elsewhere it is the code of the number that is not, which is below 0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from kernelrt.ir.status import NUMBER_BITS

__all__ = ["CUT", "Domain", "decoded"]

#: The code of a float32 is -1 minus its bits, that of a float64 so much less, and without so many
#: of its lowest bits: then a status word has room for it.
WIDE: Final = 1 << 32
CUT: Final = NUMBER_BITS + 2


@dataclass(frozen=True, slots=True)
class Domain:
    """Which numbers an operation takes.

    Attributes
    ----------
    name : str
        The argument that holds them.
    expected : str
        What they have to be.
    """

    name: str
    expected: str


def decoded(code: int) -> float:
    """The number that a code stands for."""
    bits = -1 - code
    value: float
    if bits < WIDE:
        (value,) = struct.unpack("<f", struct.pack("<I", bits))
        return float(f"{value:.7g}")
    (value,) = struct.unpack("<d", struct.pack("<Q", ((bits - WIDE) << CUT) & ((1 << 64) - 1)))
    # Digits that were cut off would be made up.
    return float(f"{value:.12g}")

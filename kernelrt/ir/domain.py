"""Conditions on data, and how the index of a BOUND tells which number does not meet one.

A BOUND that has a :class:`Domain` for its `arg` checks data. Where they are fine its index lies
within the axis; elsewhere it is the code of the number that is not, which is below 0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from kernelrt.ir.status import NUMBER_BITS

__all__ = ["CUT", "Domain", "decoded"]

#: A code is -1 minus the bits of a float64 without so many of the lowest, all 0 in a float32: then
#: a status word has room for it.
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
    bits = ((-1 - code) << CUT) & ((1 << 64) - 1)
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    # Digits that were cut off would be made up.
    return float(f"{value:.12g}")

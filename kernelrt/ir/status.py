"""The status word of a kernel: how a failed check is encoded.

One word tells all, so that one store, from whichever thread, tells it consistently: the low eight
bits are 1 plus the number of the check (its BOUND's), the rest is the index as a signed number. A
kernel of the user's own may store any number but 0.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LARGEST", "LEAST", "MOST_CHECKS", "NUMBER_BITS", "unpack"]

NUMBER_BITS: Final = 8
#: Checks that can be told apart; those that come after them share the last number.
MOST_CHECKS: Final = (1 << NUMBER_BITS) - 1
#: Indices beyond these are reported as these.
LEAST: Final = -(1 << (63 - NUMBER_BITS))
LARGEST: Final = -LEAST - 1


def unpack(word: int) -> tuple[int, int]:
    """The number of the check, -1 for none, and the index."""
    return (word & MOST_CHECKS) - 1, word >> NUMBER_BITS

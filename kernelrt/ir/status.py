"""The status word of a kernel: how a failed check is encoded.

All information fits one word, so that one store from any thread writes it atomically. The low eight
bits are 1 plus the number of the failed check, which is the number of its BOUND. The other bits are
the signed index. A user's kernel may store any nonzero number.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DOMAIN", "INDEX", "LARGEST", "LEAST", "MOST_CHECKS", "NUMBER_BITS", "SOLVE", "unpack"]

#: Kinds of checks, as krt_check_kind in csrc/krt_model.h: an index is out of range, a value is
#: outside the domain of a function, a system has no solution.
INDEX, DOMAIN, SOLVE = range(3)

NUMBER_BITS: Final = 8
#: Maximum number of distinct checks; further checks share the last number.
MOST_CHECKS: Final = (1 << NUMBER_BITS) - 1
#: Reported indices are clamped to these.
LEAST: Final = -(1 << (63 - NUMBER_BITS))
LARGEST: Final = -LEAST - 1


def unpack(word: int) -> tuple[int, int]:
    """Return the number of the failed check (-1 for none) and the index that it reports."""
    return (word & MOST_CHECKS) - 1, word >> NUMBER_BITS

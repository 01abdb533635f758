"""Types of what tells where the routines of csrc/ are."""

from typing import Final

#: Name without the prefix ``krt_`` -> address.
ADDRESSES: Final[dict[str, int]]

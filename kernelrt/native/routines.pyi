"""Types of the addresses of the routines of csrc/."""

from typing import Final

#: Vector width in bits -> name without the prefix ``krt_`` -> address, for each width that this
#: processor supports. Width 128 always exists.
ADDRESSES: Final[dict[int, dict[str, int]]]
#: Address of the routine that calls a function for each of several rows, and the maximum number of
#: buffers of that function.
EACH: Final[int]
EACH_MOST: Final[int]

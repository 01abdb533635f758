"""Types of what tells where the routines of csrc/ are."""

from typing import Final

#: For each width of vectors, in bits, that this processor has: name without the prefix ``krt_`` ->
#: address. There is always one of 128.
ADDRESSES: Final[dict[int, dict[str, int]]]
#: Of what calls a function for each of several rows, and how many buffers that may have.
EACH: Final[int]
EACH_MOST: Final[int]

"""Types of the table of addresses of the C routines of csrc/."""

from typing import Final

#: For each vector width in bits that this processor supports: name without the prefix ``krt_`` ->
#: address. The width 128 is always present.
ADDRESSES: Final[dict[int, dict[str, int]]]
#: The same by name and width, as in "cholesky@256": the names in model files.
BY_NAME: Final[dict[str, int]]
#: Address of the routine that calls a function for each of several rows.
EACH: Final[int]
#: Maximum number of buffers of that function.
EACH_MOST: Final[int]

"""Types of argument specs, which replays compare with arguments in C."""

from collections.abc import Sequence
from typing import Final, TypeAlias

ARRAY: Final = 0
"""A NumPy array or an ArrayHandle of one dtype and shape: ``(ARRAY, dtype_code, shape, address,
sites[, lineage])``. The data are copied to `address`. If `sites` is not empty and the layout allows
it, they are bound instead: each site ``(op, slot, offset)`` is set to the data's address + offset
for the call. `lineage` is the maximum lineage of a handle that matches. NO_LINEAGE: no gradient
may flow into the handle; SEVERED: none may flow beyond it; WHOLE: any handle matches."""
FLOAT: Final = 1
"""A Python float as an input: ``(FLOAT, dtype_code, address)``, float32 or float64."""
STATIC: Final = 2
"""An argument that must be the object `value` or, if `by_value` is true, equal to it and of its
exact type: ``(STATIC, value, by_value)``."""

NO_LINEAGE: Final = 0
SEVERED: Final = 1
WHOLE: Final = 2

Site: TypeAlias = tuple[int, int, int]
InputSpec: TypeAlias = (
    tuple[int, int, tuple[int, ...], int, Sequence[Site]]
    | tuple[int, int, tuple[int, ...], int, Sequence[Site], int]
    | tuple[int, int, int]
    | tuple[int, object, bool]
)
Structure: TypeAlias = tuple[type, tuple[object, ...] | None, tuple[Structure | None, ...]]
"""``(type, keys, children)`` of a container. `keys` holds the keys of a dict; for a dataclass, the
names of its children, and (name, value) pairs of its other fields; else it is None. A child that is
None is a leaf. The outermost structure is the tuple of positional arguments."""

def value_key(value: object) -> tuple[object, ...]:
    """Return the comparison key of a static value: its type and value.

    Floats are compared by their digits: 0.0 and -0.0 differ, and NaN equals NaN. Items of tuples
    and frozensets are compared by their own keys.
    """

def plain_scalar(value: object) -> object:
    """Return a scalar of NumPy as an array, float, int or bool; any other value as it is.

    A floating-point scalar that is narrower than float64 becomes an array of its dtype.
    """

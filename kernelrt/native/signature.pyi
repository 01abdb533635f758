"""Types of the specs of arguments: what a replay takes, compared in C."""

from collections.abc import Sequence
from typing import Final, TypeAlias

ARRAY: Final = 0
"""A NumPy array or an ArrayHandle of one dtype and shape: ``(ARRAY, dtype_code, shape, address,
sites[, lineage])``. The data are copied to `address`, or, where `sites` is not empty and the layout
allows, bound: each site ``(op, slot, offset)`` gets the data's address + offset for the one call.
A handle that has more of a `lineage` does not match: NO_LINEAGE, where no gradient may be meant to
flow into it, SEVERED, where none may flow on from it, WHOLE, where that is all the same."""
FLOAT: Final = 1
"""A Python float that is an input: ``(FLOAT, dtype_code, address)``, float32 or float64."""
STATIC: Final = 2
"""An argument that must be an object, or where that is said, equal to it and of its exact type:
``(STATIC, value, by_value)``."""

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
"""``(type, keys, children)`` of a container: the keys of a dict; of a dataclass the names of its
children and pairs of the names of other fields and their values; else None. A child that is None
is a leaf. The outermost is the tuple of positional arguments."""

def value_key(value: object) -> tuple[object, ...]:
    """Return the key by which a value that is part of a program is compared: type and value.

    Floats are told apart by their digits: 0.0 and -0.0 differ, and NaN equals NaN. Items of tuples
    and frozensets are compared by keys of their own.
    """

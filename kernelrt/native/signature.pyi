"""Types of the specs of arguments that a replay takes, compared in C."""

from collections.abc import Sequence
from typing import Final, TypeAlias

ARRAY: Final = 0
"""A NumPy array or an ArrayHandle of one dtype and shape: ``(ARRAY, dtype_code, shape, address,
sites[, lineage])``. The data is copied to `address`, or bound if `sites` is not empty and the
layout allows it: each site ``(op, slot, offset)`` gets the data's address + offset for one call. A
handle with more autograd history than `lineage` does not match. NO_LINEAGE: no gradient flows into
it; SEVERED: gradients may flow into it but stop there; WHOLE: any history."""
FLOAT: Final = 1
"""A Python float that is an input: ``(FLOAT, dtype_code, address)``, float32 or float64."""
STATIC: Final = 2
"""An argument that must be the same object, or with `by_value` equal to it and of its exact type:
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
"""``(type, keys, children)`` of a container. `keys` are the keys of a dict; for a dataclass, the
names of its children and (name, value) pairs of its other fields; else None. A child that is None
is a leaf. The outermost container is the tuple of positional arguments."""

def value_key(value: object) -> tuple[object, ...]:
    """Return the comparison key of a static value: its type and value.

    Floats are compared by their bits: 0.0 and -0.0 differ, and NaN equals NaN. Items of tuples and
    frozensets have their own keys.
    """

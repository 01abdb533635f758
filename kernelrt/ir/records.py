"""Dataclasses as nested data (pytrees): their data fields, and how instances are rebuilt.

A field with metadata ``{"static": True}`` is part of the structure, like the type. The other fields
hold nested data. Instances are rebuilt without a call of ``__init__`` or ``__post_init__``. So this
also works for frozen classes, and for classes that check their values.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from kernelrt.dtype import DType

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["fields_of", "fixed_of", "is_record", "record"]

#: Attributes of array-like types, which are leaves.
_SHOWS_MEMORY = ("__array__", "__dlpack__", "__buffer__")


def is_record(value: object) -> bool:
    """Return whether `value` is a dataclass instance to traverse: no callable and no array."""
    kind = type(value)
    return (
        hasattr(kind, "__dataclass_fields__")
        and not issubclass(kind, DType | dict | list | tuple)
        and not callable(value)
        and not any(hasattr(kind, name) for name in _SHOWS_MEMORY)
    )


def fields_of(kind: type) -> tuple[str, ...]:
    """Return the names of the data fields."""
    return tuple(f.name for f in dataclasses.fields(kind) if not f.metadata.get("static"))


def fixed_of(value: Any) -> tuple[tuple[str, Any], ...]:
    """Return the names and values of the static fields."""
    fields = dataclasses.fields(value)
    return tuple((f.name, getattr(value, f.name)) for f in fields if f.metadata.get("static"))


def record(kind: type, fields: Iterable[tuple[str, Any]]) -> Any:
    """Return an instance with the given field values."""
    made: Any = object.__new__(kind)
    for name, value in fields:
        object.__setattr__(made, name, value)
    return made

"""Dataclasses as nested data: which fields hold data, and how an instance is rebuilt.

A field whose metadata say ``{"static": True}`` is part of the nesting, as the type is; the others
hold nested data. An instance is made again from its fields alone: ``__init__`` and
``__post_init__`` are not called, so that frozen classes and checks of values are no hindrance.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from kernelrt.dtype import DType

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["fields_of", "fixed_of", "is_record", "record"]

#: What shows memory, and so is one value itself.
_SHOWS_MEMORY = ("__array__", "__dlpack__", "__buffer__")


def is_record(value: object) -> bool:
    """Whether `value` is nested data of this kind: no module or function, and no array."""
    kind = type(value)
    return (
        hasattr(kind, "__dataclass_fields__")
        and not issubclass(kind, DType | dict | list | tuple)
        and not callable(value)
        and not any(hasattr(kind, name) for name in _SHOWS_MEMORY)
    )


def fields_of(kind: type) -> tuple[str, ...]:
    """The names of the fields that hold data."""
    return tuple(f.name for f in dataclasses.fields(kind) if not f.metadata.get("static"))


def fixed_of(value: Any) -> tuple[tuple[str, Any], ...]:
    """The names and values of the fields that are part of the nesting."""
    fields = dataclasses.fields(value)
    return tuple((f.name, getattr(value, f.name)) for f in fields if f.metadata.get("static"))


def record(kind: type, fields: Iterable[tuple[str, Any]]) -> Any:
    """An instance with these values of its fields."""
    made: Any = object.__new__(kind)
    for name, value in fields:
        object.__setattr__(made, name, value)
    return made

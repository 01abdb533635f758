"""Objects that hold others, seen alike: lists, dicts, sets, attributes, variables of functions."""

from __future__ import annotations

import types
from collections import deque
from typing import Any, Final

__all__ = ["NOTHING", "is_filled", "items", "put"]


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING: Final = _Nothing()


def items(holder: object) -> dict[Any, Any]:
    """What is in a container, by index, key or attribute."""
    if isinstance(holder, types.CellType):
        return {"": holder.cell_contents} if is_filled(holder) else {}
    if isinstance(holder, dict):
        return dict(holder)
    if isinstance(holder, list | tuple | deque):
        return dict(enumerate(holder))
    if isinstance(holder, set | frozenset):
        return {id(item): item for item in holder}
    slots = (n for base in type(holder).__mro__ for n in _slots(base))
    found = {n: getattr(holder, n) for n in slots if hasattr(holder, n)}
    attributes = getattr(holder, "__dict__", {})
    # What answers to any name, as wrappers of libraries do, has anything under this one.
    return found | attributes if isinstance(attributes, dict) else found


def _slots(base: type) -> tuple[str, ...]:
    names = vars(base).get("__slots__", ())
    names = (names,) if isinstance(names, str) else names
    return tuple(n for n in names if n not in ("__dict__", "__weakref__"))


def put(holder: Any, key: Any, value: object) -> None:
    """Let an item be what it was."""
    if isinstance(holder, types.CellType):
        if value is NOTHING:
            del holder.cell_contents
        else:
            holder.cell_contents = value
    elif isinstance(holder, set):
        if value is NOTHING:
            holder.discard(next((item for item in holder if id(item) == key), None))
        else:
            holder.add(value)
    elif isinstance(holder, dict):
        if value is NOTHING:
            holder.pop(key, None)
        else:
            holder[key] = value
    elif not isinstance(holder, list | deque):  # these are restored as a whole
        if key in getattr(holder, "__dict__", {}):
            put(holder.__dict__, key, value)
        elif value is not NOTHING:
            object.__setattr__(holder, key, value)
        else:
            object.__delattr__(holder, key)


def is_filled(cell: types.CellType) -> bool:
    """Whether the variable has a value."""
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True

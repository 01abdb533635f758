"""Uniform access to Python containers: lists, dicts, sets, attributes and closures.

Reading a user object runs as little of its code as possible: attributes are read from the memory
where Python stores them, bypassing ``__getattr__`` and properties.
"""

from __future__ import annotations

import inspect
import operator
import types
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kernelrt.errors import a_type

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["COLLECTIONS", "NOTHING", "Snapshot", "Where", "attributes", "is_a", "is_filled",
           "items", "put", "size", "text_of"]  # fmt: skip

COLLECTIONS = (dict, list, tuple, set, frozenset, deque)


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING: Final = _Nothing()


def is_a(value: object, kinds: type | tuple[type, ...]) -> bool:
    """Return whether `value` has one of these types, ignoring an overridden ``__class__``."""
    return issubclass(type(value), kinds)


def items(holder: Any) -> dict[Any, Any]:
    """Return the items of a container, by index, key or attribute."""
    if is_a(holder, types.CellType):
        return {"": holder.cell_contents} if is_filled(holder) else {}
    if is_a(holder, dict):
        return dict(holder)
    if is_a(holder, (list, tuple, deque)):
        return dict(enumerate(list(holder)))  # list() copies in one step, safe from other threads
    if is_a(holder, (set, frozenset)):
        return {id(item): item for item in list(holder)}
    found = {}
    for base in type(holder).__mro__:
        if "__slots__" not in vars(base):
            continue
        for name, member in vars(base).items():
            if type(member) is types.MemberDescriptorType and name not in found:
                try:
                    found[name] = member.__get__(holder)
                except AttributeError:  # this slot has no value
                    continue
    return found | (attributes(holder) or {})


def attributes(holder: object) -> dict[str, Any] | None:
    """Return the attribute dict of an object, or None if it has none."""
    try:
        found = object.__getattribute__(holder, "__dict__")
    except AttributeError:
        return None
    # Objects that answer to any name, such as wrappers of libraries, may return something else.
    return found if type(found) is dict else None


def size(holder: Any) -> int:
    """Return the number of items in :func:`items`, without those in slots."""
    return len(holder if is_a(holder, COLLECTIONS) else attributes(holder) or ())


def put(holder: Any, key: Any, value: object) -> None:
    """Set an item of a container to `value`; delete it if `value` is NOTHING."""
    if isinstance(holder, types.CellType):
        if value is NOTHING:
            del holder.cell_contents
        else:
            holder.cell_contents = value
    elif isinstance(holder, set):
        if value is NOTHING:
            set.discard(holder, next((item for item in holder if id(item) == key), None))
        else:
            set.add(holder, value)
    elif isinstance(holder, dict):
        if value is NOTHING:
            dict.pop(holder, key, None)
        else:
            dict.__setitem__(holder, key, value)
    elif isinstance(holder, list):
        if value is not NOTHING:
            list.__setitem__(holder, key, value)
    elif not isinstance(holder, deque):
        held = attributes(holder)
        if held is not None and key in held:
            put(held, key, value)
        elif value is not NOTHING:
            object.__setattr__(holder, key, value)
        else:
            object.__delattr__(holder, key)


def is_filled(cell: types.CellType) -> bool:
    """Return whether the variable has a value."""
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True


class Snapshot:
    """A container that the walk visited: its path, and its items at that time."""

    __slots__ = ("before", "holder", "where")

    def __init__(self, where: Where, holder: object) -> None:
        self.where = where
        self.holder = holder
        self.before = items(holder)

    def changes(self) -> Iterator[tuple[object, object, object]]:
        """Yield (key, before, after) for each item that changed."""
        before, after = self.before, items(self.holder)
        if len(before) == len(after) and all(
            map(operator.is_, before.values(), after.values())
        ) and before.keys() == after.keys():
            return
        for key in dict.fromkeys((*before, *after)):
            was, now = before.get(key, NOTHING), after.get(key, NOTHING)
            if was is not now:
                yield key, was, now

    def default(self, key: object) -> object:
        """Return the class's value of an attribute that the object itself did not have."""
        if is_a(self.holder, (*COLLECTIONS, types.CellType)) or not isinstance(key, str):
            return NOTHING
        return inspect.getattr_static(type(self.holder), key, NOTHING)

    def named(self, key: object) -> str:
        """Return the path of an item for messages."""
        return self.joined(text_of(self.where), key)

    def joined(self, path: str, key: object) -> str:
        """Return the path of an item: the path of its container and the item's key."""
        if is_a(self.holder, types.CellType):
            return path
        if is_a(self.holder, (list, tuple, deque, dict)):
            return f"{path}[{_repr(key)}]"
        if is_a(self.holder, (set, frozenset)):
            return f"an item of {path}"
        return f"{path}.{key}" if path else str(key)


Where: TypeAlias = str | tuple[Snapshot, object]
"""A name, or a container and a key in it. The text is built only when a message needs it."""


def text_of(where: Where) -> str:
    """Return the path as text, in the user's terms."""
    found = []
    while not isinstance(where, str):
        found.append(where)
        where = where[0].where
    for snapshot, key in reversed(found):
        where = snapshot.joined(where, key)
    return where


def _repr(key: object) -> str:
    try:
        return repr(key)
    except Exception:  # noqa: BLE001 - user code may raise
        return a_type(key)

"""Attributes of modules and optimizers that a traced function read.

In a trace, an attribute such as ``module.training`` or an optimizer's momentum is a constant. The
jit therefore notes the attributes that a trace reads. After any such attribute was set, the next
call of each jitted function compares the attributes that its own traces read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelrt.native.array_handle import touch
from kernelrt.native.signature import value_key
from kernelrt.native.thread_modes import MISSING, OBSERVED, Mode, local

__all__ = ["MISSING", "AttributeRead", "changed", "is_watched", "note", "note_write", "noted",
           "observe", "same", "version", "watch"]

#: Two kinds of entries: (id of the owner, attribute) -> the attribute as it was first read, and
#: (id of the owner, attribute, _BEFORE) -> the attribute before it was first written.
Observations = dict[tuple[Any, ...], tuple[Any, ...]]
_BEFORE = "before"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AttributeRead:
    """An attribute that a traced function read.

    Attributes
    ----------
    owner : object
        A module or an optimizer.
    attribute : str
        Name of the attribute in the ``__dict__`` of `owner`.
    value : object
        Value that was read; MISSING if there was none. Numbers and strings, also inside tuples, are
        compared by type, value and sign. Other objects are compared by identity.
    default : object
        Value of the attribute if the ``__dict__`` has no entry.
    """

    owner: Any
    attribute: str
    value: object
    default: object = MISSING

    def holds(self) -> bool:
        """Return whether the attribute still has the value that was read."""
        return same(self.owner.__dict__.get(self.attribute, self.default), self.value)

    def change(self) -> str:
        """Return a text that says what changed."""
        now = self.owner.__dict__.get(self.attribute, self.default)
        owner = getattr(self.owner, "called", type(self.owner).__name__)
        text = f"{owner}.{self.attribute.removeprefix('_')}"
        if self.value is MISSING:
            return f"{text} was set"
        if now is MISSING:
            return f"{text} was deleted"
        if not isinstance(now, _VALUES) or not isinstance(self.value, _VALUES):
            return f"{text} was replaced"
        return f"{text} changed from {self.value!r} to {now!r}"


_VALUES = (bool, int, float, complex, str, bytes, np.generic)


def same(a: object, b: object) -> bool:
    """Return whether two values are one object, or equal numbers or strings of the same type."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if not isinstance(a, _VALUES):
        return False
    return value_key(a) == value_key(b)


def observe() -> Mode[Observations]:
    """Return a context that collects the attributes that this thread reads."""
    return Mode(OBSERVED, {})


def note(owner: object, attribute: str, value: object, default: object = MISSING) -> None:
    """Record that an attribute was read."""
    observed = local.observed
    if observed is not None:
        observed.setdefault((id(owner), attribute), (owner, attribute, value, default))


def note_write(owner: object, attribute: str, value: object, default: object = MISSING) -> None:
    """Record that an attribute with the current value `value` is about to be set.

    Code has to call this function before it sets an attribute that traces may depend on.
    :func:`noted` needs the value from before the traced function, and later reads return what the
    traced function itself set. The call has no effect if the attribute was read already.
    """
    observed = local.observed
    if observed is not None and (id(owner), attribute) not in observed:
        key = (id(owner), attribute, _BEFORE)
        observed.setdefault(key, (owner, attribute, value, default))


def noted(observed: Observations) -> list[AttributeRead]:
    """Return the collected attributes.

    A function may set an attribute before it reads it. At the end, the attribute may have its
    original value again, as after ``eval()`` and then ``train()``. Then the result has the original
    value, because a replay does not change the attribute. If the attribute has another value at the
    end, the result has the value that the function read, or nothing if it never read the attribute.
    """
    found = {key: AttributeRead(*item) for key, item in observed.items() if len(key) == 2}
    for key, item in observed.items():
        if len(key) > 2 and (before := AttributeRead(*item)).holds():
            found[key[:2]] = before
    return list(found.values())


def watch(item: AttributeRead) -> None:
    """Watch an attribute of a module: from now on, setting it counts as a change."""
    item.owner.__dict__.setdefault(_WATCHED, set()).add(item.attribute)


def is_watched(owner: object, attribute: str) -> bool:
    """Return whether a traced function depends on an attribute of a module."""
    return attribute in owner.__dict__.get(_WATCHED, ())


_WATCHED = "_watched_attributes"
_changes = [0]


def changed() -> None:
    """Record that a noted attribute may have changed."""
    _changes[0] += 1
    touch()


def version() -> int:
    """Return a counter that grows with each change."""
    return _changes[0]

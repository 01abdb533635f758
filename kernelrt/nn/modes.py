"""Attributes of modules and optimizers that a traced function read.

A trace bakes in what ``module.training`` was, or an optimizer's momentum. The jit therefore notes
what was read, and looks again before a run once anything of the kind was set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelrt.native.array_handle import touch
from kernelrt.native.signature import value_key
from kernelrt.native.thread_modes import MISSING, OBSERVED, Mode, local

__all__ = ["MISSING", "Noted", "changed", "is_watched", "note", "note_write", "noted", "observe",
           "same", "version", "watch"]

#: (id of the owner, attribute) of what was read -> it; with _BEFORE, what was written before that.
Observations = dict[tuple[Any, ...], tuple[Any, ...]]
_BEFORE = "before"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Noted:
    """An attribute that was read.

    Attributes
    ----------
    owner : object
        A module, an optimizer.
    attribute : str
        Its name in the ``__dict__`` of `owner`.
    value : object
        What it was; MISSING where there was none. Numbers and texts, also in tuples, are compared
        by type, value and sign, all else by identity.
    default : object
        What it is where the ``__dict__`` has none.
    """

    owner: Any
    attribute: str
    value: object
    default: object = MISSING

    def holds(self) -> bool:
        """Whether the attribute has the value still."""
        return same(self.owner.__dict__.get(self.attribute, self.default), self.value)

    def change(self) -> str:
        """What changed, in words."""
        now = self.owner.__dict__.get(self.attribute, self.default)
        owner = getattr(self.owner, "called", type(self.owner).__name__)
        text = f"{owner}.{self.attribute.removeprefix('_')}"
        if self.value is MISSING:
            return f"{text} was set"
        if now is MISSING:
            return f"{text} was taken away"
        if not isinstance(now, _VALUES) or not isinstance(self.value, _VALUES):
            return f"{text} was replaced"
        return f"{text} changed from {self.value!r} to {now!r}"


_VALUES = (bool, int, float, complex, str, bytes, np.generic)


def same(a: object, b: object) -> bool:
    """Whether two values are one object, or equal numbers or texts of one type."""
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
    """Collect the attributes that this thread reads."""
    return Mode(OBSERVED, {})


def note(owner: object, attribute: str, value: object, default: object = MISSING) -> None:
    """Record that an attribute was read."""
    observed = local.observed
    if observed is not None:
        observed.setdefault((id(owner), attribute), (owner, attribute, value, default))


def note_write(owner: object, attribute: str, value: object, default: object = MISSING) -> None:
    """Record that an attribute, which has `value`, is about to be set.

    Whatever sets one that is noted has to say so: what is read afterwards is the function's own.
    """
    observed = local.observed
    if observed is not None and (id(owner), attribute) not in observed:
        key = (id(owner), attribute, _BEFORE)
        observed.setdefault(key, (owner, attribute, value, default))


def noted(observed: Observations) -> list[Noted]:
    """What was collected.

    What was set before it was read, and set back in the end, is to be what it was before: then a
    call changes nothing. What is read on the way does not depend on that.
    """
    found = {key: Noted(*item) for key, item in observed.items() if len(key) == 2}
    for key, item in observed.items():
        if len(key) > 2 and (before := Noted(*item)).holds():
            found[key[:2]] = before
    return list(found.values())


def watch(item: Noted) -> None:
    """Say when the attribute, of a module, is set to something else."""
    item.owner.__dict__.setdefault(_WATCHED, set()).add(item.attribute)


def is_watched(owner: object, attribute: str) -> bool:
    """Whether a traced function depends on an attribute of a module."""
    return attribute in owner.__dict__.get(_WATCHED, ())


_WATCHED = "_watched_attributes"
_changes = [0]


def changed() -> None:
    """Say that a noted attribute may have changed."""
    _changes[0] += 1
    touch()


def version() -> int:
    """A number that is another one after each change."""
    return _changes[0]

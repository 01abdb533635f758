"""Which attributes of modules and optimizers a traced function read.

A trace bakes in what ``module.training`` was, or an optimizer's momentum. The jit therefore notes
what was read, and looks again before a run once anything of the kind was set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelrt._handle import touch
from kernelrt._modes import OBSERVED, Mode, local

__all__ = ["Noted", "changed", "is_watched", "note", "observe", "watch"]


@dataclass(frozen=True, slots=True, eq=False)
class Noted:
    """An attribute that was read.

    Attributes
    ----------
    owner : object
        A module, an optimizer.
    attribute : str
        Its name in the ``__dict__`` of `owner`.
    value : object
        What it was. A number is compared by ``==``, all else by identity.
    default : object
        What it is where the ``__dict__`` has none.
    """

    owner: Any
    attribute: str
    value: object
    default: object

    def holds(self) -> bool:
        """Whether the attribute has the value still."""
        now = self.owner.__dict__.get(self.attribute, self.default)
        return now is self.value or (isinstance(now, _VALUES) and now == self.value)

    def change(self) -> str:
        """What changed, in words."""
        now = self.owner.__dict__.get(self.attribute, self.default)
        name = self.attribute.removeprefix("_")
        text = f"{type(self.owner).__name__}.{name}"
        if not isinstance(now, _VALUES):
            return f"{text} was replaced"
        return f"{text} changed from {self.value!r} to {now!r}"


_VALUES = (bool, int, float, complex, tuple)


def observe() -> Mode[dict[tuple[int, str], Noted]]:
    """Collect the attributes that this thread reads."""
    return Mode(OBSERVED, {})


def note(owner: object, attribute: str, value: object, default: object = None) -> None:
    """Record that an attribute was read."""
    observed = local.observed
    if observed is not None:
        key = id(owner), attribute
        observed.setdefault(key, Noted(owner, attribute, value, default))


def watch(owner: object, attribute: str, value: object) -> Noted:
    """Note an attribute of a module, which is to say when it is set to something else."""
    owner.__dict__.setdefault(_WATCHED, set()).add(attribute)
    return Noted(owner, attribute, value, None)


def is_watched(owner: object, attribute: str) -> bool:
    """Whether a traced function depends on an attribute of a module."""
    return attribute in owner.__dict__.get(_WATCHED, ())


_WATCHED = "_watched_attributes"


def changed() -> None:
    """Say that a noted attribute may have changed."""
    touch()

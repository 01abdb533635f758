"""What was wanted recently, in dicts that code which interrupts their users may change, too."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections import OrderedDict

__all__ = ["drop_oldest", "touch"]

K = TypeVar("K")
V = TypeVar("V")


def touch(kept: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    """Let `value` be the newest; of more than `most` the oldest go.

    A finalizer or a handler of a signal may take anything out between any two steps.
    """
    kept[key] = value
    try:
        kept.move_to_end(key)
    except KeyError:
        return
    while len(kept) > most:
        drop_oldest(kept)


def drop_oldest(kept: OrderedDict[K, V]) -> None:
    """Forget the oldest value, if there is any."""
    with suppress(KeyError):
        kept.popitem(last=False)

"""Attributes and items of a user's objects that a traced function may read, to be looked at again.

They are those that code which may run reads by name: attributes of objects and of classes, and
what is in dicts and lists that are reached by such names.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Final

from kernelrt._names import class_items
from kernelrt.jit.holders import COLLECTIONS, attributes, is_a, text_of
from kernelrt.jit.reach import is_ours, is_standard
from kernelrt.nn import Module
from kernelrt.nn.optim import Optimizer
from kernelrt.nn.optim.groups import Group

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kernelrt.jit.holders import Place, Where

__all__ = ["Guards"]

MOST_GUARDED: Final = 1024
"""How many attributes and items are looked at."""
MOST_ITEMS: Final = 256
"""A list or dict of more items is not looked at."""
#: What is seen in other ways when it changes, or changes nothing.
_ELSEWHERE: Final = (Module, Optimizer, Group, types.CellType, types.FunctionType, tuple)


class Guards:
    """What is looked at of objects, classes, dicts and lists.

    Parameters
    ----------
    places : sequence of Place
        The containers within reach.
    read : set of str
        Attributes that code which may run reads.
    classes : iterable of type
        Classes within reach.
    arguments : iterable of (str, object)
        What the function is given, whose dicts and lists are made for this call.
    texts : set of str
        Texts in code that may run, which may be keys that a dict does not have yet.

    Attributes
    ----------
    named, lists, slots : list
        As :class:`kernelrt._names.Names` takes them.
    """

    def __init__(
        self, places: Sequence[Place], read: set[str], classes: Iterable[type],
        arguments: Iterable[tuple[str, object]], texts: set[str],
    ) -> None:  # fmt: skip
        self.named: list[tuple[Any, dict[Any, Any], str, bool]] = []
        self.lists: list[tuple[str, list[Any], tuple[int, ...]]] = []
        self.slots: list[tuple[str, object, Any]] = []
        self._names = {name for name in read if not name.startswith("__")}
        self._texts = texts
        self._of_classes: dict[type, list[str]] = {}
        #: Objects, and the dicts of their attributes.
        self._owners: list[tuple[object, dict[str, Any]]] = []
        own = {id(item) for _, value in arguments for item in _collections(value)}
        for place in places:
            if self._left <= 0:
                break
            if id(place.holder) not in own and self._is_read(place.where):
                self._add(place)
        for cls in classes:
            self._class_attributes(cls)

    @property
    def _left(self) -> int:
        return MOST_GUARDED - len(self.named) - len(self.lists) - len(self.slots)

    def leave_out(self, items: Iterable[tuple[object, object]], holders: set[int]) -> bool:
        """Do not look at these items of containers any more, and at nothing in these `holders`.

        Returns
        -------
        bool
            Whether that was done before.
        """
        keys = {(id(holder), key) for holder, key in items}
        owners = {id(held): id(holder) for holder, held in self._owners}

        def stays(holder: object, key: object) -> bool:
            owner = owners.get(id(holder), id(holder))
            return owner not in holders and (owner, key) not in keys

        count = self._left
        self.named = [entry for entry in self.named if stays(entry[1], entry[0])]
        self.lists = [
            (name, held, places) for name, held, before in self.lists
            if (places := tuple(i for i in before if stays(held, i)))
        ]
        self.slots = [entry for entry in self.slots if stays(entry[1], entry[2].__name__)]
        return self._left != count

    def _is_read(self, where: Where) -> bool:
        """Whether the way to a container goes through attributes that are named."""
        while not isinstance(where, str):
            place, key = where
            if not is_a(place.holder, (*COLLECTIONS, types.CellType)) and not (
                isinstance(key, str) and key in self._names
            ):
                return False
            where = place.where
        return True

    def _add(self, place: Place) -> None:
        holder: Any = place.holder
        if is_a(holder, (dict, list)):
            if 0 < len(place.before) <= min(MOST_ITEMS, self._left):
                self._add_items(place)
            return
        if is_a(holder, _ELSEWHERE) or is_ours(holder):
            return
        held = attributes(holder)
        of_class = self._class_attributes(type(holder))
        if held is not None:
            names = dict.fromkeys(name for name in held if name in self._names)
            names |= dict.fromkeys(of_class)  # where one would hide that of the class
            self._owners.append((holder, held))
            self.named += [(name, held, place.named(name), True) for name in names]
        for base in type(holder).__mro__:
            for name, member in vars(base).items() if "__slots__" in vars(base) else ():
                if name in self._names and type(member) is types.MemberDescriptorType:
                    self.slots.append((place.named(name), holder, member))

    def _add_items(self, place: Place) -> None:
        holder: Any = place.holder
        if is_a(holder, list):
            self.lists.append((text_of(place.where), holder, tuple(place.before)))
            return
        for key in (*place.before, *(self._texts - place.before.keys())):
            if type(key) in (str, int):
                self.named.append((key, holder, place.named(key), False))

    def _class_attributes(self, cls: type) -> list[str]:
        """The names of values among the attributes of a class, which are looked at there, too."""
        known = self._of_classes.get(cls)
        if known is None:
            known = self._of_classes[cls] = []
            if not is_standard(cls):
                known += [
                    name for name, value in vars(cls).items()
                    if name in self._names and not hasattr(type(value), "__get__")
                ]
                held = class_items(cls)
                self.named += [(n, held, f"{cls.__name__}.{n}", False) for n in known]
            for base in cls.__mro__[1:]:
                known += [name for name in self._class_attributes(base) if name not in known]
        return known


def _collections(value: object) -> Iterator[object]:
    """Nested lists, tuples and dicts."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict | list | tuple):
            yield item
            stack += item.values() if isinstance(item, dict) else item

"""Guards on attributes and items of user objects that a traced function reads.

Code that the function can reach reads attributes of objects and classes by name. These attributes
are guarded, and so are the items of the dicts and lists that these attributes hold.
"""

from __future__ import annotations

import operator
import types
from typing import TYPE_CHECKING, Any, Final

from kernelrt.jit.effects.bytecode import named, texts_of
from kernelrt.jit.effects.closure_walk import is_ours, is_standard
from kernelrt.jit.effects.key_uses import uses
from kernelrt.jit.effects.python_containers import COLLECTIONS, NOTHING, attributes, is_a, text_of
from kernelrt.native.name_guards import ALL_ITEMS, class_items
from kernelrt.nn import Module
from kernelrt.nn.optim import Optimizer
from kernelrt.nn.optim.param_groups import Group

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kernelrt.jit.effects.bytecode import UsedNames
    from kernelrt.jit.effects.key_uses import Key, Use
    from kernelrt.jit.effects.python_containers import Snapshot, Where

__all__ = ["Guards"]

MOST_GUARDED: Final = 1024
"""Maximum number of guarded attributes and items."""
MOST_ITEMS: Final = 256
"""A list or dict with more items is not guarded."""
MOST_KEYS: Final = 8
"""Nested containers are followed from a name through at most this many keys."""
#: Types of containers that need no guard here: other checks notice changes in them, or the changes
#: do not matter.
_ELSEWHERE: Final = (Module, Optimizer, Group, types.CellType, types.FunctionType, tuple)
#: Types of class members that are no plain values, but that an instance attribute shadows, too.
_HIDDEN: Final = (types.FunctionType, staticmethod, classmethod)
_GETTERS: Final = ("__getattr__", "__getattribute__")


class Guards:
    """The guarded attributes and items of objects, classes, dicts and lists.

    Parameters
    ----------
    snapshots : sequence of Snapshot
        Reachable containers.
    ways : mapping of int to list
        Further paths to each container, by the container's id.
    codes : sequence of code objects
        Code that may run.
    classes : iterable of type
        Reachable classes.
    arguments : iterable of (str, object)
        Arguments of the function. Their dicts and lists are new in each call, so they are not
        guarded.

    Attributes
    ----------
    named, lists, slots : list
        Guards in the form that :class:`kernelrt.native.name_guards.Names` expects.
    """

    def __init__(
        self, snapshots: Sequence[Snapshot], ways: Mapping[int, list[Where]],
        codes: Sequence[types.CodeType], classes: Iterable[type],
        arguments: Iterable[tuple[str, object]],
    ) -> None:  # fmt: skip
        self.named: list[tuple[Any, dict[Any, Any], str, bool]] = []
        self.lists: list[tuple[str, list[Any], tuple[int, ...], bool]] = []
        self.slots: list[tuple[str, object, Any]] = []
        known = [named(code) for code in codes]
        read = {name for names in known for name in names.attributes}
        if any(names.by_text for names in known):  # the computed name may come from other code
            read.update(text for code in codes for text in texts_of(code))
        self._names = dict.fromkeys(sorted(n for n in read if not n.startswith("__")))
        #: Whether code may handle a missing attribute and continue.
        self._handles_missing = any(names.handles_missing for names in known)
        self._uses = uses(codes)
        self._ways = ways
        #: Class -> name of each attribute of it and its bases -> whether an instance attribute
        #: shadows it.
        self._of_classes: dict[type, dict[str, bool]] = {}
        self._in_classes: dict[tuple[int, str], object] = {}
        #: Objects and their attribute dicts.
        self._owners: list[tuple[object, dict[str, Any]]] = []
        self._orders: dict[int, list[object]] = {}
        objects: list[Snapshot] = []
        own = {id(item) for _, value in arguments for item in _collections(value)}
        within = self._reachable(snapshots)
        for snapshot in snapshots:
            if self._left <= 0:
                break
            if id(snapshot.holder) not in own and id(snapshot) in within:
                self._add(snapshot, objects)
        for cls in classes:
            self._class_attributes(cls)
        for cls in list(self._of_classes):
            self._absent_of_class(cls)
        # Absent attributes come last, because they may use up what is left of the limit.
        for snapshot in objects:
            self._absent(snapshot)

    @property
    def _left(self) -> int:
        return MOST_GUARDED - len(self.named) - len(self.lists) - len(self.slots)

    @property
    def _count(self) -> int:
        """Number of guarded values; each list item and each list length counts as one."""
        of_lists = sum(len(indices) + whole for _, _, indices, whole in self.lists)
        return len(self.named) + len(self.slots) + of_lists

    def leave_out(
        self, items: Iterable[tuple[object, object]], holders: set[int],
        setting: Sequence[UsedNames],
    ) -> bool:  # fmt: skip
        """Remove the guards of some items, and all guards of the containers in `holders`.

        `items` has (container, key) pairs; `holders` has ids of containers. A guard of the order of
        a dict, or of the absence of a class attribute, is removed, too, if the order changed or the
        attribute exists now, and code in `setting` may be the cause.

        Returns
        -------
        bool
            Whether a guard was removed.
        """
        keys = {(id(holder), key) for holder, key in items}
        changed = {holder for holder, _ in keys}
        owners = {id(held): id(holder) for holder, held in self._owners}
        attributes_set = {name for names in setting for name in names.set_attributes}
        sets_items = any(names.sets_items for names in setting)

        def stays(holder: Any, key: Any) -> bool:
            owner = owners.get(id(holder), id(holder))
            if owner in holders or (owner, key) in keys:
                return False
            if key is ALL_ITEMS:
                order = self._orders[owner]
                return owner not in changed and not (sets_items and any(
                    map(operator.is_not, order, dict.__iter__(holder))
                ))  # fmt: skip
            before = self._in_classes.get((id(holder), key))
            return before is not NOTHING or key not in attributes_set or key not in holder

        count = self._count
        self.named = [entry for entry in self.named if stays(entry[1], entry[0])]
        self.lists = [
            (name, held, indices, whole) for name, held, met, length in self.lists
            for indices in [tuple(i for i in met if stays(held, i))]
            for whole in [length and id(held) not in changed | holders]
            if indices or whole
        ]
        self.slots = [entry for entry in self.slots if stays(entry[1], entry[2].__name__)]
        return self._count != count

    def _ways_to(self, snapshot: Snapshot) -> Iterator[Where]:
        yield snapshot.where
        yield from self._ways.get(id(snapshot.holder), ())

    def _reachable(self, snapshots: Sequence[Snapshot]) -> set[int]:
        """Return the ids of the containers that the code can reach by the names it mentions."""
        found = set[int]()

        def leads(where: Where) -> bool:
            return isinstance(where, str) or (id(where[0]) in found and (
                is_a(where[0].holder, (*COLLECTIONS, types.CellType)) or where[1] in self._names
            ))  # fmt: skip

        count = -1
        while count != len(found):  # two passes usually suffice: a container precedes those inside
            count = len(found)
            for snapshot in snapshots:
                if id(snapshot) not in found and any(map(leads, self._ways_to(snapshot))):
                    found.add(id(snapshot))
        return found

    def _use(self, snapshot: Snapshot) -> tuple[bool, dict[Key, None], bool]:
        """Return how code uses the items of a container.

        Returns three values: whether the code reads all items, the constant keys that it reads, and
        whether it tests membership.
        """
        whole, tested = not is_standard(type(snapshot.holder)), False
        keys: dict[Key, None] = {}
        for use, depth in self._uses_of(snapshot, 0, set()):
            if use is None or depth >= use.depth:
                whole = True
            if use is not None:
                keys |= dict.fromkeys(sorted((k for d, k in use.keys if d == depth), key=repr))
                tested = tested or depth in use.tested
        return whole, keys, tested

    def _uses_of(
        self, snapshot: Snapshot, depth: int, met: set[tuple[int, int]]
    ) -> Iterator[tuple[Use | None, int]]:
        """Yield the use of each name that leads to a container, and the number of keys between."""
        if depth == MOST_KEYS:
            yield None, depth
        if depth == MOST_KEYS or (id(snapshot), depth) in met:
            return
        met.add((id(snapshot), depth))
        for where in self._ways_to(snapshot):
            if isinstance(where, str):
                yield self._uses.get(where.rpartition(".")[2]), depth
            elif is_a(where[0].holder, COLLECTIONS):
                yield from self._uses_of(where[0], depth + 1, met)
            elif is_a(where[0].holder, types.CellType):
                yield self._uses.get(text_of(where[0].where)), depth
            else:
                yield self._uses.get(str(where[1])), depth

    def _add(self, snapshot: Snapshot, objects: list[Snapshot]) -> None:
        holder: Any = snapshot.holder
        if is_a(holder, (dict, list)):
            if len(snapshot.before) <= min(MOST_ITEMS, self._left):
                self._add_items(snapshot)
            return
        if is_ours(holder):
            return
        if is_a(holder, (Module, Optimizer)):
            self._class_attributes(type(holder))
        if is_a(holder, _ELSEWHERE):
            return
        held = attributes(holder)
        of_class = self._class_attributes(type(holder))
        if held is not None:
            names = dict.fromkeys(name for name in held if name in self._names)
            names |= dict.fromkeys(name for name, hidden in of_class.items() if hidden)
            self._owners.append((holder, held))
            objects.append(snapshot)
            self.named += [(name, held, snapshot.named(name), True) for name in names]
        for base in type(holder).__mro__:
            for name, member in vars(base).items() if "__slots__" in vars(base) else ():
                if name in self._names and type(member) is types.MemberDescriptorType:
                    self.slots.append((snapshot.named(name), holder, member))

    def _add_items(self, snapshot: Snapshot) -> None:
        holder: Any = snapshot.holder
        whole, keys, tested = self._use(snapshot)
        before = snapshot.before
        if is_a(holder, list):
            whole = whole or tested or any(key not in before for key in keys)
            if before or whole:
                self.lists.append((text_of(snapshot.where), holder, tuple(before), whole))
            return
        for key in (*before, *(key for key in keys if key not in before)):
            if type(key) in (str, int):
                self.named.append((key, holder, snapshot.named(key), False))
        if whole:
            self._orders[id(holder)] = list(dict.__iter__(holder))
            self.named.append((ALL_ITEMS, holder, text_of(snapshot.where), False))

    def _absent(self, snapshot: Snapshot) -> None:
        """Guard attributes that the object and its class do not have yet."""
        holder: Any = snapshot.holder
        held = attributes(holder)
        if held is None or not self._may_handle_missing(type(holder)):
            return
        of_class = self._of_classes[type(holder)]
        for name in self._names:
            if self._left > 0 and name not in snapshot.before and name not in of_class:
                self.named.append((name, held, snapshot.named(name), True))

    def _absent_of_class(self, cls: type) -> None:
        of_class = self._of_classes[cls]
        for base in cls.__mro__ if self._may_handle_missing(cls) else ():
            for name in () if is_standard(base) else self._names:
                if self._left > 0 and name not in of_class:
                    self._look_at_class(base, name)

    def _may_handle_missing(self, cls: type) -> bool:
        """Return whether code may handle a missing attribute of an object of this class."""
        return self._handles_missing or any(
            name in vars(base) for base in cls.__mro__ if not is_standard(base)
            for name in _GETTERS
        )  # fmt: skip

    def _class_attributes(self, cls: type) -> dict[str, bool]:
        """Guard the named attributes of a class and its bases.

        Return a mapping: each name -> whether an instance attribute shadows it.
        """
        known = self._of_classes.get(cls)
        if known is None:
            known = self._of_classes[cls] = {}
            for base in reversed(cls.__mro__):
                for name in self._names:
                    if name in vars(base):
                        value = vars(base)[name]
                        known[name] = is_a(value, _HIDDEN) or not hasattr(type(value), "__get__")
                # A class may later define an attribute that only its bases have now.
                for name in () if is_standard(base) else known:
                    self._look_at_class(base, name)
        return known

    def _look_at_class(self, cls: type, name: str) -> None:
        held = class_items(cls)
        if (id(held), name) not in self._in_classes:
            self._in_classes[id(held), name] = held.get(name, NOTHING)
            self.named.append((name, held, f"{cls.__name__}.{name}", False))


def _collections(value: object) -> Iterator[object]:
    """Yield the lists, tuples and dicts nested in `value`."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict | list | tuple):
            yield item
            stack += item.values() if isinstance(item, dict) else item

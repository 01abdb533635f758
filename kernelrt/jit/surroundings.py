"""What a function reaches beside its arguments, compared before and after it is traced.

Replays and turns of loops run no Python: an attribute that the function sets is set once, while it
is traced, to a tensor without a value or to the number that came first. So a trace that does so
ends in an error.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import itertools
import os
import sys
import types
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from kernelrt._names import Names
from kernelrt.errors import JitError
from kernelrt.jit.bytecode import CHANGING, named, nested
from kernelrt.jit.holders import (
    COLLECTIONS,
    NOTHING,
    Place,
    attributes,
    is_a,
    is_filled,
    items,
    put,
    size,
    text_of,
)
from kernelrt.jit.signature import short
from kernelrt.nn import Module
from kernelrt.nn.modes import Noted, same
from kernelrt.nn.optim import Optimizer
from kernelrt.nn.optim.groups import Group
from kernelrt.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kernelrt.jit.bytecode import Named
    from kernelrt.jit.holders import Where
    from kernelrt.jit.once import Purpose

__all__ = ["Surroundings"]

MOST_CONTAINERS: Final = 10_000
"""How many objects are looked at; what lies further away goes unseen."""
MOST_NUMBERS: Final = 8
"""How many numbers that became part of the program are told."""

_NUMBERS = (bool, int, float, complex, np.generic)
_STANDARD = sys.stdlib_module_names | {
    "numpy", "torch", "jax", "numba", "llvmlite", "kernelrt",
}
#: Types of what nothing is looked for in, for a quick answer.
_PLAIN: Final = frozenset((bool, int, float, complex, str, bytes, type(None), Tensor, np.ndarray))
#: Items that a look at a container or a function takes as long as.
_WEIGHT: Final = 8
_MAKING: Final = ("__new__", "__init__", "__post_init__", "__del__")
_ARGUMENTS: Final = "argparse", "Namespace"
_WRAPPED: Final = "__wrapped_function__"  # of a jitted function


class _Binding:
    """A global that was met: what it was then, and what it is called."""

    __slots__ = ("before", "name", "names", "path")

    def __init__(self, path: str, names: dict[str, Any], name: str) -> None:
        self.path = path
        self.names = names
        self.name = name
        self.before = self.now

    @property
    def now(self) -> object:
        """What it is."""
        return self.names.get(self.name, NOTHING)


class Surroundings:
    """Everything reachable from a function, as it is now.

    Parameters
    ----------
    *roots : (str, object)
        Functions, without a name, and arguments by name. The closures of functions, their
        defaults, the globals that they name, and the objects that they are methods of are followed,
        and from there, and from arguments, attributes and items.
    room : int, optional
        How many items are looked at, a container or a function counted as several: for a look
        that takes little time. What lies further away goes unseen, and so does what is within
        reach of code that the function does not mention.
    """

    def __init__(self, *roots: tuple[str, object], room: int | None = None) -> None:
        self._left = room
        self._codes: list[types.CodeType] = []
        self._held: dict[str, list[tuple[Where, object]]] = {}
        self._idle = False
        self._numbers: dict[str, object] = {}
        self._places: list[Place] = []
        self._seen: set[int] = set()
        self._bindings: dict[tuple[int, str], _Binding] = {}
        self._read: dict[tuple[int, str], tuple[str, dict[str, Any]]] = {}
        self._modules: dict[int, tuple[str, dict[str, Any]]] = {}
        self._cells: list[tuple[str, types.CellType]] = []
        self._candidates: list[tuple[Where, object, object]] = []
        #: Code that makes an object what it is, with the class; and the classes that may be called.
        self._making: dict[types.CodeType, type] = {}
        self._called: list[type] = []
        mentioned = self._follow(roots)
        self._known = [named(code) for code in self._codes]
        #: What may set something that was there before.
        self._setting = [named(code) for code in self._codes if self._may_run(code)]
        if room is not None:
            return
        self._names = self._current_names()
        for where, value, attribute in self._candidates:
            if attribute is None or attribute in mentioned:
                self._numbers.setdefault(text_of(where), value)

    @property
    def is_empty(self) -> bool:
        """Whether only code of libraries may run."""
        return not self._codes

    def _may_run(self, code: types.CodeType) -> bool:
        """Whether code is another than what made objects that are there."""
        cls = self._making.get(code)
        return cls is None or any(issubclass(called, cls) for called in self._called)

    def mentions(self, name: str) -> bool:
        """Whether code that may run reads a global or an attribute of that name."""
        return any(name in (*known.reads, *known.attributes) for known in self._known)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Numbers that the function can read, each with its name; they are part of the program."""
        told = itertools.islice(self._numbers.items(), MOST_NUMBERS)
        return tuple(f"{name} = {short(value)}" for name, value in told)

    def reached(self, kinds: tuple[type, ...]) -> Iterator[tuple[str, object]]:
        """What is within reach and of one of these kinds, by name."""
        for place in self._places:
            for key, value in place.before.items():
                if is_a(value, kinds) and self._may_read(place, key):
                    yield place.named(key), value
        for binding in self._bindings.values():
            if is_a(binding.before, kinds):
                yield binding.path, binding.before

    def _may_read(self, place: Place, key: object) -> bool:
        """Whether code that may run reads an item of that key, as far as a quick look tells."""
        return self._left is None or is_a(place.holder, (*COLLECTIONS, types.CellType)) or any(
            known.by_text or key in known.attributes for known in self._known
        )

    def names(self) -> tuple[Names, str]:
        """Variables that the function reads, and one that it gave another value itself.

        They are as they were before the trace, so that what another thread did meanwhile is seen;
        or as they are now, if the function changed one.
        """
        for place in self._places:
            if isinstance(place.holder, types.CellType) and self._may_set(place, ""):
                for _, was, now in place.changes():
                    if not same(was, now):
                        return self._current_names(), text_of(place.where)
        for binding in self._bindings.values():
            if not same(binding.now, binding.before) and self._binds(binding):
                return self._current_names(), binding.path
        return self._names, ""

    def _current_names(self) -> Names:
        return Names(self._cells, self._read.values(), same)

    def _may_set(self, place: Place, key: object) -> bool:
        """Whether code that may run sets an item of that key, as far as it says.

        Other threads, handlers of signals and finalizers set others.
        """
        if is_a(place.holder, types.CellType):
            return any(place.where in known.shared for known in self._setting)
        if is_a(place.holder, COLLECTIONS):
            return any(known.sets_items for known in self._setting)
        return any(known.sets_any or key in known.set_attributes for known in self._setting)

    def _binds(self, binding: _Binding) -> bool:
        """Whether the function may give a global another value, also as a module's attribute."""
        return any(binding.name in names.stores for names in self._setting) or (
            id(binding.names) in self._modules
            and any(binding.name in names.set_attributes for names in self._setting)
        )

    def noted(self, sources: set[Any]) -> Iterator[Noted]:
        """Attributes of modules that lead to what the program reads, by whichever way it got there.

        These are modules in modules, and tensors over one of the buffers in `sources`.
        """
        for place in self._places:
            holder = place.holder
            if not isinstance(holder, Module):
                continue
            for key, value in place.before.items():
                if isinstance(value, Module) or (
                    isinstance(value, Tensor)
                    and value._memory is not None
                    and value._buffer in sources
                ):
                    yield Noted(holder, key, value)

    def check(self, name: str, purpose: Purpose, made: Callable[[object], bool]) -> None:
        """Raise JitError if anything was set that is to be set more often than this once.

        Parameters
        ----------
        name : str
            What the function is called.
        purpose : Purpose
            What it is called for.
        made : callable
            Whether an object is a tensor that was made by the trace.
        """
        complaint = self.restore(purpose, made)
        if complaint is not None:
            raise JitError(self._text(name, purpose, *complaint))

    def restore(
        self, purpose: Purpose, made: Callable[[object], bool], *, failed: bool = False
    ) -> tuple[str, object, object, object] | None:
        """Undo what cannot stay; the first of it: what it is called, its key, before, after.

        Parameters
        ----------
        purpose : Purpose
            What the function is called for.
        made : callable
            Whether an object is a tensor that was made by the trace.
        failed : bool
            Whether it has raised an error.
        """
        found: tuple[str, object, object, object] | None = None
        may_stay = _may_stay if purpose.strict else _may_stay_failed if failed else _may_stay_once
        for place in self._places:
            if not purpose.strict and not _compares(place):
                continue
            wrong = []
            changes: list[tuple[object, object, object]] = []
            with contextlib.suppress(Exception):  # of code of users, as a key that has no hash now
                changes += place.changes()
            for key, was, now in changes:
                seen = place.default(key) if was is NOTHING else was
                ours = made(now) or self._may_set(place, key)
                if not may_stay(key, seen, now, made, sure=ours):
                    wrong.append((key, was, seen, now))
            cell = is_a(place.holder, types.CellType)
            for key, was, seen, now in wrong:
                found = found or (place.named(key), place.where if cell else key, seen, now)
                with contextlib.suppress(Exception):  # of code of users
                    put(place.holder, key, was)
            if wrong and purpose.strict and isinstance(place.holder, list | deque):
                _refill(place.holder, place.before.values())
        for binding in self._bindings.values():
            name, was, now = binding.name, binding.before, binding.now
            if now is not was and not may_stay(name, was, now, made, sure=self._binds(binding)):
                found = found or (binding.path, name, was, now)
                put(binding.names, name, was)
        return found

    def _text(
        self, name: str, purpose: Purpose, path: str, key: object, before: object, after: object
    ) -> str:
        where = self._line(key)
        line = f" ({where})" if where else ""
        number = isinstance(after, _NUMBERS)
        told = f"changes it from {short(before)} to {short(after)}" if number else (
            "takes it away" if after is NOTHING else
            "sets it to a tensor that has no value outside" if before is NOTHING
            or not isinstance(before, Tensor | Module) else "sets it to another one"
        )
        way = (
            f"{purpose.counting}, or keep the number in a tensor made outside, as in "
            f"krt.tensor({short(before)}), and assign() to that"
            if number else
            (f"write {path}.assign(...), {purpose.assigning}, or " if purpose.assigning else "")
            + purpose.keeping.format(verb="set")
            if isinstance(before, Tensor) else
            purpose.keeping.format(verb="keep") + ", or make one outside and assign() to it"
        )
        return f"{path}: {name} {told}{line}, {purpose.missing}; {way}"

    def _line(self, key: object) -> str:
        """Where the function, or one that it calls, sets something of that name."""
        wanted: tuple[object, ...] = (key,)
        stores: tuple[str, ...] = ("STORE_ATTR", "STORE_DEREF", "STORE_GLOBAL", "STORE_NAME")
        if not isinstance(key, str) or not any(key in c.co_names + c.co_freevars
                                               + c.co_cellvars for c in self._codes):  # fmt: skip
            wanted, stores = (None, *CHANGING), (
                "STORE_SUBSCR", "LOAD_METHOD", "LOAD_ATTR",
            )  # fmt: skip
        for code in sorted(self._codes, key=lambda c: c.co_name == "__init__"):
            for step in dis.get_instructions(code):
                line = step.positions.lineno if step.positions is not None else None
                if step.opname in stores and step.argval in wanted and line is not None:
                    return f"{code.co_filename}:{line}"
        return ""

    # ---- looking around

    def _follow(self, found: Iterable[tuple[Where, object]]) -> set[str]:
        """Look at what may run, then at the rest; the attributes that the former mentions.

        A method may run where code that may run mentions its name. Variables that only other
        methods read, such as the counter of the loop that calls the function, change nothing.
        """
        mentioned: set[str] = set()
        known = -1
        queue = deque(found)
        while self._has_room() and (queue or known < len(self._codes)):
            self._drain(queue)
            known = len(self._codes)
            names = [named(code) for code in self._codes]
            mentioned.update(a for n in names for a in (*n.attributes, *n.set_attributes))
            by_text = any(n.by_text for n in names)
            ready = list(self._held) if by_text else [n for n in self._held if n in mentioned]
            for name in ready:
                for where, member in self._held.pop(name):
                    queue.extend((where, method) for method in _callables(member))
            queue.extend(self._module_attributes(names))
        if self._left is None:
            self._idle = True
            self._drain(deque(
                (where, method) for members in self._held.values() for where, member in members
                for method in _callables(member)
            ))  # fmt: skip
        return mentioned

    def _has_room(self) -> bool:
        """Whether there are not too many containers to look at."""
        return self._left > 0 if self._left is not None else len(self._places) < MOST_CONTAINERS

    def _take(self, count: int) -> None:
        """Count something that is looked at, and what is in it."""
        if self._left is not None:
            self._left -= _WEIGHT + count

    def _drain(self, queue: deque[tuple[Where, object]]) -> None:
        while queue and self._has_room():
            where, value = queue.popleft()
            if is_a(value, type):
                self._called.append(cast("type", value))
            if type(value) in _PLAIN or id(value) in self._seen:
                continue
            with contextlib.suppress(Exception):  # of code of users that a look at objects runs
                if not _is_leaf(value):
                    self._seen.add(id(value))
                    queue.extend(list(self._look(where, value)))

    def _look(self, where: Where, value: Any) -> Iterator[tuple[Where, object]]:
        """What is within reach of an object."""
        if is_a(value, types.FunctionType):
            yield from self._function(where, value)
        elif is_a(value, types.MethodType):
            yield "self", value.__self__
            yield where, value.__func__
        elif is_a(value, types.BuiltinMethodType):
            yield f"{text_of(where)}.__self__", value.__self__
        elif is_a(value, functools.partial):
            for item in (value.func, *value.args, *value.keywords.values()):
                yield where or "self", item
        elif is_a(value, types.ModuleType):
            names = vars(value)
            self._modules.setdefault(id(names), (text_of(where) or value.__name__, names))
        elif is_a(value, type):
            yield from self._methods(where, value)
        elif _has_wrapped(value):
            yield where, getattr(value, _WRAPPED)
        else:
            yield from self._container(where, value)

    def _container(self, where: Where, value: object) -> Iterator[tuple[Where, object]]:
        if self._left is not None:
            count = 1 if is_a(value, types.CellType) else size(value)
            self._take(count if count < self._left else 0)
            if count >= self._left:
                return
        place = Place(where, value)
        self._places.append(place)
        ours = _is_ours(value)
        for key, item in place.before.items():
            if type(item) not in _PLAIN:
                yield (place, key), item
            if not ours and self._left is None and isinstance(item, _NUMBERS):
                self._candidates.append(((place, key), item, key))
        kind = type(value)
        if not ours and not is_a(value, types.CellType) and id(kind) not in self._seen:
            self._seen.add(id(kind))
            yield from self._methods(where, kind)

    def _methods(self, where: Where, cls: type) -> Iterator[tuple[Where, object]]:
        """The methods that may run; the others are held."""
        self._take(0)
        ours = {base for base in cls.__mro__ if _root(base.__module__) in _STANDARD}
        # What overrides a method of a library is called by that library.
        called = {name for base in ours for name in vars(base)}
        for base in cls.__mro__:
            for name, item in vars(base).items() if base not in ours else ():
                if self._idle or _is_special(name) or name in called:
                    for method in _callables(item):
                        if name in _MAKING and isinstance(method, types.FunctionType):
                            self._making[method.__code__] = base
                        yield where, method
                else:
                    self._held.setdefault(name, []).append((where, item))

    def _function(
        self, where: Where, fn: types.FunctionType
    ) -> Iterator[tuple[Where, object]]:
        cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        if _root(fn.__module__) in _STANDARD:  # what it was made of may be a user's
            yield from ((name, c.cell_contents) for name, c in cells if is_filled(c))
            return
        codes = list(nested(fn.__code__))
        self._take(_WEIGHT * len(codes))
        self._codes += codes
        for name, cell in cells:
            yield name, cell
            if self._idle:
                continue
            self._cells.append((name, cell))
            if is_filled(cell) and isinstance(cell.cell_contents, _NUMBERS):
                self._candidates.append((name, cell.cell_contents, None))
        for code in codes:
            for name in named(code).reads:
                yield from self._variable(name, fn.__globals__, name)
                if name not in fn.__globals__:
                    yield from self._variable(name, cast("Any", fn).__builtins__, name)
            for name in named(code).stores:
                yield from self._variable(name, fn.__globals__, name, read=False)
            for name, dots in named(code).imports:
                yield from _imported(name, dots, fn.__globals__)
        for default in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
            yield "a default", default
        if fn.__dict__:
            yield from self._container(where or fn.__name__, fn)

    def _variable(
        self, path: str, names: dict[str, Any], name: str, *, read: bool = True
    ) -> Iterator[tuple[Where, object]]:
        """Remember a global that is read, or else set, and what it is, unless it is known."""
        key = id(names), name
        binding = self._bindings.get(key)
        if binding is None:
            binding = self._bindings[key] = _Binding(path, names, name)
            if binding.before is not NOTHING:
                yield path, binding.before
        if read and not self._idle and key not in self._read:
            self._read[key] = name, names
            if isinstance(binding.before, _NUMBERS):
                self._candidates.append((path, binding.before, None))

    def _module_attributes(self, known: list[Named]) -> Iterator[tuple[Where, object]]:
        """What code that names these may read or set in the modules that were met."""
        if not self._modules:
            return
        read = dict.fromkeys(a for names in known for a in names.attributes)
        stored = dict.fromkeys(a for names in known for a in names.set_attributes)
        copes = any(names.copes for names in known)
        for path, names in list(self._modules.values()):
            for name in read:
                if copes or name in names:
                    yield from self._variable(f"{path}.{name}", names, name)
            for name in stored:
                yield from self._variable(f"{path}.{name}", names, name, read=False)


def _may_stay(
    key: object, was: object, now: object, made: Callable[[object], bool], *, sure: bool
) -> bool:
    """Whether replays may leave out that an item became `now`."""
    if isinstance(key, str) and key == "_training":  # what reads it is traced anew
        return True
    if isinstance(was, _NUMBERS) and isinstance(now, _NUMBERS):
        return not sure or _equal(was, now)
    if isinstance(was, Tensor | Module) and sure:
        return False
    return not any(made(item) for item in _inside(now))


def _may_stay_once(
    key: object, was: object, now: object, made: Callable[[object], bool], *, sure: bool
) -> bool:
    """Whether it is right that an item became `now` once.

    A tensor of the trace that comes to where none was has no value outside, which whoever reads it
    there is told.
    """
    del made
    if not sure or key == "_training":
        return True
    if isinstance(was, _NUMBERS) and isinstance(now, _NUMBERS):
        return _equal(was, now)
    return not _is_state(was)


def _may_stay_failed(
    key: object, was: object, now: object, made: Callable[[object], bool], *, sure: bool
) -> bool:
    """Whether an item may be `now` behind an error, which other turns would not have come to."""
    del key, sure
    return not (_is_state(was) and made(now))


def _is_state(value: object) -> bool:
    """Whether it is a module, or a tensor that has a value."""
    if isinstance(value, Tensor):
        return value.is_realized or value._born is None
    return isinstance(value, Module)


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b or (a != a and b != b))
    except Exception:  # noqa: BLE001 - of code of users
        return type(a) is type(b)


def _compares(place: Place) -> bool:
    """Whether items tell of what is counted: those of lists that grow are others."""
    if is_a(place.holder, list):
        return len(place.before) == size(place.holder)
    return not is_a(place.holder, (tuple, deque, set, frozenset))


def _refill(holder: Any, values: Iterable[object]) -> None:
    with contextlib.suppress(Exception):  # of code of users
        if isinstance(holder, list):
            list.__setitem__(holder, slice(None), list(values))
        else:
            deque.clear(holder)
            deque.extend(holder, values)


def _inside(value: object) -> Iterator[object]:
    """`value` and what is in it, as far as the search for state goes."""
    stack, seen = [value], set[int]()
    while stack and len(seen) < MOST_CONTAINERS:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        if not _is_leaf(item) and not isinstance(item, types.FunctionType | types.MethodType):
            stack.extend(items(item).values())


def _is_leaf(value: Any) -> bool:
    """Whether nothing is looked for in `value`."""
    if type(value) in _PLAIN or is_a(value, (Tensor, np.ndarray)):
        return True
    if is_a(value, (*COLLECTIONS, types.CellType)):
        return False
    if is_a(value, types.FunctionType):
        return _root(value.__module__) in _STANDARD and _root(value.__module__) != "kernelrt"
    if is_a(value, (types.MethodType, functools.partial, Module, Optimizer, Group)):
        return False
    if is_a(value, types.BuiltinMethodType):
        return not is_a(value.__self__, COLLECTIONS)
    if is_a(value, types.ModuleType):
        return _is_library(value)
    if is_a(value, type):
        return _root(value.__module__) in _STANDARD
    if _has_wrapped(value):
        return False
    if _is_ours(value) or attributes(value) is not None:
        return _is_ours(value)
    return not any("__slots__" in vars(base) for base in type(value).__mro__)


def _has_wrapped(value: object) -> bool:
    return any(_WRAPPED in vars(base) for base in type(value).__mro__)


def _is_ours(value: object) -> bool:
    kind = type(value)
    # Holders of a user's own attributes.
    if kind is types.SimpleNamespace or (kind.__module__, kind.__name__) == _ARGUMENTS:
        return False
    return _root(kind.__module__) in _STANDARD


def _is_library(module: types.ModuleType) -> bool:
    """Whether a module was installed: what it names is not looked at."""
    if _root(module.__name__) in _STANDARD:
        return True
    places = (vars(module).get("__file__"), *vars(module).get("__path__", ()))
    paths = (os.fspath(place).split(os.sep) for place in places if place)  # noqa: PTH206 - slow to load
    return any(part in ("site-packages", "dist-packages") for path in paths for part in path)


def _imported(
    name: str, dots: int, names: dict[str, Any]
) -> Iterator[tuple[str, types.ModuleType]]:
    """The modules that an import in a function with these globals gives, if they are there."""
    if dots:
        parts = str(names.get("__package__") or "").split(".")
        name = ".".join([*parts[: len(parts) - dots + 1], *filter(None, [name])])
    for full in (name, _root(name)):
        if full in sys.modules:
            yield full, sys.modules[full]


def _callables(member: object) -> Iterator[object]:
    """What runs when an attribute of a class is called, read or set."""
    if isinstance(member, staticmethod | classmethod):
        yield from _callables(member.__func__)
    elif isinstance(member, property):
        yield from (f for f in (member.fget, member.fset, member.fdel) if f is not None)
    elif isinstance(member, functools.cached_property | functools.partialmethod):
        yield member.func
    elif isinstance(member, types.FunctionType | type) or hasattr(type(member), _WRAPPED):
        yield member


def _is_special(name: str) -> bool:
    """Whether Python calls a method of that name by itself."""
    return name.startswith("__") and name.endswith("__")


def _root(module: object) -> str:
    return str(module).partition(".")[0]

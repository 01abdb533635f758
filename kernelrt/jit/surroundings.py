"""What a function reaches beside its arguments, compared before and after it is traced.

Replays and turns of loops run no Python: an attribute that the function sets is set once, while it
is traced, to a tensor without a value or to the number that came first. So a trace that does so
ends in an error.
"""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import os
import sys
import types
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from kernelrt._names import Names
from kernelrt.errors import JitError
from kernelrt.jit.bytecode import named, nested
from kernelrt.jit.holders import NOTHING, is_filled, items, put
from kernelrt.jit.signature import short
from kernelrt.nn import Module
from kernelrt.nn.modes import Noted, same
from kernelrt.nn.optim import Optimizer
from kernelrt.nn.optim.groups import Group
from kernelrt.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kernelrt.jit.bytecode import Named
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
_COLLECTIONS = (dict, list, tuple, set, frozenset, deque)
_WRAPPED: Final = "__wrapped_function__"  # of a jitted function
_GROWING: Final = ("append", "extend", "insert", "add", "update", "setdefault", "appendleft")


class _Place:
    """A container that was met: its items then, and what it is called."""

    __slots__ = ("before", "holder", "path")

    def __init__(self, path: str, holder: object) -> None:
        self.path = path
        self.holder = holder
        self.before = items(holder)

    def changes(self) -> Iterator[tuple[object, object, object]]:
        """(key, before, after) of each item that is another than it was."""
        after = items(self.holder)
        for key in dict.fromkeys((*self.before, *after)):
            was, now = self.before.get(key, NOTHING), after.get(key, NOTHING)
            if was is not now:
                yield key, was, now

    def default(self, key: object) -> object:
        """What the class of an object has for an attribute that the object itself had not."""
        if isinstance(self.holder, (*_COLLECTIONS, types.CellType)) or not isinstance(key, str):
            return NOTHING
        return inspect.getattr_static(type(self.holder), key, NOTHING)

    def named(self, key: object) -> str:
        """What an item is called."""
        if isinstance(self.holder, types.CellType):
            return self.path
        if isinstance(self.holder, list | tuple | deque | dict):
            return f"{self.path}[{key!r}]"
        if isinstance(self.holder, set | frozenset):
            return f"an item of {self.path}"
        return f"{self.path}.{key}" if self.path else str(key)


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
    most : int
        How many containers are looked at; what lies further away goes unseen.
    longest : int, optional
        Containers with more items go unseen.
    """

    def __init__(
        self, *roots: tuple[str, object], most: int = MOST_CONTAINERS, longest: int | None = None
    ) -> None:
        self._most, self._longest = most, longest
        self._codes: list[types.CodeType] = []
        self._held: dict[str, list[tuple[str, object]]] = {}
        self._idle = False
        self._numbers: dict[str, object] = {}
        self._places: list[_Place] = []
        self._seen: set[int] = set()
        self._bindings: dict[tuple[int, str], _Binding] = {}
        self._read: dict[tuple[int, str], tuple[str, dict[str, Any]]] = {}
        self._modules: dict[int, tuple[str, dict[str, Any]]] = {}
        self._cells: list[tuple[str, types.CellType]] = []
        self._candidates: list[tuple[str, object, object]] = []
        mentioned = self._follow(roots)
        self._names = self._current_names()
        for name, value, attribute in self._candidates:
            if attribute is None or attribute in mentioned:
                self._numbers.setdefault(name, value)

    @property
    def is_empty(self) -> bool:
        """Whether only code of libraries may run."""
        return not self._codes

    def mentions(self, name: str) -> bool:
        """Whether code that may run reads a global or an attribute of that name."""
        return any(name in (*known.reads, *known.attributes) for known in map(named, self._codes))

    @property
    def numbers(self) -> tuple[str, ...]:
        """Numbers that the function can read, each with its name; they are part of the program."""
        told = itertools.islice(self._numbers.items(), MOST_NUMBERS)
        return tuple(f"{name} = {short(value)}" for name, value in told)

    def reached(self) -> Iterator[tuple[str, object]]:
        """What is within reach, by name."""
        for place in self._places:
            for key, value in place.before.items():
                yield place.named(key), value
        yield from ((binding.path, binding.before) for binding in self._bindings.values())

    def names(self) -> tuple[Names, str]:
        """Variables that the function reads, and one that it gave another value itself.

        They are as they were before the trace, so that what another thread did meanwhile is seen;
        or as they are now, if the function changed one.
        """
        for place in self._places:
            if isinstance(place.holder, types.CellType) and self._rebinds(place.path):
                for _, was, now in place.changes():
                    if not same(was, now):
                        return self._current_names(), place.path
        for binding in self._bindings.values():
            if not same(binding.now, binding.before) and self._binds(binding):
                return self._current_names(), binding.path
        return self._names, ""

    def _current_names(self) -> Names:
        return Names(self._cells, self._read.values(), same)

    def _rebinds(self, name: str) -> bool:
        """Whether the function may give a variable that functions share another value."""
        return any(name in named(code).shared for code in self._codes)

    def _binds(self, binding: _Binding) -> bool:
        """Whether the function may give a global another value, also as a module's attribute."""
        known = [named(code) for code in self._codes]
        return any(binding.name in names.stores for names in known) or (
            id(binding.names) in self._modules
            and any(binding.name in names.set_attributes for names in known)
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
        complaint = self.restore(made)
        if complaint is not None:
            raise JitError(self._text(name, purpose, *complaint))

    def restore(
        self, made: Callable[[object], bool]
    ) -> tuple[str, object, object, object] | None:
        """Undo what cannot stay; the first of it: what it is called, its key, before, after."""
        found: tuple[str, object, object, object] | None = None
        for place in self._places:
            wrong = []
            for key, was, now in place.changes():
                seen = place.default(key) if was is NOTHING else was
                if not _may_stay(key, seen, now, made):
                    wrong.append((key, was, seen, now))
            if isinstance(place.holder, types.CellType) and not self._rebinds(place.path):
                continue  # another thread did it
            for key, was, seen, now in wrong:
                cell = isinstance(place.holder, types.CellType)
                found = found or (place.named(key), place.path if cell else key, seen, now)
                put(place.holder, key, was)
            if wrong and isinstance(place.holder, list | deque):
                place.holder.clear()
                place.holder.extend(place.before.values())
        for binding in self._bindings.values():
            name, was, now = binding.name, binding.before, binding.now
            if now is not was and not _may_stay(name, was, now, made) and self._binds(binding):
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
            wanted, stores = (None, *_GROWING, "pop", "clear"), (
                "STORE_SUBSCR", "LOAD_METHOD", "LOAD_ATTR",
            )  # fmt: skip
        for code in sorted(self._codes, key=lambda c: c.co_name == "__init__"):
            for step in dis.get_instructions(code):
                line = step.positions.lineno if step.positions is not None else None
                if step.opname in stores and step.argval in wanted and line is not None:
                    return f"{code.co_filename}:{line}"
        return ""

    # ---- looking around

    def _follow(self, found: Iterable[tuple[str, object]]) -> set[str]:
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
            queue.extend(item for name in ready for item in self._held.pop(name))
            queue.extend(self._module_attributes(names))
        self._idle = True
        self._drain(deque(item for items in self._held.values() for item in items))
        return mentioned

    def _has_room(self) -> bool:
        """Whether there are not too many containers to look at."""
        return len(self._places) < self._most

    def _drain(self, queue: deque[tuple[str, object]]) -> None:
        while queue and self._has_room():
            path, value = queue.popleft()
            if id(value) in self._seen or _is_leaf(value):
                continue
            self._seen.add(id(value))
            if isinstance(value, types.FunctionType):
                queue.extend(self._function(value))
            elif isinstance(value, types.MethodType):
                queue.extend((("self", value.__self__), (path, value.__func__)))
            elif isinstance(value, types.BuiltinMethodType):
                queue.append((f"{path}.__self__", value.__self__))
            elif isinstance(value, functools.partial):
                names = (*value.args, *value.keywords.values())
                queue.extend((path or "self", item) for item in (value.func, *names))
            elif isinstance(value, types.ModuleType):
                self._modules.setdefault(id(vars(value)), (path or value.__name__, vars(value)))
            elif isinstance(value, type):
                queue.extend(self._methods(path, value))
            elif hasattr(type(value), _WRAPPED):
                queue.append((path, getattr(value, _WRAPPED)))
            else:
                queue.extend(self._container(path, value))

    def _container(self, path: str, value: object) -> Iterator[tuple[str, object]]:
        if self._longest is not None and isinstance(value, _COLLECTIONS) and (
            len(value) > self._longest
        ):
            return
        place = _Place(path, value)
        self._places.append(place)
        for key, item in place.before.items():
            name = place.named(key)
            if isinstance(item, _NUMBERS) and not _is_ours(value):
                self._number(name, item, attribute=key)
            yield name, item
        if not _is_ours(value) and not isinstance(value, types.CellType):
            yield path, type(value)

    def _methods(self, path: str, cls: type) -> Iterator[tuple[str, object]]:
        """The methods that may run; the others are held."""
        ours = {base for base in cls.__mro__ if _root(base.__module__) in _STANDARD}
        # What overrides a method of a library is called by that library.
        called = {name for base in ours for name in vars(base)}
        for base in cls.__mro__:
            for name, item in vars(base).items() if base not in ours else ():
                for method in _callables(item):
                    if self._idle or _is_special(name) or name in called:
                        yield path, method
                    else:
                        self._held.setdefault(name, []).append((path, method))

    def _function(self, fn: types.FunctionType) -> Iterator[tuple[str, object]]:
        codes = list(nested(fn.__code__))
        self._codes += codes
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            yield name, cell
            if self._idle:
                continue
            self._cells.append((name, cell))
            if is_filled(cell) and isinstance(cell.cell_contents, _NUMBERS):
                self._number(name, cell.cell_contents)
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

    def _variable(
        self, path: str, names: dict[str, Any], name: str, *, read: bool = True
    ) -> Iterator[tuple[str, object]]:
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
                self._number(path, binding.before)

    def _module_attributes(self, known: list[Named]) -> Iterator[tuple[str, object]]:
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

    def _number(self, name: str, value: object, *, attribute: object = None) -> None:
        self._candidates.append((name, value, attribute))


def _may_stay(
    key: object, was: object, now: object, made: Callable[[object], bool]
) -> bool:
    """Whether replays may leave out that an item became `now`."""
    if isinstance(key, str) and key == "_training":  # what reads it is traced anew
        return True
    if isinstance(was, _NUMBERS) and isinstance(now, _NUMBERS):
        return type(was) is type(now) and bool(was == now)
    if isinstance(was, Tensor | Module) and was is not now:
        return False
    return not any(made(item) for item in _inside(now))


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


def _is_leaf(value: object) -> bool:
    """Whether nothing is looked for in `value`."""
    if isinstance(value, (*_COLLECTIONS, types.CellType)):
        return False
    if isinstance(value, types.FunctionType):
        return _root(value.__module__) in _STANDARD
    if isinstance(value, types.MethodType | functools.partial | Module | Optimizer | Group):
        return False
    if isinstance(value, types.BuiltinMethodType):
        return not isinstance(value.__self__, _COLLECTIONS)
    if isinstance(value, types.ModuleType):
        return _is_library(value)
    if isinstance(value, type):
        return _root(value.__module__) in _STANDARD
    if isinstance(value, Tensor | np.ndarray):
        return True
    if hasattr(type(value), _WRAPPED):
        return False
    return _is_ours(value) or not (hasattr(value, "__dict__") or hasattr(value, "__slots__"))


def _is_ours(value: object) -> bool:
    return _root(type(value).__module__) in _STANDARD


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

"""Closure walk: find the code and containers that a function can reach."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from kernelrt.ir.size import Real, Size
from kernelrt.jit.effects.bytecode import named, nested
from kernelrt.jit.effects.python_containers import (
    COLLECTIONS,
    NOTHING,
    Snapshot,
    attributes,
    is_a,
    is_filled,
    size,
    text_of,
)
from kernelrt.nn import Module
from kernelrt.nn.optim import Optimizer
from kernelrt.nn.optim.param_groups import Group
from kernelrt.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kernelrt.jit.effects.bytecode import UsedNames
    from kernelrt.jit.effects.python_containers import Where

__all__ = ["MOST_CONTAINERS", "NUMBERS", "Binding", "ClosureWalk", "is_leaf", "is_ours",
           "is_standard"]  # fmt: skip

MOST_CONTAINERS: Final = 10_000
"""Maximum number of objects visited; objects further away are not seen."""
NUMBERS = (bool, int, float, complex, np.generic, Size, Real)

_STANDARD = sys.stdlib_module_names | {
    "numpy", "torch", "jax", "numba", "llvmlite", "kernelrt",
}
#: Types of leaves that the walk recognizes without further checks.
_PLAIN: Final = frozenset((bool, int, float, complex, str, bytes, type(None), Tensor, np.ndarray))
#: Cost of visiting a container or a function, in items.
_WEIGHT: Final = 8
_MAKING: Final = ("__new__", "__init__", "__post_init__", "__del__")
_DESCRIBING: Final = ("__get__", "__set__", "__delete__")
_ARGUMENTS: Final = "argparse", "Namespace"
_WRAPPED: Final = "__wrapped_function__"  # of a jitted function


class Binding:
    """A global variable with its value at the time of the walk."""

    __slots__ = ("before", "name", "names", "path")

    def __init__(self, path: str, names: dict[str, Any], name: str) -> None:
        self.path = path
        self.names = names
        self.name = name
        self.before = self.now

    @property
    def now(self) -> object:
        """Current value of the variable."""
        return self.names.get(self.name, NOTHING)


class ClosureWalk:
    """A walk over all objects reachable from a function.

    Parameters
    ----------
    roots, room
        See :class:`kernelrt.jit.effects.side_effects.OuterState`.
    """

    def __init__(self, roots: Iterable[tuple[Where, object]], room: int | None) -> None:
        self._left = room
        self._codes: list[types.CodeType] = []
        #: The code in `_codes` that the function may call, judged by names. The rest of `_codes` is
        #: other methods of the classes.
        self._running: list[types.CodeType] = []
        self._held: dict[str, list[tuple[Where, object]]] = {}
        #: Objects stored in class attributes, visited when code mentions the attribute.
        self._shared: dict[str, list[tuple[Where, object]]] = {}
        self._idle = False
        self._snapshots: list[Snapshot] = []
        self._seen: set[int] = set()
        #: Further paths to objects that were visited before, by id.
        self._ways: dict[int, list[Where]] = {}
        self._bindings: dict[tuple[int, str], Binding] = {}
        self._read: dict[tuple[int, str], tuple[str, dict[str, Any]]] = {}
        self._modules: dict[int, tuple[str, dict[str, Any]]] = {}
        self._cells: list[tuple[str, types.CellType]] = []
        #: Numbers, each with the attribute that holds it, if there is one.
        self._candidates: list[tuple[Where, object, object]] = []
        #: Code of constructors, with the class; and the classes that may be called.
        self._making: dict[types.CodeType, type] = {}
        self._called: list[type] = []
        self._mentioned = self._follow(roots)

    def _follow(self, found: Iterable[tuple[Where, object]]) -> set[str]:
        """Visit the code that may run, then other code.

        Return the attribute names that appear in the code that may run.

        A method may run if code that may run mentions its name. Variables that only other methods
        read, such as the counter of the loop that calls the function, do not matter.
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
            for name in [name for name in self._shared if name in mentioned]:
                queue.extend(self._shared.pop(name))
            queue.extend(self._module_attributes(names))
        self._running = list(self._codes)
        if self._left is None:
            self._idle = True
            self._drain(deque(
                (where, method) for members in self._held.values() for where, member in members
                for method in _callables(member)
            ))  # fmt: skip
        return mentioned

    def _has_room(self) -> bool:
        """Return whether the limit of visited containers is not reached."""
        return self._left > 0 if self._left is not None else len(self._snapshots) < MOST_CONTAINERS

    def _take(self, count: int) -> None:
        """Subtract a visited object and its items from the room that is left."""
        if self._left is not None:
            self._left -= _WEIGHT + count

    def _drain(self, queue: deque[tuple[Where, object]]) -> None:
        while queue and self._has_room():
            where, value = queue.popleft()
            if is_a(value, type):
                self._called.append(cast("type", value))
            if type(value) in _PLAIN:
                continue
            if id(value) in self._seen:
                if self._left is None and not is_a(value, (type, types.FunctionType)):
                    self._ways.setdefault(id(value), []).append(where)
                continue
            with contextlib.suppress(Exception):  # visiting objects may run user code
                if not is_leaf(value):
                    self._seen.add(id(value))
                    queue.extend(list(self._look(where, value)))

    def _look(self, where: Where, value: Any) -> Iterator[tuple[Where, object]]:
        """Yield the objects that an object refers to."""
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
            fits = count < self._left
            self._take(count if fits else 0)
            if not fits:
                return
        snapshot = Snapshot(where, value)
        self._snapshots.append(snapshot)
        ours = is_ours(value)
        for key, item in snapshot.before.items():
            if type(item) not in _PLAIN:
                yield (snapshot, key), item
            if not ours and self._left is None and is_a(item, NUMBERS):
                self._candidates.append(((snapshot, key), item, key))
        kind = type(value)
        if not ours and not is_a(value, types.CellType) and id(kind) not in self._seen:
            self._seen.add(id(kind))
            yield from self._methods(where, kind)

    def _methods(self, where: Where, cls: type) -> Iterator[tuple[Where, object]]:
        """Yield the methods of a class that may run. Keep the others until code names them."""
        self._take(0)
        ours = {base for base in cls.__mro__ if _root(base.__module__) in _STANDARD}
        # The library may call any method that overrides one of its own.
        called = {name for base in ours for name in vars(base)}
        for base in cls.__mro__:
            for name, item in vars(base).items() if base not in ours else ():
                if self._idle or _is_special(name) or name in called:
                    for method in _callables(item):
                        if name in _MAKING and is_a(method, types.FunctionType):
                            self._making[cast("Any", method).__code__] = base
                        yield where, method
                else:
                    self._held.setdefault(name, []).append((where, item))
                    if type(item) not in _PLAIN and not hasattr(type(item), "__get__"):
                        way = f"{cls.__name__}.{name}"
                        self._shared.setdefault(name, []).append((way, item))

    def _function(
        self, where: Where, fn: types.FunctionType
    ) -> Iterator[tuple[Where, object]]:
        cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        if _root(fn.__module__) in _STANDARD:  # its closure may hold user functions
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
            if is_filled(cell) and is_a(cell.cell_contents, NUMBERS):
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
        """Record a global that code reads or sets. If the walk did not know it, yield its value."""
        key = id(names), name
        binding = self._bindings.get(key)
        if binding is None:
            binding = self._bindings[key] = Binding(path, names, name)
            if binding.before is not NOTHING:
                yield path, binding.before
        if read and not self._idle and key not in self._read:
            self._read[key] = name, names
            if is_a(binding.before, NUMBERS):
                self._candidates.append((path, binding.before, None))

    def _module_attributes(self, known: list[UsedNames]) -> Iterator[tuple[Where, object]]:
        """Yield the attributes of the visited modules that code may read or set by name."""
        if not self._modules:
            return
        read = dict.fromkeys(a for names in known for a in names.attributes)
        stored = dict.fromkeys(a for names in known for a in names.set_attributes)
        handles_missing = any(names.handles_missing for names in known)
        for path, names in list(self._modules.values()):
            for name in read:
                if handles_missing or name in names:
                    yield from self._variable(f"{path}.{name}", names, name)
            for name in stored:
                yield from self._variable(f"{path}.{name}", names, name, read=False)


def is_leaf(value: Any) -> bool:
    """Return whether the walk stops at `value`."""
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
    if is_ours(value) or attributes(value) is not None:
        return is_ours(value)
    return not any("__slots__" in vars(base) for base in type(value).__mro__)


def _has_wrapped(value: object) -> bool:
    return any(_WRAPPED in vars(base) for base in type(value).__mro__)


def is_ours(value: object) -> bool:
    """Return whether a library defines the class of an object, so it has no user attributes."""
    kind = type(value)
    # These standard classes hold user attributes.
    if kind is types.SimpleNamespace or (kind.__module__, kind.__name__) == _ARGUMENTS:
        return False
    return _root(kind.__module__) in _STANDARD


def is_standard(cls: type) -> bool:
    """Return whether a class is defined by a library."""
    return _root(cls.__module__) in _STANDARD


def _is_library(module: types.ModuleType) -> bool:
    """Return whether a module is an installed library; the walk skips its attributes."""
    if _root(module.__name__) in _STANDARD:
        return True
    places = (vars(module).get("__file__"), *vars(module).get("__path__", ()))
    paths = (os.fspath(place).split(os.sep) for place in places if place)  # noqa: PTH206 - slow to load
    return any(part in ("site-packages", "dist-packages") for path in paths for part in path)


def _imported(
    name: str, dots: int, names: dict[str, Any]
) -> Iterator[tuple[str, types.ModuleType]]:
    """Yield the loaded modules that an import in a function with these globals refers to."""
    if dots:
        parts = str(names.get("__package__") or "").split(".")
        name = ".".join([*parts[: len(parts) - dots + 1], *filter(None, [name])])
    for full in (name, _root(name)):
        if full in sys.modules:
            yield full, sys.modules[full]


def _callables(member: Any) -> Iterator[object]:
    """Yield the functions that run when an attribute of a class is called, read or set."""
    if is_a(member, (staticmethod, classmethod)):
        yield from _callables(member.__func__)
    elif is_a(member, property):
        yield from (f for f in (member.fget, member.fset, member.fdel) if f is not None)
    elif is_a(member, (functools.cached_property, functools.partialmethod)):
        yield member.func
    elif is_a(member, (types.FunctionType, type)) or _has_wrapped(member):
        yield member
    elif type(member) not in _PLAIN and not is_ours(member):
        for base in type(member).__mro__:
            yield from (vars(base)[name] for name in _DESCRIBING if name in vars(base))


def _is_special(name: str) -> bool:
    """Return whether Python itself calls methods of this name."""
    return name.startswith("__") and name.endswith("__")


def _root(module: object) -> str:
    return str(module).partition(".")[0]

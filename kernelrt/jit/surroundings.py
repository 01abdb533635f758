"""What a function reaches beside its arguments, compared before and after it is traced.

Replays run no Python: an attribute that the function sets is set once, while it is traced, to a
tensor without a value or to the number that came first. So a trace that does so ends in an error.
"""

from __future__ import annotations

import dis
import functools
import itertools
import sys
import types
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt._names import Names
from kernelrt.errors import JitError
from kernelrt.jit.signature import short
from kernelrt.nn import Module
from kernelrt.nn.modes import Noted, same
from kernelrt.nn.optim import Optimizer
from kernelrt.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Surroundings"]

MOST_CONTAINERS: Final = 10_000
"""How many objects are looked at; what lies further away goes unseen."""
MOST_NUMBERS: Final = 8
"""How many numbers that became part of the program are told."""

_NUMBERS = (bool, int, float, complex, np.generic)
_STANDARD = sys.stdlib_module_names | {"numpy", "torch", "jax", "kernelrt"}
_WRAPPED: Final = "__wrapped_function__"  # of a jitted function
_READS: Final = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_WRITES: Final = ("STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL", "DELETE_NAME")
_ATTRIBUTES: Final = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR", "DELETE_ATTR")
#: What finds attributes by names that are not written in the code.
_BY_NAME: Final = frozenset((
    "getattr", "setattr", "vars", "eval", "exec", "attrgetter", "methodcaller", "getmembers",
    "__dict__", "__getattribute__",
))  # fmt: skip
_GROWING: Final = ("append", "extend", "insert", "add", "update", "setdefault", "appendleft")


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING: Final = _Nothing()


class _Place:
    """A container that was met: its items then, and what it is called."""

    __slots__ = ("before", "holder", "path")

    def __init__(self, path: str, holder: object) -> None:
        self.path = path
        self.holder = holder
        self.before = _items(holder)

    def changes(self) -> Iterator[tuple[object, object, object]]:
        """(key, before, after) of each item that is another than it was."""
        after = _items(self.holder)
        for key in dict.fromkeys((*self.before, *after)):
            was, now = self.before.get(key, NOTHING), after.get(key, NOTHING)
            if was is not now:
                yield key, was, now

    def named(self, key: object) -> str:
        """What an item is called."""
        if isinstance(self.holder, types.CellType):
            return self.path
        if isinstance(self.holder, list | tuple | deque | dict):
            return f"{self.path}[{key!r}]"
        if isinstance(self.holder, set | frozenset):
            return f"an item of {self.path}"
        return f"{self.path}.{key}" if self.path else str(key)


class Surroundings:
    """Everything reachable from a function, as it is now.

    Parameters
    ----------
    fn : callable
        Its closure, its defaults, the globals that it names, and the object that it is a method
        of are followed, and from there attributes and items.
    arguments : iterable of (str, object)
        Arguments by name; what is in them is followed, too.
    """

    def __init__(
        self, fn: Callable[..., object], arguments: Iterable[tuple[str, object]] = ()
    ) -> None:
        self._codes: list[types.CodeType] = []
        self._held: dict[str, list[tuple[str, object]]] = {}
        self._idle = False
        self._numbers: dict[str, object] = {}
        self._places: list[_Place] = []
        self._seen: set[int] = set()
        self._globals: set[tuple[int, str]] = set()
        self._bindings: list[tuple[dict[str, Any], str, object]] = []
        self._read: list[tuple[str, dict[str, Any]]] = []
        self._cells: list[tuple[str, types.CellType]] = []
        self._candidates: list[tuple[str, object, object]] = []
        mentioned = self._follow([("", fn), *arguments])
        self._names = Names(self._cells, self._read, same)
        for name, value, attribute in self._candidates:
            if attribute is None or attribute in mentioned:
                self._numbers.setdefault(name, value)

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
        yield from ((name, value) for _, name, value in self._bindings)

    def names(self) -> tuple[Names, str]:
        """Variables that the function reads, and one that it gave another value itself.

        They are as they were before the trace, so that what another thread did meanwhile is seen;
        or as they are now, if the function changed one.
        """
        for place in self._places:
            if isinstance(place.holder, types.CellType) and self._stores(place.path):
                for _, was, now in place.changes():
                    if not same(was, now):
                        return Names(self._cells, self._read, same), place.path
        for names, name, was in self._bindings:
            if not same(names.get(name, NOTHING), was) and self._stores(name):
                return Names(self._cells, self._read, same), name
        return self._names, ""

    def _stores(self, name: str) -> bool:
        """Whether the function may give a variable another value."""
        return any(_does(code, name, "STORE_GLOBAL", "STORE_DEREF") for code in self._codes)

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

    def check(self, name: str, made: Callable[[object], bool]) -> None:
        """Raise JitError if anything was set that replays of `name` would have to set again.

        Parameters
        ----------
        name : str
            What the function is called.
        made : callable
            Whether an object is a tensor that was made by the trace.
        """
        complaint = self.restore(made)
        if complaint is not None:
            path, key, before, after = complaint
            raise JitError(self._text(name, path, key, before, after))

    def restore(
        self, made: Callable[[object], bool]
    ) -> tuple[str, object, object, object] | None:
        """Undo what cannot stay; the first of it: what it is called, its key, before, after."""
        found: tuple[str, object, object, object] | None = None
        for place in self._places:
            wrong = [c for c in place.changes() if not _may_stay(*c, made)]
            if isinstance(place.holder, types.CellType) and not self._stores(place.path):
                continue  # another thread did it
            for key, was, now in wrong:
                cell = isinstance(place.holder, types.CellType)
                found = found or (place.named(key), place.path if cell else key, was, now)
                _put(place.holder, key, was)
            if wrong and isinstance(place.holder, list | deque):
                place.holder.clear()
                place.holder.extend(place.before.values())
        for names, name, was in self._bindings:
            now = names.get(name, NOTHING)
            if now is not was and not _may_stay(name, was, now, made) and self._stores(name):
                found = found or (name, name, was, now)
                _put(names, name, was)
        return found

    def _text(self, name: str, path: str, key: object, before: object, after: object) -> str:
        where = self._line(key)
        line = f" ({where})" if where else ""
        number = isinstance(after, _NUMBERS)
        told = f"changes it from {short(before)} to {short(after)}" if number else (
            "takes it away" if after is NOTHING else
            "sets it to a tensor that has no value outside" if before is NOTHING
            or not isinstance(before, Tensor | Module) else "sets it to another one"
        )
        way = (
            "count outside of the function, or keep the number in a tensor made outside, as in "
            f"krt.tensor({short(before)}), and assign() to that"
            if number else
            f"write {path}.assign(...), which replays repeat, or return the tensor and set "
            "it outside" if isinstance(before, Tensor) else
            "return the tensor and keep it outside, or make one outside and assign() to it"
        )
        return f"{path}: {name} {told}{line}, which replays cannot repeat; {way}"

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

    def _follow(self, found: list[tuple[str, object]]) -> set[object]:
        """Look at what may run, then at the rest; the attributes that the former mentions.

        A method may run where code that may run mentions its name. Variables that only other
        methods read, such as the counter of the loop that calls the function, change nothing.
        """
        self._drain(deque(found))
        mentioned: set[object] = set()
        known = 0
        while known < len(self._codes):
            mentioned.update(*map(_attributes, self._codes[known:]))
            known = len(self._codes)
            by_name = not _BY_NAME.isdisjoint(mentioned) or any(
                not _BY_NAME.isdisjoint(_variables(code)) for code in self._codes
            )
            ready = list(self._held) if by_name else [n for n in self._held if n in mentioned]
            self._drain(deque(item for name in ready for item in self._held.pop(name)))
        self._idle = True
        self._drain(deque(item for items in self._held.values() for item in items))
        return mentioned

    def _drain(self, queue: deque[tuple[str, object]]) -> None:
        while queue and len(self._places) < MOST_CONTAINERS:
            path, value = queue.popleft()
            if id(value) in self._seen or _is_leaf(value):
                continue
            self._seen.add(id(value))
            if isinstance(value, types.FunctionType):
                queue.extend(self._function(value))
            elif isinstance(value, types.MethodType):
                queue.extend((("self", value.__self__), (path, value.__func__)))
            elif isinstance(value, functools.partial):
                names = (*value.args, *value.keywords.values())
                queue.extend((path or "self", item) for item in (value.func, *names))
            elif hasattr(type(value), _WRAPPED):
                queue.append((path, getattr(value, _WRAPPED)))
            else:
                queue.extend(self._container(path, value))

    def _container(self, path: str, value: object) -> Iterator[tuple[str, object]]:
        place = _Place(path, value)
        self._places.append(place)
        for key, item in place.before.items():
            name = place.named(key)
            if isinstance(item, _NUMBERS) and not _is_ours(value):
                self._number(name, item, attribute=key)
            yield name, item
        if not _is_ours(value) and not isinstance(value, types.CellType):
            yield from self._methods(path, type(value))

    def _methods(self, path: str, cls: type) -> Iterator[tuple[str, object]]:
        """The methods that may run; the others are held."""
        ours = {base for base in cls.__mro__ if _root(base.__module__) in _STANDARD}
        # What overrides a method of a library is called by that library.
        called = {name for base in ours for name in vars(base)}
        for base in cls.__mro__:
            for name, item in vars(base).items() if base not in ours else ():
                for method in _functions(item):
                    if self._idle or _is_special(name) or name in called:
                        yield path, method
                    else:
                        self._held.setdefault(name, []).append((path, method))

    def _function(self, fn: types.FunctionType) -> Iterator[tuple[str, object]]:
        codes = list(_nested(fn.__code__))
        self._codes += codes
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            yield name, cell
            if self._idle:
                continue
            self._cells.append((name, cell))
            if _is_filled(cell) and isinstance(cell.cell_contents, _NUMBERS):
                self._number(name, cell.cell_contents)
        for name in dict.fromkeys(n for code in codes for n in _variables(code)):
            key = id(fn.__globals__), name
            if key in self._globals:
                continue
            if name not in fn.__globals__:
                if any(_does(code, name, "STORE_GLOBAL") for code in codes):
                    self._globals.add(key)
                    self._bindings.append((fn.__globals__, name, NOTHING))
                continue
            self._globals.add(key)
            value = fn.__globals__[name]
            self._bindings.append((fn.__globals__, name, value))
            if not self._idle and any(_does(code, name, *_READS) for code in codes):
                if not isinstance(value, type | types.ModuleType):
                    self._read.append((name, fn.__globals__))
                if isinstance(value, _NUMBERS):
                    self._number(name, value)
            yield name, value
        for default in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
            yield "a default", default

    def _number(self, name: str, value: object, *, attribute: object = None) -> None:
        self._candidates.append((name, value, attribute))


def _may_stay(
    key: object, was: object, now: object, made: Callable[[object], bool]
) -> bool:
    """Whether replays may leave out that an item became `now`."""
    if key == "_training":  # what reads it is traced anew
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
            stack.extend(_items(item).values())


def _items(holder: object) -> dict[Any, Any]:
    """What is in a container, by index, key or attribute."""
    if isinstance(holder, types.CellType):
        return {"": holder.cell_contents} if _is_filled(holder) else {}
    if isinstance(holder, dict):
        return dict(holder)
    if isinstance(holder, list | tuple | deque):
        return dict(enumerate(holder))
    if isinstance(holder, set | frozenset):
        return {id(item): item for item in holder}
    slots = (n for base in type(holder).__mro__ for n in _slots(base))
    found = {n: getattr(holder, n) for n in slots if hasattr(holder, n)}
    return found | getattr(holder, "__dict__", {})


def _slots(base: type) -> tuple[str, ...]:
    names = vars(base).get("__slots__", ())
    names = (names,) if isinstance(names, str) else names
    return tuple(n for n in names if n not in ("__dict__", "__weakref__"))


def _put(holder: Any, key: Any, value: object) -> None:
    """Let an item be what it was."""
    if isinstance(holder, types.CellType):
        if value is NOTHING:
            del holder.cell_contents
        else:
            holder.cell_contents = value
    elif isinstance(holder, set):
        if value is NOTHING:
            holder.discard(next((item for item in holder if id(item) == key), None))
        else:
            holder.add(value)
    elif isinstance(holder, dict):
        if value is NOTHING:
            holder.pop(key, None)
        else:
            holder[key] = value
    elif not isinstance(holder, list | deque):  # these are restored as a whole
        if key in getattr(holder, "__dict__", {}):
            _put(holder.__dict__, key, value)
        elif value is not NOTHING:
            object.__setattr__(holder, key, value)
        else:
            object.__delattr__(holder, key)


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True


def _is_leaf(value: object) -> bool:
    """Whether nothing is looked for in `value`."""
    if isinstance(value, dict | list | tuple | set | frozenset | deque | types.CellType):
        return False
    if isinstance(value, types.FunctionType):
        return _root(value.__module__) in _STANDARD
    if isinstance(value, types.MethodType | functools.partial | Module | Optimizer):
        return False
    if isinstance(value, type | types.ModuleType | Tensor | np.ndarray):
        return True
    if hasattr(type(value), _WRAPPED):
        return False
    return _is_ours(value) or not (hasattr(value, "__dict__") or hasattr(value, "__slots__"))


def _is_ours(value: object) -> bool:
    return _root(type(value).__module__) in _STANDARD


def _functions(value: Any) -> Iterator[object]:
    """The functions that an attribute of a class is made of."""
    if isinstance(value, types.FunctionType) or hasattr(type(value), _WRAPPED):
        yield value
    elif isinstance(value, property):
        yield from (f for f in (value.fget, value.fset, value.fdel) if f is not None)
    elif isinstance(value, functools.cached_property):
        yield value.func
    elif isinstance(value, staticmethod | classmethod):
        yield from _functions(value.__func__)


def _is_special(name: str) -> bool:
    """Whether Python calls a method of that name by itself."""
    return name.startswith("__") and name.endswith("__")


def _root(module: object) -> str:
    return str(module).partition(".")[0]


@functools.lru_cache(4096)
def _attributes(code: types.CodeType) -> frozenset[object]:
    """The attributes that are mentioned there."""
    return frozenset(s.argval for s in dis.get_instructions(code) if s.opname in _ATTRIBUTES)


@functools.lru_cache(4096)
def _variables(code: types.CodeType) -> tuple[str, ...]:
    """The variables that are neither local nor of an enclosing function; attributes are none."""
    steps = dis.get_instructions(code)
    return tuple(dict.fromkeys(s.argval for s in steps if s.opname in _READS + _WRITES))


def _does(code: types.CodeType, name: str, *opnames: str) -> bool:
    """Whether one of these instructions, which are about variables, names `name` there."""
    known = name in code.co_names or name in code.co_freevars or name in code.co_cellvars
    steps = dis.get_instructions(code) if known else ()
    return any(s.argval == name and s.opname in opnames for s in steps)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code and that of the functions that are written in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)

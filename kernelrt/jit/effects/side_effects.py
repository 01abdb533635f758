"""Detects side effects: compares the containers of a function before and after its trace.

Replays and turns of loops run no Python: an attribute that the function sets is set once, while it
is traced, to a tensor without a value or to the number that came first. So a trace that does so
ends in an error.
"""

from __future__ import annotations

import contextlib
import dis
import types
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kernelrt.errors import JitError
from kernelrt.jit.attribute_guards import Guards
from kernelrt.jit.effects.bytecode import CHANGING, named
from kernelrt.jit.effects.clocks import tell_clocks
from kernelrt.jit.effects.closure_walk import MOST_CONTAINERS, NUMBERS, Reach, is_leaf
from kernelrt.jit.effects.python_containers import (
    COLLECTIONS,
    NOTHING,
    is_a,
    items,
    put,
    size,
    text_of,
)
from kernelrt.jit.signature import short
from kernelrt.native.name_guards import Names
from kernelrt.nn import Module
from kernelrt.nn.modes import Noted, same
from kernelrt.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kernelrt.jit.effects.closure_walk import Binding
    from kernelrt.jit.effects.purity import Purpose
    from kernelrt.jit.effects.python_containers import Place

__all__ = ["Surroundings"]

MOST_NUMBERS: Final = 8
"""How many numbers that became part of the program are told."""


class Surroundings(Reach):
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
        super().__init__(roots, room)
        self._numbers: dict[str, object] = {}
        self._known = [named(code) for code in self._codes]
        #: What may set something that was there before.
        self._setting = [named(code) for code in self._codes if self._may_run(code)]
        if room is not None:
            return
        running = [code for code in self._running if self._may_run(code)]
        self._guards = Guards(self._places, self._ways, running, self._called, roots[1:])
        self._names = self._current_names()
        for where, value, attribute in self._candidates:
            if len(self._numbers) == MOST_NUMBERS:
                break
            if attribute is None or attribute in self._mentioned:
                self._numbers.setdefault(text_of(where), value)

    @property
    def is_empty(self) -> bool:
        """Whether only code of libraries may run."""
        return not self._codes

    def _may_run(self, code: types.CodeType) -> bool:
        """Whether code is another than what made objects that are there."""
        cls = self._making.get(code)
        return cls is None or any(cls in called.__mro__ for called in self._called)

    @property
    def met(self) -> set[int]:
        """The containers that are compared, by identity."""
        return {id(place.holder) for place in self._places}

    def leave_out(self, met: set[int]) -> None:
        """Compare nothing of what a look around a function outside compares."""
        self._places = [place for place in self._places if id(place.holder) not in met]
        self._bindings.clear()

    def mentions(self, name: str) -> bool:
        """Whether code that may run reads a global or an attribute of that name."""
        return any(name in (*known.reads, *known.attributes) for known in self._known)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Numbers that the function can read, each with its name; they are part of the program."""
        return tuple(f"{name} = {short(value)}" for name, value in self._numbers.items())

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

    def names(self, called: Iterable[object] = ()) -> tuple[Names, str]:
        """What the function reads of Python, and a variable that it gave another value itself.

        All is as it was before the trace, so that what another thread did meanwhile is seen; or as
        it is now, if the function changed a variable. What `called` reach, which run with the plan,
        is not looked at.
        """
        for place in self._places:
            if is_a(place.holder, types.CellType) and self._may_set(place, ""):
                for _, was, now in place.changes():
                    if not same(was, now):
                        return self._current_names(), text_of(place.where)
        for binding in self._bindings.values():
            if not same(binding.now, binding.before) and self._binds(binding):
                return self._current_names(), binding.path
        own = [
            (place.holder, key) for place in self._places if not is_a(place.holder, types.CellType)
            for key, was, now in place.changes() if not same(was, now) and self._may_set(place, key)
        ]  # fmt: skip
        theirs = {id(place.holder) for place in self._within(called)[0]}
        if self._guards.leave_out(own, theirs, self._setting):
            return self._current_names(), ""
        return self._names, ""

    @staticmethod
    def _within(called: Iterable[object]) -> tuple[list[Place], list[types.CodeType]]:
        """The containers that functions reach, and their code."""
        roots = [("", function) for function in called]
        if not roots:
            return [], []
        met = Reach(roots, None)
        return met._places, met._codes

    def tell_clocks(self, name: str, called: Iterable[object]) -> None:
        """Warn of clocks that the function `name` reads, but for what `called` do."""
        apart = set(self._within(called)[1])
        variables = {b.name: b.before for b in self._bindings.values()}
        tell_clocks(name, [code for code in self._running if code not in apart], variables)

    def _current_names(self) -> Names:
        read = [(name, names, name, False) for name, names in self._read.values()]
        guards = self._guards
        return Names(self._cells, [*read, *guards.named], same, guards.lists, guards.slots)

    def _may_set(self, place: Place, key: object) -> bool:
        """Whether code that may run sets an item of that key, as far as it says.

        Other threads, handlers of signals and finalizers set others.
        """
        if is_a(place.holder, types.CellType):
            return any(place.where in known.shared for known in self._setting)
        if is_a(place.holder, COLLECTIONS):
            fills = hasattr(type(place.holder), "__missing__")  # where it is read
            return fills or any(known.sets_items for known in self._setting)
        return any(known.sets_any or key in known.set_attributes for known in self._setting)

    def _binds(self, binding: Binding) -> bool:
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
            if not is_a(holder, Module):
                continue
            for key, value in place.before.items():
                if is_a(value, Module) or (is_a(value, Tensor) and _memory(value) in sources):
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
            cell = is_a(place.holder, types.CellType)
            changes: list[tuple[object, object, object]] = []
            with contextlib.suppress(Exception):  # of code of users, as a key that has no hash now
                changes += place.changes()
            for key, was, now in changes:
                seen = place.default(key) if was is NOTHING else was
                sure = made(now) or self._may_set(place, key) or (purpose.strict and not cell)
                if not may_stay(key, seen, now, made, sure=sure):
                    wrong.append((key, was, seen, now))
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
        number = is_a(before, NUMBERS) and is_a(after, NUMBERS)
        told = f"changes it from {short(before)} to {short(after)}" if number else (
            "deletes it" if after is NOTHING else
            f"sets it to {short(after)}" if after is None or is_a(after, NUMBERS) else
            "sets it to a tensor that has no value outside" if before is NOTHING
            or not isinstance(before, Tensor | Module) else "rebinds it"
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
                "STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR", "LOAD_METHOD", "LOAD_ATTR",
                "LOAD_SUPER_ATTR",
            )  # fmt: skip
        for code in sorted(self._codes, key=lambda c: c.co_name == "__init__"):
            for step in dis.get_instructions(code):
                line = step.positions.lineno if step.positions is not None else None
                if step.opname in stores and step.argval in wanted and line is not None:
                    return f"{code.co_filename}:{line}"
        return ""


def _may_stay(
    key: object, was: object, now: object, made: Callable[[object], bool], *, sure: bool
) -> bool:
    """Whether replays may leave out that an item became `now`."""
    if _is_mode(key):
        return True
    if is_a(was, NUMBERS) and is_a(now, NUMBERS):
        return not sure or _equal(was, now)
    if is_a(was, (Tensor, Module)) and sure:
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
    if not sure or _is_mode(key):
        return True
    if is_a(was, NUMBERS) and is_a(now, NUMBERS):
        return _equal(was, now)
    return not _is_state(was)


def _may_stay_failed(
    key: object, was: object, now: object, made: Callable[[object], bool], *, sure: bool
) -> bool:
    """Whether an item may be `now` behind an error, which other turns would not have come to."""
    del key, sure
    return not (_is_state(was) and made(now))


def _memory(tensor: Any) -> Any:
    """The memory that the elements of a tensor lie in; None where there is none yet."""
    owner = tensor if tensor._link is None else tensor._link.root
    return None if owner._memory is None else owner._buffer


def _is_mode(key: object) -> bool:
    """Whether it is the attribute that training sets: what reads it is traced anew."""
    return type(key) is str and key == "_training"


def _is_state(value: Any) -> bool:
    """Whether it is a module, or a tensor that has a value."""
    if is_a(value, Tensor):
        return bool(value.is_realized or value._born is None)
    return is_a(value, Module)


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
        with contextlib.suppress(Exception):  # of code of users
            if not is_leaf(item) and not is_a(item, (types.FunctionType, types.MethodType)):
                stack.extend(items(item).values())

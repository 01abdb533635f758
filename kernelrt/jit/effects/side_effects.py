"""Detect side effects by comparing the containers of a function before and after its trace.

Replays and iterations of loops do not run Python code. If a function sets an attribute, Python sets
it only once, while the function is traced: to a tensor without a value, or to the first of several
numbers. Such a trace therefore raises an error.
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
from kernelrt.jit.effects.closure_walk import MOST_CONTAINERS, NUMBERS, ClosureWalk, is_leaf
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
from kernelrt.nn.modes import AttributeRead, same
from kernelrt.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kernelrt.jit.effects.closure_walk import Binding
    from kernelrt.jit.effects.purity import Purpose
    from kernelrt.jit.effects.python_containers import Snapshot

__all__ = ["OuterState"]

MOST_NUMBERS: Final = 8
"""Maximum number of constants of the program that `explain` lists."""


class OuterState(ClosureWalk):
    """A snapshot of everything reachable from a function (the state outside it).

    Parameters
    ----------
    *roots : (str, object)
        Functions, with an empty name, and arguments by name. The walk follows closures, defaults
        and globals of functions, the objects that methods are bound to, and from there and from
        arguments all attributes and items.
    room : int, optional
        Maximum number of visited items, for a quick snapshot; a container or a function counts as
        several. The walk does not see objects beyond this limit. Nor does it enter methods whose
        names do not appear in the code of the function, so it does not see objects that only such
        methods reach.
    """

    def __init__(self, *roots: tuple[str, object], room: int | None = None) -> None:
        super().__init__(roots, room)
        self._numbers: dict[str, object] = {}
        self._known = [named(code) for code in self._codes]
        #: Names in the code that may change existing objects. Constructors of classes that are not
        #: called are left out.
        self._setting = [named(code) for code in self._codes if self._may_run(code)]
        if room is not None:
            return
        running = [code for code in self._running if self._may_run(code)]
        self._guards = Guards(self._snapshots, self._ways, running, self._called, roots[1:])
        self._names = self._current_names()
        for where, value, attribute in self._candidates:
            if len(self._numbers) == MOST_NUMBERS:
                break
            if attribute is None or attribute in self._mentioned:
                self._numbers.setdefault(text_of(where), value)

    @property
    def is_empty(self) -> bool:
        """Whether only library code may run."""
        return not self._codes

    def _may_run(self, code: types.CodeType) -> bool:
        """Return whether code may run. Constructors of classes that are not called may not."""
        cls = self._making.get(code)
        return cls is None or any(cls in called.__mro__ for called in self._called)

    @property
    def met(self) -> set[int]:
        """Ids of the containers that are compared."""
        return {id(snapshot.holder) for snapshot in self._snapshots}

    def leave_out(self, met: set[int]) -> None:
        """Exclude the containers that the snapshot of an enclosing function compares."""
        self._snapshots = [s for s in self._snapshots if id(s.holder) not in met]
        self._bindings.clear()

    def mentions(self, name: str) -> bool:
        """Return whether code that may run reads a global or an attribute of that name."""
        return any(name in (*known.reads, *known.attributes) for known in self._known)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Numbers that the function can read, as ``name = value``: constants of the program."""
        return tuple(f"{name} = {short(value)}" for name, value in self._numbers.items())

    def reached(self, kinds: tuple[type, ...]) -> Iterator[tuple[str, object]]:
        """Yield the reachable objects of these types, with their paths."""
        for snapshot in self._snapshots:
            for key, value in snapshot.before.items():
                if is_a(value, kinds) and self._may_read(snapshot, key):
                    yield snapshot.named(key), value
        for binding in self._bindings.values():
            if is_a(binding.before, kinds):
                yield binding.path, binding.before

    def _may_read(self, snapshot: Snapshot, key: object) -> bool:
        """Return whether code that may run may read an item with that key; a quick estimate."""
        return self._left is None or is_a(snapshot.holder, (*COLLECTIONS, types.CellType)) or any(
            known.by_text or key in known.attributes for known in self._known
        )

    def names(self, called: Iterable[object] = ()) -> tuple[Names, str]:
        """Return the Python names that the function reads, and a variable that it rebound, if any.

        The values are those from before the trace, so that the guards notice changes that other
        threads make during the trace. If the function rebound a variable, the values are the
        current ones. The plan itself calls the functions in `called`, so state that only they reach
        is not guarded.
        """
        for snapshot in self._snapshots:
            if is_a(snapshot.holder, types.CellType) and self._may_set(snapshot, ""):
                for _, was, now in snapshot.changes():
                    if not same(was, now):
                        return self._current_names(), text_of(snapshot.where)
        for binding in self._bindings.values():
            if not same(binding.now, binding.before) and self._binds(binding):
                return self._current_names(), binding.path
        own = [
            (snapshot.holder, key) for snapshot in self._snapshots
            if not is_a(snapshot.holder, types.CellType)
            for key, was, now in snapshot.changes()
            if not same(was, now) and self._may_set(snapshot, key)
        ]  # fmt: skip
        theirs = {id(snapshot.holder) for snapshot in self._within(called)[0]}
        if self._guards.leave_out(own, theirs, self._setting):
            return self._current_names(), ""
        return self._names, ""

    @staticmethod
    def _within(called: Iterable[object]) -> tuple[list[Snapshot], list[types.CodeType]]:
        """Return the containers that functions can reach, and their code."""
        roots = [("", function) for function in called]
        if not roots:
            return [], []
        met = ClosureWalk(roots, None)
        return met._snapshots, met._codes

    def tell_clocks(self, name: str, called: Iterable[object]) -> None:
        """Warn about clocks that the function `name` reads, except in the functions `called`."""
        excluded = set(self._within(called)[1])
        variables = {b.name: b.before for b in self._bindings.values()}
        tell_clocks(name, [code for code in self._running if code not in excluded], variables)

    def _current_names(self) -> Names:
        read = [(name, names, name, False) for name, names in self._read.values()]
        guards = self._guards
        return Names(self._cells, [*read, *guards.named], same, guards.lists, guards.slots)

    def _may_set(self, snapshot: Snapshot, key: object) -> bool:
        """Return whether code that may run may set an item with that key, judged by names.

        Other changes come from other threads, signal handlers or finalizers.
        """
        if is_a(snapshot.holder, types.CellType):
            return any(snapshot.where in known.shared for known in self._setting)
        if is_a(snapshot.holder, COLLECTIONS):
            fills = hasattr(type(snapshot.holder), "__missing__")  # a read may add an item
            return fills or any(known.sets_items for known in self._setting)
        return any(known.sets_any or key in known.set_attributes for known in self._setting)

    def _binds(self, binding: Binding) -> bool:
        """Return whether the function may rebind a global, directly or as a module attribute."""
        return any(binding.name in names.stores for names in self._setting) or (
            id(binding.names) in self._modules
            and any(binding.name in names.set_attributes for names in self._setting)
        )

    def noted(self, sources: set[Any]) -> Iterator[AttributeRead]:
        """Yield the attributes of modules that lead to memory that the program reads.

        These are submodules, and tensors over one of the buffers in `sources`.
        """
        for snapshot in self._snapshots:
            holder = snapshot.holder
            if not is_a(holder, Module):
                continue
            for key, value in snapshot.before.items():
                if is_a(value, Module) or (is_a(value, Tensor) and _memory(value) in sources):
                    yield AttributeRead(holder, key, value)

    def check(self, name: str, purpose: Purpose, made: Callable[[object], bool]) -> None:
        """Raise JitError if the function made a change that should happen in every run.

        Parameters
        ----------
        name : str
            Name of the function for the error.
        purpose : Purpose
            Purpose of the call.
        made : callable
            Predicate for tensors that the trace created.
        """
        complaint = self.restore(purpose, made)
        if complaint is not None:
            raise JitError(self._text(name, purpose, *complaint))

    def restore(
        self, purpose: Purpose, made: Callable[[object], bool], *, failed: bool = False
    ) -> tuple[str, object, object, object] | None:
        """Undo changes that must not persist; return path, key, old and new value of the first.

        Parameters
        ----------
        purpose : Purpose
            Purpose of the call.
        made : callable
            Predicate for tensors that the trace created.
        failed : bool
            Whether the function raised an error.
        """
        found: tuple[str, object, object, object] | None = None
        may_stay = _may_stay if purpose.strict else _may_stay_failed if failed else _may_stay_once
        for snapshot in self._snapshots:
            if not purpose.strict and not _compares(snapshot):
                continue
            wrong = []
            cell = is_a(snapshot.holder, types.CellType)
            changes: list[tuple[object, object, object]] = []
            with contextlib.suppress(Exception):  # user code may raise, such as a key's __hash__
                changes += snapshot.changes()
            for key, was, now in changes:
                seen = snapshot.default(key) if was is NOTHING else was
                sure = made(now) or self._may_set(snapshot, key) or (purpose.strict and not cell)
                if not may_stay(key, seen, now, made, sure=sure):
                    wrong.append((key, was, seen, now))
            for key, was, seen, now in wrong:
                found = found or (snapshot.named(key), snapshot.where if cell else key, seen, now)
                with contextlib.suppress(Exception):  # user code may raise
                    put(snapshot.holder, key, was)
            if wrong and purpose.strict and isinstance(snapshot.holder, list | deque):
                _refill(snapshot.holder, snapshot.before.values())
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
        told = f"changes the number from {short(before)} to {short(after)}" if number else (
            "deletes the value" if after is NOTHING else
            f"sets the value to {short(after)}" if after is None or is_a(after, NUMBERS) else
            "stores a tensor that has no value outside of the trace" if before is NOTHING
            or not isinstance(before, Tensor | Module) else "replaces the object"
        )
        way = (
            f"{purpose.counting}, or store the number in a tensor created outside, as in "
            f"krt.tensor({short(before)}), and assign() to that tensor"
            if number else
            (f"write {path}.assign(...), {purpose.assigning}, or " if purpose.assigning else "")
            + purpose.keeping.format(verb="set")
            if isinstance(before, Tensor) else
            purpose.keeping.format(verb="store") + ", or create one outside and assign() to it"
        )
        return f"{path}: {name} {told}{line}, {purpose.missing}; {way}"

    def _line(self, key: object) -> str:
        """Return the file and line where reachable code sets that name or item; "" if none does."""
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
    """Return whether replays may omit the change of an item from `was` to `now`."""
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
    """Return whether a single change of an item from `was` to `now` is correct.

    A new item may be a tensor of the trace: reading it outside raises an error.
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
    """Return whether an item may keep the value `now` after an error. The error ends the loop."""
    del key, sure
    return not (_is_state(was) and made(now))


def _memory(tensor: Any) -> Any:
    """Return the buffer of a tensor's elements, or None if it has none yet."""
    owner = tensor if tensor._link is None else tensor._link.root
    return None if owner._memory is None else owner._buffer


def _is_mode(key: object) -> bool:
    """Return whether it is the training-mode attribute: code that reads it is traced again."""
    return type(key) is str and key == "_training"


def _is_state(value: Any) -> bool:
    """Return whether it is a module or a tensor with a value."""
    if is_a(value, Tensor):
        return bool(value.is_realized or value._born is None)
    return is_a(value, Module)


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b or (a != a and b != b))
    except Exception:  # noqa: BLE001 - user code may raise
        return type(a) is type(b)


def _compares(snapshot: Snapshot) -> bool:
    """Return whether old and new items correspond; they may not in a list that grows."""
    if is_a(snapshot.holder, list):
        return len(snapshot.before) == size(snapshot.holder)
    return not is_a(snapshot.holder, (tuple, deque, set, frozenset))


def _refill(holder: Any, values: Iterable[object]) -> None:
    with contextlib.suppress(Exception):  # user code may raise
        if isinstance(holder, list):
            list.__setitem__(holder, slice(None), list(values))
        else:
            deque.clear(holder)
            deque.extend(holder, values)


def _inside(value: object) -> Iterator[object]:
    """Yield `value` and the objects nested in it, within the limits of the closure walk."""
    stack, seen = [value], set[int]()
    while stack and len(seen) < MOST_CONTAINERS:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        with contextlib.suppress(Exception):  # user code may raise
            if not is_leaf(item) and not is_a(item, (types.FunctionType, types.MethodType)):
                stack.extend(items(item).values())

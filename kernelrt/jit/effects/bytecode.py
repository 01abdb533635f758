"""Extract names from bytecode: variables, attributes and modules."""

from __future__ import annotations

import dis
import functools
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CHANGING", "UsedNames", "dotted", "named", "nested", "texts_of"]

_READS: Final = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_STORES: Final = ("STORE_GLOBAL", "DELETE_GLOBAL")
_SHARED: Final = ("STORE_DEREF", "DELETE_DEREF")
_ATTRIBUTES: Final = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM")
_SET_ATTRIBUTES: Final = ("STORE_ATTR", "DELETE_ATTR")
#: Functions that access attributes by names that do not appear in the bytecode.
_BY_TEXT: Final = frozenset((
    "getattr", "hasattr", "setattr", "delattr", "vars", "eval", "exec", "attrgetter",
    "methodcaller", "getmembers", "__dict__", "__getattribute__",
))  # fmt: skip
_SETTERS: Final = frozenset((
    "setattr", "delattr", "vars", "eval", "exec", "__dict__", "__setattr__", "__delattr__",
))  # fmt: skip
_ITEMS: Final = ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE")
#: Methods and functions that change the items of collections.
CHANGING: Final = frozenset((
    "append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault", "pop",
    "popleft", "popitem", "clear", "remove", "discard", "sort", "reverse", "rotate", "__setitem__",
    "__delitem__", "setitem", "delitem",
))  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UsedNames:
    """The names used in one code object, without those in nested functions.

    Attributes
    ----------
    reads : tuple of str
        Globals and builtins that the code reads.
    stores : tuple of str
        Globals that it sets or deletes.
    shared : tuple of str
        Closure variables that it sets or deletes.
    attributes : tuple of str
        Attributes of any object that the code reads, or may read by getattr with a constant string.
    set_attributes : tuple of str
        Attributes of any object that the code sets or deletes.
    imports : tuple of (str, int)
        Imported modules, each with the number of dots before its name.
    by_text : bool
        Whether it may read attributes by computed names.
    handles_missing : bool
        Whether it may handle a missing attribute and continue.
    sets_any : bool
        Whether it may set attributes by computed names.
    sets_items : bool
        Whether it may set or delete items of lists and dicts.
    """

    reads: tuple[str, ...]
    stores: tuple[str, ...]
    shared: tuple[str, ...]
    attributes: tuple[str, ...]
    set_attributes: tuple[str, ...]
    imports: tuple[tuple[str, int], ...]
    by_text: bool
    handles_missing: bool
    sets_any: bool
    sets_items: bool


@functools.lru_cache(4096)
def named(code: types.CodeType) -> UsedNames:
    """Return the names used in `code`."""
    # EXTENDED_ARG only prefixes the next instruction; `dis` already merges it there.
    steps = [s for s in dis.get_instructions(code) if s.opname != "EXTENDED_ARG"]
    reads, stores, shared, attributes, set_attributes = (
        dict.fromkeys(step.argval for step in steps if step.opname in kinds)
        for kinds in (_READS, _STORES, _SHARED, _ATTRIBUTES, _SET_ATTRIBUTES)
    )
    # Two instructions before an import push the number of dots and the imported names.
    imports = [
        (step.argval, int(steps[i - 2].argval))
        for i, step in enumerate(steps)
        if step.opname == "IMPORT_NAME"
    ]
    texts = texts_of(code)
    by_text = not _BY_TEXT.isdisjoint(code.co_names)
    if by_text:
        attributes |= dict.fromkeys(texts)
        set_attributes |= dict.fromkeys(texts)
    if "globals" in reads:
        reads |= dict.fromkeys(texts)
        stores |= dict.fromkeys(texts)
    return UsedNames(
        tuple(reads), tuple(stores), tuple(shared), tuple(attributes), tuple(set_attributes),
        tuple(imports), by_text, by_text or bool(code.co_exceptiontable),
        not _SETTERS.isdisjoint(code.co_names),
        by_text or not CHANGING.isdisjoint(code.co_names)
        or any(step.opname in _ITEMS or step.argrepr == "|=" for step in steps),
    )  # fmt: skip


def texts_of(code: types.CodeType) -> list[str]:
    """Return the string constants in code that may be names."""
    return [c for c in code.co_consts if isinstance(c, str) and c.isidentifier()]


@functools.lru_cache(4096)
def dotted(code: types.CodeType) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return the dotted names that code reads, such as ``time.time``, each with its line."""
    found: list[tuple[tuple[str, ...], int]] = []
    goes_on = False
    for step in dis.get_instructions(code):
        if step.opname in _READS:
            line = step.positions.lineno if step.positions is not None else None
            found.append(((step.argval,), line or code.co_firstlineno))
            goes_on = True
        elif step.opname in _ATTRIBUTES and goes_on:
            names, at = found[-1]
            found[-1] = ((*names, step.argval), at)
        elif step.opname not in ("EXTENDED_ARG", "CACHE"):
            goes_on = False
    return tuple(found)


def nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object, and the code objects of all functions nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from nested(constant)

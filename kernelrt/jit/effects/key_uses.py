"""Find out how code uses lists and dicts: by constant keys, or in other ways.

If code reads only the first item of a list, the list may grow without a retrace. Code that
iterates over the list or asks for its length reads all of it.
"""

from __future__ import annotations

import dis
import functools
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from kernelrt.jit.effects.bytecode import named, texts_of

if TYPE_CHECKING:
    import types
    from collections.abc import Iterable

__all__ = ["Key", "Use", "uses"]

Key: TypeAlias = str | int

_LOADS: Final = (
    "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS",
    "LOAD_FROM_DICT_OR_DEREF", "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM",
)  # fmt: skip
_CONSTANTS: Final = ("LOAD_CONST", "LOAD_SMALL_INT")
#: Instructions that push one value and pop none.
_PUSHES: Final = (
    *_CONSTANTS, "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_GLOBAL",
    "LOAD_NAME",
)  # fmt: skip
_CALLS: Final = ("PRECALL", "CALL")
_SETS: Final = ("STORE_SUBSCR", "DELETE_SUBSCR")
_METHODS: Final = ("LOAD_METHOD", "LOAD_ATTR")
#: Methods that change a list or dict but do not reveal its items.
_SILENT: Final = ("append", "extend", "insert", "update", "clear")


@dataclass(slots=True, eq=False)
class Use:
    """The uses of a name, over all code that reads it.

    Attributes
    ----------
    depth : float
        Smallest number of constant keys that follow the name. It is 2 for code that reads
        ``x["a"][0]`` and nothing else of ``x``. Code may read containers at this depth, or deeper,
        in any way.
    keys : set of (int, str or int)
        The constant keys that follow the name, each with the number of keys before it.
    tested : set of int
        Depths of the containers in which code looks for a constant key with ``in``.
    """

    depth: float = math.inf
    keys: set[tuple[int, Key]] = field(default_factory=set)
    tested: set[int] = field(default_factory=set)


def uses(codes: Iterable[types.CodeType]) -> dict[str, Use]:
    """Return the uses of each variable and attribute that the code reads."""
    found: defaultdict[str, Use] = defaultdict(Use)
    for code in codes:
        for name, depth, keys, tested in _uses_in(code):
            use = found[name]
            use.depth = min(use.depth, depth)
            use.keys.update(enumerate(keys))
            if tested:
                use.tested.add(len(keys) - 1)
    return dict(found)


@functools.lru_cache(4096)
def _uses_in(code: types.CodeType) -> tuple[tuple[str, float, tuple[Key, ...], bool], ...]:
    """Yield name, `depth`, `keys` and `tested` of each read; see :class:`Use`."""
    steps = [s for s in dis.get_instructions(code) if s.opname not in ("EXTENDED_ARG", "CACHE")]
    found = [
        (str(step.argval), *_use(steps, at)) for at, step in enumerate(steps)
        if step.opname in _LOADS
    ]  # fmt: skip
    known = named(code)
    if known.by_text or "globals" in known.reads:
        found += [(text, 0, (), False) for text in texts_of(code)]
    return tuple(found)


def _use(steps: list[dis.Instruction], at: int) -> tuple[float, tuple[Key, ...], bool]:
    """Return the use of the name that the instruction ``steps[at]`` reads."""
    keys: list[Key] = []
    i = at + 1  # every code ends with an instruction that reads no name
    while _is_key(steps[i]) and _is_subscript(steps[i + 1]):
        keys.append(steps[i].argval)
        i += 2
    step, after = steps[i], steps[i + 1 : i + 4]
    if step.opname in _METHODS and step.argval in _SILENT:
        return math.inf, tuple(keys), False
    if after and _is_key(step) and after[0].opname in _SETS:
        return math.inf, tuple(keys), False
    if step.opname in _METHODS and step.argval == "get" and _is_key(after[0]):
        default = after[1].opname in _PUSHES
        if after[1 + default].opname in _CALLS:
            keys.append(after[0].argval)
    elif step.opname == "CONTAINS_OP":
        tested = _tested(steps, at, i)
        if tested is not None:
            return math.inf, (*keys, tested), True
    return len(keys), tuple(keys), False


def _tested(steps: list[dis.Instruction], at: int, end: int) -> Key | None:
    """Return the constant left of ``in``, or None if it is not a constant."""
    first = at
    while steps[first].opname in _METHODS:
        first -= 1
    reached = any(step.is_jump_target for step in steps[first : end + 1])
    if first and not reached and steps[first].opname in _PUSHES and _is_key(steps[first - 1]):
        found: Key = steps[first - 1].argval
        return found
    return None


def _is_key(step: dis.Instruction) -> bool:
    """Return whether an instruction pushes a key that is independent of the list's length."""
    value = step.argval
    return step.opname in _CONSTANTS and (type(value) is str or (type(value) is int and value >= 0))


def _is_subscript(step: dis.Instruction) -> bool:
    return step.opname == "BINARY_SUBSCR" or (
        step.opname == "BINARY_OP" and step.argrepr == "[]"
    )

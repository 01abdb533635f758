"""An interrupt at the end of a turn of a loop still runs the ``finally`` or ``__exit__`` around it.

From 3.12 on CPython splits a conditional jump backward into two instructions and leaves the second
out of the exception table. From 3.13 on an interrupt is raised by that very instruction. So what a
``with`` block or a ``try`` around such a loop has to do does not happen: a lock stays held. Loops
that end with a condition, comprehensions that filter and ``while`` loops are concerned.

The package has none of them within a block that must be left in order. A function of its own that
is called in the block has an exception table of its own, and calls are in the table.
"""

from __future__ import annotations

import dis
import sys
import threading
from pathlib import Path
from types import CodeType

import pytest
from support.interrupts import count_steps, interrupted_at

import kernelrt

PACKAGE = Path(kernelrt.__file__).parent
FOLDERS = sorted({str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")})
ENTERED = ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_NAME", "BUILD_TUPLE", "CACHE", "NOP")


def nested(code):
    """`code` and all code objects in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


def unprotected(code):
    """The lines of jumps that leave out a handler which all around them have."""
    table = list(dis.Bytecode(code).exception_entries)
    instructions = list(dis.get_instructions(code))
    position = {step.offset: i for i, step in enumerate(instructions)}

    def handlers(offset):
        found = []
        target = next((e.target for e in table if e.start <= offset < e.end), None)
        while target is not None and target not in found:
            found.append(target)
            target = next((e.target for e in table if e.start <= target < e.end), None)
        return set(found)

    for i, step in enumerate(instructions):
        if step.opname != "JUMP_BACKWARD":
            continue
        # The condition, whose jump may have been left out, too.
        before = i - 1
        while before > 0 and instructions[before].opname in ("NOT_TAKEN", "NOP"):
            before -= 1
        if "POP_JUMP" not in instructions[before].opname:
            continue
        around = handlers(instructions[before - 1].offset) & handlers(step.argval)
        for handler in around - handlers(step.offset):
            if must_run(instructions[position[handler] :]):
                yield step.positions.lineno


def must_run(handler):
    """Whether what `handler` begins with is for interrupts, too.

    Comprehensions restore names, generators turn a StopIteration into an error, and ``except``
    clauses name the exceptions that they are for.
    """
    if handler[0].opname != "PUSH_EXC_INFO":
        return False
    names = []
    for step in handler[1:]:
        if step.opname == "CHECK_EXC_MATCH":
            return bool({"BaseException", "KeyboardInterrupt"} & set(names))
        if step.opname not in ENTERED:
            return True
        names.append(step.argval)
    return True


LOCK = threading.RLock()
NUMBERS = range(4)


def filtering():
    with LOCK:
        return [n for n in NUMBERS if n > 1]


def choosing():
    with LOCK:
        for n in NUMBERS:
            if n > 1:
                len("")


def counting():
    n = 0
    with LOCK:
        while n < 3:
            n += 1


def nesting():
    with LOCK:
        for n in NUMBERS:
            try:
                if n > 1:
                    len("")
            except ValueError:
                pass


def finishing():
    try:
        for n in NUMBERS:
            if n > 1:
                len("")
    finally:
        len("")


def repeating():
    with LOCK:
        for _ in NUMBERS:
            len("")


def calling():
    with LOCK:
        return [*those_above(1), *(n for n in NUMBERS if n > 1)]


def those_above(limit):
    return [n for n in NUMBERS if n > limit]


def catching():
    with LOCK:
        len("")
    try:
        for n in NUMBERS:
            if n > 1:
                len("")
    except ValueError:
        pass


@pytest.mark.parametrize(
    "work",
    [filtering, choosing, counting, nesting, repeating, calling],
    ids=lambda work: work.__name__,
)
def test_a_lock_is_lost_only_where_a_jump_is_unprotected(work):
    lost = 0
    for step in range(1, count_steps(work) + 1):
        interrupted_at(step, work)
        while LOCK._is_owned():
            lost += 1
            LOCK.release()
    assert not lost or list(unprotected(work.__code__))


def test_there_are_unprotected_jumps():
    """So that the test above and the one below look for something."""
    for work in (repeating, calling, catching):
        assert not list(unprotected(work.__code__)), work
    if sys.version_info[:2] in ((3, 12), (3, 13)):
        for work in (filtering, choosing, counting, finishing):
            assert list(unprotected(work.__code__)), work


@pytest.mark.cases(12)
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_package_has_none(folder):
    lines = [
        f"{path.relative_to(PACKAGE)}:{line} in {code.co_qualname}"
        for path in sorted((PACKAGE / folder).glob("*.py"))
        for code in nested(compile(path.read_text(encoding="utf-8"), str(path), "exec"))
        for line in unprotected(code)
    ]
    assert not lines, (
        "an interrupt at the end of a turn of these loops does not run the end of the with block "
        "or the finally around them; move the loop to a function of its own:\n" + "\n".join(lines)
    )

"""Writes conditions so that LLVM does not compile them to maxima and minima on arm64.

The instructions ``fmaxnm`` and ``fminnm`` of arm64 return NaN if one operand is a signaling NaN,
whatever the other operand is. LLVM uses them in two places where that gives a wrong result:

- It turns ``a >= c or b >= c`` into ``max(a, b) >= c``. It looks for an OR of two ordered compares
  or an AND of two unordered ones, also behind NOT, shuffles, casts and other ANDs and ORs. It only
  does so for compares with a single use. So this module gives each compare a second use. LLVM also
  turns a select of booleans into an OR or AND, so this module writes the OR or AND itself.
- It turns ``select(x > c, x, c)``, for a constant c other than 0, into ``max(x, c)``. This module
  hides by a fence that the compare and the select have the same operand.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.device.spec import DeviceSpec

__all__ = ["GuardedCompares", "folds_compares"]

_ORDERED, _UNORDERED = 1, 2
_BOTH = _ORDERED | _UNORDERED
#: Predicates of the compares that LLVM folds.
_KIND = {
    "olt": _ORDERED, "ole": _ORDERED, "ogt": _ORDERED, "oge": _ORDERED,
    "ult": _UNORDERED, "ule": _UNORDERED, "ugt": _UNORDERED, "uge": _UNORDERED,
}  # fmt: skip
#: Instructions behind which LLVM finds compares.
_PASSING = frozenset({
    "and", "or", "xor", "select", "shufflevector", "insertelement", "extractelement", "zext",
    "sext", "trunc", "bitcast", "freeze", "icmp",
})  # fmt: skip
_FOLDED = {"or": _ORDERED, "and": _UNORDERED}
_OTHER = {"or": "and", "and": "or"}

#: The end of an XOR that inverts a boolean, or a vector of booleans.
_NOT = (", true", ", splat (i1 true)")

_NAME = re.compile(r"%[\w.]+")
_TYPE = r"(?:<\d+ x \w+>|\w+)"
_OPERAND = r"(?:%[\w.]+|splat \([^)]*\)|[\w.-]+)"
_FCMP = re.compile(rf"fcmp (\w+) {_TYPE} ({_OPERAND}), ({_OPERAND})")
_SELECT = re.compile(rf"select ({_TYPE}) (%[\w.]+), ({_TYPE}) ({_OPERAND}), {_TYPE} ({_OPERAND})")


def folds_compares(target: DeviceSpec) -> bool:
    """Return whether LLVM compiles compares for `target` wrongly unless they are guarded."""
    return target.is_arm64


class GuardedCompares:
    """Emits instructions; those that LLVM would compile to ``fmaxnm`` are written differently.

    Parameters
    ----------
    emit : callable
        Appends an instruction and returns the name of its result.
    fence : callable
        Takes a type and a float of this type, and returns the float behind a fence. LLVM's
        optimizations do not look through the fence.
    """

    def __init__(self, emit: Callable[[str], str], fence: Callable[[str, str], str]) -> None:
        self._emit, self._fence = emit, fence
        self._kinds: dict[str, int] = {}
        self._compares: dict[str, tuple[str, str, str]] = {}  # predicate and operands
        self._selects: dict[str, tuple[str, str, str]] = {}
        self._inverses: dict[str, str] = {}

    def emit(self, instruction: str) -> str:
        """Append an instruction, or several that compute the same. Return the result's name."""
        word, _, rest = instruction.partition(" ")
        if word == "select":
            instruction = self._select(instruction)
            word, _, rest = instruction.partition(" ")
        if word == "fcmp":
            return self._compare(instruction)
        if word not in _PASSING:
            return self._emit(instruction)
        operands = _NAME.findall(rest)
        kinds = [self._kinds.get(operand, 0) for operand in operands]
        if len(kinds) == 2 and kinds[0] & kinds[1] & _FOLDED.get(word, 0):
            # x | y is (x & y) ^ (x ^ y), and x & y is (x | y) ^ (x ^ y).
            ty = rest.removesuffix(f" {operands[0]}, {operands[1]}")
            both = self._emit(f"{_OTHER[word]} {rest}")
            differ = self._emit(f"xor {rest}")
            name = self._emit(f"xor {ty} {both}, {differ}")
        else:
            name = self._emit(instruction)
        if word == "xor" and rest.endswith(_NOT):
            self._inverses[name] = operands[0]
        if word == "select":
            _, condition, _, yes, no = _parts(_SELECT, instruction)
            self._selects[name] = condition, yes, no
        self._kinds[name] = _kind(word, kinds)
        return name

    def _compare(self, instruction: str) -> str:
        name = self._emit(instruction)
        predicate, *operands = _parts(_FCMP, instruction)
        self._kinds[name] = _KIND.get(predicate, 0)
        self._compares[name] = predicate, operands[0], operands[1]
        return name

    def _select(self, instruction: str) -> str:
        """Return a select that LLVM does not turn into a maximum, an OR or an AND."""
        mask, condition, ty, yes, no = _parts(_SELECT, instruction)
        if ty == mask:
            return self._boolean(instruction, mask, condition, yes, no)
        if mask == "i1":
            condition, yes, no = self._joined(condition, yes, no)
            instruction = f"select i1 {condition}, {ty} {yes}, {ty} {no}"
        predicate, *operands = self._compares.get(condition, ("", "", ""))
        kind = _KIND.get(predicate, 0)
        of_nan, other = (no, yes) if kind == _ORDERED else (yes, no)
        constant = not of_nan.startswith("%") and other.startswith("%")
        if not kind or not constant or {yes, no} != set(operands):
            return instruction
        fenced = self._fence(ty, other)
        arms = (fenced, no) if other == yes else (yes, fenced)
        return f"select {mask} {condition}, {ty} {arms[0]}, {ty} {arms[1]}"

    def _joined(self, condition: str, yes: str, no: str) -> tuple[str, str, str]:
        """Return the condition and values of a scalar select, joined with a select in its operands.

        LLVM would join them, too: ``select(p, x, select(q, x, y))`` by an OR of the conditions, and
        ``select(p, select(q, x, y), y)`` by an AND.
        """
        for p, x, y in self._ways(condition, yes, no):
            for q, a, b in self._ways(*self._selects.get(y, ("", "", ""))):
                if a == x:
                    return self.emit(f"or i1 {p}, {q}"), x, b
            for q, a, b in self._ways(*self._selects.get(x, ("", "", ""))):
                if b == y:
                    return self.emit(f"and i1 {p}, {q}"), a, y
        return condition, yes, no

    def _ways(self, condition: str, yes: str, no: str) -> list[tuple[str, str, str]]:
        """Return the ways to write a select on a compare: as it is, and also without a NOT."""
        if not self._kinds.get(condition):
            return []
        inverse = self._inverses.get(condition)
        return [(condition, yes, no), *([(inverse, no, yes)] if inverse else [])]

    def _boolean(self, instruction: str, ty: str, condition: str, yes: str, no: str) -> str:
        """Return a select of booleans, written as the OR or AND into which LLVM would turn it."""
        true, false = ("true", "false") if ty == "i1" else ("splat (i1 true)", "splat (i1 false)")
        if yes in (true, condition):
            return f"or {ty} {condition}, {no}"
        if no in (false, condition):
            return f"and {ty} {condition}, {yes}"
        if yes != false and no != true:
            return instruction
        inverse = self.emit(f"xor {ty} {condition}, {true}")
        return f"and {ty} {inverse}, {no}" if yes == false else f"or {ty} {inverse}, {yes}"


def _parts(pattern: re.Pattern[str], instruction: str) -> tuple[str, ...]:
    """Return the parts of an instruction that is always written like `pattern`."""
    found = pattern.fullmatch(instruction)
    assert found is not None, instruction
    return found.groups()


def _kind(word: str, kinds: list[int]) -> int:
    """Return the kinds of compares that the result of an instruction may be made of."""
    any_ = 0
    for kind in kinds:
        any_ |= kind
    if word != "xor" or any_ == 0:
        return any_
    return _BOTH ^ any_ if len(kinds) == 1 and any_ != _BOTH else _BOTH

"""Weakly typed numbers: numbers of traced functions promote as Python's numbers do.

A float argument is an input of the plan, held in float64, but for all that it is a number: beside a
float32 tensor it counts as float32, beside a float64 one it keeps all its digits. The same holds
for what is computed from such numbers and from constants alone.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir import Op, toposort

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelrt.device.buffer import Buffer
    from kernelrt.ir import UOp
    from kernelrt.tensor.base import TensorBase

__all__ = ["AsNumbers", "Numbers", "note_computed", "stepwise"]

_STRONG: Final = 0
_NEUTRAL: Final = 1  # a constant
_WEAK: Final = 2


class Numbers:
    """The numbers that a trace was given, and what is made of them."""

    def __init__(self) -> None:
        self._given: set[Buffer] = set()
        self._known: dict[UOp, int] = {}

    def add(self, buffer: Buffer) -> None:
        """Let what `buffer` holds be a number."""
        self._given.add(buffer)

    def made_of(self, node: UOp) -> bool:
        """Whether `node` is such a number, or computed from nothing else."""
        if not self._given or node.dtype is not dt.float64:
            return False
        for n in toposort([node], stop=self._known.__contains__):
            if n not in self._known:
                self._known[n] = self._judge(n)
        return self._known[node] == _WEAK

    def _judge(self, node: UOp) -> int:
        if node.op is Op.BUFFER:
            return _WEAK if node.arg in self._given else _STRONG
        if node.op in (Op.CONST, Op.IOTA):
            return _NEUTRAL
        kinds = {self._known[s] for s in node.src}
        # What was cast was given a type, and is a number no longer.
        if node.op is Op.CAST or not kinds or _STRONG in kinds:
            return _STRONG
        return max(kinds)


class _Stepwise(threading.local):
    """The numbers that the function has which this thread runs step by step."""

    numbers: Numbers | None = None


stepwise = _Stepwise()


class AsNumbers:
    """While it is entered, what is added to it takes part in promotion as numbers do."""

    def __enter__(self) -> Numbers:
        self._before = stepwise.numbers
        stepwise.numbers = Numbers()
        return stepwise.numbers

    def __exit__(self, *_: object) -> None:
        stepwise.numbers = self._before


def note_computed(tensors: Iterable[TensorBase], nodes: Iterable[UOp | None]) -> None:
    """Let tensors that have data now be numbers where their nodes were made of such."""
    numbers = stepwise.numbers
    if numbers is None:
        return
    for tensor, node in zip(tensors, nodes, strict=True):
        if node is not None and tensor._buffer is not None and numbers.made_of(node):
            numbers.add(tensor._buffer)

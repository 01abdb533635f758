"""Weak types: float arguments of traced functions promote like Python numbers.

A float argument is an input of the plan, stored in float64, but promotes like a Python number. In
an operation with a float32 tensor it counts as float32; with a float64 tensor it keeps all its
digits. The same holds for values computed only from such numbers and constants.
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
    """The weakly typed values of a trace: its numbers, and values computed from them."""

    def __init__(self) -> None:
        self._given: set[Buffer] = set()
        self._known: dict[UOp, int] = {}

    def add(self, buffer: Buffer) -> None:
        """Make the content of `buffer` weakly typed."""
        self._given.add(buffer)

    def made_of(self, node: UOp) -> bool:
        """Return whether `node` is weakly typed: a number, or computed only from numbers."""
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
        # A cast makes the dtype explicit, so the value is no longer weakly typed.
        if node.op is Op.CAST or not kinds or _STRONG in kinds:
            return _STRONG
        return max(kinds)


class _Stepwise(threading.local):
    """The weakly typed values of the function that this thread runs without jit."""

    numbers: Numbers | None = None


stepwise = _Stepwise()


class AsNumbers:
    """Context manager that returns a `Numbers`, whose values are weakly typed within it."""

    def __enter__(self) -> Numbers:
        self._before = stepwise.numbers
        stepwise.numbers = Numbers()
        return stepwise.numbers

    def __exit__(self, *_: object) -> None:
        stepwise.numbers = self._before


def note_computed(tensors: Iterable[TensorBase], nodes: Iterable[UOp | None]) -> None:
    """Make computed tensors weakly typed if their nodes were weakly typed."""
    numbers = stepwise.numbers
    if numbers is None:
        return
    for tensor, node in zip(tensors, nodes, strict=True):
        if node is not None and tensor._buffer is not None and numbers.made_of(node):
            numbers.add(tensor._buffer)

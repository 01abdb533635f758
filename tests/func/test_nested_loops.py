"""Loops in loops that carry many values: what is done for a body is not done for each of them."""

from __future__ import annotations

from typing import Any

import pytest

import kernelrt as krt
from kernelrt.ir import toposort
from kernelrt.tensor import marks

VALUES, DEPTH = 5, 3


def mixed(carry: list[Any]) -> list[Any]:
    return [c * 0.5 + d for c, d in zip(carry, carry[1:] + carry[:1], strict=True)]


def nested(depth: int, carry: list[Any]) -> list[Any]:
    if not depth:
        return mixed(carry)
    found: list[Any] = krt.scan(lambda c, _: (nested(depth - 1, c), None), carry, length=2)[0]
    return found


def test_each_body_is_stripped_of_marks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = nested(DEPTH, [krt.tensor(float(k)) for k in range(VALUES)])
    walks: list[object] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        walks.append(args)
        return toposort(*args, **kwargs)

    monkeypatch.setattr(marks, "toposort", counted)
    marks.strip([t.uop for t in found])
    assert len(walks) == 1 + DEPTH
    want = [float(k) for k in range(VALUES)]
    for _ in range(2**DEPTH):
        want = mixed(want)
    assert [t.item() for t in found] == pytest.approx(want)

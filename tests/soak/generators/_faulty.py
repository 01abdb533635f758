"""Cases that fail in every possible way, to test the soak itself."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

Case = dict[str, Any]
SECONDS = 2.0


def generate(rng: np.random.Generator) -> Case:
    kinds = ("fine", "value", "error", "abort", "leave", "spin", "flood")
    return {"kind": str(rng.choice(kinds)), "numbers": rng.integers(0, 15, 4).tolist()}


def run(case: Case) -> str | None:
    if not any(number > 10 for number in case["numbers"]):
        return None
    if case["kind"] == "value":
        return f"values: {max(case['numbers'])} is above 10"
    if case["kind"] == "error":
        raise ZeroDivisionError(max(case["numbers"]))
    if case["kind"] == "abort":
        os.abort()
    if case["kind"] == "leave":
        os._exit(3)
    if case["kind"] == "spin":
        end = time.monotonic() + 600
        while time.monotonic() < end:
            pass
    if case["kind"] == "flood":
        held = []
        while True:
            held.append(bytearray(1 << 28))
    return None


def shrink(case: Case) -> Iterator[Case]:
    numbers = case["numbers"]
    for k in range(len(numbers)):
        yield {**case, "numbers": numbers[:k] + numbers[k + 1 :]}
    for k, number in enumerate(numbers):
        if number:
            yield {**case, "numbers": [*numbers[:k], number - 1, *numbers[k + 1 :]]}


def key(case: Case) -> str:
    return str(case["kind"])


def source(case: Case) -> str:
    if case["kind"] == "spin":
        return "raise SystemExit(1)"
    return f"from tests.soak.generators import _faulty\nassert _faulty.run({case!r}) is None"

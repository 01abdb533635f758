"""Programs over whole numbers, which NumPy computes exactly (tests/support).

In one kind, several tensors share memory that is assigned to; in the other, indices are computed in
many ways. A remainder after each step keeps the numbers small, so that their sums are exact in
every type. Other generators (integers, programs) draw wrapping and rounding numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.soak import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

Case = dict[str, Any]
KINDS = ("alias_programs", "gather_programs")
SHARE = 0.5


def generate(rng: np.random.Generator) -> Case:
    return {"kind": str(rng.choice(KINDS)), "seed": int(rng.integers(2**40)), "most": 20}


def run(case: Case) -> str | None:
    import importlib

    try:
        importlib.import_module(f"support.{case['kind']}").check(case["seed"], case["most"])
    except AssertionError as error:
        return f"values: {error}"
    record.note("programs over whole numbers")
    return None


def shrink(case: Case) -> Iterator[Case]:
    """Yield the start of the program."""
    yield from ({**case, "most": most} for most in range(1, case["most"]))


def key(case: Case) -> str:
    return f"{case['kind']} {case['seed']}"


def source(case: Case) -> str:
    return (
        "import sys; sys.path.insert(0, 'tests')\n"
        f"from support import {case['kind']}\n"
        f"{case['kind']}.check({case['seed']}, {case['most']})"
    )

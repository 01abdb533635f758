"""Assignments to memory that several tensors share, against NumPy (tests/support)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

Case = dict[str, Any]


def generate(rng: np.random.Generator) -> Case:
    return {"seed": int(rng.integers(2**40))}


def run(case: Case) -> str | None:
    from support import alias_programs

    try:
        alias_programs.check(case["seed"])
    except AssertionError as error:
        return f"values: {error}"
    return None


def shrink(case: Case) -> Iterator[Case]:
    yield from ()


def source(case: Case) -> str:
    return (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from support import alias_programs\n"
        f"alias_programs.check({case['seed']})"
    )

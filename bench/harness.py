"""Helpers of the test files of bench/: build sides, skip missing peers, compare results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from bench.cases import Call, Case, PeerMissingError

Benchmark: TypeAlias = Any
"""Type of pytest-benchmark's fixture."""
Build: TypeAlias = Callable[[tuple[Case, ...], str, str], Call]

COMPARED_CALLS = 10


def sides_of(cases: tuple[Case, ...]) -> list[Any]:
    """Return (case, side) names as parameters of a test."""
    return [
        pytest.param(case.name, side.name, id=f"{case.name}-{side.name}")
        for case in cases
        for side in case.sides
    ]


def built(cases: tuple[Case, ...], case: str, side: str) -> Call:
    """Build one side, or skip the test if its framework is missing."""
    found = next(c for c in cases if c.name == case)
    try:
        return next(s for s in found.sides if s.name == side).build()
    except PeerMissingError as error:
        pytest.skip(str(error))


def agree(cases: tuple[Case, ...], name: str, calls: int = COMPARED_CALLS) -> None:
    """Assert that all installed sides give the same results, call by call."""
    case = next(c for c in cases if c.name == name)
    found: dict[str, list[Any]] = {}
    for side in case.sides:
        if side.limit:
            continue
        try:
            call = side.build()
        except PeerMissingError:
            continue
        # Copied, because NumPy's array of a torch tensor shares its memory.
        found[side.name] = [np.asarray(call()).copy() for _ in range(calls)]
    first, *others = found.items()
    for peer, results in others:
        for ours, theirs in zip(first[1], results, strict=True):
            limit = case.tolerance * max(1.0, float(np.abs(theirs).max()))
            difference = float(np.abs(ours - theirs).max())
            assert difference <= limit, f"{first[0]} and {peer} differ by {difference}"

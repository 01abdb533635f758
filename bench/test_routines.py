"""Sorting and matrix factorizations against torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.harness import agree, sides_of
from bench.routines import cases

if TYPE_CHECKING:
    from bench.harness import Benchmark, Build


#: bench.report has them on one thread as well.
CASES = tuple(case for case in cases() if case.name.endswith("-2"))


@pytest.mark.parametrize(("case", "side"), sides_of(CASES))
def test_routines(case: str, side: str, build: Build, benchmark: Benchmark) -> None:
    benchmark(build(CASES, case, side))


@pytest.mark.parametrize("case", [case.name for case in CASES])
def test_all_sides_compute_the_same(case: str) -> None:
    agree(CASES, case, calls=2)

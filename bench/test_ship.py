"""Opening saved models, against onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.harness import agree, sides_of
from bench.ship import cases

if TYPE_CHECKING:
    from bench.harness import Benchmark, Build

CASES = cases()


@pytest.mark.parametrize(("case", "side"), sides_of(CASES))
def test_ship(case: str, side: str, build: Build, benchmark: Benchmark) -> None:
    benchmark(build(CASES, case, side))


@pytest.mark.parametrize("case", [case.name for case in CASES])
def test_all_sides_compute_the_same(case: str) -> None:
    agree(CASES, case)

"""Whole epochs in one call, against loops over batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.epochs import cases
from bench.harness import agree, sides_of

if TYPE_CHECKING:
    from bench.harness import Benchmark, Build


@pytest.mark.parametrize(("case", "side"), sides_of(cases()))
def test_epochs(case: str, side: str, build: Build, benchmark: Benchmark) -> None:
    benchmark(build(cases(), case, side))


@pytest.mark.parametrize("case", [case.name for case in cases()])
def test_all_sides_compute_the_same(case: str) -> None:
    agree(cases(), case, calls=2)

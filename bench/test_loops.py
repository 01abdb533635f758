"""Loops in plans, against those of the peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.harness import sides_of
from bench.loops import cases

if TYPE_CHECKING:
    from bench.harness import Benchmark, Build


@pytest.mark.parametrize(("case", "side"), sides_of(cases()))
def test_loops(case: str, side: str, build: Build, benchmark: Benchmark) -> None:
    benchmark(build(cases(), case, side))

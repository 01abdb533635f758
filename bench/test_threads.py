"""Calls, and the gain or cost of a second thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.harness import sides_of
from bench.threads import cases

if TYPE_CHECKING:
    from bench.harness import Benchmark, Build


@pytest.mark.parametrize(("case", "side"), sides_of(cases()))
def test_threads(case: str, side: str, build: Build, benchmark: Benchmark) -> None:
    benchmark(build(cases(), case, side))

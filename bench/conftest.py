"""Fixtures of the benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.harness import built

if TYPE_CHECKING:
    from bench.harness import Build


@pytest.fixture
def build(request: pytest.FixtureRequest) -> Build:
    """Build a side; its group in pytest-benchmark's table is the case."""
    if "benchmark" in request.fixturenames:
        benchmark = request.getfixturevalue("benchmark")
        benchmark.group = request.node.callspec.params["case"]
    return built

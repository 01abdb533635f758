"""Fixtures of the benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.harness import built

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.harness import Build


@pytest.fixture
def build(request: pytest.FixtureRequest) -> Iterator[Build]:
    """Build a side. In pytest-benchmark's table, the sides of a case are one group.

    Times are divided by the units of work in a call, as in the tables of bench.report. (One call of
    the bare C loop, for example, repeats the work of a plan many times.)
    """
    names = getattr(request.node, "callspec", None)
    if "benchmark" not in request.fixturenames or names is None:
        yield built
        return
    case = next(c for c in request.module.cases() if c.name == names.params["case"])
    side = next(s for s in case.sides if s.name == names.params["side"])
    units = side.calls * case.unit
    benchmark = request.getfixturevalue("benchmark")
    benchmark.group = case.name
    benchmark.extra_info["units a call"] = units
    yield built
    if benchmark.stats is not None:
        times = benchmark.stats.stats.data
        times[:] = [time / units for time in times]

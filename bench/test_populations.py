"""Populations against their members one by one and against jax.vmap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.harness import agree, sides_of
from bench.populations import cases

if TYPE_CHECKING:
    from bench.harness import Benchmark, Build


@pytest.mark.parametrize(("case", "side"), sides_of(cases()))
def test_populations(case: str, side: str, build: Build, benchmark: Benchmark) -> None:
    benchmark(build(cases(), case, side))


def test_all_sides_compute_the_same() -> None:
    agree(cases(), "populations-1")

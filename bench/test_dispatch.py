"""The dispatch loop against a bare C loop over the same function pointers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.dispatch import cases
from bench.harness import sides_of

if TYPE_CHECKING:
    from bench.harness import Benchmark, Build


@pytest.mark.parametrize(("case", "side"), sides_of(cases()))
def test_dispatch(case: str, side: str, build: Build, benchmark: Benchmark) -> None:
    benchmark(build(cases(), case, side))

"""Import time, in fresh interpreters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.harness import sides_of
from bench.importing import cases

if TYPE_CHECKING:
    from bench.harness import Benchmark, Build


@pytest.mark.parametrize(("case", "side"), sides_of(cases()))
def test_import(case: str, side: str, build: Build, benchmark: Benchmark) -> None:
    call = build(cases(), case, side)
    benchmark.pedantic(call, rounds=3, iterations=1)

"""The pages of functions of functions are true: their examples run."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["func.md", "loops.md"])
def test_examples_of_the_page(page: str) -> None:
    failed, tried = doctest.testfile(str(DOCS / page), module_relative=False, verbose=False)
    assert tried > 10
    assert failed == 0

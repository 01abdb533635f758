"""The page about scripts of PyTorch is true: its examples run."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "porting.md"


def test_examples_of_the_page() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, verbose=False)
    assert tried > 12
    assert failed == 0

"""The examples of docs/runtime.md run."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "runtime.md"


def test_the_examples_of_the_runtime_page_run():
    results = doctest.testfile(
        str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf-8"
    )
    assert results.attempted > 50
    assert results.failed == 0

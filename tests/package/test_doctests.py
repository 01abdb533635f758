"""The examples in docstrings run; docs/check.py says which names they need not import."""

from __future__ import annotations

import doctest
import importlib

import pytest
from support.documentation import load

check = load("check")
MODULES = check.modules()


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    assert check.failed_examples(name) == 0


def test_examples_that_no_module_shows_as_its_own() -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert sum(runner.run(test).failed for test in check.other_examples()) == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [
        t for name in MODULES for t in finder.find(importlib.import_module(name)) if t.examples
    ]
    assert len(found) > 20

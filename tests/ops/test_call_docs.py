"""The page about krt.call is true: its examples run."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "call.md"


def test_examples_of_the_page():
    pytest.importorskip("numba")
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, verbose=False)
    assert tried > 20
    assert failed == 0

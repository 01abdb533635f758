"""The chart of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("matplotlib")

from bench.plot import bars

if TYPE_CHECKING:
    from pathlib import Path


def test_the_chart_has_a_bar_and_a_label_for_each_row(tmp_path: Path) -> None:
    rows = [
        ("small, 1 thread", 20.0, "jax"), ("small, 2 threads", 30.0, "jax"),
        ("large & slow, 1 thread", 0.5, "torch"), ("alone", 1.0, "numpy"),
    ]  # fmt: skip
    bars(rows, tmp_path / "chart.svg", "a command\na machine")
    text = (tmp_path / "chart.svg").read_text(encoding="utf-8")
    root = ET.fromstring(text)  # noqa: S314 - written by the code under test
    words = "".join(root.itertext())
    for expected in ("30.0 x jax", "0.5 x torch", "1.0 x numpy", "large & slow", "a command"):
        assert expected in words
    assert "small, 1 thread" not in words
    bars(rows, tmp_path / "again.svg", "a command\na machine")
    assert (tmp_path / "again.svg").read_text(encoding="utf-8") == text

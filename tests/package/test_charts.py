"""Charts of bench/ are drawn from the tables of docs/measurements.md."""

from __future__ import annotations

import pytest

PAGE = """
# Page

## One and two threads

Text.

| what | kernelrt, 1 thread | 2 threads | best other, 1 thread | 2 threads | times as fast, 1 thread | 2 threads |
|---|---|---|---|---|---|---|
| softmax | 1 us | 1 us | 2 us torch fused | 3.5 us jax.jit | 2.00 | 3.50 |

## One thread

| what | kernelrt | best other | | times as fast |
|---|---|---|---|---|
| sort, 1 thread | 324 us | 1.47 ms | torch | 4.53 |
| solve, 1 thread | 1 us | 0.5 us | numpy | 0.50 |

Text | with | bars.

## No ratios

| what | time |
|---|---|
| step | 1 us |
"""  # noqa: E501 - a table


def test_charts_are_drawn_from_tables(tmp_path):
    from bench.plot import bars, table_rows

    assert table_rows(PAGE, "One and two threads") == [("softmax", 2.0, "torch fused")]
    rows = table_rows(PAGE, "One thread")
    assert rows == [("sort", 4.53, "torch"), ("solve", 0.5, "numpy")]
    for heading, message in (("No ratios", "has no ratios: what, time"), ("None", "no heading")):
        with pytest.raises(SystemExit, match=message):
            table_rows(PAGE, heading)
    pytest.importorskip("matplotlib")
    bars(rows, tmp_path / "chart.svg", "caption")
    assert "4.5 x torch" in (tmp_path / "chart.svg").read_text()

"""The bar chart of a report: how many times as fast as its best peer kernelrt is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["ONE", "TWO", "bars"]

#: Ends of the titles of a case with one and with two threads.
ONE, TWO = ", 1 thread", ", 2 threads"
OURS, BEHIND = "#0072b2", "#d55e00"


def bars(rows: Sequence[tuple[str, float, str]], path: Path, caption: str) -> None:
    """Draw a bar for each (title, ratio, best peer) and write an SVG file.

    Parameters
    ----------
    rows : sequence of (str, float, str)
        Titles, ratios above 0, and names of the peers. Of a case with one and with two threads,
        the row with two threads is drawn.
    path : Path
        File to write.
    caption : str
        Text below the chart: command and machine.
    """
    rows = [
        row for row in rows
        if not any(other == row[0].replace(ONE, TWO) for other, _, _ in rows if ONE in row[0])
    ]
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    style = {"svg.fonttype": "none", "svg.hashsalt": "kernelrt", "font.size": 9}
    with mpl.rc_context(style):
        figure, axes = plt.subplots(figsize=(8.4, 0.34 * len(rows) + 1.3))
        places = range(len(rows))
        ratios = [ratio for _, ratio, _ in rows]
        colors = [OURS if ratio >= 1 else BEHIND for ratio in ratios]
        axes.barh(places, ratios, color=colors, height=0.66)
        axes.axvline(1, color="#555", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xlim(min(0.8, *ratios) * 0.9, max(ratios) * 6)
        ticks = [tick for tick in (0.1, 0.5, 1, 2, 5, 10, 20, 50, 100)
                 if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]  # fmt: skip
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_yticks(places, [title for title, _, _ in rows])
        axes.invert_yaxis()
        for place, (_, ratio, peer) in zip(places, rows, strict=True):
            axes.text(ratio * 1.04, place, f"{ratio:.1f} x {peer}", va="center")
        axes.set_title("Times as fast as the best other library (1 = equal)", loc="left")
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.tick_params(left=False)
        figure.text(0.01, 0.012, caption, fontsize=6.5, color="#666")
        figure.tight_layout(rect=(0, 0.045, 1, 1))
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)

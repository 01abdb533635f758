"""Bar charts of reports and of tables in docs/: kernelrt's speed relative to its best peer.

python -m bench.plot docs/measurements.md "Whole programs" docs/images/programs.svg
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ONE", "TWO", "bars", "table_rows"]

#: Ends of the titles of a case with one and with two threads.
ONE, TWO = ", 1 thread", ", 2 threads"
OURS, BEHIND = "#0072b2", "#d55e00"


def bars(rows: Sequence[tuple[str, float, str]], path: Path, caption: str) -> None:
    """Draw a bar for each (title, ratio, best peer) and write an SVG file.

    Parameters
    ----------
    rows : sequence of (str, float, str)
        For each bar: its title, a ratio above 0, and the name of the peer. If a case has rows with
        one and with two threads, only the one with two threads is drawn.
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


def table_rows(page: str, heading: str) -> list[tuple[str, float, str]]:
    """Return title, ratio and peer of each row of the first table below a heading of a page.

    If the table has columns for one and for two threads, those for one thread are taken.

    Raises
    ------
    SystemExit
        The page has no such heading, or no table with ratios below it.
    """
    lines = iter(page.splitlines())
    if not any(line.strip("# ") == heading and line.startswith("#") for line in lines):
        raise SystemExit(f"the page has no heading {heading!r}; name one of its headings exactly")
    rows = []
    columns: dict[str, int] = {}
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            if columns:
                break
        elif not columns:
            # Reversed: of equal titles the first column, for one thread, wins.
            columns = {cell.removesuffix(ONE): at for at, cell in reversed([*enumerate(cells)])}
            if not {"what", "best other", "times as fast"} <= columns.keys():
                raise SystemExit(f"the table below {heading!r} has no ratios: {', '.join(cells)}")
        elif not cells[0].startswith("-"):
            peer = re.sub(r"^[\d.,]+ (ns|us|ms|s)\b", "", cells[columns["best other"]]).strip()
            peer = peer or cells[columns["best other"] + 1]
            title = cells[columns["what"]].removesuffix(ONE)
            rows.append((title, float(cells[columns["times as fast"]]), peer))
    return rows


def main() -> None:
    """Draw charts of tables in a page: one file for each heading."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("page", type=Path, help="a Markdown file, such as docs/measurements.md")
    parser.add_argument("heading", help="the heading above the table")
    parser.add_argument("file", type=Path, help="the SVG file to write")
    parser.add_argument("--only", default="", help="draw rows whose titles match this expression")
    options = parser.parse_args()
    rows = table_rows(options.page.read_text(encoding="utf-8"), options.heading)
    rows = [row for row in rows if re.search(options.only, row[0])]
    if not rows:
        raise SystemExit(f"no row matches {options.only!r}")
    where = f"{options.page.name}, section {options.heading!r}"
    bars(rows, options.file, f"{where}; the page names the machine and the command")


if __name__ == "__main__":
    main()

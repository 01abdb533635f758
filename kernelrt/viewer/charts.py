"""SVG drawings of a plan: its graph, timeline, roofline and memory."""

from __future__ import annotations

import html
import math
from itertools import groupby
from typing import TYPE_CHECKING, Final

from kernelrt.runtime.plan_report import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kernelrt.viewer.collect import OpRow, PlanRecord
    from kernelrt.viewer.peaks import Peaks

__all__ = ["Colors", "arena", "graph", "legend", "roofline", "seconds", "text", "timeline"]

#: Colors of layers, after Okabe and Ito's palette for color-blind readers, and darker shades of it.
_PALETTE: Final = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d00", "#7a5195",
    "#4d7c0f", "#9c755f",
)  # fmt: skip
_OTHER: Final = "#8a8f98"
#: Size of a box of the graph, and the distances between boxes.
_BOX: Final = (168, 38)
_GAP: Final = (40, 12)
_WIDE: Final = 1160
_LANE: Final = 30
#: Width of an approximate character of the labels, in pixels.
_CHAR: Final = 6.2
#: Maximum number of intermediates to draw.
_MOST_PARTS: Final = 160


class Colors:
    """Colors of the layers. The layers that take most time have their own; the others share one."""

    def __init__(self, rows: Iterable[OpRow]) -> None:
        shares: dict[str, float] = {}
        for row in rows:
            shares[row.layer] = shares.get(row.layer, 0.0) + row.seconds
        ordered = sorted(shares, key=lambda layer: -shares[layer])
        self.shares = {layer: shares[layer] for layer in ordered}
        self._colors = dict(zip(ordered, _PALETTE, strict=False))

    def of(self, layer: str) -> str:
        """Return the color of a layer."""
        return self._colors.get(layer, _OTHER)

    def named(self) -> Mapping[str, str]:
        """Return the color of each layer that has its own."""
        return self._colors


def seconds(s: float) -> str:
    """Format a time with three digits and its unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if s * scale >= 1:
            return f"{s * scale:.3g} {unit}"
    return f"{s * 1e9:.0f} ns"


def legend(colors: Colors) -> str:
    """Return the colors of the layers with their share of the time."""
    whole = sum(colors.shares.values()) or 1.0
    items = [
        f'<span class="key"><i style="background:{color}"></i>{text(layer)} '
        f"{colors.shares[layer] / whole:.0%}</span>"
        for layer, color in colors.named().items()
    ]
    rest = sum(s for layer, s in colors.shares.items() if layer not in colors.named())
    if rest:
        items.append(
            f'<span class="key"><i style="background:{_OTHER}"></i>others {rest / whole:.0%}</span>'
        )
    return f'<p class="legend">{"".join(items)}</p>'


def graph(record: PlanRecord, colors: Colors, prefix: str) -> str:
    """Draw the ops by wave: an arrow leads from an op to each op that needs its result."""
    rows = record.ops
    waves: dict[int, list[OpRow]] = {}
    for row in rows:
        waves.setdefault(row.wave, []).append(row)
    wide, high = _BOX
    at: dict[int, tuple[int, int]] = {}
    left = {wave: n * (wide + _GAP[0]) + 4 for n, wave in enumerate(sorted(waves))}
    for wave, members in waves.items():
        for n, row in enumerate(members):
            at[row.id] = (left[wave], n * (high + _GAP[1]) + 22)
    width = len(waves) * (wide + _GAP[0])
    height = max(map(len, waves.values()), default=1) * (high + _GAP[1]) + 26
    out = [_open(width, height)]
    out += [_label(x, 13, f"wave {wave}", "dim") for wave, x in left.items()]
    after = {row.id: set(row.after) & at.keys() for row in rows}
    for row in rows:
        for source in _direct(row.id, after):
            (x1, y1), (x2, y2) = at[source], at[row.id]
            x1, y1, y2 = x1 + wide, y1 + high // 2, y2 + high // 2
            middle = (x1 + x2) // 2
            out.append(f'<path class="edge" d="M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"/>')
    most = max((row.seconds for row in rows), default=0.0) or 1.0
    whole = record.total or 1.0
    for row in rows:
        x, y = at[row.id]
        opacity = 0.12 + 0.88 * row.seconds / most
        color = colors.of(row.layer)
        tone = "on" if opacity > 0.55 else ""
        name = _cut(row.title.split(" (")[0], wide - 10)
        out.append(
            f'<a href="#{prefix}op{row.id}"><rect x="{x}" y="{y}" width="{wide}" height="{high}" '
            f'rx="4" fill="{color}" fill-opacity="{opacity:.2f}" stroke="{color}"/>'
            + _label(x + 6, y + 15, name, tone)
            + _label(x + 6, y + 30, f"{row.id}: {seconds(row.seconds)}, {row.seconds / whole:.0%}",
                     f"{tone} strong")
            + f"<title>{text(row.title)}</title></a>"
        )  # fmt: skip
    return "".join([*out, "</svg>"])


def timeline(record: PlanRecord, colors: Colors, prefix: str) -> str:
    """Draw one run: a lane for each worker, and in it a bar for each op that the worker ran.

    A worker takes ranges of chunks of an op, one after the other. Lines in a bar separate these
    ranges. If a worker ran another op in between, it has several bars for the op.
    """
    spans = [(row, span) for row in record.ops for span in row.spans if span.elapsed > 0]
    if not spans:
        return "<p>No op ran.</p>"
    end = max(span.start + span.elapsed for _, span in spans)
    lanes = sorted({span.worker for _, span in spans})
    scale = (_WIDE - 70) / end
    height = len(lanes) * (_LANE + 6) + 24
    out = [_open(_WIDE, height)]
    for n, worker in enumerate(lanes):
        name = "caller" if worker == 0 else f"worker {worker}"
        out.append(_label(0, n * (_LANE + 6) + 19, name, "dim"))
    for lane, worker in enumerate(lanes):
        y = lane * (_LANE + 6)
        mine = sorted(
            ((span.start, span.elapsed, row) for row, span in spans if span.worker == worker),
            key=lambda item: item[0],
        )
        for _, parts in groupby(mine, key=lambda item: item[2].id):
            own = list(parts)
            first, row = own[0][0], own[0][2]
            x = 64 + first * scale
            wide = max(0.8, (own[-1][0] + own[-1][1] - first) * scale)
            name = _cut(f"{row.id} {row.title.split(' (')[0]}", wide - 6)
            starts = "".join(f"M{64 + s * scale:.1f} {y}v{_LANE}" for s, _, _ in own[1:])
            out.append(
                f'<a href="#{prefix}op{row.id}"><rect x="{x:.1f}" y="{y}" width="{wide:.1f}" '
                f'height="{_LANE}" fill="{colors.of(row.layer)}" class="bar"/>'
                + (f'<path class="cut" d="{starts}"/>' if starts else "")
                + (_label(x + 3, y + 19, name, "on") if wide > 16 else "")
                + f"<title>op {row.id}: {seconds(sum(e for _, e, _ in own))}, "
                f"{len(own)} of {len(row.spans)} ranges of chunks</title></a>"
            )
    for tick in range(5):
        x = 64 + (_WIDE - 70) * tick / 4
        anchor = "start" if tick == 0 else "end" if tick == 4 else "middle"
        out.append(_label(x, height - 6, seconds(end * tick / 4) if tick else "0", "dim", anchor))
    return "".join([*out, "</svg>"])


def roofline(record: PlanRecord, colors: Colors, peaks: Peaks, prefix: str) -> str:
    """Draw arithmetic rate against operations per byte, below this machine's measured limits."""
    width, height, left, low = 620, 330, 54, 26
    points = [r for r in record.ops if r.flops and r.bytes and r.seconds > 0]
    rates = [r.flops / r.seconds for r in points]
    ratios = [r.flops / r.bytes for r in points]
    x0 = math.floor(math.log10(min([*ratios, 0.05])))
    x1 = math.ceil(math.log10(max([*ratios, 4 * peaks.flops / peaks.memory])))
    y1 = math.ceil(math.log10(2 * peaks.flops))
    y0 = max(y1 - 6, min([math.floor(math.log10(min([*rates, peaks.flops / 100]))), y1 - 3]))

    def x(ratio: float) -> float:
        return left + (math.log10(ratio) - x0) / (x1 - x0) * (width - left - 10)

    def y(rate: float) -> float:
        return (1 - (max(math.log10(rate), y0) - y0) / (y1 - y0)) * (height - low)

    out = [_open(width, height)]
    for e in range(x0, x1 + 1):
        out.append(f'<path class="grid" d="M{x(10**e):.0f} 0V{height - low}"/>')
        out.append(_label(x(10**e), height - 10, f"{10.0**e:g}", "dim", "middle"))
    for e in range(y0, y1 + 1):
        out.append(f'<path class="grid" d="M{left} {y(10**e):.0f}H{width - 10}"/>')
        out.append(_label(left - 6, max(y(10**e) + 4, 10), f"{10.0 ** (e - 9):g}", "dim", "end"))
    out.append(_label(left + 4, 12, "GFLOP/s", "dim"))
    out.append(_label(width - 12, height - low - 6, "operations per byte", "dim", "end"))
    for name, rate in (("memory", peaks.memory), ("L2 cache", peaks.cache)):
        knee = peaks.flops / rate
        first = 10.0 ** max(x0, y0 - math.log10(rate))
        out.append(
            f'<path class="roof" d="M{x(first):.0f} {y(rate * first):.0f}L{x(knee):.0f} '
            f'{y(peaks.flops):.0f}H{width - 10}"/>'
        )
        middle = math.sqrt(first * knee)
        out.append(
            _label(x(middle) - 6, y(rate * middle) - 5, f"{name} {rate / 1e9:.0f} GB/s", "", "end")
        )
    out.append(
        _label(width - 12, y(peaks.flops) - 5, f"peak {peaks.flops / 1e9:.0f} GFLOP/s", "", "end")
    )
    whole = record.total or 1.0
    for row in sorted(points, key=lambda r: -r.seconds):
        ratio, rate = row.flops / row.bytes, row.flops / row.seconds
        size = 3 + 12 * math.sqrt(row.seconds / whole)
        out.append(
            f'<a href="#{prefix}op{row.id}"><circle cx="{x(ratio):.1f}" cy="{y(rate):.1f}" '
            f'r="{size:.1f}" fill="{colors.of(row.layer)}" class="dot"/>'
            + (_label(x(ratio), y(rate) + 4, str(row.id), "on", "middle") if size > 6 else "")
            + f"<title>op {row.id}: {rate / 1e9:.3g} GFLOP/s, "
            f"{row.bytes / row.seconds / 1e9:.3g} GB/s</title></a>"
        )
    return "".join([*out, "</svg>"])


def arena(record: PlanRecord) -> str:
    """Draw the bytes of the largest intermediates in the arena, and the ops that they span."""
    if not record.arena:
        return "<p>The plan has no intermediates.</p>"
    width, height, left, low = 500, 330, 54, 26
    ops, size = max(1, len(record.ops)), max(1, record.arena_bytes)
    across, down = (width - left) / ops, (height - low) / size
    out = [_open(width, height)]
    for part in range(5):
        offset = size * part / 4
        y = offset * down + (10 if part == 0 else 0)
        out.append(_label(left - 6, y, format_bytes(offset), "dim", "end"))
    largest = sorted(record.arena, key=lambda row: -row.nbytes * (row.last - row.first + 1))
    for n, row in enumerate(largest[:_MOST_PARTS]):
        x, wide = left + row.first * across, (row.last - row.first + 1) * across
        y, high = row.offset * down, max(1.5, row.nbytes * down)
        out.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" '
            f'fill="{_PALETTE[n % len(_PALETTE)]}" class="bar"><title>{text(row.text)}, '
            f"{format_bytes(row.nbytes)}, ops {row.first} to {row.last}</title></rect>"
            + (_label(x + 3, y + 12, _cut(row.text, wide - 6), "on") if high > 14 else "")
        )
    step = max(1, ops // 12)
    out += [
        _label(left + (n + 0.5) * across, height - 10, str(record.ops[n].id), "dim", "middle")
        for n in range(0, ops, step)
    ]
    return "".join([*out, "</svg>"])


def _direct(op: int, after: Mapping[int, set[int]]) -> Sequence[int]:
    """Return the dependencies of `op`, without those that another dependency has as well."""
    return sorted(d for d in after[op] if not any(d in after[e] for e in after[op] if e != d))


def _cut(name: str, width: float) -> str:
    """Return the beginning of `name` that fits into `width` pixels."""
    most = int(width / _CHAR)
    return name if len(name) <= most else name[: max(0, most - 1)] + "…" if most > 3 else ""


def _open(width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">'
    )


def _label(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}"{place}>{text(words)}</text>'


def text(value: object) -> str:
    """Return text as HTML."""
    return html.escape(str(value))

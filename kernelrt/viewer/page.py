"""The HTML page of one or several plans. It needs no script and makes no request."""

from __future__ import annotations

import linecache
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelrt.util.atomic_file import encodable
from kernelrt.viewer import charts
from kernelrt.viewer.charts import seconds
from kernelrt.viewer.charts import text as escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelrt.viewer.collect import OpRow, PlanRecord, SourceRow
    from kernelrt.viewer.peaks import Peaks

__all__ = ["page"]

#: Lines of source to show before and after lines that take time.
_AROUND: Final = 2
#: Ops to name as worth improving, and the least share of the run that one has to lose.
_MOST_NAMED: Final = 3
_LEAST_LOSS: Final = 0.03
_MOST_DECISIONS: Final = 250
#: Maximum number of ops to draw and list; the slowest are kept.
_MOST_OPS: Final = 200
#: Profiled time, as a multiple of the time of a run, from which the page says that they differ.
_SLOWED: Final = 1.2


def page(records: Sequence[PlanRecord], peaks: Sequence[Peaks]) -> str:
    """Return the page of some plans; `peaks` holds the limits of the machine for each plan."""
    style = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    title = escaped(records[0].name if len(records) == 1 else f"{len(records)} plans")
    out = [
        (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}: kernelrt</title>'
            f'<meta name="viewport" content="width=device-width"><style>{style}</style>'
        )
    ]
    if len(records) > 1:
        out.append(_comparison(records))
    for number, (record, limits) in enumerate(zip(records, peaks, strict=True), 1):
        prefix = f"p{number}" if len(records) > 1 else ""
        out += _plan(record, limits, prefix)
    return encodable("\n".join([*out, "</html>"]))


def _plan(whole: PlanRecord, peaks: Peaks, prefix: str) -> Iterator[str]:
    colors = charts.Colors(whole.ops)
    record = _slowest(whole)
    yield f'<h1 id="{prefix}plan">{escaped(record.name)}</h1>'
    yield f'<p class="dim">{escaped(record.text)}</p>'
    yield f"<p>{_headline(whole)}</p>"
    if record is not whole:
        left = 1 - sum(row.seconds for row in record.ops) / (record.total or 1.0)
        yield (
            f"<p>Of {len(whole.ops):,} ops, the page has the {len(record.ops)} slowest; the others "
            f"take {left:.0%} of the time.</p>"
        )
    yield _worth_improving(record, peaks, prefix)
    yield charts.legend(colors)
    yield "<h2>Kernels by wave: the ops of a wave depend only on earlier waves</h2>"
    yield f'<div class="scroll">{charts.graph(record, colors, prefix)}</div>'
    yield "<h2>Timeline of one run</h2>"
    yield f'<div class="scroll">{charts.timeline(record, colors, prefix)}</div>'
    yield f'<div class="row"><div><h2>Roofline, {_threads(peaks.threads)}</h2>'
    yield f'<div class="scroll">{charts.roofline(record, colors, peaks, prefix)}</div></div>'
    yield f"<div><h2>Arena: memory of intermediates over the ops</h2>{charts.arena(whole)}"
    yield f'<p class="dim">{escaped(record.memory)}</p></div></div>'
    yield "<h2>Lines of source, with their share of the time</h2>"
    yield from _sources(whole)
    yield "<h2>Ops, slowest first</h2>"
    yield from _table(record, colors, peaks, prefix)
    yield f"<h2>Fusion: {len(record.decisions)} decisions</h2>"
    shown = record.decisions[:_MOST_DECISIONS]
    more = len(record.decisions) - len(shown)
    text = "\n".join([*shown, *([f"({more} more; plan.explain() has all)"] if more else [])])
    yield "<details><summary>Values that were fused or stored, and why</summary>"
    yield f"<pre>{escaped(text)}</pre></details>"


def _slowest(record: PlanRecord) -> PlanRecord:
    """Return a record with only the slowest ops, in execution order, if it has many ops."""
    if len(record.ops) <= _MOST_OPS:
        return record
    kept = {row.id for row in sorted(record.ops, key=lambda row: -row.seconds)[:_MOST_OPS]}
    return replace(record, ops=[row for row in record.ops if row.id in kept])


def _headline(record: PlanRecord) -> str:
    flops = sum(row.flops for row in record.ops)
    nbytes = sum(row.bytes for row in record.ops)
    times, busy = record.times, record.busy or 1.0
    text = (
        f"<b>{seconds(record.run)}</b> a run; its ops take {seconds(record.busy)}: "
        f"{flops / busy / 1e9:.3g} GFLOP/s, {nbytes / busy / 1e9:.3g} GB/s, "
        f"{_threads(record.threads)}"
    )
    if record.busy > _SLOWED * record.run:
        text += "; reading the clock after each op makes them slower than a plain run"
    parts = [
        (times.trace, "tracing"), (times.schedule, "scheduling"), (times.compile, "compiling"),
        (times.assemble, "assembling"),
    ]  # fmt: skip
    made = ", ".join(f"{name} {seconds(s)}" for s, name in parts if s)
    return f"{text}.<br>Made once: {made}." if made else f"{text}."


def _worth_improving(record: PlanRecord, peaks: Peaks, prefix: str) -> str:
    total = record.total or 1.0
    losses = [
        (row.seconds - peaks.least(row.flops, row.bytes), row)
        for row in record.ops
        if row.flops or row.bytes
    ]
    worst = sorted(losses, key=lambda loss: -loss[0])[:_MOST_NAMED]
    items = [
        f'<a href="#{prefix}op{row.id}">op {row.id}</a> {escaped(row.title)} takes '
        f"{row.seconds / total:.0%} of the time and runs at {_of_limit(row, peaks):.0%} of the "
        f"machine's limit: up to {seconds(lost)} to gain"
        for lost, row in worst
        if lost > _LEAST_LOSS * total
    ]
    if not items:
        return '<p class="mend">All ops run near the limits of the machine.</p>'
    return f'<div class="mend">Improve first:<br>{"<br>".join(items)}</div>'


def _of_limit(row: OpRow, peaks: Peaks) -> float:
    return min(1.0, peaks.least(row.flops, row.bytes) / row.seconds) if row.seconds else 1.0


# ---- tables


def _table(record: PlanRecord, colors: charts.Colors, peaks: Peaks, prefix: str) -> Iterator[str]:
    yield (
        '<div class="scroll"><table><tr><th>op</th><th class="left">computes</th><th></th>'
        "<th>median</th><th>share</th><th>minimum</th><th>expected</th><th>of limit</th>"
        "<th>GFLOP/s</th><th>GB/s</th><th>chunks</th></tr>"
    )
    total = record.total or 1.0
    most = max((row.seconds for row in record.ops), default=0.0) or 1.0
    for top in sorted(record.ops, key=lambda row: -row.seconds):
        if top.kind == "view":
            continue
        for row in top.flat():
            inner = row is not top
            mark = "" if inner else f' id="{prefix}op{row.id}"'
            width = 88 * min(1.0, row.seconds / most)
            times = f", {row.runs} times" if row.runs > 1 else ""
            if not row.runs and row.kind != "view":
                times = ", not run"
            rates = [f"{n / row.seconds / 1e9:.3g}" if n and row.seconds else ""
                     for n in (row.flops, row.bytes)]  # fmt: skip
            limit = f"{_of_limit(row, peaks):.0%}" if row.flops or row.bytes else ""
            expected = seconds(row.expected) if row.expected else ""
            cells = [
                seconds(row.seconds), f"{row.seconds / total:.1%}", seconds(row.minimum), expected,
                limit, *rates, str(row.chunks),
            ]  # fmt: skip
            yield (
                f'<tr{mark}{" class=inner" if inner else ""}><td>{row.id}</td>'
                f'<td class="left title">{escaped(row.title)}{times}{_details(row)}</td>'
                f'<td class="bar-cell"><i style="width:{width:.0f}px;'
                f'background:{colors.of(top.layer)}"></i></td>'
                + "".join(f"<td>{cell}</td>" for cell in cells)
                + "</tr>"
            )
    yield "</table></div>"


def _details(row: OpRow) -> str:
    parts = [("loops", row.loops), ("assembly", row.assembly)]
    return "".join(
        f"<details><summary><small>{name} of {escaped(row.entry)}</small></summary>"
        f"<pre>{escaped(text)}</pre></details>"
        for name, text in parts
        if text
    )


def _sources(record: PlanRecord) -> Iterator[str]:
    files: dict[str, list[SourceRow]] = {}
    for row in record.sources:
        files.setdefault(row.file, []).append(row)
    if not files:
        yield "<p>No op was made from a line of source.</p>"
    total = record.total or 1.0
    for file, rows in files.items():
        by_line = {row.line: row for row in rows}
        yield (
            f'<p><b>{escaped(Path(file).name)}</b> <small>{escaped(file)}</small></p>'
            '<div class="scroll"><table class="source">'
        )
        before = None
        for line in _lines_around(by_line):
            text = linecache.getline(file, line).rstrip()
            if before is not None and line != before + 1:
                yield '<tr><td class="dim left">…</td></tr>'
            before = line
            found = by_line.get(line)
            share = found.seconds / total if found else 0.0
            cells = "<td></td><td></td>"
            if found:
                ops = ", ".join(map(str, found.ops))
                cells = f"<td>{seconds(found.seconds)} {share:.0%}</td><td>ops {ops}</td>"
            color = f"background:rgba(var(--hot),{min(0.6, share):.2f})"
            yield (
                f'<tr><td class="dim">{line}</td><td class="left" style="{color}">'
                f"{escaped(text)}</td>{cells}</tr>"
            )
        yield "</table></div>"


def _lines_around(by_line: dict[int, SourceRow]) -> list[int]:
    near = {n for line in by_line for n in range(line - _AROUND, line + _AROUND + 1)}
    return sorted(n for n in near if n > 0)


def _comparison(records: Sequence[PlanRecord]) -> str:
    """Return a table with a column for each plan: totals, then the time of each layer."""
    names = "".join(
        f'<th><a href="#p{n}plan">{n}. {escaped(r.name)}</a></th>' for n, r in enumerate(records, 1)
    )
    rows = [
        ("a run", [seconds(r.run) for r in records]),
        ("its ops", [seconds(r.total) for r in records]),
        ("ops", [str(len(r.ops)) for r in records]),
        ("threads", [str(r.threads) for r in records]),
        ("memory", [r.memory.split(", lower")[0] for r in records]),
        ("tracing", [seconds(r.times.trace) for r in records]),
        ("scheduling", [seconds(r.times.schedule) for r in records]),
        ("compiling", [seconds(r.times.compile) for r in records]),
    ]
    shares = [charts.Colors(r.ops).shares for r in records]
    layers = list(dict.fromkeys(layer for found in shares for layer in found))
    layers.sort(key=lambda layer: -max(found.get(layer, 0.0) for found in shares))
    rows += [
        (layer, [seconds(found[layer]) if layer in found else "" for found in shares])
        for layer in layers
    ]
    body = "".join(
        f'<tr><td class="left">{escaped(name)}</td>'
        + "".join(f"<td>{escaped(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, cells in rows
    )
    return (
        f'<h1>{len(records)} plans</h1><div class="scroll"><table><tr><th></th>{names}</tr>'
        f"{body}</table></div>"
    )


def _threads(n: int) -> str:
    return "one thread" if n == 1 else f"{n} threads"


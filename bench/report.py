"""``python -m bench.report``: a table of ratios. All sides of a case are timed in turns."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench import (
    cnn,
    dispatch,
    dynamic,
    eager,
    epochs,
    importing,
    kernels,
    loops,
    mlp,
    models,
    populations,
    products,
    programs,
    routines,
    rows,
    serving,
    ship,
    steady,
    targets,
    threads,
)
from bench.cases import OURS, Case, PeerMissingError
from bench.plot import ONE, TWO, bars
from bench.timing import measure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.cases import Call, Side
    from bench.timing import Samples

GROUPS = {
    "dispatch": dispatch.cases,
    "mlp": mlp.cases,
    "cnn": cnn.cases,
    "epochs": epochs.cases,
    "eager": eager.cases,
    "kernels": kernels.cases,
    "products": products.cases,
    "routines": routines.cases,
    "rows": rows.cases,
    "models": models.cases,
    "loops": loops.cases,
    "populations": populations.cases,
    "programs": programs.cases,
    "serving": serving.cases,
    "steady": steady.cases,
    "dynamic": dynamic.cases,
    "threads": threads.cases,
    "import": importing.cases,
    "ship": ship.cases,
}
PACKAGES = ("numpy", "llvmlite", "torch", "jax", "onnxruntime", "numba")
FULL = {"rounds": 40, "block_ms": 40.0}
SINGLE = (
    "| what | kernelrt | best other | | times as fast | aim | limit is |\n"
    "|---|---|---|---|---|---|---|"
)
PAIRED = (
    "| what | kernelrt, 1 thread | 2 threads | best other, 1 thread | 2 threads "
    "| times as fast, 1 thread | 2 threads | aim | limit is, 1 thread | 2 threads |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)
QUICK = {"rounds": 8, "block_ms": 15.0}


def main(argv: list[str] | None = None) -> int:
    """Run the chosen groups and print the table as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="group", help=f"some of {', '.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="a rough result in less time")
    parser.add_argument("--paired", action="store_true", help="show one and two threads in one row")
    parser.add_argument("--only", metavar="TEXT", help="run only cases whose title contains TEXT")
    parser.add_argument(
        "--target", choices=tuple(targets.TARGETS), help="hold all libraries to an instruction set"
    )
    parser.add_argument(
        "--threads", type=int, choices=(1, 2), help="run only cases on so many threads"
    )
    parser.add_argument("--sides", action="store_true", help="also print the time of every side")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="also draw the ratios to an SVG file (matplotlib)"
    )
    options = parser.parse_args(argv)
    for name in options.groups:
        if name not in GROUPS:
            parser.error(f"unknown group {name!r}; expected some of {', '.join(GROUPS)}")
    try:
        targets.restart(options.target, options.threads)
    except ValueError as error:
        parser.error(str(error))
    print(machine(), end="\n\n")
    print(PAIRED if options.paired else SINGLE, flush=True)
    details: list[str] = []
    ratios: list[tuple[str, float, str]] = []
    held: Row | None = None
    for group in options.groups or GROUPS:
        for case in GROUPS[group]():
            if not chosen(case, options.only, options.threads):
                continue
            samples = run(case, **(QUICK if options.quick else FULL))
            row = row_of(case, samples)
            if row.ratio:
                ratios.append((row.title, float(row.ratio), row.name))
            if not options.paired:
                print(row, flush=True)
            elif held and row.title == held.title.removesuffix(ONE) + TWO:
                print(pair(held, row), flush=True)
                held = None
            else:
                if held:
                    print(pair(held), flush=True)
                held = row
            details += [
                f"| {case.title} | {name} | {per_unit(case, s.median)} | {per_unit(case, s.best)} |"
                for name, s in samples.items()
            ]
    if held:
        print(pair(held))
    if options.sides:
        print("\n| what | side | median | least |\n|---|---|---|---|")
        print("\n".join(details))
    if options.plot:
        given = sys.argv[1:] if argv is None else argv
        command = f"python -m bench.report {' '.join(given)}"
        bars(ratios, options.plot, f"{command}\n{machine()}")
    return 0


def chosen(case: Case, text: str | None, threads: int | None) -> bool:
    """Return whether the title of `case` has `text`, and names no other number of threads."""
    other = {None: "", 1: TWO, 2: ONE}[threads]
    return (text or "") in case.title and not (other and case.title.endswith(other))


def run(case: Case, rounds: int, block_ms: float) -> dict[str, Samples]:
    """Build the installed sides and time them."""
    built: dict[str, tuple[Side, Call]] = {}
    for side in case.sides:
        try:
            built[side.name] = (side, side.build())
        except PeerMissingError as error:
            print(f"skipped: {error}", file=sys.stderr)
    return measure(built, rounds=rounds, block_ms=block_ms)


@dataclass(frozen=True)
class Row:
    """A row of the table, from median times.

    `limit` is the time of the machine limit divided by kernelrt's time.
    """

    title: str
    ours: str
    other: str = ""
    name: str = ""
    ratio: str = ""
    aim: str = ""
    limit: str = ""

    def __str__(self) -> str:
        return (
            f"| {self.title} | {self.ours} | {self.other} | {self.name} | {self.ratio} "
            f"| {self.aim} | {self.limit} |"
        )


def row_of(case: Case, samples: dict[str, Samples]) -> Row:
    """Return the row for the samples of a case."""
    ours = samples[OURS].median
    limits = [samples[s.name].median for s in case.sides if s.limit and s.name in samples]
    of_limit = f"{limits[0] / ours:.2f}" if limits else ""
    aim = "" if case.aim is None else f"{case.aim:.2f}"
    peers = {side.name for side in case.sides if not side.limit and side.name != OURS}
    others = {name: s.median for name, s in samples.items() if name in peers}
    if not others:
        return Row(case.title, per_unit(case, ours), aim=aim, limit=of_limit)
    best = min(others, key=lambda name: others[name])
    other, ratio = per_unit(case, others[best]), f"{others[best] / ours:.2f}"
    return Row(case.title, per_unit(case, ours), other, best, ratio, aim, of_limit)


def pair(one: Row, two: Row | None = None) -> str:
    """Return a row for one and two threads, or for `one` alone if the case has no other."""
    title = one.title if two is None else one.title.removesuffix(ONE)
    two = two or Row("", "")
    columns = [
        title, one.ours, two.ours, f"{one.other} {one.name}", f"{two.other} {two.name}",
        one.ratio, two.ratio, one.aim, one.limit, two.limit,
    ]  # fmt: skip
    return f"| {' | '.join(columns)} |"


def per_unit(case: Case, nanoseconds: float) -> str:
    """Format a time for one unit of the case."""
    value = nanoseconds / case.unit
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g} ns"


def machine() -> str:
    """Describe the processor and the versions of the packages."""
    import kernelrt

    versions = [f"Python {platform.python_version()}", f"kernelrt {kernelrt.__version__}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    threads = kernelrt.get_num_threads()
    return f"{cpu()}, {threads} threads. {', '.join(versions)}.{blas()}{targets.described()}"


def blas() -> str:
    """Describe the OpenBLAS kernels that NumPy's products use, and whether they were overridden."""
    try:
        import threadpoolctl
    except ImportError:
        return ""

    found = [each for each in threadpoolctl.threadpool_info() if "architecture" in each]
    kinds = dict.fromkeys(f"{each['internal_api']} for {each['architecture']}" for each in found)
    text = f" NumPy's products: {', '.join(kinds)}." if kinds else ""
    kind = os.environ.get("OPENBLAS_CORETYPE")
    if kind and not targets.described():
        text += f" OPENBLAS_CORETYPE={kind} is set: left to itself, NumPy may be faster."
    return text


def cpu() -> str:
    """Return the name of the processor."""
    names = _fields("/proc/cpuinfo", "model name")
    return next(iter(names), platform.processor() or platform.machine())


def _fields(path: str, field: str) -> Iterable[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [line.partition(":")[2].strip() for line in lines if line.startswith(field)]


if __name__ == "__main__":
    sys.exit(main())

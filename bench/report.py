"""``python -m bench.report``: one table of ratios, all sides of a case interleaved in one run."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench import (
    cnn,
    dispatch,
    dynamic,
    eager,
    importing,
    kernels,
    mlp,
    models,
    products,
    rows,
    threads,
)
from bench.cases import OURS, Case, PeerMissingError
from bench.timing import measure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.cases import Call, Side
    from bench.timing import Samples

GROUPS = {
    "dispatch": dispatch.cases,
    "mlp": mlp.cases,
    "cnn": cnn.cases,
    "eager": eager.cases,
    "kernels": kernels.cases,
    "products": products.cases,
    "rows": rows.cases,
    "models": models.cases,
    "dynamic": dynamic.cases,
    "threads": threads.cases,
    "import": importing.cases,
}
PACKAGES = ("numpy", "llvmlite", "torch", "jax", "onnxruntime", "numba")
FULL = {"rounds": 40, "block_ms": 40.0}
QUICK = {"rounds": 8, "block_ms": 15.0}


def main(argv: list[str] | None = None) -> int:
    """Run the chosen groups and print the table as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="group", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="a rough answer in a fraction of it")
    parser.add_argument("--sides", action="store_true", help="also the time of every side")
    options = parser.parse_args(argv)
    for name in options.groups:
        if name not in GROUPS:
            parser.error(f"unknown group {name!r}; expected some of {', '.join(GROUPS)}")
    print(machine(), end="\n\n")
    print("| what | kernelrt | best other | | times as fast | aim | limit is |")
    print("|---|---|---|---|---|---|---|", flush=True)
    details: list[str] = []
    for group in options.groups or GROUPS:
        for case in GROUPS[group]():
            samples = run(case, **(QUICK if options.quick else FULL))
            print(row(case, samples), flush=True)
            details += [
                f"| {case.title} | {name} | {per_unit(case, s.median)} | {per_unit(case, s.best)} |"
                for name, s in samples.items()
            ]
    if options.sides:
        print("\n| what | side | median | least |\n|---|---|---|---|")
        print("\n".join(details))
    return 0


def run(case: Case, rounds: int, block_ms: float) -> dict[str, Samples]:
    """Build the sides that are installed and time them."""
    built: dict[str, tuple[Side, Call]] = {}
    for side in case.sides:
        try:
            built[side.name] = (side, side.build())
        except PeerMissingError as error:
            print(f"skipped: {error}", file=sys.stderr)
    return measure(built, rounds=rounds, block_ms=block_ms)


def row(case: Case, samples: dict[str, Samples]) -> str:
    """One line of the table, by medians; last, the limit's time as a part of kernelrt's."""
    ours = samples[OURS].median
    limits = [samples[s.name].median for s in case.sides if s.limit and s.name in samples]
    of_limit = f"{limits[0] / ours:.2f}" if limits else ""
    peers = {side.name for side in case.sides if not side.limit and side.name != OURS}
    others = {name: s.median for name, s in samples.items() if name in peers}
    if not others:
        return f"| {case.title} | {per_unit(case, ours)} | | | | | {of_limit} |"
    best = min(others, key=lambda name: others[name])
    ratio = others[best] / ours
    aim = "" if case.aim is None else f"{case.aim:.2f}"
    return (
        f"| {case.title} | {per_unit(case, ours)} | {per_unit(case, others[best])} | {best} "
        f"| {ratio:.2f} | {aim} | {of_limit} |"
    )


def per_unit(case: Case, nanoseconds: float) -> str:
    """Write a time for one unit of the case."""
    value = nanoseconds / case.unit
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g} ns"


def machine() -> str:
    """Say where and with what was measured."""
    import kernelrt

    versions = [f"Python {platform.python_version()}", f"kernelrt {kernelrt.__version__}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"{cpu()}, {kernelrt.get_num_threads()} threads. {', '.join(versions)}."


def cpu() -> str:
    """Name the processor."""
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

"""The command: ``python -m tests.conformance [--ops NAMES] [--modules [NAMES]] [--write]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.soak.processes import DiedError
from tests.support import sample

from . import array_api, report, runs
from .outcome import BAD, KINDS, Outcome, counted

DRAW = "conformance"
"""The `--draw` of the page in docs/, so that pages of different commits compare."""


def tell(name: str, outcomes: list[Outcome]) -> None:
    """One line for a name, and one for each kind of difference."""
    counts = counted(outcomes)
    print(f"{name:44}" + ", ".join(f"{counts[k]} {k}" for k in KINDS if counts[k]), flush=True)
    told = set()
    for outcome in outcomes:
        if outcome.kind in BAD and (key := (outcome.kind, outcome.mode)) not in told:
            told.add(key)
            print(f"    {outcome}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--ops", metavar="NAMES", help="operations, separated by commas")
    parser.add_argument("--modules", metavar="NAMES", nargs="?", const="", help="modules alone")
    parser.add_argument(
        "--sample", type=int, default=10, metavar="N",
        help="at most N samples of each operation and type (10); 0 takes all",
    )  # fmt: skip
    parser.add_argument("--draw", default=DRAW, metavar="TEXT", help="draws the samples")
    parser.add_argument("--write", action="store_true", help=f"write {report.PAGE.name}")
    parser.add_argument(
        "--array-api-tests", type=Path, metavar="PATH",
        help="run the suite of the array API standard, a clone of data-apis/array-api-tests",
    )  # fmt: skip
    parser.add_argument("--examples", type=int, default=20, help="of each test of that suite (20)")
    options = parser.parse_args()
    if options.sample < 0 or options.examples < 1:
        parser.error("--sample takes numbers from 0 on, --examples from 1 on")
    if options.array_api_tests is not None:
        return array_api.run(options.array_api_tests, options.examples)
    draw = sample.number(options.draw)
    wanted = {"ops": options.ops, "modules": options.modules}
    if options.ops is None and options.modules is None:
        wanted = {"ops": "", "modules": ""}
    found: dict[str, dict[str, list[Outcome]]] = {}
    for suite, text in wanted.items():
        if text is not None:
            chosen = [name for name in text.split(",") if name]
            try:
                found[suite] = runs.run(suite, chosen, options.sample, draw, tell)
            except (ValueError, DiedError) as error:  # an unknown name, or a package is missing
                parser.error(str(error))
    everything = [o for suite in found.values() for outcomes in suite.values() for o in outcomes]
    counts = counted(everything)
    print("\n" + ", ".join(f"{counts[kind]} {kind}" for kind in KINDS))
    if options.write:
        more = "" if options.draw == DRAW else f" --draw {options.draw}"
        report.write(found, options.sample, f" --sample {options.sample}{more}")
    return 1 if any(counts[kind] for kind in BAD) else 0


if __name__ == "__main__":
    sys.exit(main())

"""The command: ``python -m tests.soak --minutes N --seed S [--only GENERATOR] [--jobs J]``."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from pathlib import Path

from .hunt import Hunt, examine, started
from .processes import DiedError

GENERATORS = sorted(
    path.stem for path in Path(__file__).parent.glob("generators/*.py") if path.stem[0] != "_"
)


def one(text: str) -> int:
    """Run a single case, and say what is wrong."""
    name, _, case = text.partition(":")
    try:
        with started(name) as worker:
            message = worker.ask(json.loads(case))
    except DiedError as death:
        message = str(death)
    print(message or "nothing is wrong")
    if message:
        print(examine(name, json.loads(case), message))
    return 1 if message else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="how long to draw cases")
    parser.add_argument("--seed", type=int, help="what to draw from; printed where not given")
    parser.add_argument("--only", action="append", choices=GENERATORS, help="may be repeated")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--case", metavar="GENERATOR:JSON", help="run one case, as it was printed")
    options = parser.parse_args()
    if options.case:
        return one(options.case)
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    names = options.only or GENERATORS
    print(f"seed {seed}, {options.minutes:g} minutes, {options.jobs} jobs: {' '.join(names)}")
    hunt = Hunt(names, seed, options.minutes * 60, max(1, options.jobs))
    findings = hunt.run()
    print(f"\n{'generator':12} {'cases':>9} {'checks':>11} {'failures':>9}")
    for name, count in hunt.counts.items():
        print(f"{name:12} {count.cases:9} {count.checks:11} {count.failures:9}")
        for words, times in sorted(count.kinds.items(), key=lambda item: -item[1]):
            print(f"    {times:6} x {words}")
    if findings:
        print(f"\n{len(findings)} findings, printed above, made as small as they would go:")
        for finding in findings:
            print(f"  {finding.generator}: {finding.message[:160]}\n    {finding.command()}")
    idle = [name for name, count in hunt.counts.items() if not count.cases]
    if idle:
        print(f"no case was run of: {' '.join(idle)}")
    failed = bool(findings or idle or any(c.failures for c in hunt.counts.values()))
    print(f"soak: {'FAILED' if failed else 'passed'}, seed {seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

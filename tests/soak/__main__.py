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
from .record import IR_BYTES, PLAN_SECONDS, Record

GENERATORS = sorted(
    path.stem for path in Path(__file__).parent.glob("generators/*.py") if path.stem[0] != "_"
)


def one(text: str) -> int:
    """Run a single case and print its failure."""
    name, _, case = text.partition(":")
    try:
        with started(name, cache=False) as worker:
            message = worker.ask(json.loads(case))
    except DiedError as death:
        message = str(death)
    print(message or "nothing is wrong")
    if message:
        print(examine(name, json.loads(case), message))
    return 1 if message else 0


def table(hunt: Hunt) -> str:
    """Return the work of each generator and the total."""
    lines = ["\ngenerator        cases    plans  longest  IR bytes failures"]
    for name, count in hunt.counts.items():
        done = count.done
        lines.append(
            f"{name:12} {count.cases:9,} {done.plans:8,} {done.longest:6.2f} s {done.largest:9,} "
            f"{count.failures:8}"
        )
        for words, times in sorted(count.kinds.items(), key=lambda item: -item[1]):
            lines.append(f"    {times:6} x {words}")
    total = Record()
    for count in hunt.counts.values():
        total.add(count.done.plain())
    lines.append("\ncompared with the truth:")
    lines += [f"{times:14,} {unit}" for unit, times in sorted(total.compared.items())]
    lines.append(
        f"compiled: {total.plans:,} plans of {total.kernels:,} kernels; at most "
        f"{total.longest:.2f} s of computing for a plan (bound {PLAN_SECONDS:g} s) and "
        f"{total.largest:,} bytes of IR in a kernel (bound {IR_BYTES:,})"
    )
    return "\n".join(lines)


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
    print(table(hunt))
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

"""The command: ``python -m tests.faults [NAME ...] [--pytest ARGS] [--jobs J] [--resume FILE]``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import sample

from . import planting
from .planting import PlantingError
from .table import FAULTS, Fault

HERE = Path(__file__).parent
BASELINE = "none"
"""The name of the run without a fault."""
FOUND = ("found", "hang")
DRAW = "faults"
"""The `--draw` of all runs. It is fixed, so that results of different commits compare."""
SMALL = ("unit", "csrc", "codegen", "plan", "jit", "ops")
"""Folders of small tests, in the order in which they run if the fault's file touches them."""
NO_TESTS = 5
"""The exit status of pytest where there is nothing to run."""
#: A test that failed, in the summary that ``-ra`` writes.
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", re.MULTILINE)
#: The running test, in the traceback that ``faulthandler`` prints where the process ends.
ENDED = re.compile(r'File ".*?/(tests/\S+\.py)", line \d+ in (test_\w+)')


class Result(NamedTuple):
    """The outcome of one fault.

    Attributes
    ----------
    arguments : str
        Arguments of pytest.
    name : str
        The fault.
    outcome : str
        "found", "hang", "missed" or "broken".
    test : str
        The first test that failed, or the reason why the run is broken.
    seconds : float
        How long pytest ran.
    built : int
        Compiled modules that were built again.
    """

    arguments: str
    name: str
    outcome: str
    test: str
    seconds: float
    built: int = 0

    def __str__(self) -> str:
        built = f", {self.built} modules built" if self.built else ""
        return f"{self.outcome:8}{self.name:22}{self.seconds:7.1f} s{built}  {self.test}"


Results = dict[tuple[str, str], Result]
"""By arguments and fault."""


class Runs:
    """Runs of pytest over trees in `folder`.

    Parameters
    ----------
    folder : Path
        The working folder; the caller removes it.
    arguments : str
        Arguments for pytest.
    """

    def __init__(self, folder: Path, arguments: str) -> None:
        self._folder, self._arguments = folder, arguments
        self._base = folder / "base"
        self._running: set[subprocess.Popen[str]] = set()
        self.limit: float | None = None
        """Seconds after which a run hangs."""
        self.stopped = False

    def prepare(self) -> None:
        """Make the tree that all others are copies of, with all modules built."""
        planting.copy_tree(self._base)
        planting.build(self._base)

    def run(self, fault: Fault | None) -> Result:
        """Test a tree with one fault, or with none."""
        name, built = fault.name if fault else BASELINE, 0
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=f"{name}-") as place:
            tree = Path(place, "tree")
            try:
                built = self.plant(fault, tree)
            except PlantingError as error:
                return Result(self._arguments, name, "broken", str(error), 0)
            code, output, seconds = self._run(tree, likely(fault) if fault else [])
        outcome = {None: "hang", 0: "missed", NO_TESTS: "broken"}.get(code, "found")
        test = _first(output)
        if outcome in ("found", "broken"):
            test = test or f"exit status {code}: {' '.join(output.split()[-30:])}"
        return Result(self._arguments, name, outcome, test, seconds, built)

    def plant(self, fault: Fault | None, tree: Path) -> int:
        """Make a tree with a fault; return how many modules were built for it."""
        # copytree keeps modification times, so only the changed file is built again.
        shutil.copytree(self._base, tree)
        if fault is None:
            return 0
        planting.plant(fault, tree)
        return planting.build(tree) if fault.file.endswith(planting.COMPILED) else 0

    def _run(self, tree: Path, first: list[str]) -> tuple[int | None, str, float]:
        """Run pytest in `tree`.

        Parameters
        ----------
        tree : Path
            A copy of the project.
        first : list of str
            Tests with these words in their paths run before the others.

        Returns
        -------
        status : int or None
            The exit status; None past the time limit.
        output : str
            The output of pytest.
        seconds : float
            How long it ran.
        """
        own = {"KERNELRT_CACHE_DIR": tree.parent / "kernels", "TMPDIR": tree.parent / "tmp"}
        own["TMPDIR"].mkdir()
        # A shared cache would hold kernels that were compiled without the fault.
        environment = os.environ | {name: str(folder) for name, folder in own.items()}
        # tests/faults itself fails on every fault.
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-ra", "--ignore=tests/faults",
                   "--draw", DRAW, "--dist", "load", "--first", ",".join(first),
                   *shlex.split(self._arguments)]  # fmt: skip
        begun = time.monotonic()
        with (tree.parent / f"{tree.name}.log").open("w+", encoding="utf-8") as log:
            process = subprocess.Popen(
                command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, text=True, start_new_session=True,
            )  # fmt: skip
            self._running.add(process)
            try:
                code = None if self.stopped else process.wait(self.limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
                self._running.discard(process)
            log.seek(0)
            return code, log.read(), time.monotonic() - begun

    def stop(self) -> None:
        """End all runs, and let later ones end at once."""
        self.stopped = True
        for process in list(self._running):
            _end(process)


def likely(fault: Fault) -> list[str]:
    """Return parts of the paths of tests that likely find a fault, the likeliest first."""
    touched = sample.touched_by([fault.file]) - {*sample.ALWAYS}
    stem = Path(fault.file).stem.strip("_")
    return [f"_{stem}.py", stem, *(f"tests/{name}/" for name in SMALL if name in touched)]


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a process and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _first(output: str) -> str:
    """Return the first test that failed, or the one in which the process ended."""
    found = FAILED.search(output) or ENDED.search(output)
    return "::".join(found.groups()) if found else ""


def check(runs: Runs, folder: Path, faults: list[Fault]) -> int:
    """Plant and compile each fault; return how many do not compile."""
    wrong = 0
    runs.prepare()
    for fault in faults:
        try:
            built = runs.plant(fault, folder / fault.name)
            print(f"{fault.name}: {built} modules built", flush=True)
        except (PlantingError, SyntaxError) as error:
            wrong += 1
            print(f"{fault.name}: {error}", flush=True)
        shutil.rmtree(folder / fault.name, ignore_errors=True)
    return wrong


def known(file: Path | None) -> Results:
    """Return the results in `file`, the last one of each fault."""
    if file is None or not file.exists():
        return {}
    results = (Result(**json.loads(line)) for line in file.read_text().splitlines())
    return {(result.arguments, result.name): result for result in results}


def table(results: Results) -> str:
    """Return all results as Markdown."""
    runs = list(dict.fromkeys(arguments for arguments, _ in results))
    titles = [f"`pytest {arguments}`" if arguments else "`pytest`" for arguments in runs]
    lines = [
        "# Planted faults and the tests that find them", "",
        "Made by `python -m tests.faults --write`; `tests/faults/__init__.py` says how to read it.",
        f"All cases are drawn by `--draw {DRAW}`.",
        "`pytest --all` runs the tests of `pytest`, too, so it finds what `pytest` finds.", "",
    ]  # fmt: skip
    for arguments, title in zip(runs, titles, strict=True):
        outcomes = [r.outcome for f in FAULTS if (r := results.get((arguments, f.name)))]
        found = sum(o in FOUND for o in outcomes)
        lines.append(f"- {title}: found {found} of {len(outcomes)} measured ({len(FAULTS)} in all)")
    lines += ["", "| fault | in | harm |" + "".join(f" {title} |" for title in titles)]
    lines.append("|---|---|---|" + "---|" * len(runs))
    for fault in FAULTS:
        cells = [fault.name, f"`{fault.file}`", fault.harm]
        for arguments in runs:
            result = results.get((arguments, fault.name))
            test = f": `{result.test}`" if result is not None and result.test else ""
            cells.append("" if result is None else result.outcome + test)
        plain = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
        lines.append(f"| {' | '.join(plain)} |")
    return "\n".join(lines) + "\n"


def measure(runs: Runs, faults: list[Fault], results: Results, options: Any) -> None:
    """Run the faults that have no result yet; print and store each result at once."""

    def note(result: Result) -> None:
        print(result, flush=True)
        results[result.arguments, result.name] = result
        if options.resume is not None:
            with options.resume.open("a") as file:
                file.write(json.dumps(result._asdict()) + "\n")

    runs.prepare()
    if options.baseline and (options.pytest, BASELINE) not in results:
        note(runs.run(None))
    alone = results.get((options.pytest, BASELINE))
    if alone is not None and alone.outcome != "missed":
        raise SystemExit(f"{alone.test} fails without any fault; nothing that follows would count")
    runs.limit = max(options.least, 2 * options.jobs * (alone.seconds if alone else 0))
    with ThreadPoolExecutor(options.jobs) as pool:
        left = {
            pool.submit(runs.run, fault) for fault in faults
            if (options.pytest, fault.name) not in results
        }  # fmt: skip
        try:
            while left:
                done, left = wait(left, return_when=FIRST_COMPLETED)
                for future in done:
                    note(future.result())
        finally:
            runs.stop()
            pool.shutdown(cancel_futures=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults; all unless given")
    parser.add_argument("--pytest", default="", metavar="ARGS", help="arguments for pytest")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--least", type=float, default=600.0, help="least limit of time, seconds")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="results, which are added to")
    parser.add_argument("--no-baseline", dest="baseline", action="store_false",
                        help="do not run without a fault first")  # fmt: skip
    parser.add_argument("--check", action="store_true", help="only plant and compile each fault")
    parser.add_argument("--write", action="store_true", help="write all results to RESULTS.md")
    options = parser.parse_args()
    strange = sorted({*options.names} - {fault.name for fault in FAULTS})
    if strange:
        names = ", ".join(fault.name for fault in FAULTS)
        parser.error(f"there is no fault {', '.join(strange)}; expected some of {names}")
    faults = [f for f in FAULTS if not options.names or f.name in options.names]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = known(options.resume)
    with tempfile.TemporaryDirectory(prefix="kernelrt-faults-") as folder:
        runs = Runs(Path(folder), options.pytest)
        if options.check:
            return 1 if check(runs, Path(folder), faults) else 0
        measure(runs, faults, results, options)
    if options.write:
        (HERE / "RESULTS.md").write_text(table(results), encoding="utf-8")
    found = sum(results[options.pytest, f.name].outcome in FOUND for f in faults)
    print(f"{found} of {len(faults)} found", flush=True)
    return 0 if found == len(faults) else 1


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)

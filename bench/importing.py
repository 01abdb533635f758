"""The time to import kernelrt and its peers, each in a fresh interpreter.

``python -m bench.importing [runs]`` in a checkout prints how many milliseconds the import of
kernelrt takes longer than that of NumPy alone. Interpreters with both imports start in turns, with
existing byte code. Two numbers are printed: the difference of the shortest times, and that of the
median times. Other load on the machine makes both greater.
"""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from bench.cases import OURS, Case, Side

if TYPE_CHECKING:
    from bench.cases import Call

PEERS = ("torch", "jax", "onnxruntime", "numba")
#: Imports to compare, the base first.
MODULES = ("numpy", "numpy, kernelrt")
RUNS = 25


def fresh(modules: str, env: dict[str, str] | None = None) -> Call:
    """Build a call that starts an interpreter which imports `modules`."""
    command = [sys.executable, "-c", f"import {modules}"]

    def call() -> object:
        return subprocess.run(command, check=True, env=env).returncode  # noqa: S603 - our own command

    call()
    return call


def cases() -> tuple[Case, ...]:
    """Return one case: an import in a fresh interpreter. Its time includes the start of Python."""
    sides = [Side(OURS, functools.partial(fresh, "kernelrt"))]
    sides += [Side(f"{m}", functools.partial(fresh, m), needs=(m,)) for m in PEERS]
    return (Case("import", "python -c 'import ...'", tuple(sides)),)


def added(runs: int) -> tuple[float, float]:
    """Return the seconds that kernelrt adds to an import of NumPy: by shortest and median times."""
    with tempfile.TemporaryDirectory() as folder:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = folder
        calls = [fresh(modules, env) for modules in MODULES]
        times: list[list[float]] = [[], []]
        for _ in range(runs):
            for call, taken in zip(calls, times, strict=True):
                start = time.perf_counter()
                call()
                taken.append(time.perf_counter() - start)
    base, whole = times
    return min(whole) - min(base), statistics.median(whole) - statistics.median(base)


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    least, median = added(runs)
    print(f"import kernelrt after numpy, {runs} runs: "
          f"{least * 1e3:.1f} ms at least, {median * 1e3:.1f} ms at the median")  # fmt: skip


if __name__ == "__main__":
    main()

"""Random programs without jit whose sizes, rows and branches change between iterations.

``python -m bench.drawn --programs 200`` runs 200 programs of tests/support/size_programs.py with
kernelrt and with PyTorch, on one thread. A pass goes through all sizes of a program once. The
output shows the processor time of the first pass, of the second, and of all later passes, as
multiples of PyTorch's.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

#: A program passes if its later passes take at most this multiple of PyTorch's time.
AIM = 3.0
#: Number of passes of a program.
PASSES = 5


def seconds(library: Any, case: dict[str, Any], data: dict[str, Any], n: int, i: int) -> float:
    """Return the processor time of one iteration, until all its values are in NumPy."""
    from support import size_programs

    given = {name: library.tensor(values) for name, values in data.items()}
    began = time.process_time()
    size_programs.run(library, case, given, n, i)
    return time.process_time() - began


def measured(case: dict[str, Any]) -> tuple[float, float, float]:
    """Return the first, second and later passes' times as multiples of PyTorch's."""
    import torch
    from support import size_programs

    import kernelrt as krt

    ours, theirs = np.zeros(PASSES), np.zeros(PASSES)
    for k in range(PASSES):
        for turn, n in enumerate(case["sizes"]):
            data, i = size_programs.inputs(turn, n)
            data = {name: values.astype(np.float32) for name, values in data.items()}
            theirs[k] += seconds(torch, case, data, n, i)
            ours[k] += seconds(krt, case, data, n, i)
    return ours[0] / theirs[0], ours[1] / theirs[1], ours[2:].sum() / theirs[2:].sum()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the quantiles of the ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench.drawn", description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    import torch
    from support import size_programs

    import kernelrt as krt

    torch.set_num_threads(1)
    krt.set_num_threads(1)
    found = []
    rng = np.random.default_rng(chosen.seed)
    while len(found) < chosen.programs:
        case = {**size_programs.generate(rng), "jit": False}
        # As in timeit: a garbage collection over PyTorch's objects takes as long as some programs.
        gc.collect()
        gc.disable()
        try:
            found.append(measured(case))
        except (RuntimeError, IndexError) as error:
            print(f"left out: {str(error).splitlines()[0]}")
        finally:
            gc.enable()
    table = np.array(found)
    print(f"{'times PyTorch':>14} {'median':>8} {'90%':>8} {'worst':>8} {'at most 3':>10}")
    for name, ratios in zip(("first pass", "second pass", "later passes"), table.T, strict=True):
        median, most, worst = np.quantile(ratios, (0.5, 0.9, 1.0))
        within = int((ratios <= AIM).sum())
        print(f"{name:>14} {median:8.1f} {most:8.1f} {worst:8.1f} {within:6}/{len(ratios)}")


if __name__ == "__main__":
    main()

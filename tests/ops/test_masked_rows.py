"""Functions of masked scores, summed along rows: whole masked tiles are computed once.

A process has one target, so each target has a process of its own.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.device.spec import machine, runnable

FUNCTIONS = {
    "exp": np.exp,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "softmax": lambda x: np.exp(x - x.max(-1, keepdims=True)),
}
ROWS, COLUMNS, WIDTHS = (4, 12, 24, 37), (8, 19, 64), (2, 5, 8)
PROGRAMS = 24


def compare(seed: int) -> None:
    """Compare some programs with NumPy in float64."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)  # noqa: S311
    grid = list(itertools.product(
        FUNCTIONS, ROWS, COLUMNS, WIDTHS, range(-6, 7), (-np.inf, -1.0, 2.5), (True, False)
    ))  # fmt: skip
    for name, m, n, k, diagonal, value, lower in draw.sample(grid, PROGRAMS):
        q, r = (rng.normal(size=(size, k)).astype(np.float32) * 0.7 for size in (m, n))
        i, j = np.arange(m)[:, None], np.arange(n)
        keep = j <= i + diagonal if lower else j >= i + diagonal

        def run(a, b):
            scores = (a @ b.T).masked_fill(~krt.tensor(keep), value)  # noqa: B023
            x = scores - scores.amax(-1, keepdim=True)
            return (x.exp() if name == "softmax" else getattr(x, name)()).sum(-1)  # noqa: B023

        def run_ranges(a, b):
            i, j = krt.arange(m)[:, None], krt.arange(n)[None, :]  # noqa: B023
            keep = j <= i + diagonal if lower else j >= i + diagonal  # noqa: B023
            scores = krt.where(keep, a @ b.T, value)  # noqa: B023
            x = scores - scores.amax(-1, keepdim=True)
            return (x.exp() if name == "softmax" else getattr(x, name)()).sum(-1)  # noqa: B023

        scores = np.where(keep, q.astype(np.float64) @ r.T.astype(np.float64), value)
        with np.errstate(invalid="ignore"):
            expected = FUNCTIONS[name](scores - scores.max(-1, keepdims=True)).sum(-1)
        for function in (run, run_ranges):
            found = krt.jit(function)(q, r).numpy()
            np.testing.assert_allclose(
                found, expected, rtol=2e-4, atol=3e-4, err_msg=str((name, m, n, k, diagonal, value))
            )


@pytest.mark.cases(1)
@pytest.mark.parametrize("target", runnable(machine())[1:])
def test_sums_along_masked_rows(target: str) -> None:
    done = subprocess.run(
        [sys.executable, __file__, "0"], capture_output=True, text=True, check=False,
        env={**os.environ, "KERNELRT_TARGET": target, "KERNELRT_THREADS": "1"},
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    compare(int(sys.argv[1]))

"""Measure two processes of two threads each on the same two cores.

Run ``python -m bench.crowded [seconds]`` in a checkout. Each process trains a small network, or
multiplies matrices, for this many seconds. The table shows calls per second: of one process that
runs alone, and of each of two processes that run at the same time. This is the situation of two
programs on one machine, or of tests with one worker per core.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
THREADS = 2
BATCH, INPUTS, HIDDEN, OUTPUTS = 256, 784, 512, 10
SIZE = 768
"""Rows and columns of the matrices."""


def _arrays() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, INPUTS), np.float32)
    y = rng.integers(0, OUTPUTS, BATCH)
    w = [rng.standard_normal(s, np.float32) / 30 for s in ((HIDDEN, INPUTS), (OUTPUTS, HIDDEN))]
    return x, y, *w


def _square() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, SIZE, SIZE), np.float32)
    return a, b


def kernelrt_step() -> Callable[[], object]:
    """Build an SGD step of two layers."""
    import kernelrt as krt

    krt.set_num_threads(THREADS)
    x, y, *weights = map(krt.tensor, _arrays())
    first, second = (w.requires_grad_() for w in weights)

    @krt.jit
    def step(x: krt.Tensor, y: krt.Tensor) -> krt.Tensor:
        loss = ((x @ first.T).relu() @ second.T).cross_entropy(y)
        for w, g in zip((first, second), krt.grad(loss, (first, second)), strict=True):
            w.assign(w.detach() - 0.01 * g)
        return loss

    return lambda: step(x, y).item()


def torch_step() -> Callable[[], object]:
    """Build the same step in eager PyTorch."""
    import torch

    torch.set_num_threads(THREADS)
    x, y, *weights = map(torch.from_numpy, _arrays())
    first, second = (w.requires_grad_() for w in weights)

    def step() -> float:
        loss = torch.nn.functional.cross_entropy((x @ first.T).relu() @ second.T, y)
        gradients = torch.autograd.grad(loss, (first, second))
        with torch.no_grad():
            for w, g in zip((first, second), gradients, strict=True):
                w.sub_(g, alpha=0.01)
        return loss.item()

    return step


def kernelrt_product() -> Callable[[], object]:
    """Build a jitted product of two matrices."""
    import kernelrt as krt

    krt.set_num_threads(THREADS)
    a, b = map(krt.tensor, _square())
    product = krt.jit(lambda a, b: a @ b)
    return lambda: product(a, b)


def numpy_product() -> Callable[[], object]:
    """Build the product with OpenBLAS."""
    a, b = _square()
    return lambda: a @ b


WHAT = {
    "training steps of a network 784-512-10, batch 256": {
        "kernelrt": kernelrt_step, "torch": torch_step,
    },
    f"products of {SIZE} x {SIZE}": {
        "kernelrt": kernelrt_product, "NumPy (OpenBLAS)": numpy_product,
    },
}  # fmt: skip


def child(name: str, seconds: float) -> None:
    """Wait for a line on stdin, then print calls per second."""
    call = globals()[name]()
    for _ in range(5):
        call()
    print("ready", flush=True)
    sys.stdin.readline()
    start, n = time.perf_counter(), 0
    while (took := time.perf_counter() - start) < seconds:
        call()
        n += 1
    print(n / took, flush=True)


def rate(name: str, processes: int, seconds: float) -> float:
    """Return the calls per second of one of `processes` concurrent processes, on average."""
    code = f"from bench.crowded import child; child({name!r}, {seconds})"
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(THREADS))
    children = [
        subprocess.Popen(  # noqa: S603 - our own code
            [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **threads}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for _ in range(processes)
    ]  # fmt: skip
    for one in children:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in children:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    found = [float(one.communicate()[0]) for one in children]
    return sum(found) / processes


def main(seconds: float = 5.0) -> None:
    """Print a table."""
    print(f"| a second, {THREADS} threads a process | by | one process | each of two |")
    print("|---|---|---|---|")
    for what, sides in WHAT.items():
        for side, function in sides.items():
            alone, beside = (rate(function.__name__, n, seconds) for n in (1, 2))
            print(f"| {what} | {side} | {alone:.0f} | {beside:.0f} |", flush=True)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))

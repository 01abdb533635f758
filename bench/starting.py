"""Measure the first call of a jitted training step in a new process.

Run ``python -m bench.starting [repeats]`` in a checkout. It measures a transformer of 6 layers
three times: with an empty kernel cache, with all compiled objects but no rendered programs on disk,
and with both. It prints seconds of processor time, the least of the repeats, each of which runs in
its own process. Nothing is stored.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTH, LAYERS, WORDS = 64, 6, 100


def first_call(*, programs: bool) -> float:
    """Return the time of the first call of a step in this process."""
    import numpy as np

    import kernelrt as krt
    from kernelrt import nn
    from kernelrt.backend.cpu.rendered import StoredRenderer

    if not programs:
        StoredRenderer.render = (  # type: ignore[method-assign]
            lambda self, ast, variant=None: self._renderer().render(ast, variant)
        )
    layers = [nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True)
              for _ in range(LAYERS)]  # fmt: skip
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *layers, nn.Linear(WIDTH, WORDS))
    optimizer = nn.optim.AdamW(nn.parameters(model), lr=1e-3)

    @krt.jit
    def step(x: krt.Tensor) -> krt.Tensor:
        optimizer.zero_grad()
        loss = model(x).reshape(-1, WORDS).cross_entropy(x.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    x = np.random.default_rng(0).integers(0, WORDS, (8, 32))
    start = time.process_time()
    step(x).item()
    return time.process_time() - start


def in_a_process(cache: str, *, programs: bool) -> float:
    """Return the time of the first call in a new process, with this kernel cache folder."""
    code = f"from bench.starting import first_call; print(first_call(programs={programs}))"
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "KERNELRT_CACHE_DIR": cache},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


def main(repeats: int = 3) -> None:
    """Print a table."""
    with tempfile.TemporaryDirectory() as folder:
        cold = min(
            in_a_process(str(Path(folder) / f"{i}"), programs=True) for i in range(repeats)
        )
        warm = {
            "objects on disk": min(
                in_a_process(str(Path(folder) / "0"), programs=False) for _ in range(repeats)
            ),
            "objects and programs on disk": min(
                in_a_process(str(Path(folder) / "0"), programs=True) for _ in range(repeats)
            ),
        }
    print("| the first call with | seconds | of that with an empty cache |")
    print("|---|---|---|")
    for name, seconds in {"an empty cache": cold, **warm}.items():
        print(f"| {name} | {seconds:.2f} | {seconds / cold:.2f} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

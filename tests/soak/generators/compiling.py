"""Tests compile times, with repeated lines that multiply work under unlimited fusion.

There is no truth to compare with, only the limits that `tests.soak.record` checks.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from tests.soak import record, smaller, texts
from tests.soak.generators import programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

Case = dict[str, Any]
SECONDS = 120.0
SHARE = 0.6

# Lines over x, to repeat; {k} is the number of the repetition.
REPEATED = (
    "x = x * x", "x = x + x.sum()", "x = x.softmax(-1)", "x = x @ x.transpose(-1, -2)",
    "x = T.cat([x, x[..., :1]], -1)", "x = x.flip(0) + x", "x = x - x.mean(0, keepdim=True)",
    "x = x.roll(1, -1) * 0.5 + x", "x = x.cumsum(-1) * 0.1", "x = F.gelu(x)", "x = x.erf() + x",
    "x = F.pad(x, (1, 0))[..., 1:] + x", "x = T.where(x > 0, x, x * 0.5)", "x = x.tanh() * x",
    "x = x.maximum(x.roll(1, 0))", "x = F.layer_norm(x, x.shape[-1:])", "x = x.permute(1, 0)",
    "x = x[x.argmax(0)]", "x = x ** 2 * 0.5", "x = x.sin() + x.cos()", "x = x.log_softmax(0)",
    "x = T.stack([x, x * 2], 0).sum(0)", "x = x.repeat_interleave(2, 0)[: x.shape[0]]",
    "x = x.mT.contiguous().mT + 1", "x = x + x.split(2, 0)[-1].sum(0)", "x = x.prod(0) + x",
    "x = T.cat(x.split(3, 1)[::-1], 1)", "x = x.unbind(0)[-1] + x", "x = x.norm() + x",
    "x = x.permute(1, 0).split(2, 0)[-1].sum(0).log_softmax(0)[None] + x * 0.5",
)  # fmt: skip


def generate(rng: np.random.Generator) -> Case:
    if rng.integers(3) == 0:
        case = programs.generate(rng)
        return {
            "inputs": case["inputs"], "lines": case["lines"], "results": case["results"],
            "grad": case["grad"], "dtype": case["dtype"], "sizes": case["sizes"][:1],
        }  # fmt: skip
    shape = [int(rng.choice([1, 2, 3, 8, 17, 33, 47, 64])) for _ in range(2)]
    lines = [str(rng.choice(REPEATED)) for _ in range(rng.integers(1, 4))]
    return {
        "inputs": {"x": f"f(R(0).normal(size=({shape[0]}, {shape[1]})))"},
        "lines": lines * int(rng.choice([1, 2, 4, 8, 12, 24])),
        "results": ["x"],
        "grad": bool(rng.integers(2)),
        "dtype": str(rng.choice(["float32", "float64"])),
        "sizes": [1],
    }


def run(case: Case) -> str | None:
    import torch

    import kernelrt as krt

    try:
        data = texts.arrays(case, case["sizes"][0])
        scope: dict[str, Any] = {"T": texts.Torch(), "F": texts.TorchFunctions()}
        scope.update({name: torch.from_numpy(x) for name, x in data.items()})
        with texts.strict():
            texts.execute(case, scope)
        if not case["results"] or any(scope[r].numel() > 20_000 for r in case["results"]):
            return None
    except Exception:  # noqa: BLE001 - torch refuses lines that do not fit
        return None
    with contextlib.suppress(krt.KernelrtError):  # the programs generator tests that
        krt.jit(texts.kernelrt_function(case))(*data.values())
        record.note("programs that grow")
    return None


def shrink(case: Case) -> Iterator[Case]:
    lines = case["lines"]
    for k in (len(lines) // 2, len(lines) - len(lines) // 4, len(lines) - 1):
        if 0 < k < len(lines):
            yield {**case, "lines": lines[:k]}
    for line in dict.fromkeys(lines):
        if len(set(lines)) > 1:
            yield {**case, "lines": [x for x in lines if x != line]}
    if case["grad"]:
        yield {**case, "grad": False}
    if all(texts.target(line) != "x" for line in lines):
        for less in smaller.shrink({**case, "ways": ["jit"]}):
            yield {name: value for name, value in less.items() if name != "ways"}


def key(case: Case) -> str:
    return re.sub(r"\d+", "#", " ".join(sorted(set(case["lines"])))) + str(case["grad"])


def source(case: Case) -> str:
    return (
        "import os; os.environ['KERNELRT_CACHE'] = '0'\n"
        "from tests.soak import record\n"
        "from tests.soak.generators import compiling\n"
        f"case = {case!r}\n"
        "with record.begun() as done, record.watching(): compiling.run(case)\n"
        "assert done.excess() is None, done"
    )

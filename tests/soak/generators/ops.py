"""Single operations with their gradients, at shapes and numbers where rules change.

One line of the programs' grammar, in both widths, on data full of zeros, ones, equal numbers and
limits; run eagerly or jitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.soak import texts
from tests.soak.generators.programs import grow
from tests.soak.smaller import shrink
from tests.soak.texts import Case, key, source, target

if TYPE_CHECKING:
    import numpy as np

__all__ = ["generate", "key", "run", "shrink", "source"]

SIZES = (0, 1, 1, 1, 2, 2, 3, 4, 5, 8, 9, 16, 17, 33)
SHARE = 4.0
DATA = (
    "R({seed}).normal(size={size})",
    "R({seed}).integers(-3, 4, size={size})",
    "R({seed}).choice([0.0, -0.0, 1, -1, 0.5, 6, 3, -3, 20, -20], size={size})",
    "np.zeros({size})",
    "np.ones({size})",
)


def generate(rng: np.random.Generator) -> Case:
    inputs = {}
    shapes: list[list[int]] = []
    for name in "ab"[: rng.integers(1, 3)]:
        rank = int(rng.choice([0, 1, 1, 2, 2, 2, 3, 3, 4]))
        shape = [int(s) for s in rng.choice(SIZES, rank)]
        if shapes and rng.integers(2):  # broadcasts with the first, or multiplies it
            shape = [s if rng.integers(3) else 1 for s in shapes[0]][rng.integers(2) :]
            if len(shape) > 1 and rng.integers(3) == 0:
                shape[-2:] = shape[-2:][::-1]
        while shape and _count(shape) > 600:
            shape.pop(0)
        shapes.append(shape)
        size = f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
        data = str(rng.choice(DATA, p=[0.4, 0.25, 0.25, 0.05, 0.05]))
        inputs[name] = f"f({data.format(seed=int(rng.integers(100)), size=size)})"
    case: dict[str, Any] = {
        "inputs": inputs,
        "lines": [],
        "results": [],
        "dtype": str(rng.choice(["float32", "float64"])),
        "grad": False,
        "ways": [str(rng.choice(["whole", "whole", "jit"]))],
        "sizes": [1],
    }
    grow(rng, case, 1)
    case["results"] = [target(line) for line in case["lines"]]
    case["grad"] = bool(rng.integers(3)) and bool(case["lines"])
    return case


def run(case: Case) -> str | None:
    return texts.run(case, "single operations")


def _count(shape: list[int]) -> int:
    found = 1
    for size in shape:
        found *= size
    return found

"""Random programs over tensors large enough for tiles, panels and chunks for several threads.

The values are compared with torch; the bits, with those of one thread.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tests.soak import texts
from tests.soak.generators.programs import grow
from tests.soak.smaller import shrink
from tests.soak.texts import Case, Invalid, key, source

if TYPE_CHECKING:
    import numpy as np

__all__ = ["generate", "key", "run", "shrink", "source"]

SIZES = (1, 2, 3, 8, 17, 31, 64, 65, 100, 128, 200, 257, 512, 1000, 1024, 3001, 20_000, 70_000)
LEAST, MOST = 20_000, 250_000
LONGEST = 6
SHARE = 3.0


def inputs(rng: np.random.Generator) -> dict[str, str]:
    """Draw arrays: the first is large, and others sometimes fit it."""
    while True:
        shape = [int(s) for s in rng.choice(SIZES, rng.integers(1, 5))]
        if LEAST <= math.prod(shape) <= MOST // 2:
            break
    shapes = [shape]
    for _ in range(int(rng.integers(3))):
        other = [s if rng.integers(3) else 1 for s in shape][int(rng.integers(2)) :]
        if len(shape) > 1 and rng.integers(2):  # an operand for a product
            other = [*shape[-2:]][::-1]
        shapes.append(other)
    found = {}
    for name, size in zip("abc", shapes, strict=False):
        text = f"({', '.join(map(str, size))}{',' if len(size) == 1 else ''})"
        seed = int(rng.integers(100))
        # Equal numbers would round equally, and their sums drift with the number of additions.
        found[name] = f"f(R({seed}).normal(size={text}))"
    return found


def generate(rng: np.random.Generator) -> Case:
    case: dict[str, Any] = {
        "inputs": inputs(rng),
        "lines": [],
        "results": [],
        "dtype": str(rng.choice(["float32", "float32", "float64"])),
        "grad": False,
        "ways": [str(rng.choice(["threads", "frozen"]))],
        "sizes": [1],
    }
    grow(rng, case, int(rng.integers(1, LONGEST)), MOST)
    made = [texts.target(line) for line in case["lines"]]
    if made:
        case["results"] = [made[-1], *map(str, rng.choice(made[:-1], min(len(made) - 1, 1)))]
        case["grad"] = bool(rng.integers(2))
    return case


def run(case: Case) -> str | None:
    return texts.run(case, "large programs") or different(case)


def different(case: Case) -> str | None:
    """Return the result whose bits differ with two threads."""
    from kernelrt.errors import GradientError

    try:
        data = texts.arrays(case, case["sizes"][0])
    except Invalid:
        return None
    both: list[list[Any]] = []
    for way in ("jit", "threads"):
        ((_, function),) = texts.ways({**case, "ways": [way]})
        try:
            both.append([t.numpy() for t in function(*data.values())])
        except GradientError:  # in torch, too: nothing depends on an input
            return None
    for number, (one, two) in enumerate(zip(*both, strict=True)):
        if one.tobytes() != two.tobytes():
            return f"bits: result {number} is another one with two threads"
    return None

"""Random programs, realized line by line, whole, and jitted; static and for changing sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.soak import grammar, texts
from tests.soak.smaller import shrink
from tests.soak.texts import BOUNDS, Case, Invalid, key, source

if TYPE_CHECKING:
    import numpy as np

__all__ = ["generate", "key", "run", "shrink", "source"]

SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33)
MOST_ELEMENTS = 4_000
#: A loss that compares all pairs of classes in torch (a minute for 70,000 classes), and splits into
#: thousands of parts.
SLOW = ("multilabel_margin", ".split(")
LONGEST = 12
SHARE = 9.0


def inputs(rng: np.random.Generator, open_size: bool) -> dict[str, str]:
    found = {}
    for name in "abc"[: rng.integers(1, 4)]:
        shape = [str(size) for size in rng.choice(SIZES, rng.integers(0 if found else 1, 5))]
        while shape and eval("*".join(shape)) > 500:  # noqa: S307 - digits
            shape.pop()
        if open_size and shape and (not found or rng.integers(2)):
            shape[0] = "n"
        size = f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"
        seed = int(rng.integers(100))
        found[name] = str(rng.choice([
            f"f(R({seed}).normal(size={size}))", f"f(R({seed}).normal(size={size}))",
            f"f(R({seed}).integers(-2, 3, size={size}))", f"f(np.zeros({size}))",
        ], p=[0.4, 0.3, 0.25, 0.05]))  # fmt: skip
    return found


def generate(rng: np.random.Generator) -> Case:
    open_size = bool(rng.integers(2))
    # Windows need a least size that has room for one.
    bounds = [BOUNDS, BOUNDS, (0, 64), (0, 800), (1, 20_000), (5, 64)][int(rng.integers(6))]
    fitting = [size for size in SIZES if size >= bounds[0]]
    sizes = [int(s) for s in rng.choice(fitting, 3)] if open_size else [1]
    ways = ["steps", "whole", "jit", "threads", "frozen"]
    case: dict[str, Any] = {
        "inputs": inputs(rng, open_size),
        "lines": [],
        "results": [],
        "dtype": str(rng.choice(["float32", "float32", "float64"])),
        "grad": False,
        "ways": ["dynamic", str(rng.choice(ways))] if open_size else ways,
        "sizes": sizes,
        "bounds": bounds,
    }
    grow(rng, case, int(rng.integers(1, LONGEST)))
    made = [texts.target(line) for line in case["lines"]]
    if not made:
        return case
    picked = rng.choice(made[:-1], min(len(made) - 1, 1), replace=False) if made[:-1] else []
    case["results"] = [made[-1], *map(str, picked)]
    case["grad"] = bool(rng.integers(2))
    return case


def run(case: Case) -> str | None:
    return texts.run(case, "random programs")


def grow(rng: np.random.Generator, case: Case, lines: int, most: int = MOST_ELEMENTS) -> None:
    """Add lines that torch can run for every size, with tame values of `most` elements or less."""
    import torch

    worlds = []
    for n in case["sizes"]:
        try:
            data = texts.arrays(case, n)
        except Invalid:
            return
        scope: dict[str, Any] = {"T": texts.Torch(), "F": texts.TorchFunctions()}
        scope.update({name: torch.from_numpy(x).double() for name, x in data.items()})
        worlds.append(scope)
    names = list(case["inputs"])
    for _ in range(4 * lines):
        right = grammar.draw(rng, names, lambda name: worlds[0][name].shape)
        if most > MOST_ELEMENTS and any(name in right for name in SLOW):
            continue
        right = floating(rng, right, tried(right, worlds))
        values = tried(right, worlds)
        if not values or not all(fits(value, most) for value in values):
            continue
        name = f"x{len(case['lines'])}"
        case["lines"].append(f"{name} = {right}")
        names.append(name)
        for scope, value in zip(worlds, values, strict=True):
            scope[name] = value
        if len(case["lines"]) == lines:
            return


def tried(right: str, worlds: list[dict[str, Any]]) -> list[Any]:
    """Return the values of a line, none if torch refuses it."""
    try:
        with texts.strict():
            return [eval(right, scope) for scope in worlds]  # noqa: S307
    except Exception:  # noqa: BLE001 - torch has many errors for lines that do not fit
        return []


def floating(rng: np.random.Generator, right: str, values: list[Any]) -> str:
    """Return a line that gives a float tensor: one of several results, or integers as floats."""
    import torch

    value = values[0] if values else None
    if isinstance(value, tuple | list) and value:
        chosen = int(rng.integers(len(value)))
        right, value = f"{right}[{chosen}]", value[chosen]
    if isinstance(value, torch.Tensor) and not value.is_floating_point():
        right = f"({right}) * 1.0"
    return right


def fits(value: Any, most: int) -> bool:
    import torch

    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.numel() <= most
        and bool(value.isfinite().all())
        and (value.numel() == 0 or float(value.abs().max()) < 1e4)
    )

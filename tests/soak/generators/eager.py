"""Random eager programs, compared with torch (tests/support/eager_programs).

They contain views, writes to parts, loops with changing numbers, memory under several names, and
gradients.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.soak import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

Case = dict[str, Any]
Action = list[Any]
SECONDS = 60
SHARE = 1.5
SIZES = [0, 1, 1, 2, 3, 5, 16, 17, 33]
DTYPES = ["float64", "float32", "int64", "float32", "int32", "uint8", "int8", "float16", "bool"]
LAYOUTS = ["plain", "turned", "wide", "odd", "strided", "backward"]
NUMBERS = [0, 1, 2, 3, -1, 5, 0.5, -0.0, 0.0, 2.0, 1.5, -2.5, 7, 4, True, False, 1e30, 100, 200,
           0.25, "nan", "inf", "-inf"]  # fmt: skip


def generate(rng: np.random.Generator) -> Case:
    shape = [int(pick(rng, SIZES)) for _ in range(rng.integers(0, 4))]
    start = []
    for _ in range(rng.integers(2, 5)):
        own = [int(pick(rng, SIZES)) if rng.random() < 0.15 else d for d in shape]
        own = own[int(rng.random() < 0.1) :]
        kinds = DTYPES[: pick(rng, [2, 3, 9])]
        start.append([own, pick(rng, kinds), pick(rng, LAYOUTS), int(rng.integers(99))])
    actions = [action(rng) for _ in range(rng.integers(4, 20))]
    return {"start": start, "memory": int(pick(rng, [6, 20, 70])), "actions": actions}


def pick(rng: np.random.Generator, choices: list[Any]) -> Any:
    return choices[rng.integers(len(choices))]


def value(rng: np.random.Generator) -> int:
    return int(rng.integers(40))


def place(rng: np.random.Generator) -> Any:
    """Draw an index of one axis: a number, "i" for the loop's number, everything, or a slice."""
    chance = rng.random()
    if chance < 0.4:
        return "i" if rng.random() < 0.4 else int(rng.integers(-20, 20))
    if chance < 0.5:
        return None
    ends = [None if rng.random() < 0.3 else int(rng.integers(-6, 20)) for _ in range(2)]
    if rng.random() < 0.2:
        ends[0] = "i"
    return [*ends, pick(rng, [2, -1, 3]) if rng.random() < 0.1 else 1]


def places(rng: np.random.Generator) -> list[Any]:
    return [place(rng) for _ in range(rng.integers(1, 4))]


def operand(rng: np.random.Generator) -> dict[str, Any]:
    chance = rng.random()
    if chance < 0.25:
        return {"number": "i"}
    if chance < 0.5:
        return {"number": pick(rng, NUMBERS)}
    whole = {"value": value(rng)}
    return {**whole, "at": places(rng)} if chance < 0.8 else whole


def action(rng: np.random.Generator, *, inner: bool = False) -> Action:
    from support.eager_programs import BINARY, UNARY

    chance = rng.random()
    if chance < 0.22:
        return ["set", value(rng), places(rng), operand(rng)]
    if chance < 0.34:
        return ["at", value(rng), places(rng)]
    if chance < 0.52:
        return ["binary", pick(rng, list(BINARY)), value(rng), operand(rng)]
    if chance < 0.64:
        return ["unary", pick(rng, list(UNARY)), value(rng), operand(rng)]
    if chance < 0.70:
        name = pick(rng, ["assign", "increase", "mask", "jit", "jit"])
        return [name, value(rng), operand(rng)]
    if chance < 0.78:
        return ["loss", value(rng), places(rng), value(rng), places(rng), operand(rng)]
    if chance < 0.84:
        return [pick(rng, ["back", "back", "step"]), value(rng), operand(rng)]
    if chance < 0.91:
        name = pick(rng, ["check", "check", "realize", "drop", "copy", "share"])
        return [name, value(rng), value(rng)]
    if chance < 0.93 or inner:
        return ["take", value(rng), value(rng), operand(rng)]
    numbers = pick(rng, [
        list(range(7)), list(range(-3, 4)), [0, 0, 1, 1, 0, 2, 5],
        [0.5, 1, 2.0, True, -1, 0.0, -0.0, 3], [pick(rng, NUMBERS) for _ in range(7)],
    ])  # fmt: skip
    return ["loop", numbers, [action(rng, inner=True) for _ in range(rng.integers(1, 5))]]


def run(case: Case) -> str | None:
    from support import eager_programs

    record.note("eager programs")
    world = eager_programs.World(case["start"], case["memory"])
    try:
        for each in case["actions"]:
            world.act(each)
        for n, pair in enumerate([*world.values, *world.params]):
            world.compare(*pair, f"value {n} in the end")
    except eager_programs.WrongError as wrong:
        return str(wrong)
    finally:
        record.note("values of eager programs", world.compared)
    return None


def shrink(case: Case) -> Iterator[Case]:
    """Yield fewer and simpler actions, and fewer and simpler initial values."""
    actions = case["actions"]
    for k in range(len(actions) - 1, -1, -1):
        yield {**case, "actions": actions[:k] + actions[k + 1 :]}
    for k, each in enumerate(actions):
        for less in simpler(each):
            yield {**case, "actions": [*actions[:k], *less, *actions[k + 1 :]]}
    for k, each in enumerate(case["start"]):
        if len(case["start"]) > 1:
            yield {**case, "start": case["start"][:k] + case["start"][k + 1 :]}
        for less in smaller(each):
            yield {**case, "start": [*case["start"][:k], less, *case["start"][k + 1 :]]}


def smaller(start: list[Any]) -> Iterator[list[Any]]:
    shape, dtype, layout, seed = start
    if shape:
        yield [shape[1:], dtype, layout, seed]
    for axis, size in enumerate(shape):
        if size > 1:
            yield [[*shape[:axis], size // 2, *shape[axis + 1 :]], dtype, layout, seed]
    if layout != "plain":
        yield [shape, dtype, "plain", seed]
    if dtype != "float64":
        yield [shape, "float64", layout, seed]


def simpler(each: Action) -> Iterator[list[Action]]:
    """Yield replacements of an action."""
    if each[0] == "loop":
        numbers, body = each[1:]
        yield body
        for k in range(len(numbers)):
            yield [["loop", numbers[:k] + numbers[k + 1 :], body]]
        for k in range(len(body)):
            yield [["loop", numbers, body[:k] + body[k + 1 :]]]
            for less in simpler(body[k]):
                yield [["loop", numbers, [*body[:k], *less, *body[k + 1 :]]]]
        return
    for k, item in enumerate(each):
        others: list[Any] = []
        if isinstance(item, dict):
            others = [{"number": 1}] if item != {"number": 1} else []
            others += [{"value": item["value"]}] if "at" in item else []
        elif isinstance(item, list) and len(item) > 1:
            others = [item[:-1]]
        elif isinstance(item, int) and item > 3:
            others = [item % 4]
        for other in others:
            yield [[*each[:k], other, *each[k + 1 :]]]


def key(case: Case) -> str:
    return re.sub(r"-?\d+(\.\d+)?|None|True|False", "#", repr(case["actions"]))


def source(case: Case) -> str:
    return (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from tests.soak.generators import eager\n"
        f"case = {case!r}\n"
        "why = eager.run(case)\n"
        "assert why is None, why"
    )

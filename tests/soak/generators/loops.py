"""Random programs with loops and branches, compared with torch (tests/support/loop_programs)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tests.soak import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

Case = dict[str, Any]
Line = dict[str, Any]
SECONDS = 90
SHARE = 1.5
SIMPLE = {"reverse": False, "checkpoint": False, "nest": "tuple", "hand": True}


def generate(rng: np.random.Generator) -> Case:
    from support import loop_draw

    return loop_draw.generate(rng)


def run(case: Case) -> str | None:
    from support import loop_programs

    record.note("programs with loops")
    return loop_programs.run(case)


def shrink(case: Case) -> Iterator[Case]:
    """Yield fewer ways, calls, results and lines; loops' bodies; simpler texts and sizes."""
    for key, simple in (("grad", 0), ("calls", 1), ("given", False)):
        if case[key] != simple:
            yield {**case, key: simple}
    if case["grad"] == 2 or case["calls"] == 3:
        yield {**case, "grad": min(case["grad"], 1), "calls": min(case["calls"], 2)}
    for key in ("ways", "results"):
        if len(case[key]) > 1:
            for k in range(len(case[key])):
                yield {**case, key: case[key][:k] + case[key][k + 1 :]}
    for body in blocks(case["body"]):
        yield settled({**case, "body": body})
    last = case["body"][-1:] or [{"to": []}]
    made = last[0].get("to", [])
    for name in [made] if isinstance(made, str) else [*made, *last[0].get("rows", [])]:
        if case["results"] != [name]:
            yield {**case, "results": [name]}
    yield from smaller_data(case)


def smaller_data(case: Case) -> Iterator[Case]:
    """Yield fewer and smaller inputs and states."""
    for key in ("inputs", "states"):
        for k, (name, shape, dtype, *rest) in enumerate(case[key]):
            others = case[key][:k], case[key][k + 1 :]
            if len(re.findall(rf"\b{name}\b", json.dumps(case))) == 1:
                yield {**case, key: [*others[0], *others[1]]}
            if rest and rest[0] not in (None, "sgd"):
                yield {**case, key: [*others[0], [name, shape, dtype, "sgd"], *others[1]]}
            less = [shape[1:]] if shape else []
            less += [[*shape[:a], n, *shape[a + 1 :]] for a, s in enumerate(shape)
                     for n in (1, 2, s - 1) if 0 < n < s]  # fmt: skip
            for other in less:
                yield {**case, key: [*others[0], [name, other, dtype, *rest], *others[1]]}
    for size in sorted({s for _, shape, *_ in case["inputs"] for s in shape if s > 1}):
        yield {**case, "inputs": [[n, [s - 1 if s == size else s for s in shape], *rest]
                                  for n, shape, *rest in case["inputs"]]}  # fmt: skip


def settled(case: Case) -> Case:
    """Return the case without results that are no longer made."""
    made: set[str] = set()
    for line in case["body"]:
        to = line.get("to", [])
        made |= {to} if isinstance(to, str) else {*to, *line.get("rows", [])}
    kept = [name for name in case["results"] if name in made]
    return {**case, "results": kept or sorted(made)[:1]}


def blocks(body: list[Line]) -> Iterator[list[Line]]:
    """Yield smaller blocks of statements."""
    for k in range(len(body) - 1, -1, -1):
        rest = body[:k], body[k + 1 :]
        yield [*rest[0], *rest[1]]
        for less in lines(body[k]):
            yield [*rest[0], *less, *rest[1]]


def lines(line: Line) -> Iterator[list[Line]]:
    """Yield replacements of a statement."""
    if "text" in line:
        text = line["text"]
        names = dict.fromkeys(re.findall(r"\b[a-z]\d+\b", text))
        for short in [*names, "T.ones(())", "T.ones((), dtype=T.int64)"]:
            if len(short) < len(text):
                yield [{**line, "text": short}]
        return
    for key, simple in SIMPLE.items():
        if key in line and line[key] != simple:
            yield [{**line, key: simple}]
    yield from with_less_in_and_out(line)
    if "body" in line:
        for body in blocks(line["body"]):
            yield [{**line, "body": body}]
    if "branches" in line:
        for less in choices(line):
            yield [less]


def with_less_in_and_out(line: Line) -> Iterator[list[Line]]:
    """Yield loops and branches with fewer inputs, carries or results."""
    for key in ("carry", "xs", "args"):
        for k in range(len(line.get(key, ()))):
            inner, outer = line[key][k]
            put = as_read({**line, key: without(line[key], k)}, inner, outer)
            if key == "carry" and put["carry"]:
                put |= {name: without(line[name], k) for name in ("next", "to")}
                yield [put, {"do": "let", "to": line["to"][k], "text": outer}]
            elif key == "args" or (key == "xs" and (put["xs"] or put["length"] is not None)):
                yield [put]
    for k in range(len(line.get("rows", ()))):
        yield [{**line, **{key: without(line[key], k) for key in ("rows", "ys", "shapes")}}]
    for k, text in enumerate(line.get("next", ())):
        own = line["carry"][k][0]
        if text != own:
            yield [{**line, "next": [*line["next"][:k], own, *line["next"][k + 1 :]]}]


def choices(line: Line) -> Iterator[Line]:
    """Yield branches that are fewer or smaller, or have fewer results."""
    parts = line["branches"]
    for k, part in enumerate(parts):
        if line["by"] == "int" and len(parts) > 1:
            yield {**line, "branches": without(parts, k)}
        for body in blocks(part["body"]):
            yield {**line, "branches": [*parts[:k], {**part, "body": body}, *parts[k + 1 :]]}
    for k in range(len(line["to"]) if len(line["to"]) > 1 else 0):
        fewer = [{**part, "gives": without(part["gives"], k)} for part in parts]
        yield {**line, "to": without(line["to"], k), "branches": fewer}


def without(items: list[Any], k: int) -> list[Any]:
    return items[:k] + items[k + 1 :]


def as_read(line: Line, inner: str, outer: str) -> Line:
    """Return the line with an inner name replaced by the outer name that it stands for."""
    return json.loads(re.sub(rf"\b{inner}\b", outer, json.dumps(line)))


def key(case: Case) -> str:
    return re.sub(r"\d+", "#", repr([case["body"], case["grad"], case["ways"]]))


def source(case: Case) -> str:
    return (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from tests.soak.generators import loops\n"
        f"case = {case!r}\n"
        "why = loops.run(case)\n"
        "assert why is None, why"
    )

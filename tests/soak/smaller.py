"""Shrinks programs that are texts: fewer lines, simpler data, smaller numbers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.soak.texts import target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.soak.texts import Case

NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
SHAPE = re.compile(r"size=(\([^()]*\))")
CALL = re.compile(r"\.\w+\([^()]*\)")


def shrink(case: Case) -> Iterator[Case]:
    """Yield cases with fewer ways, sizes, results, lines and inputs; then simpler data."""
    for key in ("ways", "sizes", "results"):
        if len(case[key]) > 1:
            for one in case[key]:
                yield {**case, key: [one]}
    if case["grad"]:
        yield {**case, "grad": False}
    lines = case["lines"]
    names = [*case["inputs"], *(target(line) for line in lines)]
    for i in range(len(lines) - 1, -1, -1):
        # Remove the line; its readers read an earlier value instead.
        gone = target(lines[i])
        rest = lines[:i] + lines[i + 1 :]
        used = gone in case["results"] or any(mentions(line, gone) for line in rest)
        if not used:
            yield {**case, "lines": rest}
            continue
        for name in reversed(names[: len(case["inputs"]) + i]):
            yield renamed({**case, "lines": rest}, gone, name)
    for line in lines:
        if target(line) not in case["results"]:
            yield {**case, "results": [target(line)]}
    for name in case["inputs"]:
        if not any(mentions(line, name) for line in lines) and name not in case["results"]:
            yield {**case, "inputs": {k: v for k, v in case["inputs"].items() if k != name}}
        for other in case["inputs"]:
            if other < name:
                fewer = {k: v for k, v in case["inputs"].items() if k != name}
                yield renamed({**case, "inputs": fewer}, name, other)
    yield from simpler(case)


def simpler(case: Case) -> Iterator[Case]:
    texts = [*case["inputs"].values(), *case["lines"]]
    for i, size in enumerate(case["sizes"]):
        for less in smaller(size):
            yield {**case, "sizes": [less if k == i else s for k, s in enumerate(case["sizes"])]}
    numbers = sorted({int(x) for t in texts for x in NUMBER.findall(t)}, reverse=True)
    for number in numbers:  # everywhere at once, so that shapes still fit
        for less in smaller(number):
            yield replaced(case, number, less)
    for name, text in case["inputs"].items():
        shape = SHAPE.search(text)
        if shape and "normal" in text:
            for data in (
                f"f(np.ones({shape[1]}))",
                f"f(np.arange(np.prod({shape[1]})).reshape({shape[1]}))",
            ):
                yield {**case, "inputs": {**case["inputs"], name: data}}
        for found in NUMBER.finditer(text):
            for less in smaller(int(found[0])):
                cut = text[: found.start()] + str(less) + text[found.end() :]
                yield {**case, "inputs": {**case["inputs"], name: cut}}
    for i, line in enumerate(case["lines"]):
        shorter = [line[: m.start()] + line[m.end() :] for m in CALL.finditer(line)]
        shorter += [
            line[: m.start()] + str(less) + line[m.end() :]
            for m in NUMBER.finditer(line)
            for less in smaller(int(m[0]))
        ]
        for cut in shorter:
            yield {**case, "lines": [*case["lines"][:i], cut, *case["lines"][i + 1 :]]}


def smaller(number: int) -> list[int]:
    return [k for k in dict.fromkeys((0, 1, 2, number // 2, number - 1)) if 0 <= k < number]


def mentions(line: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", line.partition("=")[2]) is not None


def renamed(case: Case, old: str, new: str) -> Case:
    lines = []
    for line in case["lines"]:
        head, _, tail = line.partition("=")
        tail = re.sub(rf"(?<![.\w]){old}(?!\w)", new, tail)
        lines.append(f"{head}={tail}")
    results = list(dict.fromkeys(new if r == old else r for r in case["results"]))
    return {**case, "lines": lines, "results": results}


def replaced(case: Case, number: int, less: int) -> Case:
    def change(text: str) -> str:
        return NUMBER.sub(lambda m: str(less) if int(m[0]) == number else m[0], text)

    return {
        **case,
        "inputs": {name: change(text) for name, text in case["inputs"].items()},
        "lines": [change(line) for line in case["lines"]],
    }

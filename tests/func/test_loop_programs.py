"""Random programs with loops and choices: as loops of a plan, and written out in torch.

KERNELRT_LOOP_PROGRAMS=2000 runs more of them. ``python -m tests.soak --only loops`` draws others,
and makes those small that fail.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from support import loop_draw, loop_libraries, loop_programs

import kernelrt as krt

COUNT = int(os.environ.get("KERNELRT_LOOP_PROGRAMS", "60"))
GROUP = 10


def case_of(seed: int) -> dict[str, Any]:
    return json.loads(json.dumps(loop_draw.generate(np.random.default_rng(seed))))


@pytest.mark.cases(1)
@pytest.mark.parametrize("first", range(0, COUNT, GROUP))
def test_programs_give_what_torch_gives(first: int) -> None:
    for seed in range(first, first + GROUP):
        case = case_of(seed)
        try:
            why = loop_programs.run(case)
        except Exception as error:
            error.add_note(f"python -m tests.soak --case 'loops:{json.dumps(case)}'")
            raise
        assert why is None, f"{why}\npython -m tests.soak --case 'loops:{json.dumps(case)}'"


def kinds_in(lines: list[dict[str, Any]]) -> set[str]:
    found = {line["do"] for line in lines}
    for line in lines:
        for inner in (line.get("body", []), *(p["body"] for p in line.get("branches", ()))):
            found |= kinds_in(inner)
    return found


@pytest.mark.cases(1 / 4)
def test_programs_are_of_every_kind_and_most_of_them_are_compared() -> None:
    kinds: set[str] = set()
    compared = 0
    for seed in range(60):
        case = case_of(seed)
        kinds |= kinds_in(case["body"]) | {f"grad {case['grad']}", *case["ways"]}
        try:
            loop_programs.check(case)
        except loop_libraries.Invalid:
            continue
        compared += 1
    assert kinds >= {
        "scan", "fori", "while", "choose", "let", "rand", "assign", "learn", "grad 0", "grad 1",
        "grad 2", "loops", "jit", "threads jit", "written out", "jvp", "vmap",
    }  # fmt: skip
    assert compared > 40


@pytest.mark.parametrize("what", ["values", "state", "gradients"])
def test_what_is_wrong_is_seen(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = {
        "seed": 1, "inputs": [["p1", [3], "float32"]], "states": [["s2", [3], "float32", None]],
        "body": [{
            "do": "scan", "carry": [["c3", "p1"]], "xs": [], "length": 3, "reverse": False,
            "checkpoint": False, "unroll": 1, "ys": [], "rows": [], "shapes": [],
            "nest": "bare", "to": ["v5"], "next": ["c3 * 0.5 + p1"],
            "body": [{"do": "assign", "state": "s2", "how": "add", "text": "c3"}],
        }],
        "results": ["v5"], "grad": 1, "given": False, "calls": 1, "ways": ["jit"],
    }  # fmt: skip
    assert loop_programs.run(case) is None
    scan, add, grad = krt.scan, loop_libraries.Library.add, krt.grad
    if what == "values":
        monkeypatch.setattr(krt, "scan", lambda f, c, xs, n, **_: scan(f, c, xs, n - 1))
    elif what == "state":
        monkeypatch.setattr(
            loop_libraries.Library, "add", lambda self, s, v: add(self, s, v * 1.01)
        )
    else:
        monkeypatch.setattr(krt, "grad", lambda *a, **k: [g * 1.01 for g in grad(*a, **k)])
    why = loop_programs.run(case)
    assert why is not None
    assert why.startswith("values")

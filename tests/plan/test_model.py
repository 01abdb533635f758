"""Random plans give, bit for bit, what running their operations one by one gives.

``KERNELRT_MODEL_PLANS`` sets how many plans are tried (and ``KERNELRT_MODEL_SEED`` where to
begin); a failure prints the smallest case that still fails.
"""

from __future__ import annotations

import os

import pytest
from support import plan_model

PLANS = int(os.environ.get("KERNELRT_MODEL_PLANS", "1600"))
FIRST = int(os.environ.get("KERNELRT_MODEL_SEED", "0"))
GROUPS = 8


@pytest.mark.cases(1)
@pytest.mark.parametrize("reuse_memory", [True, False], ids=["arena", "no arena"])
@pytest.mark.parametrize("group", range(GROUPS))
def test_random_plans_match_the_interpreter(group, reuse_memory):
    for seed in range(FIRST + group, FIRST + PLANS, GROUPS):
        case = plan_model.generate(seed)
        if plan_model.failure(case, seed, reuse_memory) is not None:
            small = plan_model.shrink(case, seed, reuse_memory)
            why = plan_model.failure(small, seed, reuse_memory)
            pytest.fail(f"seed {seed}: {why}\n{small}")


def test_the_cases_reach_what_they_are_meant_to():
    cases = [plan_model.generate(seed) for seed in range(400)]
    kinds = {op.kind.split(":")[0] for case in cases for op in case.ops}
    assert len(kinds) == 12
    assert {use[0] for case in cases for use in case.uses} == {
        "run", "vars", "profile", "bad", "fail", "poke", "rebind", "replicate",
    }  # fmt: skip
    assert {p.way for case in cases for p in case.places} == {"whole", "view", "slice"}
    assert any(op.after for case in cases for op in case.ops)
    assert any(case.heavy for case in cases)
    lengths = [len(case.ops) for case in cases]
    assert min(lengths) <= 2
    assert max(lengths) > 50


def test_a_broken_plan_is_noticed_and_shrunk(monkeypatch):
    """The check itself: an interpreter that is wrong about one operation is found out."""
    element = plan_model.Model.element

    def wrong(self, kind, number, i, ins):
        return element(self, kind, number, i, ins) + (kind == "scale" and number == 5)

    monkeypatch.setattr(plan_model.Model, "element", wrong)
    for seed in range(2000):
        case = plan_model.generate(seed)
        if plan_model.failure(case, seed, True) is not None:
            small = plan_model.shrink(case, seed, True)
            assert len(small.ops) <= 3
            assert any(op.kind.startswith("scale") for op in small.ops)
            return
    pytest.fail("nothing was noticed")

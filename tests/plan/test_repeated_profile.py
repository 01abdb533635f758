"""plan.profile(n): statistics of each op, and a trace that viewers open."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import ShapeError


@pytest.fixture
def plan():
    rng = np.random.default_rng(0)
    a = krt.tensor(rng.standard_normal((64, 64)).astype(np.float32))
    return ((a @ a).relu() @ a).prepare()


def test_each_kernel_has_its_statistics(plan):
    profile = plan.profile(25)
    assert len(profile.runs) == 25
    assert [t.op for t in profile.ops] == [op.id for op in plan.prepared_kernels]
    for timing, kernel in zip(profile.ops, plan.prepared_kernels, strict=True):
        assert timing.name == kernel.title
        assert "test_repeated_profile.py" in timing.name
        assert 0 <= timing.minimum <= timing.median
        assert timing.spread >= 0
        assert timing.flops >= 2 * 64**3


def test_the_table_names_every_kernel_once(plan):
    text = str(plan.profile(3))
    assert text.splitlines()[0].split() == [
        "kernel", "op", "median", "min", "spread", "GFLOP/s", "GB/s",
    ]  # fmt: skip
    for kernel in plan.prepared_kernels:
        assert text.count(f"{kernel.id:>4}  ") >= 1


def test_the_trace_has_one_row_a_worker_and_runs_in_order(plan, tmp_path):
    path = tmp_path / "trace.json"
    plan.profile(4).save_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    rows = {e["tid"] for e in events if e["ph"] == "M"}
    spans = [e for e in events if e["ph"] == "X"]
    assert {e["tid"] for e in spans} == rows
    assert {(e["args"]["run"], e["args"]["op"]) for e in spans} == {
        (run, kernel.id) for run in range(4) for kernel in plan.prepared_kernels
    }
    for run in range(3):
        ends = [e["ts"] + e["dur"] for e in spans if e["args"]["run"] == run]
        starts = [e["ts"] for e in spans if e["args"]["run"] == run + 1]
        assert max(ends) <= min(starts) + 1e-3
    assert not list(tmp_path.glob("*.part"))


def test_claims_are_all_chunks_of_a_launch_each_once():
    x = krt.tensor(np.ones(1 << 20, np.float32))
    plan = krt.prepare(x.exp(), x.sum(), threads=2)
    for profile in plan.profile(4):
        ends = [0]
        for claim in profile.claims:
            assert claim.begin == ends[-1]
            assert claim.elapsed >= 0
            assert claim.start + claim.elapsed <= profile.start + profile.elapsed + 1e-9
            ends.append(claim.end)
        assert ends[-1] == (profile.chunks if profile.claims else 0)


def test_a_launch_starts_with_its_earliest_claim():
    x = krt.tensor(np.ones(1 << 20, np.float32))
    for profile in krt.prepare(x.exp(), x.sum(), (x * 2).cos(), threads=2).profile(50):
        if profile.claims:
            assert profile.start == min(claim.start for claim in profile.claims)
            assert profile.worker in {c.worker for c in profile.claims if c.start == profile.start}


def test_the_trace_has_an_event_for_each_claim():
    x = krt.tensor(np.ones(1 << 20, np.float32))
    profile = krt.prepare(x.exp(), threads=2).profile(3)
    events = [e for e in profile.trace()["traceEvents"] if e["ph"] == "X"]
    assert len(events) == sum(max(1, len(p.claims)) for p in profile)
    chunks = sum(e["args"]["chunk range"][1] - e["args"]["chunk range"][0] for e in events)
    assert chunks == sum(p.chunks for p in profile)


def test_no_run_is_no_profile(plan):
    with pytest.raises(ShapeError, match="at least one run"):
        plan.profile(0)

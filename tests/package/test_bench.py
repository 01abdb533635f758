"""What the benches measure can be kept and compared: same names, same units."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.skip_list import needs

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.exhaustive, needs("the benchmarks")]


def bench(storage: Path, *options: str) -> str:
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "bench/test_dispatch.py", "-k", "add-100-", f"--benchmark-storage={storage}",
            "--benchmark-max-time=0.02", "--benchmark-min-rounds=3", *options,
        ],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_runs_are_kept_and_compared_in_one_unit(tmp_path):
    bench(tmp_path, "--benchmark-autosave")
    (kept,) = tmp_path.rglob("*.json")
    found = json.loads(kept.read_text(encoding="utf-8"))["benchmarks"]
    assert [b["params"]["side"] for b in found] == ["kernelrt", "bare C loop"]
    assert {b["group"] for b in found} == {"dispatch-add-100"}
    # One call of the bare loop runs far more kernels than one of the plan; a kernel takes
    # nanoseconds on both.
    assert all(1e-10 < b["stats"]["median"] < 1e-6 for b in found)
    text = bench(tmp_path, "--benchmark-compare", "--benchmark-compare-fail=min:100000%")
    for side in ("kernelrt", "bare C loop"):
        assert f"dispatch-add-100-{side}] (NOW)" in text
        assert f"dispatch-add-100-{side}] (0001" in text
    nothing = bench(tmp_path / "none", "--benchmark-compare")
    assert "(NOW)" not in nothing


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_features_that_are_off_stay_off(target):
    """NumPy does not report such features, so a report must not lose them."""
    code = f"from bench import targets; print(*targets._variables({target!r}).items(), sep='\\n')"
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": "AVX512_ICL,AVX512_SPR"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, env=environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = dict(ast.literal_eval(line) for line in done.stdout.splitlines())
    assert {"AVX512_ICL", "AVX512_SPR"} <= set(found["NPY_DISABLE_CPU_FEATURES"].split())
    assert all(found.values())
    assert found["KERNELRT_TARGET"] == target

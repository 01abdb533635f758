"""The examples that build and look into plans run and print something sensible."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.patience import PATIENCE

import kernelrt

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str) -> str:
    # The same kernelrt that this test runs with, installed or not.
    env = {**os.environ, "PYTHONPATH": str(Path(kernelrt.__file__).parents[1])}
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_plan_by_hand():
    out = run("plan_by_hand.py")
    assert "kernel 'update'" in out
    assert "5,000 updates" in out


@pytest.mark.cases(1 / 4)
def test_a_numba_function_inside_a_plan():
    pytest.importorskip("numba")
    out = run("plan_numba_cfunc.py")
    assert "10,000 values" in out
    assert "histogram" in out


def test_serving_a_dynamic_batch():
    assert "2,000 batches" in run("plan_dynamic_batch.py")


def test_inspecting_and_profiling_a_plan():
    out = run("plan_inspect.py")
    assert "wave 0" in out
    assert "define void @" in out
    assert "GFLOP/s" in out

"""``bench.report --target`` and ``--threads``: what the report starts itself again with."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench import report, targets
from kernelrt.device import spec


class StartedError(Exception):
    """Raised instead of replacing the process."""


@pytest.fixture
def environment(monkeypatch):
    """Return the environment that the report starts itself again with."""
    found = {}

    def execve(path, argv, env):
        assert path == sys.executable
        assert argv == sys.orig_argv
        found.update(env)
        raise StartedError

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.delenv(targets.HELD, raising=False)

    def started(target, threads):
        found.clear()
        with pytest.raises(StartedError):
            targets.restart(target, threads)
        return found

    return started


@pytest.mark.parametrize("target", targets.TARGETS)
def test_every_library_is_held_to_the_target(environment, target, monkeypatch):
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "1")
    found = environment(target, None)
    assert target in spec.TARGETS
    assert found["KERNELRT_TARGET"] == found[targets.HELD] == target
    assert found["ATEN_CPU_CAPABILITY"] in ("default", "avx2", "avx512")
    assert "OPENBLAS_L2_SIZE" not in found
    above = found["NPY_DISABLE_CPU_FEATURES"].split()
    assert (target == "x86-64-v4") <= (not above)
    assert all(name.startswith(("X86_V", "AVX")) for name in above)


def test_threads_are_set_for_all_libraries(environment):
    found = environment(None, 1)
    assert all(
        found[f"{name}_THREADS"] == "1" for name in ("KERNELRT", "OMP_NUM", "OPENBLAS_NUM")
    )
    assert found[targets.HELD] == ""


@pytest.mark.usefixtures("environment")
def test_nothing_is_started_again_without_an_option_or_a_second_time(monkeypatch):
    targets.restart(None, None)
    monkeypatch.setenv(targets.HELD, "")
    targets.restart("x86-64-v3", 1)


def test_cases_are_chosen_by_title_and_threads():
    cases = report.GROUPS["products"]()
    chosen = [c.title for c in cases if report.chosen(c, "NN 64 x 64 x 64", 1)]
    assert chosen == ["matmul NN 64 x 64 x 64, 1 thread"]
    assert not any(report.chosen(c, "no such title", None) for c in cases)


def test_the_report_says_what_each_side_is_held_to():
    if "x86-64-v2" not in spec.runnable(spec.machine()):
        pytest.skip("no x86-64 machine")
    options = ["--target", "x86-64-v2", "--threads", "1", "--quick", "--only", "NN 8 x 8 x 8"]
    done = subprocess.run(  # noqa: S603 - of our own
        [sys.executable, "-m", "bench.report", "products", *options],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Held to x86-64-v2: KERNELRT_TARGET=x86-64-v2, OPENBLAS_CORETYPE=Nehalem" in done.stdout
    assert done.stdout.count("| matmul NN 8 x 8 x 8, 1 thread |") == 1

"""``bench.report --target`` and ``--threads``: what the report starts itself again with."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from numpy._core import _multiarray_umath as umath

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


#: What NumPy 2.4 and NumPy 2.2 dispatch on; the machine has all but the last of each.
DISPATCH = {
    "2.4": ("X86_V3", "X86_V4", "AVX512_ICL", "AVX512_SPR"),
    "2.2": ("SSSE3", "SSE42", "AVX", "F16C", "FMA3", "AVX2", "AVX512F", "AVX512_SKX", "AVX512_SPR"),
}
DISABLED = {
    ("2.4", "x86-64-v2"): "X86_V3 X86_V4 AVX512_ICL", ("2.4", "x86-64-v3"): "X86_V4 AVX512_ICL",
    ("2.4", "x86-64-v4"): "",
    ("2.2", "x86-64-v2"): "AVX F16C FMA3 AVX2 AVX512F AVX512_SKX",
    ("2.2", "x86-64-v3"): "AVX512F AVX512_SKX", ("2.2", "x86-64-v4"): "",
}  # fmt: skip
#: Names of the levels in the other libraries.
NAMES = {
    "x86-64-v2": "default SSE41 SSE4_2 SSE4_2 nehalem Nehalem",
    "x86-64-v3": "avx2 AVX2 AVX2 AVX2 haswell Haswell",
    "x86-64-v4": "avx512 AVX512_CORE AVX512 AVX512 skylake-avx512 SkylakeX",
}


def test_the_levels_are_those_of_kernelrt():
    assert [*targets.TARGETS] == [name for name in spec.TARGETS if name.startswith("x86-64-")]


@pytest.mark.parametrize(("numpy", "target"), DISABLED)
def test_every_library_is_held_to_the_target(environment, numpy, target, monkeypatch):
    names = DISPATCH[numpy]
    monkeypatch.setattr(umath, "__cpu_dispatch__", [*names])
    monkeypatch.setattr(umath, "__cpu_features__", {n: n != names[-1] for n in names})
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "1")
    monkeypatch.setenv("XLA_FLAGS", "--xla_flag")
    found = environment(target, None)
    assert found["KERNELRT_TARGET"] == found[targets.HELD] == target
    assert found.get("NPY_DISABLE_CPU_FEATURES", "") == DISABLED[numpy, target]
    torch, onednn, mkl, jax, numba, openblas = NAMES[target].split()
    assert found["ATEN_CPU_CAPABILITY"] == torch
    assert found["ONEDNN_MAX_CPU_ISA"] == onednn
    assert found["MKL_ENABLE_INSTRUCTIONS"] == mkl
    assert found["XLA_FLAGS"] == f"--xla_flag --xla_cpu_max_isa={jax}"
    assert found["NUMBA_CPU_NAME"] == numba
    assert found["OPENBLAS_CORETYPE"] == openblas
    assert "OPENBLAS_L2_SIZE" not in found


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
    targets.restart(None, 1)
    monkeypatch.setenv(targets.HELD, "x86-64-v3")
    targets.restart("x86-64-v3", 1)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(("held", "arguments"), [
    ("x86-64-v2", ["--target", "x86-64-v3"]), ("x86-64-v2", []), ("", ["--target", "x86-64-v3"]),
])  # fmt: skip
def test_a_process_that_is_held_to_another_target_is_refused(held, arguments, monkeypatch, capsys):
    monkeypatch.setenv(targets.HELD, held)
    with pytest.raises(SystemExit):
        report.main(arguments)
    assert f"BENCH_TARGET={held!r} is set, so" in capsys.readouterr().err


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

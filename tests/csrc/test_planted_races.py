"""The tests let threads meet wherever they share the core: races planted there are reported.

Each plant alone looks like a mistake of ours: a counter that nothing orders.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from kernelrt import _core

from .conftest import HERE, compile_c, run_sanitized, sanitize

#: Of functions that several threads are in at the same time: the file, how it begins, how the
#: plant is written there, and the tests that have to show it.
SHARED = {
    "run_steps": (
        "csrc/graph.c",
        "static void run_steps(const claim *work)\n{\n",
        '    planted_race("run_steps");\n',
        ["test_two_workers_of_a_region", "test_a_plan_beside_one_that_has_the_pool"],
    ),
    "run_steps_profiled": (
        "csrc/graph.c",
        "static void run_steps_profiled(krt_graph *graph, const claim *work, int worker)\n{\n",
        '    planted_race("run_steps_profiled");\n',
        ["test_two_workers_of_a_region_with_a_clock"],
    ),
    "krt_plan_run_serial": (
        "csrc/plan.c",
        (
            "krt_status krt_plan_run_serial(krt_plan *plan, const krt_context *context, "
            "size_t *failed_op)\n{\n"
        ),
        '    planted_race("krt_plan_run_serial");\n',
        ["test_two_plans_without_the_gil"],
    ),
    "run_without_gil": (
        "kernelrt/_core.pyx",
        "    begin()\n    with nogil:\n",
        '        planted_race("run_without_gil")\n',
        ["test_two_plans_without_the_gil"],
    ),
}


def insert(file: Path, after: str, text: str) -> None:
    source = file.read_text(encoding="utf-8")
    before, found, behind = source.partition(after)
    assert found, f"{after!r} is not in {file.name}"
    file.write_text(before + found + text + behind, encoding="utf-8")


@pytest.fixture(scope="module")
def raced(tmp_path_factory):
    """The package with all the races, of which PLANTED_RACE chooses one."""
    pytest.importorskip("Cython", reason="Cython compiles the boundary")
    if _core.pool_limit() < 2 or sys.platform == "darwin":
        pytest.skip("needs two threads, and gcc's sanitizers")
    folder = tmp_path_factory.mktemp("raced")
    sanitize.copy(folder)
    ours = Path(_core.__file__)
    for module in ours.parent.glob("*.so"):
        shutil.copy(module, folder / "kernelrt")
    for file, begin, plant, _ in SHARED.values():
        insert(folder / file, begin, plant)
    for file in ("csrc/graph.c", "csrc/plan.c"):
        insert(folder / file, "#include", ' "planted.h"\n#include')
    declared = 'cdef extern from "planted.h" nogil:\n    void planted_race(const char *)\n'
    insert(folder / "kernelrt/_core.pyx", "from kernelrt._krt cimport *\n", declared)
    command = [sys.executable, "-m", "cython", "-3", "kernelrt/_core.pyx"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    flags = ["-O2", "-g", "-shared", "-fPIC", "-pthread", "-fno-omit-frame-pointer",
             f"-fsanitize={sanitize.FLAGS['thread']}", f"-I{folder / 'csrc'}", f"-I{HERE}",
             f"-I{sysconfig.get_path('include')}", f"-I{np.get_include()}"]  # fmt: skip
    sources = [folder / "kernelrt/_core.c", *sorted((folder / "csrc").glob("*.c"))]
    compile_c(sources, folder / "kernelrt" / ours.name, flags)
    return folder


def run(folder, tests, planted):
    names = [f"tests/csrc/test_overlap.py::{name}" for name in tests]
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--capture=sys", *names]
    return run_sanitized(folder, "thread", arguments, PLANTED_RACE=planted)


def test_nothing_is_reported_where_nothing_is_planted(raced):
    tests = dict.fromkeys(name for *_, names in SHARED.values() for name in names)
    done = run(raced, tests, "")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(tests)} passed" in done.stdout


@pytest.mark.parametrize(
    ("function", "test"), [(f, name) for f, (*_, names) in SHARED.items() for name in names]
)
def test_a_planted_race_is_reported(raced, function, test):
    done = run(raced, [test], function)
    assert "data race" in done.stderr, done.stdout + done.stderr
    assert "planted_race" in done.stderr
    assert function in done.stderr
    assert done.returncode != 0

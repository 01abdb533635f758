"""ThreadSanitizer sees the threads of test_overlap.py meet in the core, so it would see a race.

The module `native.core` is built here with a race in every function of the C core, which the
compiler plants as it compiles (planted_races.c). ThreadSanitizer has to report those of the
functions that two threads enter in no order, and nothing else.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from support.setup_script import load_setup
from support.skip_list import require

from kernelrt.native import core

from .conftest import HERE, compile_c, run_sanitized, sanitize

pytestmark = pytest.mark.exhaustive  # builds the core with ThreadSanitizer
#: Functions of the core in which two threads of these tests meet.
SHARED = {
    "test_two_workers_of_a_region": [
        "run_worker", "claim_next", "claim_from", "pick", "run_claim", "may_start", "run_steps",
    ],
    "test_two_workers_of_a_region_with_a_clock": ["run_claim_profiled", "note_start"],
    "test_two_plans_without_the_gil": [
        "krt_plan_execute", "krt_plan_begin", "krt_plan_threads", "krt_plan_run_serial",
        "run_in_order", "run_range",
    ],
    "test_a_plan_beside_one_that_has_the_pool": [
        "krt_plan_run_shared", "krt_choose_parallel", "krt_graph_execute", "run_stage",
        "reset_stage", "krt_pool_run",
    ],
}  # fmt: skip
SETUP = load_setup()
HOOK = "__cyg_profile_func_enter"


def missing_functions() -> list[str]:
    """Those named above that csrc no longer defines."""
    text = "".join((sanitize.ROOT / name).read_text(encoding="utf-8") for name in SETUP.CORE)
    names = [name for functions in SHARED.values() for name in functions]
    return [name for name in names if not re.search(rf"(?m)^\w[^;\n]*\b{name}\([^;]*\n{{", text)]


if missing := missing_functions():
    raise LookupError(
        f"csrc defines no function {', '.join(missing)}: SHARED in {__file__} must name the "
        "functions that do its work now"
    )


def build(folder: Path) -> None:
    """A copy of the package whose `native.core` has the races."""
    sanitize.copy(folder)
    ours = Path(core.__file__)
    package = ours.parents[1]
    for module in package.rglob("*.so"):
        shutil.copy(module, folder / "kernelrt" / module.relative_to(package))
    command = [sys.executable, "-m", "cython", *SETUP.CYTHON, "kernelrt/native/core.pyx"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    flags = ["-O1", "-g", "-shared", "-fPIC", "-pthread", "-fno-omit-frame-pointer", "-fno-inline",
             f"-fsanitize={sanitize.FLAGS['thread']}", "-finstrument-functions",
             "-finstrument-functions-exclude-file-list=core.c,/include/",
             f"-I{sysconfig.get_path('include')}", f"-I{np.get_include()}"]  # fmt: skip
    sources = [*(sanitize.ROOT / name for name in SETUP.CORE), HERE / "planted_races.c"]
    native = folder / "kernelrt/native"
    compile_c([native / "core.c", *sources], native / ours.name, flags)


@pytest.fixture(scope="module")
def reports(once):
    """What ThreadSanitizer reports of all tests of test_overlap.py."""
    pytest.importorskip("Cython")
    for name in ("two threads", "gcc's sanitizers", "the source tree"):
        require(name)
    folder = once("raced", run)
    return (folder / "reports").read_text(encoding="utf-8").split("WARNING: ThreadSanitizer: ")[1:]


def run(folder):
    build(folder)
    tests = [f"tests/csrc/test_overlap.py::{name}" for name in SHARED]
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--capture=sys",
                 "-o", "addopts=--import-mode=importlib", *tests]  # fmt: skip
    done = run_sanitized(folder, "thread", arguments, go_on=True)
    assert f"{len(tests)} passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode != 0, "ThreadSanitizer reported nothing"
    (folder / "reports").write_text(done.stderr, encoding="utf-8")


@pytest.mark.parametrize("function", [name for names in SHARED.values() for name in names])
def test_a_race_is_reported(reports, function):
    planted = re.compile(rf"#0 {HOOK} .*\n +#1 {function} ")
    assert any(r.startswith("data race") and planted.search(r) for r in reports)


def test_nothing_is_reported_that_was_not_planted(reports):
    assert [r for r in reports if not re.search(rf"#0 {HOOK} ", r)] == []

"""What `python -m tests.sanitize` runs reports defects of ours: each kind is planted here once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING

import pytest
from support.skip_list import lack, require, require_command

from .conftest import HERE, run_sanitized, sanitize

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.exhaustive  # builds a module with each sanitizer
REPORTS = {
    ("address", "c_overflow"): "heap-buffer-overflow",
    ("address", "overflow"): "heap-buffer-overflow",
    ("address", "c_use_after_free"): "heap-use-after-free",
    ("address", "use_after_free"): "heap-use-after-free",
    ("address", "c_undefined"): "signed integer overflow",
    ("address", "undefined"): "signed integer overflow",
    ("thread", "c_race"): "data race",
    ("thread", "race"): "data race",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One folder with the planted module for each kind of sanitizer."""
    pytest.importorskip("Cython")
    require("gcc's sanitizers")
    compiler = require_command("cc")
    made = {}
    for kind, flags in sanitize.FLAGS.items():
        folder = made[kind] = tmp_path_factory.mktemp(kind)
        for name in ("planted.pyx", "planted.h"):
            shutil.copy(HERE / name, folder / name)
        module = folder / f"planted{sysconfig.get_config_var('EXT_SUFFIX')}"
        source = [sys.executable, "-m", "cython", "-3", "planted.pyx"]
        build = [compiler, "-std=c11", "-O2", "-g", "-shared", "-fPIC", "-fno-omit-frame-pointer",
                 f"-fsanitize={flags}", f"-I{sysconfig.get_path('include')}", "planted.c", "-o",
                 str(module)]  # fmt: skip
        for command in (source, build):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode and "fsanitize" in done.stderr:
                lack("gcc's sanitizers")
            assert done.returncode == 0, done.stderr
    return made


def run(folder: Path, kind: str, name: str) -> subprocess.CompletedProcess[str]:
    return run_sanitized(folder, kind, ["-c", f"import planted; planted.{name}(16)"])


@pytest.mark.parametrize("kind", list(sanitize.FLAGS))
def test_nothing_is_reported_where_nothing_is_wrong(folders, kind):
    done = run(folders[kind], kind, "none")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("kind", "name"), list(REPORTS))
def test_a_planted_defect_is_reported(folders, kind, name):
    done = run(folders[kind], kind, name)
    assert REPORTS[kind, name] in done.stderr
    assert "planted" in done.stderr
    assert done.returncode != 0

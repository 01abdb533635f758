"""A run tests the checkout, or says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import tested


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout and an installed copy, both of a package of one module."""
    for place in ("checkout", "site"):
        package = tmp_path / place / "kernelrt"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "native").mkdir()
        (package / "slopes.py").write_text("tanh = 1\n")
    (tmp_path / "checkout" / "csrc").mkdir()
    monkeypatch.setattr(tested, "ROOT", tmp_path / "checkout")
    monkeypatch.setattr(tested, "SOURCES", tmp_path / "checkout" / "kernelrt")

    def use(place):
        class Package:
            __file__ = str(tmp_path / place / "kernelrt" / "__init__.py")

        monkeypatch.setattr(tested.importlib, "import_module", lambda name: Package)
        return tmp_path / place

    return use


def test_an_installed_copy_of_other_sources_is_refused(checkout):
    site = checkout("site")
    tested.check_import()
    (site / "kernelrt" / "slopes.py").write_text("tanh = 2\n")
    with pytest.raises(pytest.UsageError, match=r"differs .* kernelrt/slopes.py; run `pip install"):
        tested.check_import()
    (site / "kernelrt" / "__init__.py").unlink()
    with pytest.raises(pytest.UsageError, match=r"kernelrt/__init__.py and 1 more files"):
        tested.check_import()
    checkout("checkout")
    tested.check_import()


@pytest.mark.parametrize("changed", ["kernelrt/native/core.pyx", "csrc/sort.c", "csrc/krt.h"])
def test_a_source_that_is_newer_than_the_modules_is_named(checkout, changed):
    root = checkout("checkout")
    source, module = root / changed, root / "kernelrt" / "native" / "core.so"
    for path in (source, module, root / "kernelrt" / "native" / "core.c"):
        path.write_text("")
    os.utime(module, (1000, 1000))
    os.utime(source, (999, 999))
    assert tested.stale_modules() == ""
    os.utime(source, (1001, 1001))
    assert tested.stale_modules() == changed
    assert changed in tested.header()[1]
    checkout("site")
    assert tested.stale_modules() == ""


def test_without_kernelrt_one_line_says_what_to_do(tmp_path):
    tests = Path(tested.__file__).parents[1]
    shutil.copytree(tests / "support", tmp_path / "tests" / "support")
    shutil.copy(tests / "conftest.py", tmp_path / "tests")
    (tmp_path / "tests" / "test_it.py").write_text("def test_it(): pass\n")
    (tmp_path / "tests" / "kernelrt.py").write_text("raise ImportError('of no use')")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests"], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "tests")}, check=False,
    )  # fmt: skip
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "the tests cannot import kernelrt: of no use" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr

"""A llvmlite that is too old is refused with the version that is needed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import llvmlite
import pytest
from support.skip_list import require

from kernelrt.util import llvm_binding

ROOT = Path(__file__).parents[2]
check = llvm_binding._check_version.__wrapped__


@pytest.mark.parametrize("version", ["0.45", "0.45.0rc1", "0.50.0", "1.0.0dev0+7.gabc"])
def test_versions_from_the_oldest_on_are_taken(version, monkeypatch):
    monkeypatch.setattr(llvmlite, "__version__", version)
    check()


@pytest.mark.parametrize("version", ["0.44.0", "0.9.9"])
def test_older_versions_are_refused(version, monkeypatch):
    monkeypatch.setattr(llvmlite, "__version__", version)
    text = f"needs llvmlite 0.45 or newer, but llvmlite {version} .* install 'llvmlite>=0.45'"
    with pytest.raises(ImportError, match=text):
        check()


def test_the_oldest_version_is_that_of_the_metadata():
    file = ROOT / "pyproject.toml"
    require("the source tree")
    dependencies = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["dependencies"]
    (bound,) = (re.findall(r"\d+", name) for name in dependencies if name.startswith("llvmlite"))
    assert tuple(map(int, bound)) == llvm_binding.OLDEST


@pytest.mark.parametrize("command", ["env", "digits"])
def test_commands_say_which_version_is_needed(command):
    program = (
        "import llvmlite, sys; llvmlite.__version__ = '0.44.0';"
        f"from kernelrt.cli import main; sys.exit(main([{command!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith("kernelrt: kernelrt needs llvmlite 0.45 or newer")


def test_a_first_computation_says_which_version_is_needed():
    program = (
        "import llvmlite; llvmlite.__version__ = '0.44.0';"
        "import kernelrt as krt; print((krt.ones(3) + 1).numpy())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    expected = "ImportError: kernelrt needs llvmlite 0.45 or newer, but llvmlite 0.44.0 "
    assert done.stderr.splitlines()[-1].startswith(expected)

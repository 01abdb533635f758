"""The suite can be collected where torch is not installed: what compares with it is skipped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
COLLECT = """
import sys
from importlib.abc import MetaPathFinder


class NoTorch(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, NoTorch())
import pytest
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", sys.argv[1]]))
"""


@pytest.mark.exhaustive
def test_tests_are_collected_without_torch():
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, str(TESTS)],
        cwd=TESTS.parent, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "need the package torch" in done.stdout

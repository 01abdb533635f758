"""The suite of the array API standard over `kernelrt.array_api`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["run"]

ROOT = Path(__file__).parents[2]


def run(suite: Path, examples: int) -> int:
    """Run the suite; its exit status.

    Parameters
    ----------
    suite : Path
        A clone of data-apis/array-api-tests, with its submodule.
    examples : int
        How many examples Hypothesis draws for each test.
    """
    if not (suite / "array_api_tests").is_dir() or not any((suite / "array-api").glob("*")):
        raise SystemExit(
            f"--array-api-tests {suite}: expected a clone of data-apis/array-api-tests; "
            "git clone --recursive https://github.com/data-apis/array-api-tests"
        )
    path = [str(ROOT), str(suite.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "ARRAY_API_TESTS_MODULE": "kernelrt.array_api",
        "ARRAY_API_TESTS_SKIP_DTYPES": "complex64,complex128",
    }
    command = [
        sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=short",
        "-p", "no:cacheprovider", "-p", "tests.conformance.array_api_plugin",
        "--disable-deadline", "--max-examples", str(examples), "array_api_tests",
    ]  # fmt: skip
    return subprocess.run(command, cwd=suite, env=environment, check=False).returncode

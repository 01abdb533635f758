"""C compiled by the tests themselves: hand-made kernels, and the core alone."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.patience import PATIENCE
from support.skip_list import lack, require_command

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
CSRC = HERE.parents[1] / "csrc"

spec = importlib.util.spec_from_file_location("sanitize", HERE.parent / "sanitize.py")
assert spec is not None
assert spec.loader is not None
sanitize = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sanitize)


def compile_c(sources: Sequence[Path], output: Path, flags: Sequence[str]) -> Path:
    compiler = require_command("cc", "gcc")
    flags = ["-std=c11", f"-I{CSRC}", *flags]
    command = [compiler, *flags, *map(str, sources), "-o", str(output), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return output


def run_sanitized(
    folder: Path, kind: str, arguments: Sequence[str], *, go_on: bool = False
) -> subprocess.CompletedProcess[str]:
    """Python on instrumented modules in `folder`; `go_on` behind a race that is reported."""
    try:
        environment = sanitize.environment(folder, kind, go_on=go_on)
    except SystemExit:
        lack("gcc's sanitizers")
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    if "ThreadSanitizer: unexpected memory mapping" in done.stderr:
        lack("addresses that ThreadSanitizer can use")
    return done


class Kernels:
    """Addresses of the functions in kernels.c."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)

    def __getattr__(self, name: str) -> int:
        address = ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value
        assert address is not None
        return address


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    folder = tmp_path_factory.mktemp("kernels")
    library = compile_c([HERE / "kernels.c"], folder / "kernels.so", ["-O2", "-shared", "-fPIC"])
    return Kernels(str(library))

"""Code that compiles and computes while the process comes to its end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from support.patience import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

#: `compute` takes kernels that nothing has compiled: several at once, and one.
COMPUTE = """
def compute():
    x = krt.ones(20, 30)
    assert krt.jit(lambda x: ((x @ x.T).softmax(0).sum(0), x.exp().sum(1)))(x)[0].sum().item() > 0
    assert (x * 2 + 1).sum().item() == 1800
    print("computed", flush=True)
"""
#: The main thread ends, and another one, which the process waits for, goes on.
THREAD = """
def later():
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    compute()
threading.Thread(target=later).start()
"""
ENDS = {
    "thread": THREAD,
    "atexit": "atexit.register(compute)",
    "atexit before the import": "",
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_kernels_are_compiled_until_the_end(end, warm, tmp_path: Path):
    early = "atexit.register(lambda: compute())\n" if "before" in end else ""
    code = (
        "import atexit, threading, time\n" + early + "import kernelrt as krt\n" + COMPUTE
        + ("krt.ones(3).exp().sum().item()\n" if warm else "") + textwrap.dedent(ENDS[end])
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "KERNELRT_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    # llvmlite complains when its first import is that late.
    assert "kernelrt" not in done.stderr
    assert (done.stdout, done.returncode) == ("computed\n", 0)


@pytest.mark.cases(1 / 2)
@pytest.mark.parametrize("interprets", ["on", "off"])
@pytest.mark.parametrize("warm", [False, True])
def test_finalizers_compute_while_the_interpreter_ends(warm, interprets, tmp_path: Path):
    code = """
import kernelrt as krt

class Last:
    def __init__(self):
        self.x = krt.ones(20, 30)

    def __del__(self):
        assert (self.x * 2 + 1).sum().item() == 1800
        self.x[3] = 2
        self.x += 1
        assert self.x[2:4, 5].tolist() == [2, 3]
        assert (self.x @ self.x.T).exp().sum().item() > 0
        assert abs((self.x + 1).softmax(-1).sum().item() - 20) < 1e-4
        assert self.x.sort()[0].sum().item() == self.x.cumsum(0)[-1].sum().item()
        assert krt.rand(3).sum().item() < 3
        print("computed", flush=True)

last = Last()
""" + ("krt.ones(3).exp().sum().item()\n" if warm else "")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "KERNELRT_CACHE_DIR": str(tmp_path), "KERNELRT_INTERPRET": interprets},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("computed\n", "", 0)


def test_a_first_import_while_the_interpreter_ends_names_the_module():
    code = """
import kernelrt as krt

class Last:
    def __del__(self):
        krt.linalg

last = Last()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert "ImportError: kernelrt.linalg: the interpreter is shutting down" in done.stderr

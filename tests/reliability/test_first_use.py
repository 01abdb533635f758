"""Code that interrupts the first computation of a process, while parts of kernelrt are imported."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.soak.processes import Patience

#: Seconds of computing, or of doing nothing, after which a process hangs. Those of a machine with
#: much to do do not count.
HANGS = 60

PROGRAM = """
import os, signal, time
import kernelrt as krt

total, count, ran, children = krt.zeros(3), krt.zeros(3), 0, []

def computes():
    global ran
    count.assign(count + 1)
    try:
        count.realize()
    finally:
        ran += 1

def forks():
    child = os.fork()
    if child:
        children.append(child)
        return
    signal.signal(signal.SIGALRM, signal.SIG_IGN)  # a child forks no more
    os._exit((krt.ones(5) * 2 + 1).sum().item() != 15)

def goes_on():
    global leave
    child = os.fork()
    if child:
        children.append(child)
        return
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    leave = True

leave = False

def handler(*_):
    if len(children) < 20:
        {what}()
        if not leave:
            signal.setitimer(signal.ITIMER_REAL, 0.01)

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, {after})
for _ in range(100):
    total.assign(total + 1)
    total.realize()
    if leave:
        os._exit((krt.ones(5) * 2 + 1).sum().item() != 15)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
if leave:
    os._exit(0)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
assert total.tolist() == [100] * 3
assert count.tolist() == [ran] * 3
assert ran or children or {after} > 0.05
print("right")
"""


def outcome(code: str) -> tuple[int | None, str, str]:
    """How a program ends, and what it writes; None where it, or a child of it, hangs."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=out, stderr=errors, start_new_session=True
        )
        patience = {process.pid: Patience(process.pid, HANGS)}
        try:
            while process.poll() is None:
                for pid in members(process.pid):
                    patience.setdefault(pid, Patience(pid, HANGS))
                # The parent waits for its children: what hangs is who waits for nobody.
                if all(p.over() for p in list(patience.values())):
                    break
                time.sleep(0.05)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            ended = process.returncode
            process.wait()
        out.seek(0)
        errors.seek(0)
        return ended, out.read(), errors.read()


def members(group: int) -> list[int]:
    """The processes of a group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            if int(text[2]) == group:
                found.append(int(stat.parent.name))
    return found


@pytest.mark.cases(1)
@pytest.mark.parametrize("after", [0.001, 0.01, 0.03, 0.1])
@pytest.mark.parametrize("what", ["computes", "forks", "goes_on"])
def test_handlers_meet_no_half_of_a_module(what, after):
    ended, written, errors = outcome(PROGRAM.format(what=what, after=after))
    assert (ended, written) == (0, "right\n"), errors


DRAWING = """
import os, signal, sys
import numpy
import kernelrt as krt

found = []

class Interrupts:
    # As a module is looked for, a handler computes: once, and for the first time.
    def find_spec(self, name, *_):
        if name == "_hashlib":  # of which what compiles is made, too
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGALRM)

signal.signal(signal.SIGALRM, lambda *_: found.append((krt.ones(5) * 2 + 1).sum().item()))
assert not {{"hashlib", "numpy.random"}} & set(sys.modules)
sys.meta_path.insert(0, Interrupts())
{what}
assert found == [15], found
print("right")
"""


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    "what",
    ["assert krt.jit(lambda: krt.ones(3) + 1)().tolist() == [2] * 3",
     "krt.data.train_test_split(numpy.ones(4), seed=0)"],
)  # fmt: skip
def test_handlers_meet_no_half_of_what_numpy_imports(what):
    ended, written, errors = outcome(DRAWING.format(what=what))
    assert (ended, written) == (0, "right\n"), errors


STOPPED = """
import os, threading, time
from kernelrt.native import locks

lock, held, done = locks.Lock(locks.CALL), threading.Event(), []

def work():
    with lock:
        held.set()
        time.sleep(1.5)  # without the processor: as one that waits for it
        while time.thread_time() < 0.3:
            pass
        done.append(None)

threading.Thread(target=work).start()
held.wait()
print("forks", flush=True)
child = os.fork()
if not child:
    os._exit(not done)
print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.cases(1 / 4)
def test_a_fork_waits_for_a_lock_although_the_process_is_stopped():
    """As a busy machine does it: for seconds neither the fork nor what it waits for goes on."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "forks\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGSTOP)
        time.sleep(4)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == "0\n"


AMID_AN_IMPORT = """
import sys
from kernelrt.util import lazy_import
from kernelrt.native import locks

# As in a child that a handler forked while a thread imported: this one goes on with it.
assert "kernelrt.array_api" not in sys.modules
with locks.imports:
    lazy_import.load("kernelrt.array_api")
assert "kernelrt.array_api" in sys.modules
print("right")
"""


def test_what_is_imported_here_may_ask_for_more():
    ended, written, errors = outcome(AMID_AN_IMPORT)
    assert (ended, written) == (0, "right\n"), errors


FIRST = (
    "krt.nn.Embedding(20, 16)(krt.tensor([3])).sum().item()",
    "krt.randn(3).tolist()",
    "krt.jit(lambda x: x + 1)(krt.ones(3)).tolist()",
    "krt.jit(lambda x: (x @ x).sum())(krt.ones(3, 3)).item()",
    "krt.scan(lambda c, x: (c + x, c), krt.zeros(()), krt.ones(3))[1].tolist()",
    "krt.linalg.inv(krt.eye(2)).tolist()",
    "krt.ones(3).sort()[0].tolist()",
    "x = krt.ones(3, requires_grad=True); (x * x).sum().backward(); x.grad.tolist()",
    "krt.nn.optim.AdamW(krt.nn.Linear(2, 2).parameters()).step()",
    "krt.ones(4)[krt.tensor([True, False, True, True])].tolist()",
)


@pytest.mark.cases(1 / 4)
@pytest.mark.parametrize("interprets", ["on", "off"])
@pytest.mark.parametrize("what", FIRST)
def test_any_computation_can_be_the_first(what, interprets):
    done = subprocess.run(
        [sys.executable, "-c", f"import kernelrt as krt; {what}"],
        env={**os.environ, "KERNELRT_INTERPRET": interprets},
        capture_output=True, text=True, timeout=HANGS, check=False,
    )  # fmt: skip
    assert (done.stderr, done.returncode) == ("", 0)

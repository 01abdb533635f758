"""Code that interrupts the first computation of a process, while parts of kernelrt are imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a child forks no more
    signal.alarm(60)
    os._exit((krt.ones(5) * 2 + 1).sum().item() != 15)

def goes_on():
    global leave
    child = os.fork()
    if child:
        children.append(child)
        return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(60)
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


@pytest.mark.parametrize("after", [0.001, 0.01, 0.03, 0.1])
@pytest.mark.parametrize("what", ["computes", "forks", "goes_on"])
def test_handlers_meet_no_half_of_a_module(what, after):
    code = PROGRAM.format(what=what, after=after)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          timeout=100, check=False)  # fmt: skip
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr

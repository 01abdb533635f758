"""Interrupts at any moment: later calls are right, no lock is lost, no state is half changed.

``KERNELRT_INTERRUPTS`` sets how many interrupts each test raises, for a soak; with
``--junit-xml`` it is kept how many fell into the work.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from support.patience import PATIENCE

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.device import registry
from kernelrt.device.buffer import Buffer

INTERRUPTS = int(os.environ.get("KERNELRT_INTERRUPTS", "400"))
X = np.arange(16, dtype=np.float32)


class Interrupt(BaseException):
    """Raised by the timer."""


@contextmanager
def timer():
    """Gives a function that runs another one and interrupts it after a random time."""
    armed = False

    def ring(*_):
        if armed:
            raise Interrupt

    rng = random.Random(1)  # noqa: S311 - no secrets here

    def interrupted(function, most_us=400):
        nonlocal armed
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1, most_us) * 1e-6)
            function()
            armed = False
        except Interrupt:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            return True
        signal.setitimer(signal.ITIMER_REAL, 0)
        return False

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield interrupted
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def in_another_thread(function):
    """Run `function` where a lock that was lost here would block."""
    failures = []

    def run():
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "a lock was lost"
    assert not failures, failures


double = krt.jit(lambda x: x * 2)


def make():
    for _ in range(20):
        krt.tensor(X)


def compute():
    (krt.tensor(X) * 3 + 1).sum().item()


def replay():
    for _ in range(20):
        double(X)


def allocate():
    for _ in range(30):
        buffer = Buffer(100, dt.float32)
        buffer.raw()[...] = 1
        buffer.view(4, 20).copyout()
        buffer.release()


def check():
    assert (krt.tensor(X) * 3 + 1).sum().item() == (X * 3 + 1).sum()
    assert double(X).tolist() == (X * 2).tolist()
    allocator = registry.allocator()
    assert 0 <= allocator.stats().cached <= allocator.limit
    krt.tensor(X).realize()


@pytest.mark.parametrize("work", [make, compute, replay, allocate])
@pytest.mark.cases(1)
def test_later_calls_are_right(work, record_property):
    check()
    with timer() as interrupted:
        count = 0
        for i in range(20 * INTERRUPTS):
            count += interrupted(work)
            if count >= INTERRUPTS:
                break
            if i % 50 == 0:
                check()
    record_property("interrupts", count)
    assert count
    gc.collect()
    check()
    in_another_thread(check)


def test_a_jitted_step_happens_or_does_not():
    state = krt.zeros(16)

    @krt.jit
    def step(x):
        state.assign(state + 1)
        return state * x

    step(X)
    done = 1
    with timer() as interrupted:
        for _ in range(INTERRUPTS):
            finished = []
            interrupted(lambda finished=finished: finished.append(step(X)), most_us=40)
            values = set(state.tolist())
            assert len(values) == 1, "half of an update"
            now = values.pop()
            assert now in ((done + 1,) if finished else (done, done + 1))
            done = now
    in_another_thread(lambda: step(X))
    assert state.tolist() == [done + 1] * 16


def test_kernels_compile_after_interrupted_compiling():
    with timer() as interrupted:
        for i in range(max(20, INTERRUPTS // 10)):
            number = 1.5 + i
            x = krt.tensor(X)
            interrupted(lambda n=number, x=x: ((x * n).exp() + n).sum().item(), most_us=9000)
    for i in range(5):
        number = np.float32(1.5 + i) / 64
        expected = (np.exp(X * number) + number).sum()
        got = ((krt.tensor(X) * float(number)).exp() + float(number)).sum().item()
        assert got == pytest.approx(expected, rel=1e-4)
    in_another_thread(check)

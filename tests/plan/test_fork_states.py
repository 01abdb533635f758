"""Forks while other threads compute, compile and execute: every child can do all of it, and ends.

``KERNELRT_FORKS`` sets the number of forks from each state, for a soak.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque

import numpy as np
import pytest
from support import forks, plan_kernels
from support.patience import PATIENCE

import kernelrt as krt
from kernelrt.native import locks

FORKS = int(os.environ.get("KERNELRT_FORKS", "25"))
AT_ONCE = 3
#: Names of kernels end in it, so that none lies in the cache on disk.
FRESH = os.urandom(6).hex()

jitted = krt.jit(lambda x: (x * 2 + 1).sum())
X = np.arange(32, dtype=np.float32)
BIG = np.ones(1 << 16, np.float32)


def live(number: int) -> None:
    """What a child does: eager code, a jitted call, an allocation, now and then a new kernel."""
    y = krt.tensor(X) * 3
    assert y.sum().item() == 3 * X.sum()
    assert jitted(X).item() == (X * 2 + 1).sum()
    assert krt.tensor(BIG).realize()._buffer is not None
    if number % 5 == 0:
        compile_new(f"child{number}", number)


def compile_new(name: str, number: int) -> None:
    name = f"{name}_{FRESH}"
    plan_kernels.kernel(name, f"%r = add i64 %x1, {number + 10**6}", 1, count=16)


def idle(_: int) -> None:
    time.sleep(0.001)


def compute(number: int) -> None:
    state = krt.tensor(X)
    state.assign(state + number)
    assert (state - number).sum().item() == pytest.approx(X.sum(), rel=1e-5)


def compiling(number: int) -> None:
    compile_new(f"parent{threading.get_ident()}_{number}", number)


def execute(_: int) -> None:
    assert heavy(BIG).shape == BIG.shape


heavy = krt.jit(lambda x: (x.exp() * x.sin()).cos())


@pytest.mark.cases(1)
@pytest.mark.parametrize("work", [idle, compute, compiling, execute])
def test_children_live_whatever_other_threads_do(work):
    live(1)
    execute(0)
    stop = threading.Event()
    failures = []

    def busy() -> None:
        number = 0
        try:
            while not stop.is_set():
                number += 1
                work(number)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    children: deque[int] = deque()
    statuses = []
    try:
        with forks.quick_switches():
            for number in range(FORKS):
                time.sleep(0.0002 * (number % 7))
                children.append(forks.start(lambda number=number: live(number)))
                if len(children) == AT_ONCE:
                    statuses.append(forks.wait(children.popleft()))
                if failures or forks.HANGS in statuses[-1:]:
                    break
            statuses += map(forks.wait, children)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert statuses == [0] * FORKS


@pytest.mark.cases(1 / 4)
def test_threads_that_fork_at_the_same_time(tmp_path):
    """Each of many forks, begun at once by several threads, ends, and so do its children."""
    statuses = []

    def many(seed: int) -> None:
        for number in range(max(3, FORKS // 5)):
            statuses.append(forks.run(lambda number=number: live(seed + 5 * number)))
            compute(number)

    threads = [threading.Thread(target=many, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) == {0}
    assert len(statuses) == 3 * max(3, FORKS // 5)
    live(0)


@pytest.mark.cases(1 / 4)
def test_a_fork_while_a_lock_is_held():
    """By another thread that waits for the child: the fork goes on, the child has its own."""
    lock = locks.Lock(locks.STATE)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def child() -> None:
        with lock, lock:
            pass

    assert forks.run(child) == 0
    assert thread.is_alive(), "the fork waited until the holder gave up"
    done.set()
    thread.join()
    with lock:
        assert forks.run(child) == 0
    assert forks.run(child) == 0


@pytest.mark.cases(1 / 4)
def test_forks_by_signal_handlers():
    """At any moment of eager work, jitted calls and compiling.

    Not within another fork: hooks of the standard library take locks that are not reentrant.
    """
    children = []
    me = os.getpid()

    def handler(*_: object) -> None:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        children.append(pid)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for number in range(FORKS):
            signal.setitimer(signal.ITIMER_REAL, 0.0003 + 0.0002 * (number % 11))
            compute(number)
            jitted(X)
            if number % 3 == 0:
                compile_new(f"signal{number}", number)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert forks.run(lambda number=number: live(number)) == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert os.getpid() == me
    assert [forks.wait(pid) for pid in children] == [0] * len(children)


def test_hooks_come_in_order_of_rank():
    calls = []
    for rank in (7, 5, 9):
        locks.at_fork(
            rank,
            lambda rank=rank: calls.append(("before", rank)),
            lambda rank=rank: calls.append(("parent", rank)),
        )

    def broken() -> None:
        raise ValueError

    locks.at_fork(6, broken, broken, broken)
    parent = [("parent", r) for r in (9, 7, 5)]

    def child() -> None:
        assert calls == [*(("before", r) for r in (5, 7, 9)), *parent]

    devnull, stderr = os.open(os.devnull, os.O_WRONLY), os.dup(2)
    os.dup2(devnull, 2)
    try:
        assert forks.run(child) == 0
    finally:
        os.dup2(stderr, 2)
    assert calls[3:] == parent
    locks._forget_hooks_below(10)

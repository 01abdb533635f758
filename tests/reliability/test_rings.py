"""Threads that want what each other has: handlers and finalizers compute at bad moments."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytest
from support.patience import PATIENCE

import kernelrt as krt
from kernelrt.errors import PlanBusyError
from kernelrt.native import locks
from kernelrt.runtime import kernel_cache

X = np.arange(6, dtype=np.float32)


def in_thread(function):
    """Start it; gives a function that waits for its result."""
    outcome = []

    def run():
        try:
            outcome.append(function())
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait():
        thread.join(PATIENCE)
        assert not thread.is_alive(), "hangs"
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]

    return wait


def test_who_wants_an_earlier_lock_gives_way():
    """The finalizer, out of order, is told; ordinary code, in order, gets what it waits for."""
    low, high = locks.Lock(locks.STATE), locks.Lock(locks.KERNELS)
    have_low, have_high = threading.Event(), threading.Event()

    def ordinary():
        with low:
            have_low.set()
            have_high.wait()
            with high:
                return "both"

    def interrupted():
        with high:
            have_high.set()
            have_low.wait()
            with pytest.raises(PlanBusyError, match="finalizer"), low:
                pass
        with low, high:
            return "later both"

    waits = in_thread(ordinary), in_thread(interrupted)
    assert [wait() for wait in waits] == ["both", "later both"]


def test_a_ring_of_three():
    ring = [locks.Lock(rank) for rank in (locks.STATE, locks.KERNELS, locks.LOADER)]
    everyone = threading.Barrier(3)

    def take(first, second):
        try:
            with first:
                everyone.wait()
                with second:
                    return True
        except PlanBusyError:
            return False

    waits = [in_thread(lambda i=i: take(ring[i], ring[(i + 1) % 3])) for i in range(3)]
    assert [wait() for wait in waits] == [True, True, False]


def test_a_waiter_goes_on_where_the_maker_waits_for_it():
    """The kernel is made by a thread whose finalizer waits for a lock of the one that waits."""
    cache = kernel_cache.KernelCache()
    lock = locks.Lock(locks.STATE)
    making, held = threading.Event(), threading.Event()
    makers = []
    build = kernel_cache._build

    def slow(asts, device):
        makers.append(threading.get_ident())
        if len(makers) == 1:
            making.set()
            held.wait(PATIENCE)
            with lock:
                pass
        return build(asts, device)

    kernel_cache._build = slow
    try:
        ast = an_ast()

        def waits():
            making.wait(PATIENCE)
            with lock:
                held.set()
                return cache.get(ast)

        first, second = in_thread(lambda: cache.get(ast)), in_thread(waits)
        assert second() is not None
        assert first() is not None
    finally:
        kernel_cache._build = build
    assert len(set(makers)) == 2


def test_whoever_waits_learns_that_the_maker_was_interrupted():
    """Also where the interrupt, or a second one, falls into what cleans up."""
    cache = kernel_cache.KernelCache()
    ast = an_ast()
    making = threading.Event()
    build, forget = kernel_cache._build, kernel_cache.KernelCache._forget
    blows = [0, 0]

    def interrupted(asts, device):
        if not blows[0]:
            blows[0] = 1
            making.set()
            raise KeyboardInterrupt
        return build(asts, device)

    def interrupted_too(self, tasks):
        if not blows[1]:
            blows[1] = 1
            raise KeyboardInterrupt
        return forget(self, tasks)

    kernel_cache._build = interrupted
    kernel_cache.KernelCache._forget = interrupted_too
    try:
        first = in_thread(lambda: cache.get(ast))
        making.wait()
        assert in_thread(lambda: cache.get(ast))() is not None
        with pytest.raises(KeyboardInterrupt):
            first()
    finally:
        kernel_cache._build, kernel_cache.KernelCache._forget = build, forget


def an_ast():
    """A kernel that nobody has made."""
    from kernelrt.schedule import schedule

    number = 0.5 + int.from_bytes(os.urandom(3), "little")
    made = schedule([(krt.tensor(X) * number).uop], [])
    [kernel] = [item for item in made.items if hasattr(item, "ast")]
    return kernel.ast


def test_code_without_a_program_is_freed():
    cache = kernel_cache.kernels
    plan = krt.prepare(krt.tensor(X) * (0.25 + int.from_bytes(os.urandom(3), "little")))
    plan.execute()
    [kernel] = plan.kernels
    code = weakref.ref(kernel.program.library)
    plan.release()
    del plan, kernel
    gc.collect()
    cache.clear()
    cache.collect()
    assert code() is None


FIRST = """
import os, random, sys, threading, time
import numpy as np
from support import forks
import kernelrt as krt

rng = random.Random(int(sys.argv[1]))
X = np.arange(8, dtype=np.float32)

def eager():
    assert (krt.tensor(X) * 2 + 1).sum().item() == 64

def jitted():
    assert krt.jit(lambda x: (x * 3).sum())(X).item() == 84

def both():
    eager()
    jitted()

thread = threading.Thread(target=rng.choice([eager, jitted]))
thread.start()
time.sleep(rng.uniform(0, 0.25))
status = forks.run(both)
thread.join()
sys.exit(status)
"""


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(4))
def test_a_fork_while_another_thread_computes_for_the_first_time(seed):
    """Modules are imported then; one that is half imported at the fork is so for ever."""
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    path = os.pathsep.join([tests, os.path.dirname(tests)])  # noqa: PTH120
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(FIRST), str(seed)],
        capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr, done.stderr

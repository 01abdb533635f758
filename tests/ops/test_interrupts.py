"""Eager code that is interrupted: by handlers of signals, finalizers, other threads and Ctrl-C."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from support.patience import PATIENCE

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import PlanBusyError
from kernelrt.native import locks
from kernelrt.tensor import state


class Timer:
    """Has `act` called, by a handler, a random short time from now."""

    def __init__(self, act, seed: int, longest: float = 8e-4) -> None:
        self.act = act
        self.rng = np.random.default_rng(seed)
        self.longest = longest

    def __enter__(self):
        self.before = signal.signal(signal.SIGALRM, lambda *_: self.act())
        return self

    def start(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 2e-5 + self.rng.random() * self.longest)

    def __exit__(self, *_) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)


@pytest.mark.parametrize("seed", range(3))
def test_an_interrupt_between_any_two_steps_leaves_all_right(seed):
    w, count = krt.zeros(3).realize(), krt.zeros(()).realize()
    one = krt.ones(3).realize()
    interrupts = 0

    def interrupt():
        raise KeyboardInterrupt

    def work():
        # An interrupt that falls into a finalizer is told by Python and goes no further.
        end = time.monotonic() + 1
        while time.monotonic() < end:
            w.assign(w + one)
            count.assign(count + (w * 0 + 1).mean())
            krt.realize((w * 2).sum())

    with Timer(interrupt, seed) as timer:
        for _ in range(60):
            try:
                timer.start()
                work()
            except KeyboardInterrupt:
                interrupts += 1
            got, n = w.numpy(), count.item()
            assert got[0] == got[1] == got[2]
            # An interrupt may fall between the two assignments; none is done twice.
            assert 0 <= got[0] - n <= interrupts
            assert not state.pending
            assert state.changing is None


def test_an_interrupted_training_goes_on():
    krt.manual_seed(2)
    layer = nn.Linear(4, 1)
    opt = nn.optim.Adam(nn.parameters(layer), 0.01)
    x, y = krt.randn(16, 4), krt.randn(16, 1)

    def step():
        opt.zero_grad()
        loss = (layer(x) - y).square().mean()
        loss.backward()
        opt.step()
        return loss.item()

    first = step()

    def interrupt():
        raise KeyboardInterrupt

    with Timer(interrupt, 7, 3e-3) as timer:
        for _ in range(40):
            try:
                timer.start()
                end = time.monotonic() + 1
                while time.monotonic() < end:
                    step()
            except KeyboardInterrupt:
                pass
    last = [step() for _ in range(100)][-1]
    assert np.isfinite(last)
    assert last < first
    steps = opt.state_dict()["step"].numpy()
    assert (steps == np.rint(steps[0])).all()


@pytest.mark.parametrize("size", [6, 300_000])
def test_a_handler_computes_what_it_interrupts(size):
    x = krt.ones(size).realize()
    seen = []

    def compute():
        return ((x + 1) * 2).sum().item()

    with Timer(lambda: seen.append(compute()), 3) as timer:
        for _ in range(150):
            timer.start()
            end = time.monotonic() + timer.longest
            while time.monotonic() < end:
                assert compute() == 4 * size
    assert set(seen) == {4 * size}


def test_a_handler_that_reads_and_assigns():
    w, other = krt.zeros(3).realize(), krt.zeros(()).realize()
    one, seen, calls = krt.ones(3).realize(), [], [0]

    def handler():
        calls[0] += 1
        try:
            seen.append(w.numpy())
            other.assign(other + 1)
            krt.realize()
        except PlanBusyError:
            calls[0] -= 1

    done = 0
    with Timer(handler, 5) as timer:
        for _ in range(100):
            timer.start()
            for _ in range(15):
                w.assign(w + one)
                w.numpy()
                done += 1
    assert w.tolist() == [done] * 3
    assert all(s[0] == s[1] == s[2] == round(float(s[0])) for s in seen)
    assert other.item() == calls[0]


@pytest.mark.exhaustive
def test_a_finalizer_that_computes():
    w, total = krt.zeros(3).realize(), krt.zeros(()).realize()

    class Final:
        def __del__(self):
            total.assign(total + 1)
            krt.realize()

    for _ in range(30):
        for _ in range(10):
            cycle = [Final()]
            cycle.append(cycle)
        del cycle
        w.assign(w + 1)
        gc.collect()
        w.assign(w + 1)
        krt.realize()
    assert w.tolist() == [60] * 3
    assert total.item() == 300


def test_what_is_being_written_is_refused_to_the_thread_that_writes():
    """The same thread, in the middle of a run: neither the old value nor the new one is there."""
    w, free = krt.zeros(3).realize(), krt.ones(2).realize()
    found = []

    def interrupting(values):
        for act in (lambda: w + 1, lambda: w.assign(5), old.numpy):
            with pytest.raises(PlanBusyError, match="is assigning to"):
                act()
        free.assign(free + 1)
        krt.realize()
        found.append((free * 2).tolist())
        return values + 1

    old = w * 1
    w.assign(krt.call(interrupting, w * 2, out=w))
    krt.realize()
    assert found == [[4, 4]]
    assert w.tolist() == [1, 1, 1]
    assert old.tolist() == [0, 0, 0]


def test_an_error_undoes_what_was_to_be_committed_and_nothing_else():
    w, v = krt.zeros(3).realize(), krt.zeros(3).realize()
    w.assign(krt.ones(2)[krt.tensor([0, 1, 5])])
    with pytest.raises(krt.errors.IndexBoundsError):
        krt.realize()
    assert w.tolist() == [0, 0, 0]
    v.assign(v + 2)
    assert v.tolist() == [2, 2, 2]


def test_threads_that_make_and_drop_lazy_tensors_while_others_assign():
    stop, errors = threading.Event(), []
    w = krt.zeros(3).realize()

    def make(i):
        x = krt.tensor(np.full(3, float(i))).realize()
        try:
            while not stop.is_set():
                held = [x * float(k % 5) + 1 for k in range(20)]
                assert held[3].tolist() == [i * 3 + 1] * 3
        except Exception as error:  # noqa: BLE001 - reported by the main thread
            errors.append(error)

    threads = [threading.Thread(target=make, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for _ in range(300):
        w.assign(w + 1)
        krt.realize()
    stop.set()
    for t in threads:
        t.join()
    assert not errors
    assert w.tolist() == [300] * 3


COLLECTED = """
import gc
import numpy as np
import kernelrt as krt
from kernelrt.util import lazy_import

done = []

class Final:
    def __init__(self):
        self.itself, self.data = self, krt.tensor(np.arange(3.0))
        self.turn = len(begun)

    def __del__(self):
        want = np.arange(3.0) * 2.5 + self.turn
        done.append((self.data * 2.5 + self.turn).tolist() == want.tolist())

begun = []
run = lazy_import._run

def amid_garbage(work, end):
    def first():
        for _ in range(3):
            Final()
        begun.append([[] for _ in range(5000)])
        return work()
    run(first, end)

lazy_import._run = amid_garbage
total = krt.zeros(3).realize()
total.assign(total + 1)
for n in range(1, 4):
    assert (krt.tensor(np.arange(4.0)) * n).exp().cumsum(0).numpy().shape == (4,)
gc.collect()
assert total.tolist() == [1, 1, 1]
assert len(begun) > 3 and len(done) == 3 * len(begun) and all(done), (len(begun), done)
assert gc.isenabled()
"""


def test_finalizers_compute_where_another_thread_is_waited_for(tmp_path):
    """The collector may run on a thread that imports or compiles for the one that waits."""
    environment = {**os.environ, "KERNELRT_CACHE_DIR": str(tmp_path), "KERNELRT_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", COLLECTED], env=environment, timeout=PATIENCE, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_collector_goes_on_in_a_child_of_another_thread():
    forked, statuses = threading.Event(), []

    def fork():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        statuses.append(os.waitpid(child, 0)[1])
        forked.set()

    assert gc.isenabled()
    thread = threading.Thread(target=fork)
    with locks.uncollected:
        with locks.uncollected:
            assert not gc.isenabled()
        thread.start()
        assert forked.wait(60)
        assert not gc.isenabled()
    thread.join()
    assert gc.isenabled()
    assert statuses == [0]
    gc.disable()
    try:
        with locks.uncollected:
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()

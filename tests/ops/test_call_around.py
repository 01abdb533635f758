"""krt.call without jit: code that runs while it does, and calls made exactly once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from support.patience import PATIENCE

import kernelrt as krt
from kernelrt.errors import CustomFunctionError

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_function_may_compute_with_tensors():
    seen = krt.ones(3).realize()
    count = krt.zeros(()).realize()

    def inside(a):
        count.assign(count + 1)
        count.realize()
        return (krt.tensor(a) * 2 + seen).exp().log()

    state = krt.zeros(3).realize()
    for k in range(1, 4):
        state.assign(krt.call(inside, state, out=state) + 1)
        np.testing.assert_allclose(state.numpy(), [2.0 * (2**k - 1)] * 3, rtol=1e-4)
    assert count.item() == 3


def test_a_function_may_make_the_same_call_inside():
    def down(a):
        return a if a[0] < 1 else krt.call(down, krt.tensor(a - 1), out=((2,), "f4"))

    assert krt.call(down, krt.tensor([5.0, 7.0]), out=((2,), "f4")).tolist() == [0.0, 2.0]


def test_threads_that_call_at_once_get_their_own():
    x = krt.tensor(floats(100)).realize()
    wrong = []

    def work(k):
        for _ in range(30):
            found = krt.call(lambda a: a * k, x, out=x).numpy()
            if not np.array_equal(found, x.numpy() * np.float32(k)):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE)
    assert not wrong
    assert not any(t.is_alive() for t in threads)


def test_an_interrupt_within_a_function_comes_through():
    times = []

    def interrupted(a):
        times.append(1)
        if len(times) == 1:
            signal.raise_signal(signal.SIGINT)
        return a

    x = krt.ones(2).realize()
    state = krt.zeros(2).realize()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            state.assign(krt.call(interrupted, x, out=x)).realize()
    finally:
        signal.signal(signal.SIGINT, before)
    assert state._memory.numpy().tolist() == [0.0, 0.0]
    assert state.tolist() == [1.0, 1.0]  # what was interrupted is still to be done
    with pytest.raises(SystemExit):
        krt.call(lambda a: sys.exit(3), x, out=x).realize()


def test_a_call_is_made_in_a_forked_child():
    code = (
        "import os, kernelrt as krt\n"
        "f = lambda a: a + os.getpid()\n"
        "x = krt.zeros(1, dtype=krt.float64)\n"
        "y = krt.call(f, x, out=x).item()\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    os._exit(int(krt.call(f, x, out=x).item() != os.getpid()))\n"
        "print(os.waitpid(pid, 0)[1], y == os.getpid())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]


# ---- calls that are made exactly once


def test_what_is_not_pure_is_called_at_once_and_once():
    seen = []

    def step(action):
        seen.append(int(action))
        return np.float32([len(seen), 0]), float(action), len(seen) > 2

    out = (((2,), "float32"), ((), "float32"), ((), "bool"))
    for k in range(4):
        obs, reward, over = krt.call(step, krt.tensor(k), out=out, pure=False)
        assert len(seen) == k + 1
        assert (obs.tolist(), reward.item(), over.item()) == ([k + 1, 0], k, k > 1)
    assert seen == [0, 1, 2, 3]


def test_what_gives_nothing_is_called_too():
    said = []
    krt.call(said.append, krt.tensor([1.0, 2.0]) * 2, out=None, pure=False)
    assert [a.tolist() for a in said] == [[2.0, 4.0]]


def test_what_is_not_pure_is_called_once_where_it_fails():
    calls = []

    def broken(a):
        calls.append(1)
        raise ValueError("no")

    state = krt.zeros(2).realize()
    state.assign(state + 1)
    with pytest.raises(CustomFunctionError):
        krt.call(broken, state, out=state, pure=False)
    assert calls == [1]
    assert state.tolist() == [1.0, 1.0]

"""Code that interrupts a function while it is traced: handlers of signals and finalizers."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import random
import signal
import threading
import warnings

import numpy as np
import pytest
from support.skip_list import needs

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import JitError
from kernelrt.tensor import Trace, state

ONE = np.ones(3, np.float32)


@pytest.fixture(autouse=True)
def handlers():
    numbers = signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert state.local.trace is None
    assert state.local.observed is None
    assert gc.isenabled()
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def send(number=signal.SIGUSR1):
    """Have the handler called before this returns."""
    signal.raise_signal(number)


def test_what_a_handler_computes_is_no_part_of_the_trace():
    seen, count, w = [], krt.zeros(()).realize(), krt.tensor([1.0, 2.0, 4.0])

    def handler(number, _frame):
        assert number == signal.SIGUSR1
        assert not state.local.trace
        seen.append((w * 3).sum().item())
        seen.append((w + krt.ones(3)).tolist())
        count.assign(count + 1)

    signal.signal(signal.SIGUSR1, handler)

    @krt.jit
    def double(x):
        y = x * 2
        send()
        return y + w

    assert double(ONE).tolist() == [3, 4, 6]
    assert seen == [21.0, [2, 3, 5]]
    assert double(ONE).tolist() == [3, 4, 6]
    assert count.item() == 1  # no part of what replays repeat
    assert len(double.plans[0].kernels) == 1


class Called:
    def __init__(self, act):
        self.act = act

    def __call__(self, *_):
        self.act()

    def method(self, *_):
        self.act()


@pytest.mark.parametrize("kind", ["function", "object", "method", "partial", "star"])
def test_every_kind_of_handler(kind):
    seen = []

    def act(*_, **__):
        seen.append(krt.tensor([1.0, 2.0]).sum().item())

    handler = {
        "function": lambda _number, _frame: act(), "object": Called(act),
        "method": Called(act).method, "partial": functools.partial(act, more=1), "star": act,
    }[kind]  # fmt: skip
    signal.signal(signal.SIGUSR1, handler)

    @krt.jit
    def f(x):
        send()
        assert signal.getsignal(signal.SIGUSR1) is not None
        return x + 1

    assert f(ONE).tolist() == [2, 2, 2]
    assert seen == [3.0]
    assert signal.getsignal(signal.SIGUSR1) is handler or kind == "method"
    assert signal.getsignal(signal.SIGUSR1) == handler


def test_a_handler_that_calls_jitted_functions():
    w, seen = krt.zeros(3).realize(), []

    @krt.jit
    def other(x):
        w.assign(w + x)
        return w * 2

    @krt.jit
    def f(x):
        y = x + 1
        if state.local.trace is not None and not seen:
            send()
        return y * 3

    def handler(*_):
        seen.append(other(ONE).tolist())
        seen.append(f(ONE).tolist())
        seen.append(other(ONE).tolist())

    signal.signal(signal.SIGUSR1, handler)
    assert f(ONE).tolist() == [6, 6, 6]
    assert seen == [[2] * 3, [6] * 3, [4] * 3]
    assert w.tolist() == [2, 2, 2]


def test_a_handler_within_a_handler():
    seen = []

    def outer(*_):
        a = krt.tensor([1.0, 2.0]) * 2
        send(signal.SIGUSR2)
        seen.append(("outer", a.tolist()))

    def inner(*_):
        seen.append(("inner", krt.ones(2).sum().item()))

    signal.signal(signal.SIGUSR1, outer)
    signal.signal(signal.SIGUSR2, inner)
    f = krt.jit(lambda x: (send(), x + 1)[1])
    assert f(ONE).tolist() == [2, 2, 2]
    assert seen == [("inner", 2.0), ("outer", [2, 4])]


def test_a_handler_that_installs_another():
    seen = []

    def second(*_):
        seen.append(("second", krt.ones(2).sum().item()))

    def first(*_):
        seen.append(("first", krt.ones(3).sum().item()))
        signal.signal(signal.SIGUSR1, second)

    signal.signal(signal.SIGUSR1, first)
    f = krt.jit(lambda x: (send(), send(), x + 1)[2])
    assert f(ONE).tolist() == [2, 2, 2]
    assert seen == [("first", 3.0), ("second", 2.0)]
    assert signal.getsignal(signal.SIGUSR1) is second


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_handler_that_raises_leaves_no_trace(error):
    w = krt.zeros(3).realize()
    fail = [True]

    def handler(*_):
        krt.ones(2).sum().item()
        raise error("from the handler")

    signal.signal(signal.SIGINT, handler)
    layer = nn.Linear(3, 2)

    @krt.jit
    def f(x):
        w.assign(w + x)
        layer(x)
        if fail[0]:
            send(signal.SIGINT)
        return w + 1

    with pytest.raises(error, match="from the handler"):
        f(ONE)
    assert state.local.trace is None
    assert state.local.scope is None
    assert signal.getsignal(signal.SIGINT) is handler
    assert w.tolist() == [0, 0, 0]
    fail[0] = False
    assert f(ONE).tolist() == [2, 2, 2]
    assert f(ONE).tolist() == [3, 3, 3]


@pytest.mark.parametrize("moment", range(60))
def test_an_interrupt_while_a_trace_begins_or_ends(moment, monkeypatch):
    """Python calls handlers within signal.signal, which giving them back takes."""
    calls = [0]

    def handler(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGUSR2, handler)
    plain = signal.getsignal

    def counted(number):
        calls[0] += 1
        if calls[0] == 1 + moment * 3:
            signal.raise_signal(signal.SIGUSR2)
        return plain(number)

    monkeypatch.setattr(signal, "getsignal", counted)
    try:
        with Trace():
            pass
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    monkeypatch.undo()
    assert interrupted == (calls[0] >= 1 + moment * 3)
    assert state.local.trace is None
    assert gc.isenabled()
    assert signal.getsignal(signal.SIGUSR1) is handler
    assert signal.getsignal(signal.SIGUSR2) is handler


def test_lines_and_attributes_that_a_handler_reads_are_its_own():
    other = nn.Dropout(0.5)
    found = []

    def handler(*_):
        other.training  # noqa: B018 - the function does not depend on it
        found.append(krt.ones(3) * 2)

    signal.signal(signal.SIGUSR1, handler)

    class Sends(nn.Module):
        def forward(self, x):
            send()
            return x + 1

    model = Sends()
    f = krt.jit(model)
    f(ONE)
    other.eval()
    f(ONE)
    assert f.retraces == 0
    assert found[0].uop.origin[4] is None  # of no module


def test_gradients_of_a_handler_are_its_own():
    w = krt.tensor([1.0, 2.0], requires_grad=True)

    def handler(*_):
        (w * w).sum().backward()

    signal.signal(signal.SIGUSR1, handler)
    p = krt.tensor([3.0], requires_grad=True)

    @krt.jit
    def f(x):
        loss = (p * x).sum()
        send()
        loss.backward()
        return loss

    for turn in range(1, 5):
        assert f(ONE).item() == 9
        traces = 1 + f.retraces  # another one finds a gradient where there was none
        assert w.grad.tolist() == [2 * traces, 4 * traces]
        assert p.grad.tolist() == [3 * turn]
    assert f.retraces == 1


def test_modes_of_a_block_hold_in_a_handler_as_in_all_it_runs():
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(krt.is_grad_enabled()))

    @krt.jit
    def f(x):
        with krt.no_grad():
            send()
        send()
        return x + 1

    f(ONE)
    with krt.no_grad():
        send()
    assert seen == [False, True, False]


def test_what_the_function_makes_has_no_value_for_a_handler():
    kept, errors = [], []

    def handler(*_):
        try:
            kept[0].tolist()
        except JitError as error:
            errors.append(str(error))

    signal.signal(signal.SIGUSR1, handler)

    @krt.jit
    def f(x):
        y = x + 1
        kept.append(y)
        send()
        kept.clear()
        return y

    assert f(ONE).tolist() == [2, 2, 2]
    assert "no value outside of that call" in errors[0]


@needs("Linux")
def test_system_calls_go_on_where_the_program_said_so():
    libc = ctypes.CDLL(None, use_errno=True)

    def flags():
        raw = ctypes.create_string_buffer(256)
        assert libc.sigaction(int(signal.SIGUSR1), None, raw) == 0
        return int.from_bytes(raw.raw[136:140], "little")  # behind the handler and the mask

    signal.signal(signal.SIGUSR1, lambda *_: None)
    usual = flags()
    signal.siginterrupt(signal.SIGUSR1, False)
    restarts = flags()
    assert restarts != usual
    with Trace():
        assert flags() == restarts
    assert flags() == restarts


def test_a_trace_on_another_thread_touches_no_handlers():
    signal.signal(signal.SIGUSR1, handler := lambda *_: None)
    seen = []

    def work():
        with Trace():
            seen.append(signal.getsignal(signal.SIGUSR1) is handler)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]


def test_the_step_of_an_optimizer_is_no_trace_for_a_handler(monkeypatch):
    p = krt.tensor([1.0, 2.0], requires_grad=True)
    p.grad = krt.ones(2)
    optimizer = nn.optim.SGD([p], lr=0.5)
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append((krt.ones(2) * 3).sum().item()))
    update = optimizer._update

    def sends(active):
        update(active)
        send()

    monkeypatch.setattr(optimizer, "_update", sends)
    optimizer.step()
    assert p.tolist() == [0.5, 1.5]
    assert seen == [6.0]


def test_the_collector_runs_no_finalizer_within_a_trace():
    count = krt.zeros(()).realize()

    class Final:
        def __init__(self):
            self.itself = self

        def __del__(self):
            count.assign(count + 1)

    @krt.jit
    def f(x):
        assert not gc.isenabled()
        Final()
        for _ in range(2000):
            [[]]  # noqa: B018 - objects that the collector counts
        return x + 1

    f(ONE)
    f(ONE)
    gc.collect()
    assert count.item() == 1


def test_a_handler_that_forks_within_a_trace():
    children = []

    def handler(*_):
        child = os.fork()
        if not child:
            good = krt.ones(3).sum().item() == 3
            os._exit(0 if good else 1)
        children.append(child)

    signal.signal(signal.SIGUSR1, handler)
    f = krt.jit(lambda x: (send(), x + 1)[1])
    assert f(ONE).tolist() == [2, 2, 2]
    assert [os.waitpid(child, 0)[1] for child in children] == [0]


@pytest.mark.parametrize("place", ["function", "loop", "member", "handler"])
def test_random_numbers_that_a_handler_draws_are_not_the_functions(place):
    own = np.random.default_rng(0)

    def draw(*_):
        random.random()  # noqa: S311 - not for secrets
        np.random.rand()  # noqa: NPY002 - what everybody shares
        own.random()

    def outer(*_):
        draw()
        send(signal.SIGUSR2)
        draw()

    signal.signal(signal.SIGUSR1, outer if place == "handler" else draw)
    signal.signal(signal.SIGUSR2, draw)

    def part(x):
        send()
        return x + 1

    def traced(x):
        assert own is not None  # within reach of the function
        send()
        if place == "loop":
            return krt.fori_loop(0, 2, lambda _, y: part(y), x)
        return krt.vmap(part)(x) if place == "member" else part(x)

    f = krt.jit(traced)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f(ONE).tolist() == [3 if place == "loop" else 2] * 3


@pytest.mark.parametrize("first", [True, False])
def test_random_numbers_of_the_function_are_told_beside_those_of_a_handler(first):
    signal.signal(signal.SIGUSR1, lambda *_: random.random())  # noqa: S311

    @krt.jit
    def f(x):
        if first:
            send()
        scale = random.random()  # noqa: S311
        if not first:
            send()
        return x * scale

    with pytest.warns(krt.KernelrtWarning, match="random: f draws random numbers"):
        f(ONE)

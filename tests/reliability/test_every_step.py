"""An interrupt before any bytecode: state is as before or as after, and later calls are right.

``KERNELRT_INTERRUPTS`` sets how many bytecodes of each piece of work are tried, for a soak.
"""

from __future__ import annotations

import _thread
import gc
import os
import random
import threading
from functools import partial

import numpy as np
import pytest
from support.interrupts import count_steps, interrupted_at

import kernelrt as krt
from kernelrt import nn
from kernelrt.jit import tracing
from kernelrt.native import locks
from kernelrt.native.thread_modes import local
from kernelrt.runtime import kernel_cache
from kernelrt.tensor import state
from kernelrt.tensor.tracing.vmap_trace import VmapTrace

MOST = int(os.environ.get("KERNELRT_INTERRUPTS", "150"))
RUNS = 4
"""How often each_step() runs what it is given until its first step is done."""
PATIENCE_S = 60.0
"""How long another thread may take to take all locks, on a machine with much to do."""
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def each_step(work, prepare=lambda: None):
    """Interrupt `work` at steps, `prepare` called before each.

    Gives after each step what was prepared and whether the interrupt came out of `work`.
    Fails at the step that leaves a mode set, the collector stopped or a lock held, and where no
    interrupt reaches `work`.
    """

    def given():
        made = prepare()
        return () if made is None else (made,)

    work(*given())
    total = count_steps(work, given)
    steps = range(1, total + 1)
    if total > MOST:
        steps = random.Random(1).sample(steps, MOST)  # noqa: S311 - no secrets here
    hits = 0
    for step in steps:
        args = given()
        error = interrupted_at(step, partial(work, *args))
        hit = error is not None
        hits += hit
        check_modes()
        check_locks(f"after an interrupt at step {step} of {total}")
        error = None  # and the frames with it, of which generators run to their ends now
        check_modes()
        yield args[0] if args else None, hit
    assert hits, f"none of {len(steps)} interrupts reached {work}"


def check_modes():
    assert local.grad
    assert local.trace is None
    assert local.scope is None
    assert local.observed is None
    assert gc.isenabled()


def check_locks(when):
    """Fail where this thread holds a lock of the package, or another thread cannot take one."""
    left = locks.existing()
    for lock in left:
        if lock.is_mine():
            while lock.is_mine():  # so that later tests do not wait for it
                lock.__exit__()
            pytest.fail(f"{when}: the lock of rank {lock.rank} is held")

    def take():
        while left:
            with left[-1]:
                left.pop()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    if left:
        pytest.fail(f"{when}: another thread cannot take the lock of rank {left[-1].rank}")


def test_a_lock_left_held_fails_at_its_step():
    lock = locks.Lock(locks.CALL)

    def work():
        lock.__enter__()
        len("")
        lock.__exit__()

    with pytest.raises(pytest.fail.Exception, match=r"step \d+ of \d+.* rank 0 is held"):
        for _ in each_step(work):
            pass
    assert not lock.is_mine()


def test_waiting_for_the_kernel_of_another_thread():
    batch = _thread.allocate_lock()
    task = kernel_cache._Task(batch)
    for _, _ in each_step(task.wait):
        assert not batch.locked()


def test_modes_are_left_as_they_were():
    def work():
        with krt.no_grad():
            len("")
            with krt.enable_grad():
                assert krt.is_grad_enabled()
            assert not krt.is_grad_enabled()
        krt.no_grad()(len)("")

    assert sum(hit for _, hit in each_step(work)) > 10


@pytest.mark.cases(1 / 4)
def test_a_first_trace():
    model = nn.Linear(3, 2)

    def work(f):
        f(X)

    expected = model(krt.tensor(X)).tolist()
    hits = 0
    for f, hit in each_step(work, lambda: krt.jit(model)):
        hits += hit
        assert f(X).tolist() == expected
        assert len(f.plans) == 1, f.explain()
    assert hits


def test_eager_code():
    w, out = krt.zeros(3).realize(), krt.zeros(3).realize()

    def work():
        w.assign(w + 1)
        out.assign(w * 2)
        krt.realize()

    done = 0.0
    for _, _ in each_step(work):
        now = w.numpy()
        assert now[0] == now[1] == now[2]
        assert 0 <= now[0] - done <= RUNS
        work()
        done = now[0] + 1
        assert w.tolist() == [done] * 3
        assert out.tolist() == [2 * done] * 3
        assert not state.pending
        assert state.changing is None


def test_a_jitted_call():
    total, seen = krt.zeros(2), krt.zeros(2)
    w = krt.ones(2, requires_grad=True)

    @krt.jit
    def f(x):
        total.assign(total + x)
        seen.assign(total * 2)
        w.grad = None
        (w * total).sum().backward()
        return total + 1

    f(1.0)
    assert w.grad.tolist() == total.tolist()
    done = total[0].item()
    for _, _ in each_step(lambda: f(1.0)):
        now = total[0].item()
        assert 0 <= now - done <= RUNS
        assert seen.tolist() == [2 * now] * 2
        assert w.grad.tolist() == [now] * 2
        done = now
    assert f(1.0).tolist() == [done + 2] * 2
    assert f.retraces == 0


def test_a_first_gradient_comes_with_the_rest_of_the_run():
    w, count = krt.ones(2, requires_grad=True), krt.zeros(())

    @krt.jit
    def f():
        count.assign(count + 1)
        (w * 3).sum().backward()

    def clear():
        w.grad = None
        count.assign(0)
        count.realize()

    for _, _ in each_step(f, clear):
        expected = None if count.item() == 0 else [3, 3]
        assert (w.grad if w.grad is None else w.grad.tolist()) == expected


@pytest.mark.parametrize("kept", [False, True])
def test_backward_gives_all_gradients_or_none(kept):
    params = [krt.ones(2, requires_grad=True) for _ in range(6)]

    def clear():
        for p in params:
            p.grad = krt.ones(2) if kept else None

    def work():
        sum((p * i for i, p in enumerate(params)), krt.zeros(2)).sum().backward()

    before = [[1.0] * 2 if kept else None] * 6
    after = [[float(i + kept)] * 2 for i in range(6)]
    for _, _ in each_step(work, clear):
        now = [None if p.grad is None else p.grad.tolist() for p in params]
        assert now in (before, after)


@pytest.mark.parametrize("make", [nn.optim.SGD, nn.optim.Adam])
def test_a_step_of_an_optimizer(make):
    params = [krt.ones(2, requires_grad=True) for _ in range(4)]
    opt = make(params, lr=0.25)

    def everything():
        return {k: v.tolist() for k, v in opt.state_dict().items()}, [p.tolist() for p in params]

    def prepare():
        for p in params:
            p.assign(krt.ones(2))
            p.grad = krt.ones(2)
        nn.load_state_dict(opt, start)

    start = {k: v.numpy() for k, v in opt.state_dict().items()}
    prepare()
    before = everything()
    opt.step()
    after = everything()
    assert before != after
    for _, _ in each_step(opt.step, prepare):
        assert everything() in (before, after)


def test_epochs_in_one_call():
    count, twice = krt.zeros((), dtype="int64"), krt.zeros(2)

    @krt.jit
    def f(x):
        count.assign(count + 1)
        twice.assign(twice + 2)
        return x.sum()

    def work():
        f.over(X, batch_size=1, epochs=2, shuffle=True, seed=0, every=2, callback=lambda k, r: r[0])

    hits, done = 0, count.item()
    for _, hit in each_step(work):
        hits += hit
        now = count.item()
        assert 0 <= now - done <= 4 * RUNS
        assert twice.tolist() == [2 * now] * 2
        done = now
    assert hits
    assert f.over(X, batch_size=1).tolist() == X.sum(1).tolist()
    assert count.item() == done + 2


class Held:
    def __init__(self):
        self.tensor, self.number = krt.ones(()), 0


def scanned(f):
    return krt.scan(lambda c, x: (c + f(x), None), krt.tensor(0.0), krt.arange(2.0))[0]


def chosen(f):
    return krt.cond(krt.tensor(1) > 0, f, lambda x: x, krt.tensor(1.0))


def mapped(f):
    return krt.vmap(f)(krt.arange(3.0))


def traced(f):
    return krt.jit(f)(np.ones(2, np.float32))


@pytest.mark.parametrize("call", [scanned, chosen, mapped, traced])
@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.cases(1)
def test_functions_that_are_called_once(call, refused):
    """No trace is left behind, and state that a function replaces is never a tensor of one."""

    def work(held):
        before = held.tensor

        def f(x):
            held.tensor = held.tensor + x
            if not refused:
                held.tensor = before
            return x * 2

        try:
            return call(f)
        except krt.JitError:
            assert refused
            return None

    hits = 0
    for held, hit in each_step(work, Held):
        hits += hit
        if not hit or call is not traced:
            assert held.tensor.item() == 1.0
        assert scanned(lambda x: x).item() == 1.0
    assert hits


def differentiated():
    krt.func.levels.called(len, ("",), {}, "f", False)


def taken_apart():
    tracing.result_of("f", lambda: None, (), {})


def outside_of_members():
    with VmapTrace(2, "different", krt.Tensor) as trace:
        trace._outside(lambda: len(""))


@pytest.mark.parametrize("work", [differentiated, taken_apart, outside_of_members])
def test_what_is_set_for_a_call_is_reset_at_once(work):
    """Not when the frames of the interrupt are freed, by which time it is something else."""

    def without_gradients():
        with krt.no_grad():
            work()

    krt.func.grad  # noqa: B018 - imports it
    for _, _ in each_step(without_gradients):
        assert not state.differentiating


def test_a_module_has_its_tensors_back():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    own = {k: id(t) for k, t in model.state_dict(keep_vars=True).items()}
    x = krt.tensor(X)
    other = {k: krt.zeros(t.shape) for k, t in model.state_dict().items()}
    for _, _ in each_step(lambda: krt.func.functional_call(model, other, x)):
        assert {k: id(t) for k, t in model.state_dict(keep_vars=True).items()} == own


def test_load_state_dict():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    old = {k: v.numpy() for k, v in model.state_dict().items()}
    new = {k: v + 1 for k, v in old.items()}
    lazy = {k: krt.tensor(v) * 1 for k, v in new.items()}
    f = krt.jit(model)
    results = [f(X).tolist() for _ in map(model.load_state_dict, (old, new))]
    for values in (new, lazy):
        for _, _ in each_step(
            lambda values=values: model.load_state_dict(values),
            lambda: (model.load_state_dict(old), None)[1],
        ):
            assert f(X).tolist() in results
            now = {k: v.tolist() for k, v in model.state_dict().items()}
            assert now in ({k: v.tolist() for k, v in d.items()} for d in (old, new))


def test_requires_grad():
    def work(w):
        w.requires_grad_()
        w.requires_grad_(False)
        w.requires_grad_()

    for w, _ in each_step(work, lambda: krt.ones(2)):
        if w.requires_grad:
            (w * 3).sum().backward()
            assert w.grad.tolist() == [3, 3]
        else:
            w.requires_grad_()
            (w * 3).sum().backward()
            assert w.grad.tolist() == [3, 3]


def test_a_held_gradient_moves_out_as_a_whole():
    w = krt.ones(2, requires_grad=True)

    @krt.jit
    def f(x):
        w.grad = None
        (w * x).sum().backward()

    def prepare():
        f(1.0)
        return w.grad

    for held, _ in each_step(lambda _: f(2.0), prepare):
        assert held.tolist() == (held * 1).tolist() == [1, 1]
        assert w.grad.tolist() in ([1, 1], [2, 2])


def test_the_number_of_threads():
    most = krt.get_num_threads()

    def work():
        with krt.num_threads(1):
            len("")

    for _, _ in each_step(work):
        assert krt.get_num_threads() == most

"""Assignment, lazy readers, and the trace that collects what a function does to state."""

from __future__ import annotations

import gc
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from support.reference import evaluate

import kernelrt as krt
from kernelrt.errors import IndexBoundsError, JitError, ShapeError
from kernelrt.tensor import Trace, state
from kernelrt.tensor.autograd import gradient_state
from kernelrt.tensor.eager import assign, plan_cache
from kernelrt.tensor.eager.plan_cache import PlanCache, plans
from kernelrt.tensor.eager.realize import before_writes


def test_assign_writes_in_place():
    a = np.array([1.0, 2.0], np.float32)
    x = krt.from_numpy(a)
    address = x.data_ptr()
    assert x.assign(x * 10) is x
    assert x.tolist() == [10, 20]
    assert x.data_ptr() == address
    assert a.tolist() == [10, 20]


def test_assign_broadcasts_and_converts():
    x = krt.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert x.assign(5).tolist() == [[5, 5], [5, 5]]
    assert x.assign(np.array([1.0, 2.0])).tolist() == [[1, 2], [1, 2]]
    assert x.assign(krt.tensor([[7], [8]])).tolist() == [[7, 7], [8, 8]]
    assert x.dtype is krt.float32
    assert x.zero_().tolist() == [[0, 0], [0, 0]]
    assert x.fill_(3).tolist() == [[3, 3], [3, 3]]


def test_results_are_values_and_views_follow():
    """What is computed of a tensor keeps the value it had when it was written down."""
    x = krt.tensor([1.0, 2.0])
    y = x * 2
    view = x.reshape(2, 1)
    copy = x.clone()
    x.assign(x + 100)
    z = x * 2
    x.assign(x + 100)
    assert y.tolist() == [2, 4]
    assert view.tolist() == [[201], [202]]
    assert copy.tolist() == [1, 2]
    assert z.tolist() == [202, 204]
    assert x.tolist() == [201, 202]


def test_an_overlapping_tensor_is_a_reader_too():
    a = np.arange(4.0)
    whole, part = krt.from_numpy(a), krt.from_numpy(a[1:3])
    y = whole * 1
    part.assign(part * 10)
    krt.realize()
    assert a.tolist() == [0, 10, 20, 3]
    assert y.tolist() == [0, 1, 2, 3]


def test_assignments_use_the_values_of_before():
    x, y = krt.tensor([1.0]), krt.tensor([2.0])
    old = x * 1
    x.assign(y)
    y.assign(old)
    assert (x.tolist(), y.tolist()) == ([2], [1])


def test_a_lazy_tensor_takes_the_new_value():
    x = krt.zeros(2) + 1
    x.assign(x + 1)
    assert x.tolist() == [2, 2]


def test_a_step_of_an_optimizer_is_one_plan():
    w = krt.tensor([1.0, 2.0], requires_grad=True)
    m = krt.zeros(2).realize()
    address = m.data_ptr()
    for _ in range(5):
        w.grad = None
        loss = (w * w).sum()
        loss.backward()
        m.assign(m * 0.5 + w.grad)
        w.assign(w - 0.1 * m)
        loss.item()
        assert not state.pending
    truth, moment = np.array([1.0, 2.0]), np.zeros(2)
    for _ in range(5):
        moment = moment * 0.5 + 2 * truth
        truth = truth - 0.1 * moment
    np.testing.assert_allclose(w.numpy(), truth, rtol=1e-5)
    assert m.data_ptr() == address


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3)])
@pytest.mark.parametrize("same", [
    lambda x: x, lambda x: x.reshape(-1).reshape(x.shape), lambda x: x.detach(),
    lambda x: x.unsqueeze(0).squeeze(0),
])  # fmt: skip
def test_an_assignment_that_changes_nothing_comes_to_an_end(same, shape):
    """Later ones to the same memory are not undone by it."""
    x = krt.tensor(np.zeros(shape))
    x.assign(same(x))
    assert x.tolist() == np.zeros(shape).tolist()
    assert not state.pending
    for number in 1, 2:
        x.assign(same(x))
        x[...] = number
        assert x.tolist() == np.full(shape, number).tolist()
    if shape:
        x.assign(same(x))
        x[-1:] = 7
        assert x[-1:].tolist() == np.full((1, *shape[1:]), 7).tolist()
    memory = np.zeros(4)
    y, z = krt.from_numpy(memory[:3]), krt.from_numpy(memory[1:])
    y.assign(same(y))
    z.assign(z + 1)
    y.assign(same(y))
    krt.realize()
    assert memory.tolist() == [0, 1, 1, 1]


def test_read_only_memory_is_not_assigned_to():
    a = np.zeros(3, np.float32)
    a.flags.writeable = False
    x = krt.from_numpy(a)
    assert (x + 1).tolist() == [1, 1, 1]
    with pytest.raises(ShapeError, match="read-only"):
        x.assign(1)


def test_a_run_that_fails_leaves_state_as_it_was():
    w = krt.tensor([1.0, 2.0, 3.0])
    index = krt.tensor([5])
    w.assign(w + w[index])
    with pytest.raises(IndexBoundsError):
        w.numpy()
    assert w.tolist() == [1, 2, 3]
    w.assign(w + 1)
    assert w.tolist() == [2, 3, 4]


def test_prepare_reads_leaves_in_place():
    a = np.array([1.0, 2.0], np.float32)
    x = krt.from_numpy(a)
    plan = krt.prepare(x * 2, x.sum())
    plan.execute()
    assert [b.numpy().tolist() for b in plan.output_buffers] == [[2, 4], [3]]
    a[:] = 10
    plan.execute()
    assert plan.output_buffers[0].numpy().tolist() == [20, 20]


def test_prepare_commits_what_is_assigned():
    w = krt.tensor([1.0])
    loss = (w * w).sum()
    w.assign(w * 2)
    plan = krt.prepare(loss, w)
    assert plan.output_buffers[1].address == w.data_ptr()
    for _ in range(3):
        plan.execute()
    assert plan.output_buffer.numpy().tolist() == [16]
    assert w.tolist() == [8]


def test_before_writes_computes_the_readers():
    x = krt.tensor([1.0, 2.0])
    y = x * 2
    before_writes([x._buffer])
    assert y.is_realized
    x._buffer.numpy()[:] = 9
    assert y.tolist() == [2, 4]


def test_dead_tensors_leave_no_trace():
    gc.collect()
    before = (len(state.watched), len(state.leaves))
    for _ in range(10):
        x = krt.ones(3, requires_grad=True)
        (x * 2).sum().realize()
        del x
    gc.collect()
    assert (len(state.watched), len(state.leaves)) == before


def test_threads_do_not_disturb_each_other():
    def work(seed):
        rng = np.random.default_rng(seed)
        w = krt.tensor(rng.standard_normal((4, 4)), requires_grad=True)
        truth = w.numpy()
        for _ in range(10):
            a = rng.standard_normal((3, 4))
            w.grad = None
            loss = (krt.tensor(a) @ w).tanh().square().sum()
            loss.backward()
            w.assign(w - 0.1 * w.grad)
            h = np.tanh(a @ truth)
            np.testing.assert_allclose(loss.item(), (h * h).sum(), rtol=1e-10)
            truth = truth - 0.1 * a.T @ (2 * h * (1 - h * h))
        np.testing.assert_allclose(w.numpy(), truth, rtol=1e-8)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


# ---- the cache of plans


def test_a_repeated_graph_finds_its_plan_again():
    plans.clear()
    hits, misses = plans.hits, plans.misses
    for i in range(4):
        x = krt.tensor(np.full((3, 7), float(i)))
        assert ((x * 2 + 1).sum()).item() == 21 * (2 * i + 1)
    assert (plans.hits - hits, plans.misses - misses) == (3, 1)


def test_a_graph_that_comes_to_its_operand():
    """What simplifies to a buffer is copied from the one that each run is given."""
    for i in range(3):
        x = krt.tensor([float(i), 1.0])
        y = x * 1
        z = (x + 0).realize()
        x.assign(x + 10)
        assert z.tolist() == y.tolist() == [i, 1]
        assert x.tolist() == [i + 10, 11]


def test_other_sharing_is_another_plan():
    x, y = krt.tensor([1.0, 2.0]), krt.tensor([3.0, 4.0])
    assert (x * y).tolist() == [3, 8]
    assert (x * x).tolist() == [1, 4]
    assert (y * x).tolist() == [3, 8]


def test_the_cache_is_bounded(monkeypatch):
    small = PlanCache(most_plans=2)
    monkeypatch.setattr(plan_cache, "plans", small)
    for n in range(1, 6):
        assert (krt.tensor(np.ones(n)) + 1).sum().item() == 2 * n
    assert len(small) == 2


STATM = Path("/proc/self/statm")


def resident() -> int:
    return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(not STATM.exists(), reason="needs Linux")
def test_large_plans_stay_and_give_their_memory_back(monkeypatch):
    cache = PlanCache(most_bytes=1 << 20)
    monkeypatch.setattr(plan_cache, "plans", cache)
    n = 1 << 22
    x = krt.tensor(np.ones(n, np.float32))

    def work(factor):
        # The order of the elements changes in between, so what was computed is stored.
        y = (x.reshape(2, -1) * factor).contiguous().T.contiguous()
        return (y.reshape(2, -1) + 1).contiguous().sum(1)

    x.sum().item()
    before = resident()
    first = [work(2.0).tolist(), (work(3.0) * 2).tolist()]
    misses = cache.misses
    for _ in range(4):
        assert [work(2.0).tolist(), (work(3.0) * 2).tolist()] == first
    assert cache.misses == misses
    sizes = [memory.nbytes for memory in cache._large.values()]
    assert sum(sizes) > 8 * n
    assert resident() - before < sum(sizes) - 2 * n, sizes


def test_memory_of_a_plan_that_runs_is_not_discarded(monkeypatch):
    """A function that a plan calls computes without jit itself."""
    monkeypatch.setattr(plan_cache, "plans", PlanCache(most_bytes=1 << 20))
    n = 1 << 20
    x, z = krt.tensor(np.arange(n, dtype=np.float32)), krt.tensor(np.ones(n, np.float32))
    nested = []

    def call(a):
        if nested:
            y = (z.reshape(2, -1) * 5).contiguous().T.contiguous()
            nested.append((y.reshape(2, -1) + 1).contiguous().sum(1).tolist())
        return a * 2

    def work():
        y = (x.reshape(2, -1) * 3).contiguous()  # lies in the arena while the function is called
        called = krt.call(call, y.sum(1), out=((2,), krt.float32))
        turned = (y * called.reshape(2, 1) * 1e-12).contiguous().T.contiguous()
        return (turned.reshape(2, -1).sum(1) + y.sum(1)).tolist()

    want = work()
    nested.append([])
    assert work() == want
    assert nested[1] == [6 * n / 2] * 2


def test_a_plan_does_not_keep_large_data_alive(monkeypatch):
    cache = PlanCache(most_given=1 << 20)
    monkeypatch.setattr(plan_cache, "plans", cache)
    kept = []
    for k in range(3):
        x = krt.tensor(np.ones((k + 1) << 20, np.float32))
        assert (x * 2).sum().item() == (k + 1) << 21
        kept.append(weakref.ref(x._memory.storage))
    del x
    assert sum(ref() is not None for ref in kept) <= 1


# ---- traces


def test_a_trace_collects_assignments():
    w, x = krt.tensor([1.0, 2.0]), krt.tensor([10.0, 20.0])
    with Trace() as trace:
        w.assign(w + x)
        y = w * 2
        w.assign(w + 1)
        out, commits = y.uop, trace.commits()
        assert trace.assigned == (w,)
    assert w.tolist() == [1, 2]
    [(storage, value)] = commits
    assert storage.arg is w._buffer
    got = evaluate([out, value])
    assert [g.tolist() for g in got] == [[22, 44], [12, 23]]


def test_an_assignment_that_changes_nothing_is_no_commit():
    w = krt.tensor([1.0])
    with Trace() as trace:
        w.assign(w + 0)
        w.assign(w * 1)
        assert len(trace.commits()) == 1
    with Trace() as trace:
        w.assign(w)
        assert trace.commits() == []


def test_nothing_is_read_within_a_trace():
    x = krt.tensor([1.0])
    actions = (
        x.numpy, x.item, x.tolist, x.realize, lambda: bool(x), lambda: float(x),
        lambda: krt.prepare(x), lambda: np.asarray(x), lambda: krt.manual_seed(0), x.data_ptr,
    )  # fmt: skip
    for action in actions:
        with Trace(), pytest.raises(JitError):
            action()
    with Trace():
        assert "traced" in repr(x + 1)
    with Trace(), pytest.raises(JitError, match="already"), Trace():
        pass


def test_a_failed_trace_leaves_nothing_behind():
    w = krt.tensor([1.0, 2.0], requires_grad=True)
    w.grad = krt.tensor([5.0, 5.0])
    held = w.grad
    def step():
        with Trace():
            w.grad = None
            (w * w).sum().backward()
            w.assign(w - w.grad)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        step()
    assert w.grad is held
    assert w.tolist() == [1, 2]
    assert not state.pending
    assert state.local.trace is None


def test_gradients_made_within_a_trace_stay_there():
    w = krt.tensor([1.0, 2.0], requires_grad=True)
    with Trace():
        (w * w).sum().backward()
        assert w.grad is not None
    assert w.grad is None
    w.grad = krt.tensor([1.0, 1.0])
    held = w.grad
    with Trace() as trace:
        (w * w).sum().backward()
        [effect], made = trace.effects("f", [], keep=False)
        [(storage, value)] = trace.commits()
    assert w.grad is held
    assert (effect.reads, effect.made, made) == ("there", False, [])
    assert storage.arg is effect.changed is gradient_state.home_of(w).buffer
    gradient_state.before_run([effect])
    assert evaluate([value])[0].tolist() == [3, 5]


def test_what_a_trace_reaches_from_outside_is_computed_once():
    scale = krt.zeros(2) + 3
    with Trace():
        y = scale * 2
        assert scale.is_realized
        assert not y.is_realized
        [value] = evaluate([y.uop])
    assert value.tolist() == [6, 6]
    with pytest.raises(JitError, match="return it from the function"):
        y.numpy()


def test_lazy_state_becomes_storage_when_a_trace_assigns_to_it():
    m = krt.zeros(2)
    with Trace() as trace:
        m.assign(m * 0.5 + 1)
        [(storage, _)] = trace.commits()
    assert storage.arg is m._buffer
    assert m.tolist() == [0, 0]


def test_tensors_that_die_in_a_cycle_leave_the_registers():
    class Node:
        pass

    gc.collect()
    before = len(state.watched)
    for _ in range(50):
        node = Node()
        node.me, node.tensor = node, krt.zeros(3) + 1
        # Only the collector ends these, and it clears their fields before they are freed.
        node.tensor._leaf = node
        del node
    gc.collect()
    assert len(state.watched) == before
    assert all(isinstance(t, krt.Tensor) for t in state.watched.members())


@pytest.mark.parametrize("pending", [False, True])
def test_a_tensor_that_is_computed_while_it_is_read_still_has_a_node(
    monkeypatch: pytest.MonkeyPatch, pending: bool
):
    """Threads and finalizers compute tensors at any moment, and then take their nodes away."""
    y = krt.ones(3) + 1
    other = krt.zeros(3)
    if pending:
        other.assign(other + 1)
    enter = krt.Tensor._enter
    runs: list[int] = []

    def enter_and_compute(tensor: krt.Tensor) -> None:
        enter(tensor)
        if tensor is y and not runs:
            runs.append(1)
            y.realize()

    monkeypatch.setattr(krt.Tensor, "_enter", enter_and_compute)
    node = y._live_node()  # operations find it in C, if nothing is in the way
    assert runs
    assert (krt.Tensor._of(node) * 2).tolist() == [4, 4, 4]
    assert other.tolist() == [pending] * 3


@pytest.mark.parametrize("assigned", [
    lambda x, b: x.copy_(b), lambda x, b: x.fill_(2.0), lambda x, b: x.add_(b),
    lambda x, b: x.zero_(), lambda x, b: krt.Tensor.__setitem__(x, x > 2, 0.0),
])  # fmt: skip
def test_a_target_that_is_computed_while_it_is_assigned_to(monkeypatch, assigned):
    """As by another thread, which waited for the lock: then it has memory and no node."""
    want = krt.tensor([2.0, 4.0, 6.0])
    b = krt.tensor([5.0, 6.0, 7.0]).realize()
    assigned(want, b)
    x = krt.tensor([1.0, 2.0, 3.0]) * 2
    settle, runs = assign.settle, []

    def computed_first(*args):
        if not runs:
            runs.append(1)
            x.realize()
        return settle(*args)

    monkeypatch.setattr(assign, "settle", computed_first)
    assigned(x, b)
    assert x.tolist() == want.tolist()
    assert runs

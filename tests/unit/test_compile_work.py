"""Work that preparing a program takes: counted, so that it does not depend on the machine."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt import nn
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.backend.llvm.emitter import Emitter
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op, UOp, const
from kernelrt.loops.passes import prefetch
from kernelrt.schedule.fuse import index_maps
from kernelrt.schedule.fuse.fusion_groups import Group
from kernelrt.schedule.kernels.canonical_form import Forms
from kernelrt.schedule.memory import arena
from kernelrt.tensor.autograd import tags


def distinct_kernels(plan):
    return {op.kernel.ast for op in plan.prepared_ops if hasattr(op, "kernel")}


def training(steps):
    """Each step reads a batch of its own from one large argument."""
    krt.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    opt = nn.optim.SGD(model.parameters(), lr=0.01)

    @krt.jit
    def train(x, y):
        for i in range(steps):
            opt.zero_grad()
            loss = (model(x[i]) - y[i]).square().mean()
            loss.backward()
            opt.step()
        return loss

    return train


def test_steps_over_slices_of_an_argument_share_their_kernels():
    found = []
    for steps in (6, 18):
        x = np.zeros((steps, 32, 8), np.float32)
        y = np.zeros((steps, 32, 1), np.float32)
        found.append(len(distinct_kernels(training(steps).plan(x, y))))
    assert found[0] == found[1]


def adam(steps):
    """Each step reads all of one argument, which does not fit the first cache."""
    krt.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    opt = nn.optim.Adam(model.parameters(), lr=0.01)

    @krt.jit
    def train(x):
        for _ in range(steps):
            opt.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            opt.step()
        return loss

    return train


@pytest.mark.cases(1 / 4)
def test_unrolled_steps_are_brought_into_form_once(monkeypatch):
    made = []
    make = Forms._made

    def count(*args):
        made.append(None)
        return make(*args)

    monkeypatch.setattr(Forms, "_made", count)
    found = []
    for steps in (8, 32):
        train = adam(steps)
        made.clear()
        train.plan(np.zeros((1024, 8), np.float32))
        found.append(len(made))
    assert 0 < found[0] == found[1]


def test_unrolled_steps_ask_the_same_about_their_indices(monkeypatch):
    asked = []
    simplify = index_maps.rewrite

    def count(roots, *rest):
        asked.append(None)
        return simplify(roots, *rest)

    monkeypatch.setattr(index_maps, "rewrite", count)
    found = []
    for steps in (8, 32):
        train = adam(steps)
        asked.clear()
        train.plan(np.zeros((1024, 8), np.float32))
        found.append(len(asked))
    assert 0 < found[0] == found[1]


def rows_of_a_loop(steps):
    """Each step assigns to a row what it makes of others, as advantages of an episode."""

    @krt.jit
    def advantages(rewards, values):
        out = krt.zeros_like(rewards)
        last = krt.zeros(rewards.shape[1])
        for t in reversed(range(steps - 1)):
            delta = rewards[t] + 0.99 * values[t + 1] - values[t]
            out[t] = last = delta + 0.9 * last
            out[t] += 0.5 * out[t + 1]
        return out

    return advantages, [np.zeros((steps, 4), np.float32)] * 2


@pytest.mark.cases(1 / 4)
def test_a_loop_over_rows_looks_at_its_graph_once(monkeypatch):
    looked = Counter()
    below, choose = tags.gradient_operands, Emitter.write

    def count_nodes(node):
        looked["nodes"] += 1
        return below(node)

    def count_kernels(*args):
        looked["kernels"] += 1
        return choose(*args)

    monkeypatch.setattr(tags, "gradient_operands", count_nodes)
    monkeypatch.setattr(Emitter, "write", count_kernels)
    found = []
    for steps in (64, 128, 256):
        looked.clear()
        advantages, arrays = rows_of_a_loop(steps)
        advantages.plan(*arrays)
        found.append(dict(looked))
    for what in found[0]:
        assert found[2][what] - found[1][what] < 3 * (found[1][what] - found[0][what]), what
    assert found[2]["kernels"] < 256 // 8


def test_a_kernel_of_many_stores_computes_each_value_once(monkeypatch):
    looked = []
    at_point = Emitter._at_point

    def count(*args):
        looked.append(None)
        return at_point(*args)

    monkeypatch.setattr(Emitter, "_at_point", count)
    found = []
    for steps in (20, 80):
        x = UOp(Op.PARAM, dt.float32, (), (steps, 64))
        i = UOp(Op.RANGE, dt.int64, (const(64, dt.int64),), 0)
        value, stores = UOp(Op.LOAD, dt.float32, (x, i)), []
        for k in range(steps):
            value = value * value + value
            param = UOp(Op.PARAM, dt.float32, (), (k, 64))
            stores.append(UOp(Op.STORE, dt.float32, (param, i, value)))
        looked.clear()
        LLVMRenderer(DeviceSpec.avx2()).render(UOp(Op.SINK, dt.float32, tuple(stores)))
        found.append(len(looked))
    assert 0 < found[1] < 6 * found[0]


@pytest.mark.exhaustive
def test_searches_for_places_and_for_orders_grow_with_the_steps(monkeypatch):
    looked = Counter()
    fit, now = arena._fit, Group.now

    def count_fit(size, idle, *rest):
        looked["idle bytes"] += len(idle)
        return fit(size, idle, *rest)

    def count_now(group):
        looked["groups"] += 1
        return now(group)

    monkeypatch.setattr(arena, "_fit", count_fit)
    monkeypatch.setattr(Group, "now", count_now)
    found = []
    for steps in (64, 128):
        train = adam(steps)
        looked.clear()
        train.plan(np.zeros((1024, 8), np.float32))
        found.append(dict(looked))
    assert found[0].keys() == {"idle bytes", "groups"}
    for what, count in found[1].items():
        assert count < 2.3 * found[0][what], what


def test_slices_of_arguments_follow_the_caller_s_memory():
    @krt.jit
    def f(x):
        return sum((x[i] * (i + 1)).sum(-1) for i in range(5)) + x[2:4].sum() + x[4].flip(0).sum()

    for seed in range(3):
        x = np.random.default_rng(seed).integers(-9, 9, (5, 64, 8)).astype(np.float32)
        wanted = sum(x[i].sum(-1) * (i + 1) for i in range(5)) + x[2:4].sum() + x[4].sum()
        np.testing.assert_array_equal(f(x).numpy(), wanted)


def test_slices_of_state_are_read_before_it_is_written():
    state = krt.tensor(np.arange(4096, dtype=np.float32).reshape(8, 512))
    expected = state.numpy().copy()

    @krt.jit
    def rotate():
        first, rest = state[:1] * 2, state[1:] + state[:-1]
        state.assign(krt.cat([rest, first], 0))

    for _ in range(3):
        rotate()
        expected = np.concatenate([expected[1:] + expected[:-1], expected[:1] * 2])
        np.testing.assert_array_equal(state.numpy(), expected)


def test_lines_to_prefetch_are_counted_before_they_are_made(monkeypatch):
    made = Counter()
    real = prefetch.simplify

    def counted(index):
        made["lines"] += 1
        return real(index)

    monkeypatch.setattr(prefetch, "simplify", counted)

    def gradient(a):
        x = a.clone().requires_grad_()
        return krt.grad(nn.functional.conv2d(x, x).square().sum(), x)

    krt.jit(gradient).plan(krt.rand(8, 8, 65, 23))
    assert made["lines"] < 1000

"""Words about speed: once, with the line, and only where they help."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.tensor.eager import diagnostics, plan_cache


@pytest.fixture(autouse=True)
def _sooner(monkeypatch):
    monkeypatch.setattr(diagnostics, "EVERY", 4)
    monkeypatch.setattr(diagnostics, "TIMES", 2)
    monkeypatch.setattr(diagnostics, "MOST_COMPILED", 6)
    monkeypatch.setattr(diagnostics, "_told", set())
    monkeypatch.setattr(diagnostics, "_compiled", {})
    monkeypatch.setattr(diagnostics, "_due", [])
    monkeypatch.setattr(diagnostics, "_widened", set())


def network():
    layer = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    return layer, nn.optim.SGD(nn.parameters(layer), 0.1), krt.randn(4, 3).realize()


def warned(run, kind=krt.EagerLoopWarning) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run()
    return [w for w in found if w.category is kind]


def test_a_training_loop_is_told_its_line_once():
    layer, opt, x = network()
    line = 0

    def train():
        nonlocal line
        for _ in range(60):
            opt.zero_grad()
            loss = layer(x).square().mean()
            line = loss.backward.__self__ is loss and here_plus_one()
            loss.backward()
            opt.step()

    def here_plus_one() -> int:
        import sys

        return sys._getframe(1).f_lineno + 1

    found = warned(train)
    assert [(w.filename, w.lineno) for w in found] == [(__file__, line)]
    assert "@kernelrt.jit" in str(found[0].message)
    assert not warned(train)


def test_jitted_loops_and_small_things_are_not_told():
    layer, opt, x = network()

    @krt.jit
    def step(x):
        opt.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        opt.step()
        return loss

    def loops():
        total = 0.0
        for _ in range(60):
            total = (step(x) * 2 + total).item()
        for i in range(60):
            (krt.tensor(np.full(3, float(i))) + 1).sum().item()

    assert not warned(loops)


def test_a_graph_that_many_lines_share_is_not_told():
    a = krt.tensor(np.ones(3)).realize()

    def deep(t):
        for _ in range(8):
            t = (t * 2 + 1).tanh()
        return t

    def lines():
        for _ in range(20):
            deep(a).sum().item()
            deep(a).sum().item()
            deep(a).sum().item()

    assert not warned(lines)


@pytest.mark.cases(1 / 4)
def test_a_line_that_compiles_again_and_again_is_told_once():
    x = krt.tensor(np.linspace(-1, 1, 3)).realize()

    def grow():
        for k in range(diagnostics.MOST_COMPILED + 3):
            y = x
            for bit in f"{k + 64:b}":
                y = y.sin() if bit == "1" else y.cos()
            y.sum().item()

    def read():
        for _ in range(diagnostics.MOST_COMPILED + 3):
            (x.sin().cos().tanh() * 2).sum().item()

    def write():
        for k in range(diagnostics.MOST_COMPILED + 3):
            y, rows = x, krt.zeros(3).realize()
            for bit in f"{k + 64:b}":
                y = y.sin() if bit == "1" else y.exp()
            rows[0] = y.sum()
            rows.tolist()

    [found] = warned(write)
    told = f"has compiled {diagnostics.MOST_COMPILED} different graphs without jit, in [0-9.e-]+ s"
    assert re.search(told, str(found.message))
    [found] = warned(grow)
    assert found.filename == __file__
    told = f"has compiled {diagnostics.MOST_COMPILED} different graphs without jit, in [0-9.e-]+ s"
    assert re.search(told, str(found.message))
    plan_cache.plans.clear()
    assert not warned(grow)
    assert not warned(read)


def chain(w):
    for _ in range(8):
        w = (w * 2).tanh() + 1
    return w


def assigned(w, heard):
    w.assign(chain(w) + 0.5)


def trained(w, heard):
    w.grad = None
    heard((chain(w) + 0.5).sum().backward)
    w.assign(w - w.grad.tanh())


def rows(w, heard):
    heard(lambda: w.__setitem__(0, chain(w[1]) + 0.5))
    heard(lambda: w.__setitem__(1, w[0] * 0.5))


READS = {
    "numpy": lambda w: w.numpy(),
    "tolist": lambda w: w.detach().tolist(),
    "realize": lambda w: krt.realize(chain(w)),
    "backward": lambda w: (chain(krt.ones(3, requires_grad=True)) * w).sum().backward(),
}


@pytest.mark.parametrize("step", [assigned, trained, rows])
@pytest.mark.parametrize("read", READS)
def test_warnings_that_are_errors_undo_nothing(step, read):
    raised = 0

    def heard(run):
        nonlocal raised
        try:
            run()
        except krt.EagerLoopWarning:
            raised += 1

    def train() -> list[float]:
        w = krt.tensor(np.linspace(-1, 1, 3), requires_grad=step is trained).realize()
        for _ in range(60):
            step(w, heard)
            heard(lambda: READS[read](w.detach()))
        return w.tolist()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = train()
        assert not raised
        warnings.simplefilter("error", krt.EagerLoopWarning)
        diagnostics._told.clear()
        assert train() == want
        assert raised


def test_a_warning_while_a_plan_is_made_leaves_assignments_to_be_done(monkeypatch):
    w = krt.tensor(np.ones(3))
    w.assign(w * 2)

    def told(*_):
        raise RuntimeWarning("of the folder that kernels are kept in")

    plan_cache.plans.clear()
    with monkeypatch.context() as context:
        context.setattr(plan_cache, "make_entry", told)
        with pytest.raises(RuntimeWarning):
            w.numpy()
    assert w.tolist() == [2, 2, 2]


LAYERS = {
    "Linear": (lambda: nn.Linear(3, 2), (4, 3)),
    "Sequential.0": (lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)), (4, 3)),
    "Conv2d": (lambda: nn.Conv2d(1, 2, 2), (1, 1, 3, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_float64_features_are_told_once_a_line(name):
    make, shape = LAYERS[name]
    layer, x = make(), np.ones(shape)

    def run():
        for _ in range(3):
            assert layer(krt.tensor(x)).dtype is krt.float64

    [warning] = warned(run, krt.KernelrtWarning)
    assert str(warning.message).startswith(f"{name}: features of shape {shape} are float64")
    assert warning.filename == __file__
    assert not warned(run, krt.KernelrtWarning)


@pytest.mark.parametrize("name", LAYERS)
def test_where_nothing_becomes_wider_by_accident_nothing_is_told(name):
    make, shape = LAYERS[name]
    layer, x = make(), np.ones(shape)

    def run():
        layer(krt.tensor(x).float()).sum().item()
        (krt.tensor(x) * krt.tensor(x).float()).sum().item()  # data beside data
        krt.ones(2, 3, dtype="float64").matmul(krt.ones(3, 2)).sum().item()
        krt.ones(2, 3, dtype="float64", requires_grad=True).matmul(krt.ones(3, 2)).sum().item()

    assert not warned(run, krt.KernelrtWarning)

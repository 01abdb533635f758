"""krt.disable_jit and KERNELRT_JIT=0: the same functions step by step, with values."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.func.trees import leaves_of
from kernelrt.util import environment


def values(tree):
    return [t.tolist() if isinstance(t, krt.Tensor) else t for t in leaves_of(tree)]


def test_values_can_be_looked_at():
    @krt.jit
    def relu(x):
        return x if x.sum().item() > 0 else x * 0

    with pytest.raises(krt.JitError, match=r"krt|kernelrt\.disable_jit\(\), or set KERNELRT_JIT=0"):
        relu(np.ones(2, np.float32))
    with krt.disable_jit():
        assert relu(np.ones(2, np.float32)).tolist() == [1, 1]
        assert relu(-np.ones(2, np.float32)).tolist() == [0, 0]
    assert relu.plans == ()


def test_arguments_are_what_a_traced_function_sees():
    seen = []

    @krt.jit
    def f(x, k, n, *, options):
        seen.append((x.dtype, isinstance(x, krt.Tensor), n, options["name"]))
        return {"y": x * k, "z": [k.exp() * 0 + n, n]}

    given = {"name": "a", "t": np.float32(2)}
    plain = f(np.ones(2, np.float32), 2.0, 3, options=given)
    with krt.disable_jit():
        result = f(np.ones(2, np.float32), 2.0, 3, options=given)
    assert seen[0] == seen[1]
    assert values(result) == values(plain)
    assert [t.dtype for t in (result["y"], plain["y"])] == [krt.float32] * 2
    with krt.disable_jit(), pytest.raises(krt.JitError, match="options"):
        f(np.ones(2), 2.0, 3, options={"name": object()})
    with krt.disable_jit(), pytest.raises(krt.JitError, match="returns an object"):
        krt.jit(lambda x: object())(np.ones(2))


def test_arguments_stay_as_they_are_and_results_do():
    x, state = krt.tensor([1.0, 2.0]), krt.tensor([5.0])

    @krt.jit
    def f(x):
        y = x * 1
        y.mul_(3)
        return y, state

    with krt.disable_jit():
        y, before = f(x)
    state.assign(state * 2)
    assert (x.tolist(), y.tolist(), before.tolist()) == ([1, 2], [3, 6], [5])


@pytest.mark.parametrize("mode", [True, False])
def test_assigning_to_an_argument_is_an_error(mode):
    def add(x):
        x += 1
        return x

    def of_item(x):
        x["a"][0] = 5
        return x["a"] * 2

    def number(x):
        before = x
        x += 1
        return before, x, x * krt.ones(1)

    x = krt.zeros(2)
    with krt.disable_jit(mode):
        for f, given, path in ((add, x, "x"), (of_item, {"a": x}, r"x\['a'\]")):
            with pytest.raises(krt.JitError, match=rf"^{path}: {f.__name__} assigns to its arg"):
                krt.jit(f)(given)
        found = krt.jit(number)(2.0)
        assert [t.tolist() for t in found] == [2, 3, [3]]
        assert found[2].dtype is krt.float32
        # What a jitted function calls is part of it.
        assert krt.jit(lambda x: krt.jit(add)(x * 1))(x).tolist() == [1, 1]
    assert x.tolist() == [0, 0]


@pytest.mark.parametrize("mode", [True, False])
def test_results_have_no_history(mode):
    w, fixed = krt.tensor([1.0, 2.0], requires_grad=True), krt.ones(2)
    with krt.disable_jit(mode):
        loss, y, plain = krt.jit(lambda x: ((w * x).sum(), w, fixed * x))(fixed)
        inside = krt.jit(lambda x: krt.jit(lambda x: w * x)(x).sum().backward())
        inside(fixed)
    assert [t.requires_grad for t in (loss, y, plain)] == [False] * 3
    assert w.grad.tolist() == [1, 1]
    with pytest.raises(krt.GradientError, match="an output of the jitted function <lambda>"):
        (loss * krt.tensor(2.0, requires_grad=True)).backward()


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("mode", [True, False])
def test_a_call_that_raises_leaves_state_as_it_was(mode, first):
    krt.manual_seed(1)
    net, seen, generator = nn.BatchNorm1d(2), krt.zeros(1), krt.Generator()
    opt = nn.optim.Adam(net.parameters(), lr=0.1)

    @krt.jit
    def step(x, fail):
        seen.add_(1)
        out = net(x + krt.rand(4, 2) + krt.rand(4, 2, generator=generator))
        out.square().sum().backward()
        if fail != "early":
            opt.step()
        if fail:
            raise ValueError(fail)
        return out

    def state():
        values = {**net.state_dict(), **opt.state_dict(), "seen": seen, "rng": krt.get_rng_state(),
                  "generator": generator.get_state()}  # fmt: skip
        grads = [p.grad if p.grad is None else p.grad.tolist() for p in net.parameters()]
        return {name: value.tolist() for name, value in values.items()}, grads

    with krt.disable_jit(mode):
        if not first:
            step(krt.ones(4, 2), "")
        before, held = state(), [p.grad for p in net.parameters()]
        for fail in ("early", "late"):
            with pytest.raises(ValueError, match=fail):
                step(krt.ones(4, 2), fail)
            assert state() == before
            assert all(p.grad is g for p, g in zip(net.parameters(), held, strict=True))
        with pytest.raises(krt.JitError, match="returns a set"):
            krt.jit(lambda: ({1}, seen.add_(1)))()
        assert state() == before


def test_training_is_as_with_jit():
    def train(mode):
        krt.manual_seed(3)
        net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
        opt = nn.optim.AdamW(net.parameters(), lr=0.05)
        schedule = nn.optim.lr_scheduler.StepLR(opt, 2)

        @krt.jit
        def step(x, y):
            opt.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            return loss

        x = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
        losses = []
        with mode:
            for _ in range(4):
                losses.append(step(x, x.sum(1, keepdims=True)).item())
                schedule.step()
        return losses, [t.tolist() for t in net.state_dict().values()]

    for one, other in zip(train(krt.disable_jit()), train(krt.disable_jit(False)), strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6)


COUNT = krt.zeros(())


def scan(x):
    def body(c, t):
        COUNT.assign(COUNT + 1)
        return c * 2 + t, {"y": c.sum()}

    return krt.scan(body, x, krt.arange(4.0), reverse=True)


def gradient_of_scan(x):
    x = x.detach().requires_grad_()
    krt.scan(lambda c, t: (c * t, c), x, krt.arange(1.0, 4.0))[0].sum().backward()
    return x.grad


def vmap(x):
    def member(a, b):
        COUNT.assign(COUNT + 1)
        return (a * b).sum(), {"k": a, "n": None}

    axes = (0, {"k": 1, "n": None})
    return krt.vmap(member, in_axes=(0, None), out_axes=axes)(krt.stack([x, x * 2, x * 3]), x)


def vmap_that_assigns(x):
    sums = krt.stack([x, x * 2, x * 3])

    def member(total, row):
        total.add_(row)
        return total * 2

    return krt.vmap(member)(sums, krt.stack([x, x, x])), sums


FUNCTIONS = {
    "scan": scan,
    "scan of nothing": lambda x: krt.scan(lambda c, t: (c + t, c), x, krt.zeros(0)),
    "a gradient of a scan": gradient_of_scan,
    "fori_loop": lambda x: krt.fori_loop(krt.tensor(1), 5, lambda i, c: c + i, x),
    "fori_loop of nothing": lambda x: krt.fori_loop(3, 1, lambda i, c: c + i, x),
    "while_loop": lambda x: krt.while_loop(
        lambda c: c["v"].sum() < 100.0, lambda c: {"v": c["v"] * 2, "n": c["n"] + 1},
        {"v": x, "n": 0},
    ),
    "while_loop, most": lambda x: krt.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x, 2),
    "cond": lambda x: krt.cond(x.sum() > 9, lambda a, b: [a * b], lambda a, b: [a], x, 2.0),
    "switch": lambda x: krt.switch(krt.tensor(7), [lambda a: a, lambda a: a + 1.0], x),
    "vmap": vmap,
    "vmap that assigns to arguments": vmap_that_assigns,
    "vmap of a gradient": lambda x: krt.vmap(krt.func.grad(lambda a: (a**3).sum()))(x[None]),
    "vmap with equal numbers": krt.vmap(
        lambda a: (a + krt.rand(1)).shape[0] * a, randomness="same"
    ),
}  # fmt: skip


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_bodies_come_to_the_same(name, jitted):
    f = krt.jit(FUNCTIONS[name]) if jitted else FUNCTIONS[name]
    counts = [COUNT.item()]
    expected = values(f(krt.tensor([1.0, 2.0])))
    counts.append(COUNT.item())
    with krt.disable_jit():
        assert values(f(krt.tensor([1.0, 2.0]))) == expected
    counts.append(COUNT.item())
    assert counts[2] - counts[1] == counts[1] - counts[0]


def test_bodies_have_values():
    seen = []

    def body(c, t):
        seen.append((c.item(), t.item()))
        return c + t, None

    with krt.disable_jit():
        krt.scan(body, krt.tensor(0.0), krt.arange(3.0))
        assert krt.while_loop(
            lambda c: c < 3, lambda c: c + (1 if c.item() < 1 else 5), krt.tensor(0)
        ).item() == 6  # fmt: skip
        members = krt.vmap(lambda a: a * 2 if a.sum().item() > 0 else a)
        assert members(krt.tensor([[1.0, 2], [-3, -4]])).tolist() == [[2, 4], [-3, -4]]
    assert seen == [(0, 0), (0, 1), (1, 2)]
    with pytest.raises(krt.JitError, match="disable_jit"):
        members(krt.tensor([[1.0, 2], [-3, -4]]))


def test_what_bodies_must_not_do_is_refused_all_the_same():
    own = krt.zeros(2)

    def keep(a):
        own.assign(a)
        return a

    with krt.disable_jit():
        with pytest.raises(krt.JitError, match="a value that differs between batch elements"):
            krt.vmap(keep)(krt.tensor([[1.0, 2], [3, 4]]))
        assert own.tolist() == [0, 0]
        with pytest.raises(krt.ShapeError, match="carry"):
            krt.scan(lambda c, t: (c[:1], t), krt.zeros(2), krt.zeros(2))
        with pytest.raises(krt.DTypeError, match="carry"):
            krt.fori_loop(0, 2, lambda i, c: i, krt.zeros(()))
        with pytest.raises(krt.DTypeError, match="cond"):
            krt.while_loop(lambda c: c.sum(), lambda c: c, krt.zeros(2))
        with pytest.raises(krt.JitError, match="set_grad_enabled"):
            krt.jit(lambda: krt.set_grad_enabled(False) and None)()
    with pytest.raises(krt.DTypeError, match="mode"):
        krt.disable_jit("no")


def test_it_belongs_to_a_thread_and_ends_with_its_block():
    f = krt.jit(lambda x: x * x.item() if not is_traced(x) else x)

    def is_traced(x):
        try:
            return x.item() is None
        except krt.JitError:
            return True

    x = krt.tensor(3.0)
    with krt.disable_jit():
        assert f(x).item() == 9
        found = []
        thread = threading.Thread(target=lambda: found.append(f(x).item()))
        thread.start()
        thread.join()
        assert found == [3]
        with krt.disable_jit(False):
            assert f(x).item() == 3
        assert krt.disable_jit(lambda: f(x).item())() == 9
    assert f(x).item() == 3
    krt.disable_jit(True)
    try:
        assert f(x).item() == 9
    finally:
        krt.disable_jit(False)
    assert f(x).item() == 3


def test_the_environment_says_how_threads_begin():
    code = (
        "import threading, kernelrt as krt\n"
        "f = krt.jit(lambda x: x if x.item() > 2 else -x)\n"
        "print(f(3.0).item(), f(1.0).item())\n"
        "t = threading.Thread(target=lambda: print(f(1.0).item())); t.start(); t.join()\n"
        "with krt.disable_jit(False):\n"
        "    try: f(3.0)\n"
        "    except krt.JitError: print('jit')\n"
    )

    def run(text, setting, name="KERNELRT_JIT"):
        env = {**os.environ, name: setting}
        return subprocess.run([sys.executable, "-c", text], env=env, text=True,
                              capture_output=True, check=True)  # fmt: skip

    assert run(code, "Off").stdout.split() == ["3.0", "-1.0", "-1.0", "jit"]
    for name in ("KERNELRT_JIT", "KERNELRT_INTERPRET"):
        told = run("import kernelrt", "never", name).stderr
        assert f"{name}: expected 0 or off, or 1 or on, not 'never'" in told


@pytest.mark.parametrize(("text", "means"), [
    ("", ""), ("  ", ""), ("0", "off"), ("OFF", "off"), (" no ", "off"), ("False", "off"),
    ("1", "on"), ("on", "on"), ("YES", "on"), ("true", "on"), ("Any", "any"), ("2", None),
])  # fmt: skip
def test_all_switches_of_the_environment_are_read_alike(text, means, monkeypatch):
    monkeypatch.setenv("KERNELRT_TUNED", text)
    assert environment.switch("KERNELRT_TUNED", "any") == means
    assert environment.switch("KERNELRT_TUNED") == (None if means == "any" else means)


def test_float_arguments_are_numbers_also_when_they_were_looked_at():
    @krt.jit
    def f(x, k, look):
        half = k / 2
        if look:
            half.item()
        return x * half, half, (x.double() * k).exp(), x.half() + k * k, -k

    plain = f(np.ones(2, np.float32), 0.3, False)
    with krt.disable_jit():
        found = f(np.ones(2, np.float32), 0.3, True)
    assert [t.dtype for t in found] == [t.dtype for t in plain]
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)

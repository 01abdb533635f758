"""krt.debug_nans in jitted functions: what made the first NaN or infinity, before state changes."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn


def ones(*shape):
    return np.ones(shape, np.float32)


class Net(nn.Module):
    def __init__(self):
        self.first, self.norm = nn.Linear(3, 4), nn.LayerNorm(4)
        self.second = nn.Linear(4, 2)

    def forward(self, x, scale):
        h = self.norm(self.first(x)).relu()
        return self.second(h) / scale


def line_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


@pytest.fixture
def trained():
    krt.manual_seed(0)
    net = Net()
    opt = nn.optim.Adam(net.parameters(), lr=0.01)

    @krt.jit
    def step(x, scale):
        opt.zero_grad()
        loss = net(x, scale).square().mean()
        loss.backward()
        opt.step()
        return loss

    return net, step


def test_operation_layer_line_and_kernel_are_named_and_state_stays(trained):
    net, step = trained
    with krt.debug_nans():
        assert step(ones(5, 3), 1.0).item() > 0
        before = [p.tolist() for p in net.parameters()]
        with pytest.raises(krt.NonFiniteError, match="Net truediv at test_nonfinite") as info:
            step(ones(5, 3), 0.0)
    error = info.value
    assert (error.layer, error.op, error.backward) == ("Net", "truediv", False)
    assert error.line == line_of(Net, "/ scale")
    assert error.kernel in {k.kernel.entry_point for p in step.plans for k in p.prepared_kernels}
    assert [p.tolist() for p in net.parameters()] == before
    assert step(ones(5, 3), 1.0).item() > 0


def test_calls_come_to_the_same_with_it(trained):
    net, step = trained
    state = {name: t.clone() for name, t in net.state_dict().items()}
    plain = [step(ones(5, 3), 2.0).item() for _ in range(3)]
    net.load_state_dict(state)
    krt.manual_seed(0)
    other = Net()
    opt = nn.optim.Adam(other.parameters(), lr=0.01)
    other.load_state_dict(state)

    @krt.jit
    def again(x, scale):
        opt.zero_grad()
        loss = other(x, scale).square().mean()
        loss.backward()
        opt.step()
        return loss

    with krt.debug_nans():
        assert [again(ones(5, 3), 2.0).item() for _ in range(3)] == plain
        assert again.retraces == 0


def test_inputs_are_named(trained):
    net, step = trained
    x = ones(5, 3)
    x[2, 1] = np.nan
    with krt.debug_nans():
        with pytest.raises(krt.NonFiniteError, match=r"^argument 'x' of step holds NaN: element 7"):
            step(x, 1.0)
        with krt.no_grad():
            net.second.bias.assign(krt.tensor([0.0, float("nan")]))
        with pytest.raises(krt.NonFiniteError, match=r"^net\.second\.bias holds NaN") as info:
            step(ones(5, 3), 1.0)
    assert info.value.input == "net.second.bias"
    assert (info.value.layer, info.value.op) == ("Net.second", "linear")


def test_gradients_and_functions_of_them():
    @krt.jit
    def slope(x):
        return krt.func.grad(lambda w: (w.sqrt() * 2).sum())(x)

    with krt.debug_nans(), pytest.raises(krt.NonFiniteError, match="grad of sqrt") as info:
        slope(np.array([1, 0], np.float32))
    assert info.value.backward


def test_gradients_that_are_collected():
    w = krt.tensor([1.0, 2.0], requires_grad=True)

    @krt.jit(keep_grads=True)
    def add(x):
        (w * x).sum().backward()

    with krt.debug_nans():
        add(ones(2))
        add(ones(2))
        assert w.grad.tolist() == [2.0, 2.0]
        with pytest.raises(krt.NonFiniteError):
            add(np.array([1, np.nan], np.float32))
    assert w.grad.tolist() == [2.0, 2.0]


def test_sizes_that_are_dynamic_elsewhere():
    @krt.jit(dynamic={"x": {0: krt.Variable("n", 1, 64)}})
    def named(x):
        return (x.sum() - 5).log()

    @krt.jit
    def found(x):
        return (x.sum() - 5).log()

    for f in (named, found):
        for n in (6, 7, 8, 9):
            f(ones(n))
        with krt.debug_nans():
            assert f(ones(10)).item() > 0
            with pytest.raises(krt.NonFiniteError, match="log at"):
                f(ones(5))


def test_loops_steps_and_nested_functions():
    inner = krt.jit(lambda x: x.log())

    @krt.jit
    def f(x):
        return krt.scan(lambda c, t: (c - t, inner(c)), x, krt.ones(4))[1]

    with krt.debug_nans():
        assert f(np.float32(8.0)).shape == (4,)
        with pytest.raises(krt.NonFiniteError, match="in iteration 2 of a loop") as info:
            f(np.float32(2.0))
    assert info.value.iteration == 2

    total = krt.zeros(())

    @krt.jit
    def add(x):
        total.assign(total + x.sum().sqrt())
        return total

    rows = np.array([1, 4, 9, -1, 16], np.float32)
    with krt.debug_nans(), pytest.raises(krt.NonFiniteError, match=r"^step 3: sqrt") as error:
        add.over(rows, batch_size=1)
    assert error.value.step == 3
    assert total.item() == 6.0


def test_steps_come_to_the_same_with_it():
    rows = np.arange(7, dtype=np.float32)
    modes = [krt.debug_nans(False), krt.debug_nans(), krt.disable_jit()]
    found = []
    for mode in modes:
        total, seen = krt.zeros(()), []

        @krt.jit
        def add(x, k, total=total):
            total.assign(total + x.sum() * k)
            return {"total": total, "size": x.shape[1]}

        with mode:
            result = add.over(
                rows[:, None], 2.0, batch_size=3, shuffle=True, seed=1, epochs=2, drop_last=True,
                every=2, callback=lambda k, r, seen=seen: seen.append((k, r["total"].shape)),
            )  # fmt: skip
            with pytest.raises(krt.ShapeError, match="cannot be stacked"):
                krt.jit(lambda x: x).over(rows, batch_size=3)
            stopped = add.over(rows[:, None], 0.0, batch_size=3, every=1, callback=lambda *_: True)
        found.append((result["total"].tolist(), result["size"], seen, stopped["total"].shape))
    assert found[0] == found[1] == found[2]

"""krt.debug_nans: the operation that makes the first NaN or infinity is named, and no other."""

from __future__ import annotations

import inspect
import math
import threading

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.nn.functional import nll_loss

INF, NAN = math.inf, math.nan


def v(*values, dtype=None):
    return krt.tensor(list(map(float, values)), dtype=dtype)


def caught(work):
    """The error of what `work` makes and computes, with the line that it stands in."""
    with pytest.raises(krt.NonFiniteError) as info, krt.debug_nans():
        work().realize()
    return info.value


def line_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


MADE = {
    "log of 0": (lambda: v(1, 0).log() * 0, "log", -INF),
    "log of a negative": (lambda: v(1, -1).log() + 1, "log", NAN),
    "sqrt": (lambda: v(4, -4).sqrt().sum(), "sqrt", NAN),
    "a quotient": (lambda: 1 - v(1, 2) / v(1, 0), "truediv", INF),
    "0 by 0": (lambda: v(0) / v(0), "truediv", NAN),
    "exp": (lambda: 1 / v(1, 1000).exp() + v(1, 1000).exp(), "exp", INF),
    "a power": (lambda: v(-8) ** (1 / 3), "pow", NAN),
    "a sum that overflows": (lambda: v(2e38, 2e38).sum(), "sum", INF),
    "a product that overflows": (
        lambda: krt.full((2, 3), 1e30) @ krt.full((3, 2), 1e30), "matmul", INF
    ),
    "float16": (lambda: v(300, dtype="float16") * 300, "mul", INF),
    "bfloat16": (lambda: v(3e38, dtype="bfloat16") * 3, "mul", INF),
    "float64": (lambda: v(1e300, dtype="float64") * 1e300, "mul", INF),
    "a cast": (lambda: v(1e6).half().float(), "half", INF),
    "the mean of nothing": (lambda: krt.zeros(0).mean(), "mean", NAN),
    "the softmax of masked rows": (
        lambda: v(1, 2).masked_fill(krt.tensor([True, True]), -INF).softmax(0), "softmax", NAN
    ),
    "what only one branch of where makes": (
        lambda: krt.where(v(0, 4) > 1, v(-4, -4).sqrt(), v(1, 1)), "sqrt", NAN
    ),
    "behind a view": (lambda: v(4, -4).sqrt().reshape(2, 1).expand(2, 3).flip(0).T, "sqrt", NAN),
    "behind an index": (lambda: v(4, -4).sqrt()[krt.tensor([1])], "sqrt", NAN),
    "long after": (lambda: krt.stack([v(-1).sqrt() * k for k in range(9)]).sum(0) + 3, "sqrt", NAN),
    "a loss": (lambda: nll_loss(v(0.5, 0).log()[None], krt.tensor([1])), "log", -INF),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_the_operation_that_made_it_is_named(name):
    work, op, value = MADE[name]
    error = caught(work)
    assert (error.op, error.backward, error.input) == (op, False, ""), error
    assert error.value == value or (math.isnan(error.value) and math.isnan(value))
    assert error.file == __file__
    assert inspect.getsourcelines(work)[1] <= error.line < 90
    assert error.kernel in str(error)
    assert error.kernel or name == "the mean of nothing"  # which no kernel computes
    assert f"test_nonfinite.py:{error.line}" in str(error)


MEANT = {
    "a mask": lambda: krt.zeros(2, 2).masked_fill(krt.tensor([[False, True]] * 2), -INF),
    "a masked softmax": lambda: v(1, -INF).softmax(0),
    "an infinity that is kept": lambda: krt.minimum(v(INF), v(3, INF)),
    "the other branch": lambda: krt.where(v(0, 1) > 0, v(0, 1).log(), 0.0),
    "what overflows on the way": lambda: v(-1000, 1000).sigmoid() + v(100, -100).softplus(),
    "what is not finite and discarded": lambda: v(-1, 4).sqrt().nan_to_num(),
    "nothing": lambda: krt.zeros(0).log(),
    "integers": lambda: krt.tensor([1, 2]) // krt.tensor([0, 1]),
    "comparisons": lambda: v(0).log() > 1,
}


@pytest.mark.parametrize("name", MEANT)
def test_what_is_meant_is_no_error(name):
    expected = MEANT[name]().tolist()
    with krt.debug_nans():
        assert repr(MEANT[name]().tolist()) == repr(expected)


def test_gradients_are_named_as_such():
    w = krt.tensor([0.0, 1.0], requires_grad=True)
    with pytest.raises(krt.NonFiniteError, match="grad of sqrt at") as info, krt.debug_nans():
        w.sqrt().sum().backward()
    assert (info.value.op, info.value.backward, info.value.value) == ("sqrt", True, INF)
    assert w.grad is None
    with pytest.raises(krt.NonFiniteError) as info, krt.debug_nans():
        krt.grad((w * 0).sum().sqrt(), w).tolist()
    assert info.value.backward


def test_inputs_that_hold_nan_are_named():
    x = v(1, NAN, 3)
    error = caught(lambda: x * 2 + 1)
    assert str(error).startswith("an input holds NaN: element 1 of 3 float32; mul at")
    assert error.op == "mul"
    assert "a constant is NaN" in str(caught(lambda: v(1, 2) + NAN))


class Net(nn.Module):
    def __init__(self):
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        h = self.first(x)
        return self.second(h.square().neg().sqrt())


def test_layers_and_lines_are_named():
    net = Net()
    with pytest.raises(krt.NonFiniteError) as info, krt.debug_nans():
        net(krt.ones(5, 3)).sum().backward()
    assert (info.value.layer, info.value.op) == ("Net", "sqrt")
    assert info.value.line == line_of(Net, "sqrt()")
    assert info.value.function == "forward"
    with krt.no_grad():
        net.second.bias.assign(v(1, NAN))
    error = caught(lambda: net.second(krt.ones(1, 4)))
    assert (error.layer, error.op) == ("Linear", "linear")


def test_state_is_as_before():
    w = krt.tensor([1.0, 2.0])
    with pytest.raises(krt.NonFiniteError), krt.debug_nans():
        w.assign((w - 2).log())
    assert w.tolist() == [1.0, 2.0]
    p = krt.tensor([1.0, 2.0], requires_grad=True)
    opt = nn.optim.SGD([p], lr=1e38)
    (p * 100).sum().backward()
    with pytest.raises(krt.NonFiniteError) as info, krt.debug_nans():
        opt.step()
    assert info.value.op == "SGD"
    assert p.tolist() == [1.0, 2.0]


def test_training_is_as_without_it():
    def train(mode):
        krt.manual_seed(1)
        net, losses = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1)), []
        opt = nn.optim.Adam(net.parameters(), lr=0.1)
        with mode:
            for _ in range(4):
                opt.zero_grad()
                loss = net(krt.ones(6, 3)).square().mean()
                loss.backward()
                opt.step()
                losses.append(loss.item())
        return losses

    np.testing.assert_allclose(train(krt.debug_nans()), train(krt.debug_nans(False)), rtol=1e-6)


LOOPS = {
    "scan": (lambda: krt.scan(lambda c, t: (c - t, c.log()), v(2.5)[0], krt.ones(5))[1], 3),
    "scan back": (
        lambda: krt.scan(lambda c, t: (c, t.log()), v(1)[0], v(1, -1, 2), reverse=True)[1], 1
    ),
    "fori_loop": (lambda: krt.fori_loop(0, 5, lambda i, c: (2.0 - i).sqrt() + c, v(0)[0]), 3),
    "while_loop": (lambda: krt.while_loop(lambda c: c < 9, lambda c: (c - 1).sqrt(), v(5)[0]), 3),
    "cond": (lambda: krt.cond(v(1)[0] > 0, lambda x: x.log(), lambda x: x, v(-1)), None),
    "switch": (lambda: krt.switch(krt.tensor(1), [lambda x: x, lambda x: x.sqrt()], v(-1)), None),
    "nested": (
        lambda: krt.scan(
            lambda c, t: (krt.fori_loop(0, 2, lambda i, x: (x - i).log() + x, c), None), v(1)[0],
            krt.ones(2),
        )[0], 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_bodies_are_looked_into(name):
    work, turn = LOOPS[name]
    error = caught(work)
    assert error.op in ("log", "sqrt")
    assert error.iteration == turn
    assert inspect.getsourcelines(work)[1] <= error.line


def test_it_is_a_switch_a_block_and_a_decorator():
    def fails():
        try:
            v(-1).sqrt().item()
        except krt.NonFiniteError:
            return True
        return False

    assert not fails()
    krt.debug_nans(True)
    try:
        assert fails()
        with krt.debug_nans(False):
            assert not fails()
        assert fails()
        found = []
        thread = threading.Thread(target=lambda: found.append(fails()))
        thread.start()
        thread.join()
        assert found == [False]
    finally:
        krt.debug_nans(False)
    assert not fails()
    assert krt.debug_nans(fails)()
    assert krt.debug_nans()(fails)()
    mode = krt.detect_anomaly()
    with mode:
        assert fails()
    assert not fails()
    with mode:
        assert fails()
    assert not fails()
    with pytest.raises(krt.DTypeError, match="mode"):
        krt.debug_nans(1)


def test_a_block_computes_nothing_of_other_threads():
    made = []
    with krt.debug_nans():
        thread = threading.Thread(target=lambda: made.append(v(-1).sqrt()))
        thread.start()
        thread.join()
        own = v(4).sqrt()
    assert (made[0].is_realized, own.is_realized) == (False, True)
    assert np.isnan(made[0].item())


def test_what_a_block_made_is_computed_at_its_end():
    with pytest.raises(krt.NonFiniteError), krt.debug_nans():
        y = v(-1).sqrt()
    del y
    before = v(-1).sqrt()
    with krt.debug_nans():
        pass
    assert math.isnan(before.item())
    held = []
    with pytest.raises(ZeroDivisionError), krt.debug_nans():
        held.append(v(-1).sqrt() * (1 // 0))


def test_calls_of_foreign_functions_are_made_once_where_they_must():
    calls = []

    def f(x):
        calls.append(1)
        return np.sqrt(x)

    with np.errstate(invalid="ignore"), krt.debug_nans():
        krt.call(f, v(-1), out=krt.zeros(1), pure=False).realize()
    assert len(calls) == 1

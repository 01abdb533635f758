"""Kernels, profiles, traces and errors tell the layer and the line of the user's program."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.ir.origin import Origin, summary
from kernelrt.runtime.profiler import table


class Net(nn.Module):
    def __init__(self):
        self.embed = nn.Embedding(10, 16)
        self.layers = [nn.Linear(16, 32), nn.Linear(32, 4)]

    def forward(self, ids):
        h = self.embed(ids)
        h = self.layers[0](h).relu()
        return self.layers[1](h)


def line_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


@pytest.fixture
def net():
    krt.manual_seed(0)
    return Net()


def origins_of(plan):
    return [o for launch in plan.prepared_kernels for o in launch.origins]


def test_kernels_name_layers_and_lines(net):
    predict = krt.jit(net)
    ids = np.arange(8)
    found = {(o.layer, o.op, o.line) for o in origins_of(predict.plan(ids))}
    at = {text: line_of(Net, text) for text in ("self.embed(", "layers[0]", "layers[1](h)")}
    assert ("Net.embed", "embedding", at["self.embed("]) in found
    assert ("Net.layers.0", "linear", at["layers[0]"]) in found
    assert ("Net", "relu", at["layers[0]"]) in found
    assert ("Net.layers.1", "linear", at["layers[1](h)"]) in found


def test_functions_are_called_by_their_names():
    def called(x):
        return krt.exp(x) * krt.sum(x)

    found = {o.op for o in origins_of(krt.jit(called).plan(krt.ones(3, 4)))}
    assert found == {"exp", "sum", "mul"}

    def others(x):
        return krt.nn.functional.relu(x) + krt.rand(3, 4) + krt.normal(x, x.abs())

    found = {o.op for o in origins_of(krt.jit(others).plan(krt.ones(3, 4)))}
    assert {"relu", "normal", "add"} <= found
    assert not found & {"call", "activation"}


def test_a_prepared_plan_names_them_too(net):
    plan = net(krt.tensor(np.arange(8))).prepare()
    assert {o.layer for o in origins_of(plan)} == {"Net", "Net.embed", "Net.layers.0",
                                                   "Net.layers.1"}  # fmt: skip
    assert all(o.file == __file__ for o in origins_of(plan))


def test_gradients_and_updates_are_told_apart_from_the_forward_pass(net):
    opt = nn.optim.Adam(nn.parameters(net), lr=1e-3)

    @krt.jit
    def step(ids, labels):
        opt.zero_grad()
        loss = net(ids).cross_entropy(labels)
        loss.backward()
        opt.step()
        return loss

    plan = step.plan(np.arange(8), np.arange(8) % 4)
    found = {o.name for o in origins_of(plan)}
    assert {"Net.layers.0 linear", "grad of Net.layers.0 linear", "grad of Net.embed embedding",
            "cross_entropy", "Adam"} <= found  # fmt: skip
    (update,) = {o.line for o in origins_of(plan) if o.op == "Adam"}
    assert update == line_of(step._fn, "opt.step()")


def test_every_view_of_a_plan_shows_them(net, tmp_path):
    predict = krt.jit(net)
    plan = predict.plan(np.arange(8))
    name = "Net.layers.0 linear"
    assert name in plan.explain()
    assert name in table(plan.execute_profiled())
    profile = plan.profile(2)
    assert name in str(profile)
    profile.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert any(name in e["name"] for e in events)
    assert any(any(name in o for o in e.get("args", {}).get("from", ())) for e in events)


def test_two_functions_with_equal_kernels_each_name_their_own_line():
    def first(x):
        return x * 3 + 1

    def second(x):
        return x * 3 + 1

    x = np.ones(5, np.float32)
    for function in (first, second):
        (launch,) = krt.jit(function).plan(x).prepared_kernels
        assert {o.function for o in launch.origins} == {function.__name__}


def test_a_summary_names_a_few_and_counts_the_rest():
    def origin(layer, line):
        return Origin("/there/train.py", line, "step", "relu", layer)

    assert summary([]) == ""
    assert summary([origin("Net.0", 3)]) == "Net.0 relu (train.py:3)"
    text = summary([origin(f"Net.{i}", i) for i in range(5)])
    assert text == (
        "Net.0 relu, Net.1 relu, Net.2 relu, 2 more (train.py:0, train.py:1, train.py:2, 2 more)"
    )


# ---- Indices out of range


def pick(weight, rows):
    return weight[rows]


@pytest.mark.parametrize("bad", [4, -5, 2**40, -(2**40)])
@pytest.mark.parametrize("n", [1, 7, 64])
def test_a_bad_index_is_told_with_its_value_its_line_and_its_argument(bad, n):
    weight = krt.randn(4, 3).realize()
    step = krt.jit(lambda rows: pick(weight, rows))
    rows = np.zeros(n, np.int64)
    step(rows)
    rows[n // 2] = bad
    with pytest.raises(krt.IndexBoundsError) as caught:
        step(rows)
    error, line = caught.value, line_of(pick, "weight[rows]")
    assert (error.index, error.size) == (bad, 4)
    for part in (f"index {bad} ", "axis of size 4", "getitem", f"test_origins.py:{line}", "-4 to 3",
                 "argument 'rows'", f"({n} int64)"):  # fmt: skip
        assert part in str(error)


def test_indices_that_do_not_count_from_the_end_say_so():
    logits = krt.randn(3, 5).realize()
    step = krt.jit(lambda y: logits.cross_entropy(y) * 1)
    with pytest.raises(krt.IndexBoundsError, match=r"index 5 .*cross_entropy.* takes 0 to 4"):
        step(np.array([0, 5, 1]))


def test_the_axis_that_is_left_is_the_one_named():
    table = krt.randn(4, 6).realize()
    step = krt.jit(lambda i, j: table[i, j])
    i, j = np.array([0, 1, 2]), np.array([0, 5, 3])
    step(i, j)
    with pytest.raises(krt.IndexBoundsError, match=r"index 6 .* axis of size 6.*argument 'j'"):
        step(i, np.array([0, 6, 3]))
    with pytest.raises(krt.IndexBoundsError, match=r"index -5 .* axis of size 4.*argument 'i'"):
        step(np.array([0, -5, 3]), j)


def test_a_size_known_at_run_time_is_told_as_it_is():
    n = krt.Variable("n", 1, 40)
    step = krt.jit(lambda x, rows: x[rows], dynamic={"x": {0: n}})
    x, rows = np.ones((7, 2), np.float32), np.array([0, 6])
    step(x, rows)
    with pytest.raises(krt.IndexBoundsError, match=r"index 7 .* axis of size 7"):
        step(x, np.array([0, 7]))


def test_a_module_that_its_caller_does_not_hold_shows_its_class():
    inner = nn.Linear(2, 2)

    class Outer(nn.Module):
        def forward(self, x):
            return inner(x)

    outer = Outer()
    (launch,) = krt.jit(outer).plan(np.ones((1, 2), np.float32)).prepared_kernels
    assert {o.layer for o in launch.origins} == {"Outer.Linear"}


def test_a_module_that_is_gone_is_remembered_by_its_class():
    with pytest.raises(krt.IndexBoundsError, match="Embedding embedding at test_origins"):
        nn.Embedding(3, 2)(krt.tensor([3])).numpy()


def test_a_call_that_raises_leaves_the_layer():
    class Broken(nn.Module):
        def forward(self, _x):
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        Broken()(krt.ones(1))
    (launch,) = krt.jit(lambda x: x + 1).plan(np.ones(3, np.float32)).prepared_kernels
    assert {o.layer for o in launch.origins} == {""}


@pytest.mark.parametrize("n", [2, 600])
def test_equal_expressions_outside_of_jit_each_name_their_own_line(n):
    weight = krt.randn(4, 3).realize()

    def first(rows):
        return weight[rows].numpy()

    def second(rows):
        return weight[rows].numpy()

    for bad in (0, 9):
        for function in (first, second):
            rows = krt.tensor(np.full(n, bad))
            if not bad:
                function(rows)
                continue
            place = f"test_origins.py:{line_of(function, 'weight[rows]')}"
            with pytest.raises(krt.IndexBoundsError, match=place) as caught:
                function(rows)
            assert caught.value.index == bad


CLOSED = {
    "softmax": lambda x: x.softmax(1),
    "std": lambda x: x.std(1),
    "norm": lambda x: x.norm(),
    "logsumexp": lambda x: x.logsumexp(1),
    "layer_norm": lambda x: x.layer_norm((4,)),
    "clamp": lambda x: x.clamp(0.0, 0.5),
    "sign": lambda x: x.sign(),
    "lgamma": lambda x: x.lgamma(),
    "cholesky": lambda x: x.cholesky(),
    "det": lambda x: x.det(),
    "solve": lambda x: krt.linalg.solve(x, x),
    "qr": lambda x: x.qr()[0],
    "sum": lambda x: x.sum(1, keepdim=True),
}


@pytest.mark.parametrize("way", ["jit", "prepare"])
@pytest.mark.parametrize("name", CLOSED)
def test_what_has_its_derivative_in_closed_form_is_named(name, way):
    """The mark is what the user made, and no plan has it; neither has it a reshape at the end."""
    x = krt.eye(4).realize().requires_grad_()
    y = CLOSED[name]
    plan = krt.jit(lambda: y(x)).plan() if way == "jit" else krt.prepare(y(x))
    line = y.__code__.co_firstlineno
    for launch in plan.prepared_kernels:
        assert (name, line) in {(o.op, o.line) for o in launch.origins}
    assert plan.prepared_kernels
    (slope,) = [krt.grad(y(x).sum(), x)] if name != "sign" else [y(x)]
    plan = krt.prepare(slope)
    assert all(launch.origins for launch in plan.prepared_kernels)

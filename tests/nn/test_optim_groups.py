"""Groups of parameters, closures, and numbers that change without another trace."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import StateError

torch = Package("torch")
KINDS = ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam",
         "Rprop", "ASGD", "Adafactor"]  # fmt: skip


def leaves(dtype: str = "float64") -> tuple[list, list]:
    rng = np.random.default_rng(1)
    data = [rng.standard_normal(s) for s in ((2, 3), (4,), (3,))]
    return (
        [krt.tensor(d, dtype=dtype, requires_grad=True) for d in data],
        [torch.tensor(d, requires_grad=True) for d in data],
    )


def groups(p: list) -> list:
    return [
        {"params": [p[0], p[2]], "lr": 0.1},
        {"params": p[1], "weight_decay": 0.5} if isinstance(p[1], torch.Tensor)
        else {"params": [p[1]], "weight_decay": 0.5},
    ]  # fmt: skip


def step(p: list) -> None:
    for i, x in enumerate(p):
        (x * x * x * (i + 1)).sum().backward()


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", [k for k in KINDS if k != "Rprop"])
def test_groups_have_numbers_of_their_own(name, jitted):
    a, b = leaves()
    opt = getattr(nn.optim, name)(groups(a), lr=0.02)
    peer = getattr(torch.optim, name)(groups(b), lr=0.02)

    def train():
        opt.zero_grad()
        step(a)
        opt.step()

    run = krt.jit(train) if jitted else train
    for turn in range(8):
        run()
        peer.zero_grad()
        step(b)
        peer.step()
        for g, h in zip(opt.param_groups, peer.param_groups, strict=True):
            g["lr"] *= 0.9
            h["lr"] *= 0.9
            assert g["lr"] == pytest.approx(h["lr"])
            if turn == 4:
                g["weight_decay"] = h["weight_decay"] = 0.25
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x.numpy(), y.detach().numpy(), rtol=1e-6)
    if jitted:
        assert run.retraces == 1  # for the decay


def test_a_learning_rate_never_makes_a_step_trace_again():
    a, _ = leaves()
    opt = nn.optim.Adam(groups(a), lr=0.02)

    @krt.jit
    def train():
        opt.zero_grad()
        step(a)
        opt.step()

    for k in range(20):
        for i, group in enumerate(opt.param_groups):
            group["lr"] = 0.01 / (k + i + 1)
        train()
    assert train.retraces == 0
    opt.lr = 0.5
    assert [g["lr"] for g in opt.param_groups] == [0.5, 0.5]


@pytest.mark.parametrize(("name", "key", "values"), [
    ("SGD", "momentum", [0.9 - 0.02 * k for k in range(10)]),
    ("SGD", "weight_decay", [0.1 / (k + 1) for k in range(10)]),
    ("RMSprop", "momentum", [0.5 + 0.02 * k for k in range(10)]),
    ("RMSprop", "alpha", [0.5 + 0.02 * k for k in range(10)]),
    *((n, "betas", [(0.5 + 0.02 * k, 0.9 + 0.001 * k) for k in range(10)])
      for n in ("Adam", "AdamW", "Adamax", "NAdam", "RAdam")),
    ("Adam", "eps", [10.0 ** -k for k in range(10)]),
    ("AdamW", "weight_decay", [0.1 / (k + 1) for k in range(10)]),
    ("Adadelta", "rho", [0.5 + 0.02 * k for k in range(10)]),
])  # fmt: skip
@pytest.mark.parametrize("jitted", [False, True])
def test_numbers_that_change_are_read_from_memory(name, key, values, jitted):
    a, b = leaves()
    options = {"lr": 0.01, key: values[0]}
    opt, peer = getattr(nn.optim, name)(a, **options), getattr(torch.optim, name)(b, **options)

    def train():
        opt.zero_grad()
        step(a)
        opt.step()

    run = krt.jit(train) if jitted else train
    for value in values:
        opt.param_groups[0][key] = peer.param_groups[0][key] = value
        assert getattr(opt, key) == value
        run()
        peer.zero_grad()
        step(b)
        peer.step()
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x.numpy(), y.detach().numpy(), rtol=1e-6)
    if jitted:
        assert run.retraces == 1


def test_groups_are_added_between_steps_of_a_jitted_function():
    a, b = leaves()
    opt, peer = nn.optim.AdamW(a[:1], 0.1), torch.optim.AdamW(b[:1], 0.1)

    @krt.jit
    def train():
        opt.zero_grad()
        step(a)
        opt.step()

    for k in range(6):
        if k == 3:
            opt.add_param_group({"params": a[1], "lr": 0.01})
            peer.add_param_group({"params": b[1], "lr": 0.01})
        train()
        peer.zero_grad()
        step(b)
        peer.step()
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x.numpy(), y.detach().numpy(), rtol=1e-6)
    assert len(opt.params) == 2


def test_gradients_of_parameters_that_came_later_are_cleared():
    a, b = leaves()
    opt, peer = nn.optim.SGD(a[:1], 0.1), torch.optim.SGD(b[:1], 0.1)

    @krt.jit
    def gradients():
        opt.zero_grad()
        step(a)

    update = krt.jit(opt.step)
    for k in range(4):
        if k == 2:
            opt.add_param_group({"params": a[1:]})
            peer.add_param_group({"params": b[1:]})
        gradients()
        update()
        peer.zero_grad()
        step(b)
        peer.step()
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x.numpy(), y.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("way", ["groups", "lr", "params", "state"])
def test_what_a_jitted_function_reads_of_an_optimizer_has_groups_that_came_later(way):
    a, b = leaves()
    opt, peer = nn.optim.SGD(a[:1], 0.1, momentum=0.5), torch.optim.SGD(b[:1], 0.1, momentum=0.5)

    def change(opt, rate):
        if way == "groups":
            for group in opt.param_groups:
                group["lr"] = group["lr"] * rate
        elif way == "lr" and opt is not peer:
            opt.lr = 0.1 * rate
        elif way == "lr":
            for group in opt.param_groups:
                group["lr"] = 0.1 * rate

    @krt.jit
    def count():
        change(opt, 0.5)
        found = opt.params if way == "params" else opt.state if way == "state" else opt.param_groups
        return krt.tensor(float(len(found)))

    update = krt.jit(opt.step)
    for k in range(4):
        if k == 2:
            opt.add_param_group({"params": a[1:], "lr": 0.3})
            peer.add_param_group({"params": b[1:], "lr": 0.3})
        later = 3 if way in ("params", "state") else 2
        assert count().item() == (later if k >= 2 else 1)
        change(peer, 0.5)
        for one, tensors in ((opt, a), (peer, b)):
            one.zero_grad()
            step(tensors)
        update()
        peer.step()
        np.testing.assert_allclose(
            [g["lr"] for g in opt.param_groups], [g["lr"] for g in peer.param_groups]
        )
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x.numpy(), y.detach().numpy(), rtol=1e-6)


def test_what_schedulers_keep_in_a_group_is_seen_by_jitted_functions():
    a, _ = leaves()
    opt = nn.optim.SGD(a, 0.5)
    group = opt.param_groups[0]
    first = krt.jit(lambda: krt.tensor(float(group.get("initial_lr", -1.0))))
    assert first().item() == -1.0
    for rate in (0.25, 0.125):
        group["initial_lr"] = rate
        assert first().item() == rate
    del group["initial_lr"]
    assert first().item() == -1.0
    with pytest.raises(KeyError):
        del group["initial_lr"]

    @krt.jit
    def note():
        group["initial_lr"] = 1.0

    with pytest.raises(krt.JitError, match="initial_lr"):
        note()


def test_a_group_is_a_dict():
    a, _ = leaves()
    opt = nn.optim.SGD(groups(a), 0.5, momentum=0.9)
    first, second = opt.param_groups
    assert list(first) == ["params", "lr", "momentum", "dampening", "weight_decay", "nesterov",
                           "maximize"]  # fmt: skip
    assert first["params"] == [a[0], a[2]]
    assert (first["lr"], second["lr"], second["momentum"]) == (0.1, 0.5, 0.9)
    first["initial_lr"] = 1.0
    assert first.get("initial_lr") == 1.0
    assert "initial_lr" not in second
    assert "momentum" in repr(second)
    assert "in 2 groups" in repr(opt)
    named = nn.optim.SGD([("x", a[0]), ("y", a[1])])
    assert named.params == a[:2]


@pytest.mark.parametrize("name", KINDS)
def test_state_of_groups_round_trips(name):
    a, _ = leaves()
    other, _ = leaves()
    opt, twin = (getattr(nn.optim, name)([{"params": p[:2]}, {"params": p[2:], "lr": 0.01}])
                 for p in (a, other))  # fmt: skip
    for _ in range(3):
        opt.zero_grad()
        step(a)
        opt.step()
    saved = {k: v.numpy().copy() for k, v in opt.state_dict().items()}
    assert {"lr.0", "lr.1"} <= set(saved)
    twin.load_state_dict(saved)
    for x, y in zip(other, a, strict=True):
        x.assign(y.detach())
    for o, p in ((opt, a), (twin, other)):
        for _ in range(3):
            o.zero_grad()
            step(p)
            o.step()
    for x, y in zip(a, other, strict=True):
        assert (x.numpy() == y.numpy()).all()


@pytest.mark.parametrize(("name", "options"), [
    *((n, {}) for n in KINDS), ("SGD", {"momentum": 0.9}), ("Adam", {"amsgrad": True}),
    ("SGD", {"momentum": 0.5, "dampening": 0.5}), ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("ASGD", {"t0": 2.0}),
])  # fmt: skip
def test_a_checkpoint_of_torch_is_gone_on_from(name, options):
    a, b = leaves()
    peer = getattr(torch.optim, name)([{"params": b[:2], "lr": 0.05}, {"params": b[2:]}],
                                      lr=0.02, **options)  # fmt: skip
    opt = getattr(nn.optim, name)([{"params": a[:2]}, {"params": a[2:]}], **options)

    def other(rounds):
        for k in range(rounds):
            peer.zero_grad()
            step(b[:2] if k == 0 else b)
            peer.step()

    other(1)
    for _ in range(2):
        opt.load_state_dict(peer.state_dict())
        with krt.no_grad():
            for x, y in zip(a, b, strict=True):
                x.assign(y.detach().numpy().copy())
        assert opt.param_groups[0]["lr"] == 0.05
        for k in range(3):
            opt.zero_grad()
            step(a[:2] if k == 0 else a)
            opt.step()
        other(3)
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x.numpy(), y.detach().numpy(), rtol=1e-6)
    with pytest.raises(krt.errors.StateError, match=r"\[2, 1\].*\[1\]"):
        opt.load_state_dict({"state": {}, "param_groups": [{"params": [0]}]})


@pytest.mark.parametrize("way", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])  # noqa: S301
def test_copies_have_groups_of_their_own(way):
    a, _ = leaves()
    opt = nn.optim.Adam(groups(a), 0.1)
    opt.betas = (0.5, 0.6)
    twin = way(opt)
    twin.param_groups[0]["lr"] = 7.0
    twin.betas = (0.1, 0.2)
    assert (opt.param_groups[0]["lr"], opt.betas) == (0.1, (0.5, 0.6))
    assert twin.params[0] is twin.param_groups[0]["params"][0]


def test_a_closure_is_called_with_gradients_on():
    a, b = leaves()
    opt, peer = nn.optim.SGD(a, 0.1), torch.optim.SGD(b, 0.1)

    def closure(o, p):
        def run():
            o.zero_grad()
            loss = sum((x * x).sum() for x in p)
            loss.backward()
            return loss
        return run

    with krt.no_grad():
        found = opt.step(closure(opt, a))
    assert found.item() == pytest.approx(peer.step(closure(peer, b)).item())
    jitted = krt.jit(lambda: opt.step(closure(opt, a)))
    for _ in range(3):
        assert jitted().item() == pytest.approx(peer.step(closure(peer, b)).item())


@pytest.mark.parametrize("jitted", [False, True])
def test_an_optimizer_of_ones_own_is_written_as_for_torch(jitted):
    class Signed(krt.optim.Optimizer):
        def __init__(self, params, lr=0.1, power=1.0):
            super().__init__(params, {"lr": lr, "power": power})

        @krt.no_grad()
        def step(self, closure=None):  # noqa: ARG002 - as torch has it
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    size = p.grad.abs() ** group["power"]
                    p.assign(p - p.grad.sign() * size * group["lr"])

    w = krt.tensor([1.0, -2.0], dtype="float64", requires_grad=True)
    v = krt.tensor([3.0], dtype="float64", requires_grad=True)
    opt = Signed([{"params": [w]}, {"params": [v], "power": 0.0}], lr=0.5)
    schedule = krt.optim.lr_scheduler.ExponentialLR(opt, 0.5)

    def train():
        opt.zero_grad()
        ((w * w).sum() + (v * v).sum()).backward()
        opt.step()

    run = krt.jit(train) if jitted else train
    run()
    assert (w.tolist(), v.tolist()) == ([0, 0], [2.5])
    schedule.step()
    run()
    assert v.tolist() == [2.25]
    opt.param_groups[1]["power"] = 1.0
    run()
    assert v.tolist() == [2.25 - 4.5 * 0.25]
    with pytest.raises(krt.UnknownNameError, match="unknown key 'powers'"):
        opt.param_groups[0]["powers"] = 2
    with pytest.raises(krt.UnknownNameError, match="rules"):
        krt.optim.Optimizer([w], {"lr": 0.1, "rules": 1})


def test_state_by_parameter():
    a, _ = leaves()
    opt = nn.optim.Adam(groups(a), 0.1)
    step(a)
    opt.step()
    found = opt.state[a[2]]
    assert found["step"].item() == 1
    assert found["exp_avg"].shape == (3,)
    assert len(opt.state) == 3


def test_zero_grad_makes_none_or_zeros():
    a, _ = leaves()
    opt = nn.optim.SGD(a, 0.1)
    a[0].sum().backward()
    opt.zero_grad(set_to_none=False)
    assert (a[0].grad.numpy() == 0).all()
    assert a[1].grad is None
    opt.zero_grad()
    assert a[0].grad is None


def test_bad_groups_are_named():
    a, _ = leaves()
    bfgs = nn.optim.LBFGS(a)
    bad = [
        (krt.UnknownNameError, "unknown key 'momentun'",
         lambda: nn.optim.SGD([{"params": a, "momentun": 1}])),
        (krt.DTypeError, r"params\[1\]: expected a dict with the key 'params'",
         lambda: nn.optim.SGD([{"params": a}, {"param": a}])),
        (krt.ShapeError, r"params\[1\]\['params'\]\[0\]: the same",
         lambda: nn.optim.SGD([{"params": a[:1]}, {"params": a[:1]}])),
        (krt.DomainError, "lr: expected", lambda: nn.optim.SGD([{"params": a, "lr": -1}])),
        (krt.DTypeError, "params: expected an ordered iterable.* of a set differs.*list",
         lambda: nn.optim.Adam(set(a))),
        (krt.DTypeError, r"params\[0\]\['params'\]: .*the order of a frozenset differs",
         lambda: nn.optim.Adam([{"params": frozenset(a)}])),
        (krt.DTypeError, r"param_group\['params'\]: .*the order of a set differs",
         lambda: nn.optim.SGD(a[:1]).add_param_group({"params": set(a[1:])})),
        (krt.GradientError, "differentiable", lambda: nn.optim.SGD(a, differentiable=True)),
        (krt.UnknownNameError, "option 'fast'", lambda: nn.optim.Adam(a, fast=True)),
        (krt.DTypeError, "foreach", lambda: nn.optim.Adam(a, foreach=3)),
        (krt.DomainError, "alpha", lambda: nn.optim.RMSprop(a, alpha=-1)),
        (krt.DomainError, "rho", lambda: nn.optim.Adadelta(a, rho=1.5)),
        (krt.DomainError, "etas", lambda: nn.optim.Rprop(a, etas=(1.5, 0.5))),
        (krt.DomainError, "step_sizes", lambda: nn.optim.Rprop(a, step_sizes=(1, 0.5))),
        (krt.DomainError, "beta2_decay", lambda: nn.optim.Adafactor(a, beta2_decay=0.5)),
        (krt.DomainError, "d: expected", lambda: nn.optim.Adafactor(a, d=0.5)),
        (krt.DTypeError, "eps", lambda: nn.optim.Adafactor(a, eps=1e-8)),
        (krt.ShapeError, r"params\[1\]: expected a matrix.*AdamW", lambda: nn.optim.Muon(a)),
        (krt.DomainError, "ns_steps", lambda: nn.optim.Muon(a[:1], ns_steps=100)),
        (krt.DomainError, "adjust_lr_fn", lambda: nn.optim.Muon(a[:1], adjust_lr_fn="most")),
        (krt.DomainError, "line_search_fn", lambda: nn.optim.LBFGS(a, line_search_fn="weak")),
        (krt.ShapeError, "only one parameter group", lambda: nn.optim.LBFGS(groups(a))),
        (krt.DTypeError, "closure", lambda: nn.optim.LBFGS(a).step()),
        (krt.JitError, "add_param_group",
         krt.jit(lambda: bfgs.add_param_group({"params": a}))),
        (krt.JitError, "LBFGS", krt.jit(lambda: bfgs.step(lambda: 1.0))),
        (krt.ShapeError, r"lr: with 2 values.*params\[1\].* has shape \(4,\)",
         lambda: nn.optim.Adam(a, lr=krt.ones(2))),
    ]  # fmt: skip
    for kind, text, call in bad:
        with pytest.raises(kind, match=text):
            call()
    opt = nn.optim.SGD(a, 0.1, momentum=0.9, nesterov=True)
    for key, value, kind in (("momentun", 1, krt.UnknownNameError),
                             ("momentum", 0, krt.DomainError), ("params", [], krt.UnknownNameError),
                             ("lr", "x", krt.DTypeError)):
        with pytest.raises(kind):
            opt.param_groups[0][key] = value
    assert opt.momentum == 0.9


# ---- L-BFGS


def rosenbrock(x, y):
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("history", [3, 100])
def test_lbfgs_goes_where_torch_s_goes(search, history):
    start = np.array([-1.2, 1.0]), np.array(0.7)
    a = [krt.tensor(d, requires_grad=True) for d in start]
    b = [torch.tensor(d, requires_grad=True) for d in start]
    options = {"lr": 1.0 if search else 0.05, "max_iter": 7, "history_size": history,
               "line_search_fn": search}  # fmt: skip
    opt, peer = nn.optim.LBFGS(a, **options), torch.optim.LBFGS(b, **options)
    calls = [0, 0]

    def closure(o, p, side):
        def run():
            calls[side] += 1
            o.zero_grad()
            loss = rosenbrock(p[0][0], p[0][1]) + rosenbrock(p[1], p[0][0]) * 0.5
            loss.backward()
            return loss
        return run

    for _ in range(5):
        first = opt.step(closure(opt, a, 0))
        assert first.item() == pytest.approx(peer.step(closure(peer, b, 1)).item(), rel=1e-6)
        assert calls[0] == calls[1]
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x.numpy(), y.detach().numpy(), rtol=1e-6)


def test_lbfgs_goes_on_from_a_checkpoint():
    def make():
        w = krt.tensor([-1.2, 1.0], requires_grad=True)
        opt = nn.optim.LBFGS([w], max_iter=4, line_search_fn="strong_wolfe")

        def closure():
            opt.zero_grad()
            loss = rosenbrock(w[0], w[1])
            loss.backward()
            return loss
        return w, opt, closure

    w, opt, closure = make()
    for _ in range(2):
        opt.step(closure)
    other, twin, again = make()
    other.assign(w.detach())
    twin.load_state_dict({k: v.numpy().copy() for k, v in opt.state_dict().items()})
    for _ in range(2):
        opt.step(closure)
        twin.step(again)
    assert (w.numpy() == other.numpy()).all()
    assert rosenbrock(*w.tolist()) < 4
    with pytest.raises(krt.errors.StateError, match="missing"):
        twin.load_state_dict({"lr": np.array(1.0), "d": np.zeros(2)})


class Heavy(krt.optim.Optimizer):
    """Momentum, kept as PyTorch's optimizers of one's own keep it."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @krt.no_grad()
    def step(self, closure=None):  # noqa: ARG002 - as torch has it
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, share=0.5, moved=False, momentum=krt.zeros_like(p))
                state["step"] += 1
                state["moved"] = True
                state["momentum"].mul_(state["share"]).add_(p.grad)
                p.assign(p - state["momentum"] * group["lr"])


def heavy(*starts):
    params = [krt.tensor(s, requires_grad=True) for s in starts]
    opt = Heavy([{"params": [p]} for p in params])

    def train(turns):
        for _ in range(turns):
            opt.zero_grad()
            sum((p * p).sum() for p in params).backward()
            opt.step()
        return [p.tolist() for p in params]

    return params, opt, train


@pytest.mark.parametrize("how", ["method", "function", "nested", "file", "torch"])
def test_what_an_optimizer_of_ones_own_keeps_is_in_its_state_dict(how, tmp_path):
    params, opt, train = heavy([1.0, -2.0], [3.0])
    train(3)
    middle = [p.tolist() for p in params]
    others, other, resume = heavy(*middle)
    if how == "method":
        found = opt.state_dict()
        assert {n: t.dtype for n, t in found.items() if n.startswith("numbers.1")} == {
            "numbers.1.step": krt.int64, "numbers.1.share": krt.float64,
            "numbers.1.moved": krt.bool,
        }  # fmt: skip
        assert found["state.0.momentum"] is opt.state[params[0]]["momentum"]
        assert other.load_state_dict(found) == ([], [])
    elif how == "function":
        krt.nn.load_state_dict(other, krt.nn.state_dict(opt))
    elif how == "nested":
        values = krt.nn.state_dict({"params": params, "opt": opt})
        krt.nn.load_state_dict({"params": others, "opt": other}, values)
    elif how == "file":
        krt.nn.save(krt.nn.state_dict(opt), tmp_path / "opt.safetensors")
        other.load_state_dict(krt.nn.load(tmp_path / "opt.safetensors"))
    else:
        kept = {i: {k: v.numpy() if isinstance(v, krt.Tensor) else v for k, v in s.items()}
                for i, s in enumerate(opt.state.values())}  # fmt: skip
        groups = [{"lr": 0.1, "params": [i]} for i in range(2)]
        other.load_state_dict({"state": kept, "param_groups": groups})
    state = other.state[others[0]]
    assert (state["step"], state["share"], state["moved"]) == (3, 0.5, True)
    assert type(state["step"]) is int
    assert resume(2) == train(2)
    assert state["momentum"] is not opt.state[params[0]]["momentum"]


def test_loading_keeps_the_memory_of_what_an_optimizer_of_ones_own_has():
    params, opt, train = heavy([1.0])
    train(1)
    momentum, before = opt.state[params[0]]["momentum"], opt.state_dict()
    saved = {name: krt.tensor(value.numpy()) for name, value in before.items()}
    train(2)
    opt.load_state_dict(saved)
    assert opt.state[params[0]]["momentum"] is momentum
    assert momentum.tolist() == saved["state.0.momentum"].tolist()
    opt.load_state_dict({"lr": 0.5}, strict=False)
    assert opt.state[params[0]]["step"] == 1
    opt.load_state_dict({"lr": 0.5})
    assert opt.state[params[0]] == {}


def test_what_state_dicts_cannot_have_is_refused():
    params, opt, _ = heavy([1.0])
    opt.state[params[0]]["name"] = "x"
    with pytest.raises(StateError, match="'name' of parameter 0 is of type str, expected a tensor"):
        opt.state_dict()
    params, opt, train = heavy([1.0])
    train(1)
    with pytest.raises(StateError, match=r"'state\.1\.momentum', because the optimizer has 1"):
        opt.load_state_dict({**opt.state_dict(), "state.1.momentum": krt.ones(1)})
    with pytest.raises(StateError, match="missing: 'lr'"):
        opt.load_state_dict({"numbers.0.step": 7})
    assert opt.state[params[0]]["step"] == 1
    opt.state["calls"]["n"] = 1
    with pytest.raises(StateError, match="parameters of Heavy as keys, not str 'calls'"):
        opt.state_dict()

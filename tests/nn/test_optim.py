"""Optimizers against their formulas in NumPy float64, and against PyTorch where installed."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

SGD_OPTIONS = [
    {"lr": 0.1},
    {"lr": 0.1, "weight_decay": 0.05},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.05, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.01},
    {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
]
ADAM_OPTIONS = [
    {"lr": 0.02},
    {"lr": 0.1, "betas": (0.5, 0.7), "eps": 1e-3},
    {"lr": 0.02, "weight_decay": 0.2},
]
CASES = [("SGD", o) for o in SGD_OPTIONS] + [
    (n, o) for n in ("Adam", "AdamW") for o in ADAM_OPTIONS
]
SHAPES = ((3, 4), (5,), ())
STEPS = 15


def gradients(step: int) -> list[np.ndarray]:
    rng = np.random.default_rng(step)
    return [rng.standard_normal(shape) * 10.0 ** (step % 3 - 1) for shape in SHAPES]


def start() -> list[np.ndarray]:
    rng = np.random.default_rng(99)
    return [rng.standard_normal(shape) for shape in SHAPES]


def has_gradient(step: int, i: int) -> bool:
    """The second parameter has none in every third step."""
    return not (i == 1 and step % 3 == 0)


class Reference:
    """The formulas of PyTorch's documentation, one parameter at a time."""

    def __init__(self, name: str, options: dict) -> None:
        self.name, self.o = name, options
        self.m = [None] * len(SHAPES)
        self.v = [0.0] * len(SHAPES)
        self.t = [0] * len(SHAPES)

    def update(self, i: int, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        o, lr = self.o, self.o["lr"]
        decay = o.get("weight_decay", 0.01 if self.name == "AdamW" else 0.0)
        self.t[i] += 1
        if self.name == "AdamW":
            p = p - lr * decay * p
        else:
            g = g + decay * p
        if self.name == "SGD":
            momentum = o.get("momentum", 0.0)
            if momentum:
                first = self.m[i] is None
                kept = g if first else (1 - o.get("dampening", 0.0)) * g
                self.m[i] = kept if first else momentum * self.m[i] + kept
                g = g + momentum * self.m[i] if o.get("nesterov") else self.m[i]
            return p - lr * g
        b1, b2 = o.get("betas", (0.9, 0.999))
        self.m[i] = b1 * (0.0 if self.m[i] is None else self.m[i]) + (1 - b1) * g
        self.v[i] = b2 * self.v[i] + (1 - b2) * g * g
        m = self.m[i] / (1 - b1 ** self.t[i])
        v = self.v[i] / (1 - b2 ** self.t[i])
        return p - lr * m / (np.sqrt(v) + o.get("eps", 1e-8))


def run_reference(name: str, options: dict) -> list[np.ndarray]:
    reference, params = Reference(name, options), start()
    for step in range(STEPS):
        for i, g in enumerate(gradients(step)):
            if has_gradient(step, i):
                params[i] = reference.update(i, params[i], g)
    return params


def run_kernelrt(name: str, options: dict, dtype: str, jitted: bool) -> list[np.ndarray]:
    params = [krt.tensor(p, dtype=dtype, requires_grad=True) for p in start()]
    opt = getattr(nn.optim, name)(params, **options)

    def step(everything, *grads):
        for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
            param.grad = grad * 1 if everything or i != 1 else None
        opt.step()

    run = krt.jit(step) if jitted else step
    for k in range(STEPS):
        grads = [krt.tensor(g, dtype=dtype) for g in gradients(k)]
        run(has_gradient(k, 1), *grads)
    return [p.numpy() for p in params]


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("jitted", [False, True])
def test_trajectory_is_that_of_the_formulas(name: str, options: dict, jitted: bool) -> None:
    for ours, expected in zip(
        run_kernelrt(name, options, "float64", jitted), run_reference(name, options), strict=True
    ):
        np.testing.assert_allclose(ours, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_float32_trajectory_is_close(name: str, options: dict) -> None:
    for ours, expected in zip(
        run_kernelrt(name, options, "float32", jitted=True),
        run_reference(name, options),
        strict=True,
    ):
        np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_trajectory_is_that_of_torch(name: str, options: dict) -> None:
    torch = pytest.importorskip("torch")
    params = [torch.tensor(p, requires_grad=True) for p in start()]
    opt = getattr(torch.optim, name)(params, **options)
    for k in range(STEPS):
        for i, (param, grad) in enumerate(zip(params, gradients(k), strict=True)):
            param.grad = torch.tensor(grad) if has_gradient(k, i) else None
        opt.step()
    for ours, theirs in zip(run_kernelrt(name, options, "float64", False), params, strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_defaults_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    w = krt.tensor([1.0], requires_grad=True)
    ours = getattr(nn.optim, name)([w])._options()
    theirs = getattr(torch.optim, name)([torch.ones(1, requires_grad=True)]).defaults
    for key, value in ours.items():
        assert theirs[key] == value, key


def test_precision_of_the_bias_correction_in_float32() -> None:
    """1 - beta2 ** t has no digits left in float32; Adam's first step is still lr."""
    w = krt.tensor([0.0], requires_grad=True)
    opt = nn.optim.Adam([w], lr=0.001, betas=(0.9, 0.999999), eps=0.0)
    w.grad = krt.tensor([3.0])
    opt.step()
    assert w.item() == pytest.approx(-0.001, rel=1e-6)


def test_parameters_without_gradient_stay() -> None:
    a, b = (krt.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    opt = nn.optim.Adam([a, b], lr=0.1, weight_decay=0.1)
    opt.step()
    (a * 2).sum().backward()
    opt.step()
    assert b.tolist() == [1, 2]
    assert a.numpy()[0] == pytest.approx(0.9, rel=1e-5)
    opt.zero_grad()
    assert a.grad is None


def test_state_dict_round_trip_continues_the_run() -> None:
    def make() -> tuple:
        w = krt.tensor(np.arange(4, dtype=np.float32), requires_grad=True)
        return w, nn.optim.Adam([w], lr=0.1)

    def steps(w: krt.Tensor, opt: nn.optim.Adam, n: int) -> None:
        for _ in range(n):
            opt.zero_grad()
            ((w - 1) ** 2).sum().backward()
            opt.step()

    w, opt = make()
    steps(w, opt, 3)
    saved = {k: v.numpy() for k, v in opt.state_dict().items()}
    assert list(saved) == ["lr", "step", "exp_avg.0", "exp_avg_sq.0"]
    other, fresh = make()
    other.assign(w)
    fresh.load_state_dict(saved)
    steps(w, opt, 5)
    steps(other, fresh, 5)
    assert np.array_equal(w.numpy(), other.numpy())


def test_learning_rate_tensor_is_used_as_it_is() -> None:
    lr = krt.tensor(0.5)
    w = krt.tensor([1.0], requires_grad=True)
    opt = nn.optim.SGD([w], lr=lr)
    w.grad = krt.tensor([1.0])
    opt.step()
    assert w.item() == 0.5
    lr.fill_(0.25)
    opt.step()
    assert w.item() == 0.25
    opt.lr = krt.tensor(0.125)
    assert lr.item() == 0.125
    assert opt.lr == 0.125
    assert "lr=0.125" in repr(opt)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_setting_the_learning_rate_leaves_lazy_readers_alone(dtype: str) -> None:
    lr = krt.tensor([0.5], dtype=dtype).reshape(()).realize()
    opt = nn.optim.SGD([krt.tensor([1.0], requires_grad=True)], lr=lr)
    for i in range(3):
        before = opt.lr
        lazy = lr * 2
        opt.lr = 0.25 * (i + 2)
        assert lazy.item() == 2 * before
        assert opt.lr == 0.25 * (i + 2)
    lr.assign(krt.tensor(4.0))
    opt.lr = 0.125
    assert opt.lr == 0.125


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_frozen_parameters_wait_until_they_are_thawed(name: str, jitted: bool) -> None:
    krt.manual_seed(3)
    body, head = nn.Linear(2, 2), nn.Linear(2, 1)
    model = nn.Sequential(body, head)
    body.requires_grad_(False)
    opt = getattr(nn.optim, name)(model.parameters(), lr=0.1)
    assert len(opt.params) == 4

    def step(x):
        opt.zero_grad()
        model(x).sum().backward()
        opt.step()

    run = krt.jit(step) if jitted else step
    x = krt.tensor(np.ones((1, 2), np.float32))
    for frozen in (True, True, False, True):
        body.requires_grad_(not frozen)
        before = body.weight.numpy(), head.weight.numpy()
        run(x)
        assert (body.weight.numpy() == before[0]).all() == frozen
        assert not (head.weight.numpy() == before[1]).all()


def test_optimizer_state_is_no_parameter() -> None:
    class Everything:
        def __init__(self) -> None:
            self.model = nn.Linear(2, 3)
            self.opt = nn.optim.Adam(nn.parameters(self.model))

    everything = Everything()
    assert len(nn.parameters(everything)) == 2
    assert "opt.exp_avg.1" in nn.state_dict(everything)


def test_bad_arguments_are_named() -> None:
    w = krt.tensor([1.0], requires_grad=True)
    model = nn.Linear(2, 2)
    with pytest.raises(krt.DomainError, match="lr"):
        nn.optim.SGD([w], lr=-1)
    with pytest.raises(krt.DomainError, match="lr"):
        nn.optim.SGD([w], lr=math.nan)
    with pytest.raises(krt.DTypeError, match="lr"):
        nn.optim.SGD([w], lr="fast")
    with pytest.raises(krt.ShapeError, match="lr"):
        nn.optim.SGD([w], lr=krt.ones(2))
    with pytest.raises(krt.DomainError, match="nesterov"):
        nn.optim.SGD([w], nesterov=True)
    with pytest.raises(krt.DomainError, match="betas"):
        nn.optim.Adam([w], betas=(0.9, 1.0))
    with pytest.raises(krt.DTypeError, match="betas"):
        nn.optim.Adam([w], betas=0.9)
    with pytest.raises(krt.DTypeError, match=r"params.*parameters"):
        nn.optim.Adam(model)
    with pytest.raises(krt.DTypeError, match=r"params.*parameters"):
        nn.optim.Adam(w)
    with pytest.raises(krt.DTypeError, match=r"params\[0\]"):
        nn.optim.Adam([model])
    with pytest.raises(krt.GradientError, match=r"params\[1\]"):
        nn.optim.Adam([w, krt.ones(2)])
    with pytest.raises(krt.GradientError, match=r"params\[0\].*result"):
        nn.optim.Adam([w * 2])
    with pytest.raises(krt.ShapeError, match=r"params\[1\]: the same tensor is given twice"):
        nn.optim.Adam([w, w])
    with pytest.raises(krt.ShapeError, match="at least one"):
        nn.optim.Adam([])
    opt = nn.optim.SGD([w], lr=1.0)
    with pytest.raises(krt.DomainError, match="lr"):
        opt.lr = -0.5
    with pytest.raises(krt.ShapeError, match="lr"):
        opt.lr = krt.ones(3)
    assert opt.lr == 1.0


def test_optimizers_can_be_copied_with_their_model() -> None:
    model = nn.Linear(2, 1)
    opt = nn.optim.Adam(model.parameters(), lr=0.1)
    pair = {"model": model, "opt": opt}
    for other in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):  # noqa: S301
        before = model.weight.numpy()
        other["model"](krt.ones(1, 2)).sum().backward()
        other["opt"].step()
        other["opt"].lr = 0.5
        assert not np.array_equal(other["model"].weight.numpy(), before)
        assert np.array_equal(model.weight.numpy(), before)
        assert opt.lr == 0.1


@pytest.mark.parametrize("make", [
    lambda p: nn.optim.SGD(p, 0.1), lambda p: nn.optim.SGD(p, 0.1, 0.9, dampening=0.5),
    lambda p: nn.optim.Adam(p, 0.1), lambda p: nn.optim.AdamW(p, 0.1),
])  # fmt: skip
def test_steps_that_are_run_again_are_those_that_a_trace_makes(make) -> None:
    """Other sets of gradients, other numbers and another learning rate, eager against jitted."""

    def train(wrap) -> list[np.ndarray]:
        krt.manual_seed(3)
        a, b = krt.randn(3, requires_grad=True), krt.randn(2, 3, requires_grad=True)
        opt = make([a, b])

        @wrap
        def both(x):
            opt.zero_grad()
            (a * x + b).square().mean().backward()
            opt.step()

        @wrap
        def one(x):
            opt.zero_grad()
            (b * x).square().mean().backward()
            opt.step()

        x = np.array([1, 2, 3], np.float32)
        for i in range(6):
            (one if i == 2 else both)(krt.tensor(x + i))
            if i == 3:
                opt.lr = 0.01
                opt.weight_decay = 0.1
        return [t.numpy() for t in opt.state_dict().values()] + [a.numpy(), b.numpy()]

    for got, expected in zip(train(lambda f: f), train(krt.jit), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)


def test_a_step_where_parameters_share_memory_or_lend_it_to_a_gradient() -> None:
    memory = np.array([1, 2, 3], np.float32)
    a = krt.from_numpy(memory).requires_grad_()
    opt = nn.optim.SGD([a], 0.5)
    for _ in range(3):
        a.grad = a.detach()
        opt.step()
    np.testing.assert_allclose(a.numpy(), np.array([1, 2, 3]) / 8)
    a.grad = krt.from_numpy(memory)
    opt.step()
    np.testing.assert_allclose(a.numpy(), np.array([1, 2, 3]) / 16)


def test_an_update_of_ones_own_is_asked_each_time() -> None:
    class Counted(nn.optim.SGD):
        def _update(self, active):
            self._steps_taken = getattr(self, "_steps_taken", 0) + 1
            for _, param, grad in active:
                param.assign(param - grad * float(self._steps_taken))

    w = krt.zeros(2, requires_grad=True)
    opt = Counted([w], 0.1)
    for _ in range(3):
        opt.zero_grad()
        w.sum().backward()
        opt.step()
    assert w.tolist() == [-6, -6]


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("first", [(0.9, 0.999), (0.0, 0.9), (0.9, 0.0), (0.0, 0.999)])
@pytest.mark.parametrize("second", [(0.9, 0.99), (0.0, 0.9), (0.9, 0.0), (0.0, 0.0)])
@pytest.mark.filterwarnings("error")
def test_decays_that_change_count_the_steps_as_torch_does(before, first, second):
    torch = pytest.importorskip("torch")
    data = np.linspace(-1, 1, 5)
    ours, theirs = krt.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    opt = nn.optim.Adam([ours], lr=0.01, betas=first)
    peer = torch.optim.Adam([theirs], lr=0.01, betas=first)

    def steps(count: int) -> None:
        for _ in range(count):
            opt.zero_grad()
            (ours * ours * ours).sum().backward()
            opt.step()
            peer.zero_grad()
            (theirs * theirs * theirs).sum().backward()
            peer.step()

    with np.errstate(all="raise"):
        steps(before)
        opt.betas = second
        peer.param_groups[0]["betas"] = second
        steps(3)
    assert opt.betas == second
    np.testing.assert_allclose(ours.tolist(), theirs.tolist(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
@pytest.mark.parametrize(
    "betas", [[(0.5, 0.6)], [(0.0, 0.0), (0.5, 0.6)], [(0.0, 0.9), (0.9, 0.0)]]
)
def test_decays_set_after_a_checkpoint_count_all_steps_as_torch_does(name, betas):
    torch = pytest.importorskip("torch")
    data = np.linspace(-1, 1, 5)
    ours, theirs = krt.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)

    def make(pair):
        return [
            getattr(optim, name)([leaf], 0.1, pair)
            for optim, leaf in ((nn.optim, ours), (torch.optim, theirs))
        ]

    def steps(opt, peer, count):
        for _ in range(count):
            opt.zero_grad()
            (ours * ours * ours).sum().backward()
            opt.step()
            peer.zero_grad()
            (theirs * theirs * theirs).sum().backward()
            peer.step()

    opt, peer = make((0.9, 0.999))
    steps(opt, peer, 3)
    resumed, rival = make(betas[0])
    resumed.load_state_dict({k: v.numpy().copy() for k, v in opt.state_dict().items()})
    rival.load_state_dict(peer.state_dict())
    for pair in betas:
        resumed.betas = rival.param_groups[0]["betas"] = pair
        steps(resumed, rival, 2)
        np.testing.assert_allclose(ours.tolist(), theirs.tolist(), rtol=1e-9, atol=1e-12)

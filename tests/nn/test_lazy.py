"""Layers that take the size of their input from the first one they see."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import DTypeError, JitError, ShapeError, StateError

torch = Package("torch")

CASES = [
    ("LazyLinear", (3,), {}, (2, 5)),
    ("LazyLinear", (), {"out_features": 3, "bias": False}, (4, 2, 5)),
    ("LazyConv1d", (4, 3), {"padding": 1}, (2, 3, 8)),
    ("LazyConv2d", (4,), {"kernel_size": 3}, (2, 3, 8, 7)),
    ("LazyConv3d", (4, 2), {}, (2, 3, 4, 3, 4)),
    ("LazyConvTranspose1d", (4, 3), {}, (2, 3, 8)),
    ("LazyConvTranspose2d", (4, 3, 2), {}, (2, 3, 5, 4)),
    ("LazyConvTranspose3d", (4, 2), {}, (2, 3, 4, 3, 4)),
    ("LazyBatchNorm1d", (), {}, (4, 3)),
    ("LazyBatchNorm2d", (), {"momentum": 0.2}, (4, 3, 2, 2)),
    ("LazyBatchNorm3d", (1e-3,), {}, (4, 3, 2, 2, 2)),
    ("LazyInstanceNorm1d", (), {}, (2, 3, 8)),
    ("LazyInstanceNorm2d", (), {"affine": False}, (2, 3, 4, 4)),
    ("LazyInstanceNorm3d", (), {}, (2, 3, 4, 4, 2)),
]


@pytest.mark.parametrize(("name", "args", "options", "shape"), CASES)
def test_they_become_plain_layers(name, args, options, shape):
    ours, theirs = getattr(nn, name)(*args, **options), getattr(torch.nn, name)(*args, **options)
    assert isinstance(ours, getattr(nn, name.removeprefix("Lazy")))
    assert repr(ours).startswith(name)
    assert ours.has_uninitialized_params()
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    ours.eval()
    theirs(torch.tensor(x))
    first = ours(krt.tensor(x))
    assert type(ours) is getattr(nn, name.removeprefix("Lazy"))
    assert not ours.training
    assert {n: p.shape for n, p in ours.state_dict().items()} == {
        n: tuple(p.shape) for n, p in theirs.state_dict().items()
    }
    ours.load_state_dict({n: krt.tensor(p.numpy()) for n, p in theirs.state_dict().items()})
    wanted = theirs.eval()(torch.tensor(x)).detach().numpy()
    assert first.shape == wanted.shape
    np.testing.assert_allclose(ours(krt.tensor(x)).detach().numpy(), wanted, atol=1e-5, rtol=1e-4)


def test_the_first_call_may_choose_the_size():
    layer = nn.LazyConvTranspose2d(4, 3, stride=2)
    with pytest.raises(ShapeError, match="output_size"):
        layer(krt.ones(2, 3, 5, 5), (13, 11))
    assert layer.has_uninitialized_params()
    assert layer(krt.ones(2, 3, 5, 5), output_size=(12, 11)).shape == (2, 4, 12, 11)
    assert layer(krt.ones(2, 3, 5, 5), (11, 12)).shape == (2, 4, 11, 12)


def test_networks_of_lazy_layers_learn():
    net = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(1))
    x, y = krt.randn(16, 3), krt.randn(16, 1)
    net.zero_grad()
    twin = pickle.loads(pickle.dumps(copy.deepcopy(net)))  # noqa: S301 - our own bytes
    assert twin(x).shape == net(x).shape
    opt = nn.optim.SGD(net.parameters(), lr=0.1)

    @krt.jit
    def step():
        opt.zero_grad()
        loss = net(x).mse_loss(y)
        loss.backward()
        opt.step()
        return loss

    losses = [step().item() for _ in range(20)]
    assert losses[-1] < losses[0]


def test_an_instance_alone():
    norm = nn.LazyInstanceNorm1d()
    assert norm(krt.ones(3, 8)).shape == (3, 8)
    assert norm.num_features == 3


@pytest.mark.parametrize("ask", [
    lambda m: nn.optim.SGD(m.parameters(), lr=0.1), lambda m: list(m.named_parameters()),
    lambda m: nn.parameters({"net": m}), lambda m: m.state_dict(), lambda m: list(m.buffers()),
    lambda m: m.load_state_dict({}, strict=False),
])  # fmt: skip
def test_parameters_that_are_not_there_yet_are_not_left_out(ask):
    net = nn.Sequential(nn.Linear(3, 3), nn.LazyLinear(4))
    with pytest.raises(StateError, match=r"1: LazyLinear has no parameters yet, .* call the"):
        ask(net)
    net(krt.ones(1, 3))
    ask(net)
    assert len(list(net.parameters())) == 4


@pytest.mark.parametrize(("name", "args", "options", "shape"), CASES)
def test_what_comes_before_the_first_call_holds_after_it(name, args, options, shape):
    ours, theirs = (
        package.nn.Sequential(getattr(package.nn, name)(*args, **options)).half().double()
        for package in (krt, torch)
    )
    ours.requires_grad_(False)
    x = np.random.default_rng(0).normal(size=shape)
    ours(krt.tensor(x))
    theirs(torch.tensor(x))
    theirs.requires_grad_(False)  # torch refuses it before
    state = theirs.state_dict(keep_vars=True)
    assert {n: (p.dtype.name, p.requires_grad) for n, p in ours.state_dict().items()} == {
        n: (str(p.dtype).removeprefix("torch."), p.requires_grad) for n, p in state.items()
    }
    assert len(list(ours.parameters())) == len(list(theirs.parameters()))


def test_errors():
    with pytest.raises(TypeError):
        nn.LazyLinear()
    layer = nn.LazyLinear(3)
    with pytest.raises(DTypeError, match="input: expected a Tensor, not list"):
        layer([1.0])
    with pytest.raises(ShapeError, match="LazyLinear cannot infer its input size from shape"):
        layer(krt.tensor(1.0))
    with pytest.raises(JitError, match="LazyLinear: cannot create its parameters inside a traced"):
        krt.jit(layer)(krt.ones(2, 2))
    norm = nn.LazyBatchNorm2d()
    with pytest.raises(ShapeError, match="BatchNorm2d"):
        norm(krt.ones(2, 3))
    assert norm.has_uninitialized_params()
    assert norm(krt.ones(2, 3, 2, 2)).shape == (2, 3, 2, 2)

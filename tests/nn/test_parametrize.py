"""Weights that functions compute from other tensors."""

from __future__ import annotations

import copy
import itertools
import pickle
import types

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import DomainError, DTypeError, ShapeError, StateError
from kernelrt.nn.utils import parametrizations, parametrize

torch = Package("torch")


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT


class Scaled(nn.Module):
    def __init__(self, factor):
        self.factor = nn.Parameter(krt.tensor(factor))

    def forward(self, x):
        return x * self.factor

    def right_inverse(self, y):
        return y / self.factor


def same(ours, theirs, **options):
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(), **{"rtol": 1e-5, "atol": 1e-6, **options}
    )


@pytest.mark.parametrize("leave", [False, True])
def test_frozen_tensors_stay_frozen_parameters(leave):
    layer = nn.Linear(3, 3).requires_grad_(False)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    layer.weight = krt.eye(3)
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=leave)
    assert {n for n, p in layer.named_parameters() if not p.requires_grad} == {"weight", "bias"}


def test_a_tensor_is_computed_and_assigned():
    layer = nn.Linear(3, 3)
    before = layer.weight
    assert parametrize.register_parametrization(layer, "weight", Symmetric()) is layer
    assert parametrize.is_parametrized(layer)
    assert parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    assert isinstance(layer, nn.Linear)
    assert layer.parametrizations.weight.original is before
    assert layer.weight.equal(layer.weight.mT)
    parametrize.register_parametrization(layer, "weight", Scaled(2.0))
    assert len(layer.parametrizations.weight) == 2
    assert [n for n, _ in layer.named_parameters()] == [
        "bias", "parametrizations.weight.original", "parametrizations.weight.1.factor",
    ]  # fmt: skip
    same(layer.weight, before.triu() * 2 + before.triu(1).mT * 2)
    new = krt.tensor(np.eye(3, dtype=np.float32) * 4)
    layer.weight = new
    same(layer.weight, new)
    same(before, new / 2)
    twin = copy.deepcopy(layer)
    layer(krt.ones(2, 3)).sum().backward()
    assert before.grad is not None
    same(twin.weight, new)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert not parametrize.is_parametrized(layer)
    same(layer.weight, new)
    assert sorted(layer.state_dict()) == ["bias", "weight"]


def test_two_tensors_of_a_layer():
    layer = nn.Linear(3, 3)
    bias, before = layer.bias, layer.bias.detach().numpy().copy()
    parametrize.register_parametrization(layer, "weight", Symmetric())
    parametrize.register_parametrization(layer, "bias", Scaled(3.0))
    same(layer.bias, krt.tensor(before))
    same(bias, krt.tensor(before / 3))
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    same(layer.bias, krt.tensor(before))
    same(bias, krt.tensor(before / 3))
    parametrize.remove_parametrizations(layer, "bias", leave_parametrized=False)
    assert layer.bias is bias
    assert type(layer) is nn.Linear


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim):
    theirs = torch.nn.Linear(3, 4)
    ours = nn.Linear(3, 4)
    ours.load_state_dict({k: krt.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    torch.nn.utils.parametrizations.weight_norm(theirs, dim=dim)
    parametrizations.weight_norm(ours, dim=dim)
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.state_dict().items()
    }
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    (ours(krt.tensor(x)) ** 2).sum().backward()
    (theirs(torch.tensor(x)) ** 2).sum().backward()
    for (_, a), (_, b) in zip(
        sorted(ours.named_parameters()), sorted(theirs.named_parameters()), strict=True
    ):
        same(a, b)
        same(a.grad, b.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("made", [lambda m: m.Linear(5, 4), lambda m: m.Conv2d(3, 4, 2),
                                  lambda m: m.ConvTranspose1d(3, 4, 2)])  # fmt: skip
def test_spectral_norm(made):
    krt.manual_seed(0)
    theirs, ours = made(torch.nn), made(nn)
    parametrizations.spectral_norm(ours, n_power_iterations=5)
    torch.nn.utils.parametrizations.spectral_norm(theirs)
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.state_dict().items()
    }
    for _ in range(20):
        weight = ours.weight
    axis = 1 if isinstance(ours, nn.ConvTranspose1d) else 0
    matrix = weight.detach().numpy()
    matrix = np.moveaxis(matrix, axis, 0).reshape(matrix.shape[axis], -1)
    np.testing.assert_allclose(np.linalg.norm(matrix, 2), 1, rtol=1e-4)
    ours.eval()
    same(ours.weight, ours.weight, rtol=0, atol=0)


@pytest.mark.cases(1)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley"])
def test_orthogonal(shape, orthogonal_map):
    layer = nn.Linear(shape[1], shape[0])
    parametrizations.orthogonal(layer, orthogonal_map=orthogonal_map)

    def distance():
        w = layer.weight.detach().numpy()
        w = w.T if shape[0] < shape[1] else w
        return np.abs(w.T @ w - np.eye(min(shape))).max()

    assert distance() < 1e-5
    x, y = krt.randn(16, shape[1]), krt.randn(16, shape[0])
    opt = nn.optim.SGD(layer.parameters(), lr=0.1)

    @krt.jit
    def step():
        opt.zero_grad()
        loss = layer(x).mse_loss(y)
        loss.backward()
        opt.step()
        return loss

    losses = [step().item() for _ in range(15)]
    assert losses[-1] < losses[0]
    assert distance() < 1e-5
    turned = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0][: shape[0], : shape[1]]
    if shape[0] == shape[1]:
        turned = np.linalg.qr(turned)[0]
    if shape != (4, 4):
        turned = np.linalg.qr(turned if shape[0] > shape[1] else turned.T)[0]
        turned = turned if shape[0] > shape[1] else turned.T
    layer.weight = krt.tensor(turned.astype(np.float32))
    np.testing.assert_allclose(layer.weight.detach().numpy(), turned, atol=1e-5)


@pytest.mark.parametrize("fault", ["shape", "raises", "kind"])
@pytest.mark.parametrize("second", [False, True])
def test_what_fails_to_register_changes_nothing(fault, second):
    body = {
        "shape": {"forward": lambda _, x: x.flatten()},
        "raises": {"forward": lambda _, x: 1 / 0},
        "kind": {"forward": lambda _, x: (x, x)},
    }[fault] | {"right_inverse": lambda _, y: y * 0}
    layer = nn.Linear(3, 2)
    if second:
        parametrize.register_parametrization(layer, "weight", nn.Identity())
    before = layer.weight.detach().numpy().copy()
    names = list(layer.state_dict())
    with pytest.raises((ShapeError, ZeroDivisionError, DTypeError)):
        parametrize.register_parametrization(layer, "weight", type("Bad", (nn.Module,), body)())
    np.testing.assert_array_equal(layer.weight.detach().numpy(), before)
    assert list(layer.state_dict()) == names


def test_what_cannot_be_taken_back_changes_nothing():
    class Pair(nn.Module):
        parts = staticmethod(lambda w: (w / 2, w / 2))

        def forward(self, a, b):
            return a + b

        def right_inverse(self, w):
            return self.parts(w)

    layer, pair = nn.Linear(3, 2), Pair()
    parametrize.register_parametrization(layer, "weight", pair)
    before = layer.weight.detach().numpy().copy()
    for parts, error, text in (
        (lambda w: (w * 0, w.flatten()), ShapeError, r"returns a tensor of shape \(6,\)"),
        (lambda w: (w * 0,), StateError, "returns 1 tensors, expected 2 as before"),
        (lambda w: (w * 0, w > 0), DTypeError, "returns bool, expected float32"),
        (lambda w: (w * 0, 1.0), DTypeError, "to return Tensors, not float"),
    ):
        pair.parts = parts
        with pytest.raises(error, match=text):
            layer.weight = krt.ones(2, 3)
        same(layer.weight, krt.tensor(before), rtol=0, atol=0)


#: Ways in which a tensor of a layer comes to be computed, and back.
WAYS = {
    "bias": (
        lambda layer, t: t.parametrize.register_parametrization(layer, "bias", t.double()),
        lambda layer, t: t.parametrize.remove_parametrizations(layer, "bias"),
    ),
    "weight": (lambda layer, t: t.weight_norm(layer), lambda layer, t: t.remove_weight_norm(layer)),
    "spectrum": (
        lambda layer, t: t.spectral_norm(layer, "other"),
        lambda layer, t: t.remove_spectral_norm(layer, "other"),
    ),
}  # fmt: skip


def tools(package):
    class Double(package.nn.Module):
        def forward(self, x):
            return x * 2

    utils = package.nn.utils
    names = ("weight_norm", "remove_weight_norm", "spectral_norm", "remove_spectral_norm")
    return types.SimpleNamespace(
        double=Double, parametrize=utils.parametrize, **{n: getattr(utils, n) for n in names}
    )


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("order", list(itertools.permutations(WAYS)))
@pytest.mark.parametrize("back", list(itertools.permutations(WAYS)))
def test_tensors_computed_in_several_ways_are_taken_back_in_any_order(order, back):
    weight, other = (np.random.default_rng(i).normal(size=(4, 3)) for i in range(2))
    layers = []
    for package in (torch, krt):
        layer = package.nn.Linear(3, 4).to(package.float64)
        layer.weight = package.nn.Parameter(package.tensor(weight))
        layer.other = package.nn.Parameter(package.tensor(other))
        layer.bias = package.nn.Parameter(package.ones(4, dtype=package.float64))
        kind = type(layer)
        for name in order:
            WAYS[name][0](layer, tools(package))
        layer.eval()
        layers.append(layer)
    theirs, ours = layers
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    x = np.ones((2, 3))
    for i in range(4):
        same(ours(krt.tensor(x)), theirs(torch.tensor(x)))
        if i < 3:
            WAYS[back[i]][1](ours, tools(krt))
            WAYS[back[i]][1](theirs, tools(torch))
    assert type(ours) is kind
    assert sorted(ours.state_dict()) == ["bias", "other", "weight"]


@pytest.mark.parametrize("way", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])  # noqa: S301
def test_copies_and_pickles(way):
    layer = nn.Linear(3, 4)
    layer.other = nn.Parameter(krt.randn(4, 3))
    parametrize.register_parametrization(layer, "bias", Scaled(2.0))
    nn.utils.weight_norm(layer)
    nn.utils.spectral_norm(layer, "other")
    twin = way(nn.Sequential(layer))[0]
    x = krt.ones(2, 3)
    same(twin.eval()(x), layer.eval()(x))
    same(twin.other, layer.other)
    nn.utils.remove_weight_norm(twin)
    parametrize.remove_parametrizations(twin, "bias")
    nn.utils.remove_spectral_norm(twin, "other")
    assert type(twin) is nn.Linear
    before = layer.other_u.numpy().copy()
    layer.train()(x)  # its own hook still improves what its own weight is made of
    assert not np.array_equal(layer.other_u.numpy(), before)
    same(twin(x), layer(x))


def test_what_is_computed_from_something_computed():
    layer = nn.utils.weight_norm(nn.Linear(3, 4))
    before = layer.weight.detach().numpy().copy()
    parametrize.register_parametrization(layer, "weight_v", Scaled(3.0))
    same(layer.weight, krt.tensor(before))
    with pytest.raises(StateError, match=r"from 'weight_v', .* make 'weight_v' a plain parameter"):
        nn.utils.remove_weight_norm(layer)
    with pytest.raises(StateError, match=r"name: expected .* of Linear that this .* not 'weight'"):
        nn.utils.remove_spectral_norm(layer)
    parametrize.remove_parametrizations(layer, "weight_v")
    nn.utils.remove_weight_norm(layer)
    same(layer.weight, krt.tensor(before))


class Odd(nn.Linear):
    def __reduce__(self):
        return Odd, (self.in_features, self.out_features)


def test_a_class_that_says_how_it_is_copied():
    layer = nn.utils.weight_norm(Odd(2, 2))
    with pytest.raises(StateError, match=r"Odd: the module cannot be copied .* weight"):
        copy.deepcopy(layer)
    nn.utils.remove_weight_norm(layer)
    assert type(copy.deepcopy(layer)) is Odd


def test_errors():
    layer = nn.Linear(3, 4)
    with pytest.raises(DTypeError, match="module: expected a Module, not int"):
        parametrize.register_parametrization(3, "weight", Symmetric())
    with pytest.raises(DTypeError, match="parametrization: expected a Module, not function"):
        parametrize.register_parametrization(layer, "weight", lambda x: x)
    with pytest.raises(StateError, match="tensor_name: Linear has no tensor 'w'"):
        parametrize.register_parametrization(layer, "w", Symmetric())
    with pytest.raises(ShapeError, match=r"parametrization: .* shape \(4, 3\) as before, not"):
        parametrize.register_parametrization(layer, "weight", nn.Flatten(0))
    parametrize.register_parametrization(layer, "weight", nn.Flatten(0), unsafe=True)
    assert layer.weight.shape == (12,)
    with pytest.raises(StateError, match="tensor_name: 'bias' of Linear is not parametrized"):
        parametrize.remove_parametrizations(layer, "bias")
    with pytest.raises(StateError, match="name: Linear has no tensor 'w'"):
        parametrizations.weight_norm(layer, "w")
    with pytest.raises(DomainError, match="orthogonal_map: expected 'matrix_exp' or 'cayley'"):
        parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="householder")
    with pytest.raises(ShapeError, match="name: expected matrices"):
        parametrizations.orthogonal(nn.Linear(2, 2), "bias")
    both = parametrizations.weight_norm(nn.Linear(2, 2))
    with pytest.raises(StateError, match="leave_parametrized"):
        parametrize.remove_parametrizations(both, "weight", leave_parametrized=False)
    with pytest.raises(DTypeError, match="weight: expected a Tensor, not float"):
        both.weight = 1.0

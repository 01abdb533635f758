"""Modules as functions of their tensors."""

from __future__ import annotations

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt import func, nn

torch = Package("torch")

X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)


class Tied(nn.Module):
    def __init__(self):
        self.first = nn.Linear(5, 5, bias=False)
        self.parts = {"again": self.first, "list": [nn.Linear(5, 2)]}
        self.twin = self.first.weight

    def forward(self, x, *, scale=1.0):
        return self.parts["list"][0](self.parts["again"](self.first(x)) @ self.twin) * scale


def zeros(module):
    return {n: krt.zeros(p.shape) for n, p in module.named_parameters()}


def test_against_torch():
    theirs = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    ours = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))
    given = {n: p.detach().numpy() for n, p in theirs.named_parameters()}
    parameters = {n: krt.tensor(a) for n, a in given.items()}

    def loss(kit, module, p, x):
        return (kit.functional_call(module, p, (x,)) ** 2).mean()

    found = func.grad(lambda p: loss(func, ours, p, krt.tensor(X)))(parameters)
    wanted = torch.func.grad(lambda p: loss(torch.func, theirs, p, torch.tensor(X)))(
        {n: torch.tensor(a) for n, a in given.items()}
    )
    assert list(found) == list(wanted)
    for name, slope in found.items():
        np.testing.assert_allclose(slope.numpy(), wanted[name].numpy(), rtol=2e-5, atol=1e-6)


def test_the_module_stays_as_it_was():
    module = Tied()
    held = dict(module.named_parameters())
    before = module(krt.tensor(X)).numpy()
    assert not func.functional_call(module, zeros(module), krt.tensor(X)).numpy().any()
    for name, p in module.named_parameters():
        assert p is held[name]
    np.testing.assert_array_equal(module(krt.tensor(X)).numpy(), before)
    assert module.parts["again"].weight is module.first.weight is module.twin
    with pytest.raises(krt.KernelrtError):
        func.functional_call(module, zeros(module), krt.ones(7))
    assert module.twin is held["twin"]


def test_a_tensor_is_replaced_under_each_of_its_names():
    module = Tied()
    new = krt.tensor(np.eye(5, dtype=np.float32) * 2)
    out = func.functional_call(module, {"first.weight": new}, (krt.tensor(X),), {"scale": 0.5})
    last = module.parts["list"][0]
    expected = (8 * X @ last.weight.numpy().T + last.bias.numpy()) * 0.5
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_several_dicts():
    module = nn.Linear(5, 1)
    parts = ({"weight": krt.ones((1, 5))}, {"bias": krt.ones(1)})
    out = func.functional_call(module, parts, krt.ones(5))
    assert out.tolist() == [6]


def test_refusals():
    module = Tied()
    with pytest.raises(krt.KernelrtError, match=r"no tensor 'nothing'.*first\.weight"):
        func.functional_call(module, {"nothing": krt.ones(1)}, krt.ones(5))
    with pytest.raises(krt.ShapeError, match=r"first\.weight.*\(5, 5\)"):
        func.functional_call(module, {"first.weight": krt.ones(5)}, krt.ones(5))
    with pytest.raises(krt.DTypeError, match=r"first\.weight"):
        func.functional_call(module, {"first.weight": 1.0}, krt.ones(5))
    names = {"first.weight": krt.ones((5, 5)), "twin": krt.zeros((5, 5))}
    with pytest.raises(krt.KernelrtError, match=r"under the names twin and first\.weight"):
        func.functional_call(module, names, krt.ones(5))
    with pytest.raises(krt.DTypeError, match="named_parameters"):
        func.functional_call(module, [krt.ones(1)], krt.ones(5))

"""What is set as an attribute of a container is part of it, as in PyTorch."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import DTypeError, StateError

torch = Package("torch")


def both(make):
    """The same of kernelrt and of PyTorch."""
    return make(nn), make(torch.nn)


def names(module) -> list[str]:
    return list(module.state_dict())


def children(module) -> list[tuple[str, str]]:
    return [(name, type(child).__name__) for name, child in module.named_children()]


def heads(k):
    class Heads(k.ModuleDict):
        def __init__(self):
            super().__init__({"body": k.Linear(4, 8)})
            self.out = k.Linear(8, 1)
            self.drop = k.Dropout(0.5)

    return Heads()


def scaled(k):
    class Scaled(k.Sequential):
        def __init__(self):
            super().__init__(k.Linear(3, 3), k.Tanh())
            self.scale = k.Parameter(krt.ones(1) if k is nn else torch.ones(1))
            self.register_buffer("n", krt.zeros(2) if k is nn else torch.zeros(2))
            self.head = k.Linear(3, 2)

    return Scaled()


def listed(k):
    class Listed(k.ModuleList):
        def __init__(self):
            super().__init__([k.Linear(2, 2)])
            self.scale = k.Parameter(krt.ones(1) if k is nn else torch.ones(1))

    return Listed()


def added(k):
    s = k.Sequential()
    s.add_module("a", k.Linear(3, 4))
    s.register_module("b", k.ReLU())
    s.c = k.Linear(4, 2)
    return s


def ordered(k):
    s = k.Sequential(OrderedDict(a=k.Linear(3, 4), act=k.ReLU(), b=k.Linear(4, 2)))
    s.b = k.Linear(4, 5)
    return s


def edited(k):
    s = k.Sequential(k.Linear(3, 3), k.ReLU(), k.Linear(3, 2), k.Tanh())
    s[1] = k.Sigmoid()
    del s[3]
    s.insert(1, k.Linear(3, 3))
    s.extend([k.Linear(2, 7)])
    s.pop(0)
    return s


@pytest.mark.parametrize("make", [heads, scaled, listed, added, ordered, edited])
def test_names_and_children(make):
    ours, theirs = both(make)
    assert names(ours) == names(theirs)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert children(ours) == children(theirs)
    assert len(ours) == len(theirs)
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    ours.load_state_dict(state)
    for name, value in ours.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), state[name])
    ours.eval()
    assert not any(module.training for module in ours.modules())


@pytest.mark.parametrize("make", [added, ordered, edited])
def test_layers_that_are_attributes_are_applied(make):
    ours, theirs = both(make)
    ours.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    wanted = theirs(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(ours(krt.tensor(x)).numpy(), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(krt.jit(ours)(x).numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_items_are_attributes():
    s = ordered(nn)
    assert s.a is s[0]
    assert getattr(nn.Sequential(nn.ReLU()), "0") is not None
    d = nn.ModuleDict({"body": nn.ReLU()})
    assert d.body is d["body"]
    d.other = nn.Tanh()
    assert list(d) == ["body", "other"]
    del d.body
    assert list(d) == ["other"]
    with pytest.raises(AttributeError, match="'ModuleDict' object has no attribute 'body'"):
        d.body  # noqa: B018
    with pytest.raises(AttributeError):
        del nn.Sequential(nn.ReLU()).missing


def test_modules_are_exchanged_by_name():
    for model in (nn.Sequential(nn.ReLU(), nn.Linear(2, 2)), nn.ModuleList([nn.ReLU(), nn.ReLU()])):
        for name, _ in model.named_children():
            setattr(model, name, nn.GELU())
        assert all(isinstance(child, nn.GELU) for child in model.children())

    class Plain(nn.Module):
        def __init__(self):
            self.layers = [nn.ReLU()]

    with pytest.raises(StateError, match=r"'layers\.0' is not a valid attribute name"):
        setattr(Plain(), "layers.0", nn.GELU())


def test_an_exchanged_layer_is_traced_anew():
    model = nn.Sequential(nn.ReLU())
    f = krt.jit(model)
    x = np.array([-1.0, 2.0], np.float32)
    assert f(x).tolist() == [0, 2]
    setattr(model, "0", nn.Tanh())
    np.testing.assert_allclose(f(x).numpy(), np.tanh(x), rtol=1e-6)
    model.more = nn.ReLU()
    np.testing.assert_allclose(f(x).numpy(), np.maximum(np.tanh(x), 0), rtol=1e-6)


def test_what_is_an_attribute_is_trained():
    model = heads(nn)
    before = model.out.weight.numpy().copy()
    opt = nn.optim.SGD(model.parameters(), lr=0.1)
    x = krt.ones(2, 4)
    (model.out(model["body"](x)) ** 2).sum().backward()
    opt.step()
    assert not np.array_equal(before, model.out.weight.numpy())
    model.double()
    assert model.out.weight.dtype.name == "float64"
    model.requires_grad_(False)
    assert not model.out.weight.requires_grad


@pytest.mark.parametrize("make", [heads, scaled, listed, ordered])
def test_copies_and_pickles(make):
    ours = make(nn)
    again = copy.deepcopy(ours)
    assert names(again) == names(ours)
    assert children(again) == children(ours)


def test_a_pickled_container_has_its_layers():
    model = nn.Sequential(OrderedDict(a=nn.Linear(3, 4)))
    model.head = nn.Linear(4, 2)
    again = pickle.loads(pickle.dumps(model))  # noqa: S301
    assert names(again) == names(model)


def test_slices_and_sums():
    ours, theirs = both(lambda k: k.Sequential(k.Linear(3, 3), k.ReLU(), k.Linear(3, 2)))
    assert names(ours[1:]) == names(theirs[1:])
    assert names(ours + nn.Sequential(nn.Linear(2, 2))) == names(
        theirs + torch.nn.Sequential(torch.nn.Linear(2, 2))
    )
    assert ours.pop() is not None
    assert len(ours) == 2


def test_what_is_no_item_yet():
    class Early(nn.Sequential):
        def __init__(self):
            self.inner = nn.Linear(2, 2)
            super().__init__(nn.ReLU())

    with pytest.raises(StateError, match="call super"):
        Early()


def test_registering_over_what_is_there():
    layer = nn.Linear(2, 2)
    layer.register_parameter("bias", None)
    assert layer.bias is None
    assert names(layer) == ["weight"]
    layer.register_parameter("weight", nn.Parameter(krt.ones(2, 2)))
    layer.add_module("inner", nn.ReLU())
    layer.add_module("inner", nn.Tanh())
    assert isinstance(layer.inner, nn.Tanh)
    with pytest.raises(StateError, match="already has an attribute 'weight'"):
        layer.add_module("weight", nn.ReLU())
    with pytest.raises(StateError, match="already has an attribute 'forward'"):
        layer.register_buffer("forward", krt.zeros(1))
    for name in ("a.b", "", 3):
        with pytest.raises(DTypeError, match="name: expected an attribute name"):
            layer.add_module(name, nn.ReLU())

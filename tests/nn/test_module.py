"""Modules: finding parameters in object trees, modes, containers, text."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import DTypeError, StateError

torch = Package("torch")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        self.linear = nn.Linear(width, width)
        self.scale = krt.ones(width, requires_grad=True)
        self.offset = krt.zeros(width)

    def forward(self, x):
        return self.linear(x).relu() * self.scale + self.offset


def test_parameters_are_found_wherever_they_are() -> None:
    Heads = namedtuple("Heads", ["left", "right"])  # noqa: PYI024

    class Plain:
        def __init__(self) -> None:
            self.block = Block(3)
            self.heads = Heads(nn.Linear(3, 1), [nn.Linear(3, 2, bias=False)])
            self.table = {"a": krt.ones(2, requires_grad=True), 7: (nn.Embedding(2, 2),)}
            self.number = 3
            self.array = np.ones(3)
            self.itself = self

    names = [name for name, _ in nn.named_parameters(Plain())]
    assert names == [
        "block.scale",
        "block.linear.weight",
        "block.linear.bias",
        "heads.left.weight",
        "heads.left.bias",
        "heads.right.0.weight",
        "table.a",
        "table.7.0.weight",
    ]
    assert next(n for n, _ in nn.named_parameters(Block(2), prefix="net")) == "net.scale"


def test_shared_parameters_come_once_but_are_saved_under_each_name() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.embed = nn.Embedding(5, 3)
            self.out = nn.Linear(3, 5)
            self.out.weight = self.embed.weight
            self.again = self.out

    tied = Tied()
    assert [n for n, _ in tied.named_parameters()] == ["embed.weight", "out.bias"]
    assert list(tied.state_dict()) == [
        "embed.weight", "out.weight", "out.bias", "again.weight", "again.bias",
    ]  # fmt: skip
    assert [n for n, _ in tied.named_modules()] == ["", "embed", "out"]


def test_intermediate_results_are_no_parameters() -> None:
    w = krt.ones(2, requires_grad=True)
    assert nn.parameters([w, w * 2, krt.ones(2)]) == [w]


def test_deep_trees_do_not_meet_the_recursion_limit() -> None:
    tree: list = [krt.ones(1, requires_grad=True)]
    for _ in range(5000):
        tree = [tree]
    assert len(nn.parameters(tree)) == 1


def test_modes_reach_every_module() -> None:
    model = nn.Sequential(nn.Dropout(), Block(2), nn.Sequential(nn.Dropout()))
    assert all(m.training for m in model.modules())
    assert model.eval() is model
    assert not any(m.training for m in model.modules())
    model.train()
    assert all(m.training for m in model.modules())
    with pytest.raises(krt.DTypeError, match="mode"):
        model.train("yes")


def test_freezing() -> None:
    block = Block(2)
    names = ["scale", "linear.weight", "linear.bias"]
    block.linear.requires_grad_(False)
    assert [n for n, _ in block.named_parameters()] == names
    assert [p.requires_grad for p in block.parameters()] == [True, False, False]
    assert list(block.state_dict()) == ["scale", "offset", "linear.weight", "linear.bias"]
    for required in (False, True, False):
        block.requires_grad_(required)
        assert [p.requires_grad for p in block.parameters()] == [required] * 3
        assert not block.offset.requires_grad
    for required in (True, False):
        for parameter in block.parameters():
            parameter.requires_grad_(required)
        assert [p.requires_grad for p in nn.parameters(block)] == [required] * 3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_frozen_stays_a_parameter_wherever_it_goes(tmp_path, dtype) -> None:
    block = nn.ModuleList([nn.Linear(2, 2, dtype=dtype), Block(2)])
    block[1](krt.ones(1, 2)).sum().backward()
    block.requires_grad_(False)
    wanted = [n for n, _ in block.named_parameters()]
    nn.save(nn.state_dict(block), tmp_path / "block.safetensors")
    loaded = nn.ModuleList([nn.Linear(2, 2, dtype=dtype), Block(2)]).requires_grad_(False)
    loaded.load_state_dict(nn.load(tmp_path / "block.safetensors"))
    copied = copy.deepcopy(block)
    pickled = pickle.loads(pickle.dumps(block))  # noqa: S301 - our own bytes
    weights = block[0].weight.tolist()
    for other in (block, copied, pickled, loaded):
        assert [n for n, _ in other.named_parameters()] == wanted
        assert not any(p.requires_grad for p in other.parameters())
        assert other[0].weight.tolist() == weights
        other[0].weight.assign(other[0].weight * 0 + 2)
        assert [n for n, _ in other.named_parameters()] == wanted
        assert other[0].weight.tolist() == [[2, 2], [2, 2]]
        assert [n for n, _ in other.named_parameters()] == wanted
    assert copied[1].scale.grad.tolist() == block[1].scale.grad.tolist()
    copied.requires_grad_()
    assert all(p.requires_grad for p in copied.parameters())


def test_a_frozen_parameter_that_was_not_computed_yet_stays_one() -> None:
    w = (krt.ones(3) * 2).requires_grad_().requires_grad_(False)
    assert nn.parameters([w]) == [w]
    assert w.tolist() == [2, 2, 2]
    assert nn.parameters([w]) == [w]
    assert w.requires_grad_().requires_grad


def test_frozen_parameters_of_integers_are_those_of_torch() -> None:
    found = []
    for lib in (krt, torch):
        model = lib.nn.Linear(2, 3)
        model.codes = lib.nn.Parameter(lib.tensor([3, -4], dtype=lib.int8), requires_grad=False)
        model.mask = lib.nn.Parameter(lib.tensor([True, False]), requires_grad=False)
        loaded = lib.nn.Linear(2, 3)
        loaded.codes = lib.nn.Parameter(lib.zeros(2, dtype=lib.int8), requires_grad=False)
        loaded.mask = lib.nn.Parameter(lib.zeros(2, dtype=lib.bool), requires_grad=False)
        loaded.load_state_dict(model.state_dict())
        pickled = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes
        copied = copy.deepcopy(model)
        narrow, wide = copy.deepcopy(model).half(), copy.deepcopy(model).to(lib.float64)
        models = [model, copied, pickled, loaded, narrow, wide]
        found.append([
            [
                (name, str(p.dtype).split(".")[-1], p.requires_grad, tuple(p.shape))
                for name, p in each.named_parameters()
            ] + [list(each.state_dict()), each.codes.tolist(), each.mask.tolist()]
            for each in models
        ])  # fmt: skip
        with pytest.raises(RuntimeError, match="require"):
            model.codes.requires_grad_()
        with pytest.raises(RuntimeError, match="require"):
            lib.nn.Parameter(model.codes)
    assert found[0] == found[1]


def test_results_of_what_is_frozen_are_no_parameters() -> None:
    w = krt.ones(3, requires_grad=True).requires_grad_(False)
    assert nn.parameters([w * 2, w.detach(), w.clone(), w[1:], copy.copy(w)]) == []


def test_a_frozen_parameter_changes_in_place() -> None:
    w, x = krt.ones(2, requires_grad=True), krt.ones(2, requires_grad=True)
    model = [w.requires_grad_(False)]
    for p in nn.parameters(model):
        p *= 3  # noqa: PLW2901
        p += krt.tensor([0.0, 1.0])  # noqa: PLW2901
    assert w.tolist() == [3, 4]
    with pytest.raises(krt.GradientError, match=r"\+=.*no history.*no_grad"):
        w += x
    with krt.no_grad():
        w += x
    assert model[0].tolist() == w.tolist() == [4, 5]


def test_zero_grad() -> None:
    block = Block(2)
    block(krt.ones(1, 2)).sum().backward()
    assert block.scale.grad is not None
    block.zero_grad()
    assert all(p.grad is None for p in block.parameters())


def test_sequential() -> None:
    model = nn.Sequential(nn.Linear(2, 3), lambda x: x * 2, nn.ReLU())
    assert len(model) == 3
    assert isinstance(model[-1], nn.ReLU)
    head = model[:2]
    assert isinstance(head, nn.Sequential)
    assert head[0] is model[0]
    assert next(type(m).__name__ for m in model) == "Linear"
    model.append(nn.Linear(3, 1))
    assert [n for n, _ in model.named_parameters()] == [
        "0.weight", "0.bias", "3.weight", "3.bias",
    ]  # fmt: skip
    assert model(krt.ones(4, 2)).shape == (4, 1)
    named = nn.Sequential(OrderedDict(first=nn.Linear(1, 1), act=nn.Tanh()))
    assert [n for n, _ in named.named_parameters()] == ["first.weight", "first.bias"]


def test_module_list() -> None:
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))
    layers.append(nn.Linear(2, 1))
    assert [n for n, _ in layers.named_parameters()][-1] == "2.bias"
    assert len(layers) == 3
    assert [m is layers[i] for i, m in enumerate(layers)] == [True] * 3
    with pytest.raises(krt.DTypeError, match="module"):
        layers.append("x")


def test_text() -> None:
    assert repr(nn.Linear(2, 3, bias=False)) == "Linear(2, 3, bias=False)"
    assert repr(nn.Conv2d(1, 2, 3, padding=1)) == (
        "Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))"
    )
    assert repr(nn.Sequential(nn.ReLU(), nn.Dropout(0.1))) == (
        "Sequential(\n  (0): ReLU()\n  (1): Dropout(p=0.1)\n)"
    )


def test_copies_and_pickles_are_independent() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5)).eval()
    x = krt.ones(1, 2)
    expected = model(x).tolist()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert other(x).tolist() == expected
        assert not other.training
        assert len(nn.parameters(other)) == 2
        other[0].weight.assign(0.0)
        assert model(x).tolist() == expected


def test_a_module_without_forward_says_so() -> None:
    with pytest.raises(NotImplementedError, match="Module"):
        nn.Module()(1)


class Sums(nn.Module):
    def forward(self, a: krt.Tensor, *, b: krt.Tensor) -> krt.Tensor:
        return a.relu() + b.exp()


class Foreign:
    shape = (2, 3)


@pytest.mark.parametrize(
    "value", [np.ones((2, 3), np.float32), [[1.0, 2.0, 3.0]], 1, "text", None, Foreign()],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_arguments_that_are_no_tensors_are_named(value) -> None:
    kind = type(value).__name__
    image = krt.ones(1, 1, 3, 3)
    for call, name, module in (
        (lambda: nn.Linear(3, 2)(value), "input", "Linear"),
        (lambda: nn.Sequential(nn.Linear(3, 2), nn.ReLU())(value), "input", "Linear"),
        (lambda: nn.ReLU()(value), "input", "ReLU"),
        (lambda: nn.Embedding(3, 2)(value), "input", "Embedding"),
        (lambda: nn.Embedding(3, 2)(input=value), "input", "Embedding"),
        (lambda: nn.Conv2d(1, 1, 3)(value), "input", "Conv2d"),
        (lambda: Sums()(value, b=image), "a", "Sums"),
        (lambda: Sums()(image, b=value), "b", "Sums"),
    ):
        expected = rf"^{name}: {module} expects a Tensor, not (\w+\.)?{kind}; convert it with"
        with pytest.raises(krt.DTypeError, match=expected) as caught:
            call()
        assert ("jitted function" in str(caught.value)) == isinstance(value, np.ndarray)


def test_other_attribute_errors_are_as_they_were() -> None:
    class Missing(nn.Module):
        def forward(self, a):
            return self.nothing(a)

    class Own(nn.Module):
        def forward(self, a):
            return np.asarray(a)[:0].relu()

    for module, name in ((Missing(), "nothing"), (Own(), "relu")):
        with pytest.raises(AttributeError, match=name) as caught:
            module(np.ones(3))
        assert not isinstance(caught.value, krt.KernelrtError)


def test_buffers_are_attributes() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            self.register_buffer("count", krt.zeros(3))
            self.register_buffer("nothing", None)

    module = Counts()
    assert list(module.state_dict()) == ["count"]
    assert not list(module.parameters())
    assert module.nothing is None
    for name, value, error, text in (
        ("forward", krt.ones(1), StateError, "Counts already has an attribute 'forward'"),
        ("a.b", krt.ones(1), DTypeError, "attribute name without"),
        ("more", np.ones(1), DTypeError, "expected a Tensor or None"),
    ):
        with pytest.raises(error, match=text):
            module.register_buffer(name, value)
    module.register_buffer("count", krt.ones(2))  # in the place of another one, as PyTorch's
    assert module.count.shape == (2,)
    module.register_buffer("passing", krt.ones(1), persistent=False)
    assert "passing" not in module.state_dict()
    assert "passing" in dict(module.named_buffers())
    with pytest.raises(krt.errors.GradientError, match="would be a parameter"):
        module.register_buffer("more", krt.ones(1, requires_grad=True))
    assert not hasattr(module, "more")
    module.register_buffer("compile", krt.ones(1))  # a name that errors know
    assert module.compile.item() == 1


def nested(lib):
    """A module with parameters, buffers and modules of its own, one of them with two names."""

    class Inner(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = lib.nn.Parameter(lib.ones(2))
            self.register_buffer("mean", lib.zeros(2))

    class Outer(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = lib.nn.Parameter(lib.ones(3))
            self.same = self.scale
            self.register_buffer("count", lib.zeros(1))
            self.inner = Inner()
            self.again = self.inner

    return Outer()


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("recurse", [True, False])
@pytest.mark.parametrize("method", ["named_parameters", "named_buffers"])
def test_named_tensors_take_the_keywords_of_pytorch(method, recurse, once):
    torch = pytest.importorskip("torch")
    options = {"prefix": "a", "recurse": recurse, "remove_duplicate": once}
    found, wanted = (
        [name for name, _ in getattr(nested(lib), method)(**options)] for lib in (krt, torch)
    )
    assert found == wanted
    for each in ("parameters", "buffers"):
        found, wanted = (len(list(getattr(nested(lib), each)(recurse))) for lib in (krt, torch))
        assert found == wanted


def test_named_modules_take_the_keywords_of_pytorch():
    torch = pytest.importorskip("torch")

    def names(lib):
        module = nested(lib)
        memo = {module.inner}
        return (
            [name for name, _ in module.named_modules(prefix="a")],
            [name for name, _ in module.named_modules(remove_duplicate=False)],
            [name for name, _ in module.named_modules(memo)], memo == {module, module.inner},
            len(list(module.modules())), len(list(module.modules(remove_duplicate=False))),
        )  # fmt: skip

    assert names(krt) == names(torch)


class Equal(nn.Module):  # noqa: PLW1641 - the lack of a hash is the point
    """All instances are equal, and have no hash."""

    def __init__(self, n: int = 3) -> None:
        self.lin = nn.Linear(n, n)
        self.register_buffer("count", krt.zeros(1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def forward(self, x: krt.Tensor) -> krt.Tensor:
        return self.lin(x) + self.count


@pytest.mark.parametrize(
    "use",
    [
        lambda m: [n for n, _ in m.named_modules()] == ["", "0", "0.lin", "1", "1.lin"],
        lambda m: len([*m.named_modules(memo={m[0].lin})]) == 4,
        lambda m: len([*m.children()]) == 2,
        lambda m: len([*m.parameters()]) == len(nn.parameters(m)) == 4,
        lambda m: len([*m.buffers()]) == 2,
        lambda m: len(m.state_dict()) == 6,
        lambda m: m.load_state_dict(m.state_dict()).missing_keys == [],
        lambda m: m.double()[1].lin.weight.dtype == krt.float64,
        lambda m: m.eval()[1].training is False,
        lambda m: m.get_submodule("1.lin") is m[1].lin,
        lambda m: m.apply(lambda each: each.__dict__.update(met=True))[1].met,
        lambda m: not any(p.requires_grad for p in m.requires_grad_(False).parameters()),
        lambda m: "(1): Equal" in repr(m),
        lambda m: copy.deepcopy(m)[1] is not m[1],
        lambda m: "1: Equal" in m._repr_html_(),
        lambda m: krt.func.stack_module_state([*m])[0]["lin.weight"].shape == (2, 3, 3),
    ],
)
def test_modules_are_told_apart_by_identity(use):
    assert use(nn.Sequential(Equal(), Equal()))


def test_an_equal_module_is_another_one_in_a_trace():
    model, x = nn.Sequential(Equal(), Equal()), krt.rand(2, 3)
    step = krt.jit(model)
    step(x)
    model[1] = Equal()
    np.testing.assert_allclose(step(x).numpy(), model(x).numpy(), rtol=1e-6)


def test_state_dicts_take_the_keywords_of_pytorch():
    module, given = nn.Linear(2, 3), {"x": krt.zeros(1)}
    found = module.state_dict(destination=given, prefix="a.", keep_vars=True)
    assert found is given
    assert list(found) == ["x", "a.weight", "a.bias"]
    assert list(module.state_dict(prefix="a")) == ["a.weight", "a.bias"]
    module.load_state_dict(nn.Linear(2, 3).state_dict(), assign=False)
    with pytest.raises(StateError, match=r"assign: .* nn\.Parameter\(value\)"):
        module.load_state_dict(module.state_dict(), assign=True)


@pytest.mark.parametrize("failing", ["no", "before", "forward", "after"])
def test_hooks_are_always_called_as_in_pytorch(failing):
    torch = pytest.importorskip("torch")

    def run(lib):
        calls = []

        def fail(*_):
            raise ValueError(failing)

        class Inner(lib.nn.Module):
            def forward(self, x, more=0):
                return fail() if failing == "forward" else x + more

        module, hook = Inner(), lambda _, args, kwargs, result: calls.append((kwargs, result))
        module.register_forward_hook(hook, with_kwargs=True, always_call=True)
        module.register_forward_hook(lambda *_: calls.append("usual"))
        if failing == "before":
            module.register_forward_pre_hook(fail)
        if failing == "after":
            module.register_forward_hook(fail)
        module.register_forward_hook(lambda *a: calls.append(a[1:]), always_call=True)
        module.register_forward_hook(lambda *_: calls.append("first"), prepend=True)
        try:
            calls.append(module(1, more=2))
        except ValueError as error:
            calls.append(str(error))
        return calls

    assert run(krt) == run(torch)

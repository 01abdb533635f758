"""copy, deepcopy and pickle: each gives what it says, or a typed error."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

if TYPE_CHECKING:
    from collections.abc import Callable

F32 = np.float32
N = krt.Variable("n", 1, 40)


def repickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - what was made here


WAYS = [copy.copy, copy.deepcopy, repickled]
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


def double(x: krt.Tensor) -> krt.Tensor:
    return x * 2


class Model(nn.Module):
    def __init__(self) -> None:
        self.inner = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
        self.steps = krt.zeros(())

    def forward(self, x: krt.Tensor) -> krt.Tensor:
        return self.inner(x)

    @krt.jit(threads=1)
    def run(self, x: krt.Tensor) -> krt.Tensor:
        return self(x)


@every_way
@pytest.mark.parametrize(
    "make",
    [
        lambda: krt.jit(double)(np.ones(3, F32)),
        lambda: krt.jit(double)(np.ones((0, 3), F32)),
        lambda: krt.ones(3) + 1,
        lambda: krt.tensor(2.5),
        lambda: krt.ones(3, dtype="bfloat16"),
        lambda: krt.tensor(np.ones((2, 2)), requires_grad=True),
        lambda: krt.arange(4).cast("int8").realize(),
        lambda: krt.tensor([True, False]),
    ],
)
def test_tensors(way: Callable[[Any], Any], make: Callable[[], krt.Tensor]) -> None:
    tensor = make()
    other = way(tensor)
    assert other is not tensor
    assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape)
    assert other.tolist() == tensor.tolist()
    assert other.requires_grad == tensor.requires_grad
    before = tensor.detach().tolist()
    if not other.requires_grad:
        other.assign(other.cast(other.dtype) if tensor.dtype is krt.bool_ else other + other)
    assert tensor.tolist() == before


def test_a_deep_copy_has_its_gradient_and_no_history() -> None:
    w = krt.tensor([1.0, 2.0], requires_grad=True)
    (w * 3).sum().backward()
    twin = copy.deepcopy(w)
    assert twin.grad.tolist() == [3, 3]
    (twin * 1).sum().backward()
    assert (twin.grad.tolist(), w.grad.tolist()) == ([4, 4], [3, 3])
    with pytest.raises(krt.GradientError, match=r"detach\(\)"):
        copy.deepcopy(w * 2)


@every_way
def test_jitted_functions_keep_their_options(way: Callable[[Any], Any]) -> None:
    f = krt.jit(double, dynamic={"x": {0: N}}, threads=1, keep_grads=True)
    f(np.ones(3, F32))
    other = way(f)
    assert other is not f
    assert other._options() == f._options()
    for size in (1, 5):
        assert other(np.ones(size, F32)).tolist() == [2] * size
    assert len(other.plans) == 1


@krt.jit
def halve(x: krt.Tensor) -> krt.Tensor:
    return x / 2


class Holder:
    def __init__(self) -> None:
        self.w = krt.ones(2)
        self.step = krt.jit(self._step)

    def _step(self) -> krt.Tensor:
        self.w.assign(self.w * 2)
        return self.w

    @staticmethod
    @krt.jit
    def third(x: krt.Tensor) -> krt.Tensor:
        return x / 3

    @krt.jit
    def double(self) -> krt.Tensor:
        return self.w * 2


@every_way
def test_functions_that_have_a_name_are_themselves(way: Callable[[Any], Any]) -> None:
    for f in (halve, Holder.third, Holder.double):
        assert way(f) is f
        assert way({"f": [f]})["f"][0] is f
    for fn in (functools.partial(double), nn.ReLU()):  # these have none
        f = krt.jit(fn)
        assert way(f) is not f
        assert way(f)(np.ones(2, F32)).tolist() == f(np.ones(2, F32)).tolist()


@every_way
def test_a_jitted_bound_method_goes_with_its_object(way: Callable[[Any], Any]) -> None:
    one = Holder()
    one.step()
    other = way(one)
    other.step()
    deep = way is not copy.copy
    assert (one.w.tolist(), other.w.tolist()) == ([2, 2] if deep else [4, 4], [4, 4])
    assert other.double().tolist() == [8, 8]


@every_way
def test_modules_bring_their_methods(way: Callable[[Any], Any]) -> None:
    model = Model().eval()
    x = np.ones((1, 3), F32)
    expected = model.run(x).tolist()
    other = way(model)
    assert other.run(x).tolist() == expected
    assert other.run is not model.run
    if way is not copy.copy:
        other.inner[0].weight.assign(other.inner[0].weight * 0)
        assert model.run(x).tolist() == expected
    bound = way(model.run)
    assert bound(x).tolist() == expected


@every_way
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_optimizers_go_on(way: Callable[[Any], Any], kind: str) -> None:
    results = []
    for change in (lambda pair: pair, way if way is not copy.copy else lambda pair: pair):
        krt.manual_seed(0)
        model = nn.Linear(3, 1)
        options = {"momentum": 0.9} if kind == "SGD" else {}
        pair = (model, getattr(nn.optim, kind)(nn.parameters(model), lr=0.1, **options))
        for _ in range(2):
            for _ in range(2):
                pair[1].zero_grad()
                pair[0](krt.ones(2, 3)).sum().backward()
                pair[1].step()
            pair = change(pair)
        results.append([p.tolist() for p in pair[0].parameters()])
        with pytest.raises(krt.UnknownNameError):
            way(pair[1]).nonsense = 1
    assert results[0] == results[1]


@every_way
def test_values_that_never_change(way: Callable[[Any], Any]) -> None:
    assert way(N) == N
    assert way(krt.float32) is krt.float32
    assert way(N + 1) == N + 1
    assert str(way(krt.IndexBoundsError("bad"))) == "bad"


@every_way
def test_what_stands_for_this_process(way: Callable[[Any], Any]) -> None:
    f = krt.jit(double)
    x = np.ones(3, F32)
    with pytest.raises(krt.CopyError):
        way(f.plan(x))
    profile = f.profile(x)[0]
    if way is repickled:
        with pytest.raises(krt.CopyError, match="elapsed"):
            way(profile)
    else:
        assert way(profile).elapsed == profile.elapsed

"""jit: what goes in and what comes out, the same as without jit."""

from __future__ import annotations

import dataclasses
import gc
import sys
import warnings
import weakref
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

F32 = np.float32


def rand(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def test_first_call_and_replays_give_what_eager_gives() -> None:
    def f(x, y):
        return ((x @ y).tanh() * 2 - x.sum()).softmax(-1)

    jitted = krt.jit(f)
    for seed in range(4):
        x, y = rand(5, 7, seed=seed), rand(7, 3, seed=seed + 10)
        expected = f(krt.tensor(x), krt.tensor(y)).numpy()
        assert np.array_equal(jitted(x, y).numpy(), expected)
    assert jitted.retraces == 0


def test_function_is_traced_once_for_a_signature() -> None:
    calls = []

    @krt.jit
    def f(x):
        calls.append(x.shape)
        return x + 1

    for _ in range(3):
        f(rand(2))
    f(rand(3))
    f(rand(2))
    assert calls == [(2,), (3,)]


def test_results_belong_to_the_caller() -> None:
    double = krt.jit(lambda x: x * 2)
    first = double(np.ones(3, F32))
    second = double(np.full(3, 5, F32))
    assert first.tolist() == [2, 2, 2]
    assert second.tolist() == [10, 10, 10]
    second.assign(krt.zeros(3))
    assert first.tolist() == [2, 2, 2]
    assert double(np.ones(3, F32)).tolist() == [2, 2, 2]


def test_an_argument_returned_as_it_is_is_a_copy() -> None:
    same = krt.jit(lambda x: x)
    for n in (3, 5000):
        x = rand(n)
        y = same(x)
        x[:] = 0
        assert np.array_equal(y.numpy(), rand(n))
        assert np.array_equal(same(rand(n, seed=1)).numpy(), rand(n, seed=1))


@pytest.mark.parametrize("n", [4, 4096])
def test_arrays_of_every_layout(n: int) -> None:
    f = krt.jit(lambda x: x * 2 + 1)
    base = rand(2 * n, 2)
    raw = np.empty(4 * n + 1, np.uint8)[1:].view(F32)
    raw[:] = base[:n, 0]
    for x in (base[:n, 0], base[::2, 1], np.asfortranarray(base)[:n, 1], raw, base[n - 1 :: -1, 0]):
        assert np.array_equal(f(x).numpy(), x * 2 + 1)
    read_only = base[:n, 0].copy()
    read_only.flags.writeable = False
    assert np.array_equal(f(read_only).numpy(), read_only * 2 + 1)
    assert f.retraces == 0


def test_tensors_numpy_scalars_and_foreign_arrays() -> None:
    f = krt.jit(lambda x, s: x * s)
    x = rand(4)
    expected = x * F32(3)
    assert np.array_equal(f(krt.tensor(x), 3.0).numpy(), expected)
    assert np.array_equal(f(krt.tensor(x) * 1 + 0, np.float64(3)).numpy(), expected)
    assert np.array_equal(f(x.data, 3.0).numpy(), expected)
    assert np.array_equal(f(f(x, 3.0), 1.0).numpy(), expected)
    assert f.retraces == 0


def test_torch_tensors_are_arguments() -> None:
    torch = pytest.importorskip("torch")
    f = krt.jit(lambda x: x.sum())
    assert f(torch.arange(4, dtype=torch.float32)).item() == 6
    x = torch.arange(3, dtype=torch.bfloat16)
    assert f(x).cast("float32").item() == 3


def test_python_floats_are_inputs_and_ints_are_not() -> None:
    traced = []

    @krt.jit
    def f(x, scale, power):
        traced.append(power)
        return x**power * scale

    x = rand(3)
    for scale in (0.5, 2.0, -1.0):
        for power in (2, 3):
            assert np.allclose(f(x, scale, power).numpy(), x**power * scale, rtol=1e-6)
    assert traced == [2, 3]


def test_true_is_not_one() -> None:
    f = krt.jit(lambda x, flag: x + (10 if flag is True else 1))
    assert f(np.zeros(1, F32), 1).item() == 1
    assert f(np.zeros(1, F32), True).item() == 10
    assert f(np.zeros(1, F32), 1).item() == 1


def test_static_strings_and_none() -> None:
    f = krt.jit(lambda x, how=None: x.sum() if how == "sum" else x.mean() if how else x)
    x = rand(4)
    assert np.allclose(f(x, "sum").numpy(), x.sum(), rtol=1e-6)
    assert np.allclose(f(x, how="mean").numpy(), x.mean(), rtol=1e-6)
    assert np.array_equal(f(x).numpy(), x)


def test_nested_arguments_and_results() -> None:
    Point = namedtuple("Point", ["x", "y"])  # noqa: PYI024

    @krt.jit
    def f(batch, pair):
        a, b = batch["a"], batch["b"][0]
        return {"sum": a + b, "parts": [pair.x, (pair.y * 2, 7, None)], "point": Point(a, "label")}

    for seed in range(3):
        a, b, c, d = (rand(3, seed=seed + i) for i in range(4))
        out = f({"a": a, "b": [b]}, Point(c, d))
        assert np.array_equal(out["sum"].numpy(), a + b)
        assert np.array_equal(out["parts"][0].numpy(), c)
        assert np.array_equal(out["parts"][1][0].numpy(), d * 2)
        assert out["parts"][1][1:] == (7, None)
        assert type(out["point"]).__name__ == "Point"
        assert np.array_equal(out["point"].x.numpy(), a)
        assert out["point"].y == "label"
    assert f.retraces == 0


def test_nesting_is_part_of_the_signature() -> None:
    f = krt.jit(lambda *args: args[0][0] - args[0][1] if len(args) == 1 else args[0] + args[1])
    a, b = rand(2), rand(2, seed=1)
    assert np.array_equal(f(a, b).numpy(), a + b)
    assert np.array_equal(f((a, b)).numpy(), a - b)
    assert np.array_equal(f([a, b]).numpy(), a - b)
    assert np.array_equal(f(a, b).numpy(), a + b)
    assert len(f.plans) == 3


def test_nested_calls_are_replayed_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    f = krt.jit(lambda batch, flag=None: batch["x"][0] + batch["x"][1] + len(flag or ""))
    x = rand(3)
    f({"x": (x, x)})
    f({"x": (x, x)}, flag="a")
    monkeypatch.setattr(type(f), "_slow", None)
    assert np.array_equal(f({"x": (x, x)}).numpy(), x + x)
    assert np.array_equal(f({"x": (x, x)}, "a").numpy(), x + x + 1)
    assert np.array_equal(f(flag="a", batch={"x": (x, x)}).numpy(), x + x + 1)


SCALARS = [
    np.float16(2.5), np.float32(2.5), np.float64(2.5), np.int8(3), np.uint64(3), np.bool_(True),
]  # fmt: skip


@pytest.mark.parametrize("number", SCALARS, ids=lambda number: type(number).__name__)
def test_scalars_of_numpy_are_replayed_without_python(number, monkeypatch):
    x = np.arange(3, dtype=np.float32)
    f = krt.jit(lambda x, y, z=1.0: x * y + z)
    wanted = f(x, number, z=number)
    assert wanted.dtype is (krt.tensor(x) * number).dtype
    monkeypatch.setattr(type(f), "_slow", None)
    found = f(x, number, z=number)
    assert found.dtype is wanted.dtype
    assert found.tolist() == wanted.tolist() == (x * number + number).tolist()


def test_very_deep_arguments() -> None:
    f = krt.jit(lambda nest: _innermost(nest) * 2)
    for depth in (3, 49, 50, 51, 3000):
        nest: object = np.full(2, depth, F32)
        for _ in range(depth):
            nest = [nest]
        assert f(nest).tolist() == [2 * depth] * 2
        assert f(nest).tolist() == [2 * depth] * 2
    assert len(f.plans) == 5


def _innermost(nest: object) -> object:
    while isinstance(nest, list):
        nest = nest[0]
    return nest


def test_single_results_in_a_tuple_or_list_keep_it() -> None:
    one = krt.jit(lambda x: (x + 1,))([1.0][0])
    assert isinstance(one, tuple)
    many = krt.jit(lambda x: [x, x + 1])(2.0)
    assert isinstance(many, list)
    assert [t.item() for t in many] == [2, 3]
    assert krt.jit(lambda _: ())(1.0) == ()
    assert krt.jit(lambda _: None)(1.0) is None


def test_keywords_share_plans_with_positions() -> None:
    @krt.jit
    def f(x, y, *, shift=0.0):
        return x - y + shift

    x, y = rand(3), rand(3, seed=1)
    expected = x - y
    assert np.array_equal(f(x, y).numpy(), expected)
    assert np.array_equal(f(y=y, x=x).numpy(), expected)
    assert np.array_equal(f(x, y=y).numpy(), expected)
    assert f.retraces == 0
    assert np.array_equal(f(x, y, shift=2.0).numpy(), expected + F32(2))
    assert np.array_equal(f(shift=3.0, y=y, x=x).numpy(), expected + F32(3))
    assert f.retraces == 1


def test_wrong_calls_raise_type_errors_with_the_name() -> None:
    @krt.jit
    def step(x, y):
        return x + y

    with pytest.raises(TypeError, match="step"):
        step(rand(2))
    with pytest.raises(TypeError, match="step"):
        step(rand(2), z=rand(2))
    assert step.plans == ()


def test_the_same_array_twice_and_overlapping_arrays() -> None:
    f = krt.jit(lambda x, y: x * 2 - y)
    for n in (3, 3000):
        x = rand(n + 1)
        assert np.array_equal(f(x, x).numpy(), x * 2 - x)
        assert np.array_equal(f(x[1:], x[:-1]).numpy(), x[1:] * 2 - x[:-1])


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
)
def test_every_dtype_goes_through(dtype: str) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    out = krt.jit(lambda x: (x, x.cast("float64").sum()))(x)
    assert out[0].numpy().dtype == x.dtype
    assert np.array_equal(out[0].numpy(), x)
    assert out[1].item() == x.astype("float64").sum()


def test_empty_and_zero_dimensional_arrays() -> None:
    f = krt.jit(lambda x: (x + 1, x.sum()))
    out, total = f(np.zeros((0, 3), F32))
    assert out.shape == (0, 3)
    assert total.item() == 0
    out, total = f(np.array(4, F32))
    assert out.shape == ()
    assert total.item() == 4


def test_calls_inside_a_traced_function_become_part_of_it() -> None:
    inner = krt.jit(lambda x: x * 3)
    assert inner(np.ones(2, F32)).tolist() == [3, 3]
    outer = krt.jit(lambda x: inner(x) + 1)
    for value in (1.0, 2.0):
        assert outer(np.full(2, value, F32)).tolist() == [3 * value + 1] * 2


def test_modules_can_be_jitted() -> None:
    from kernelrt import nn

    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    f = krt.jit(model, dynamic={"input": {0: krt.Variable("n", 1, 9)}})
    for n in (1, 4, 9):
        x = rand(n, 3)
        np.testing.assert_allclose(f(x).numpy(), model(krt.tensor(x)).numpy(), rtol=1e-5)
    assert f.explain().splitlines() == ["Sequential: 1 plan", "  1. input: float32 (n, 3)"]
    assert np.array_equal(f(input=x).numpy(), f(x).numpy())


def test_builtins_can_be_jitted() -> None:
    f = krt.jit(max)
    with pytest.raises(krt.JitError):
        f(1.0, 2.0)
    assert krt.jit(abs)(-2.0).item() == 2


def test_modules_may_be_passed() -> None:
    from kernelrt import nn

    a, b = nn.Linear(3, 2), nn.Linear(3, 2)
    f = krt.jit(lambda model, x: model(x))
    x = rand(4, 3)
    for model in (a, b, a, b):
        assert np.array_equal(f(model, x).numpy(), model(krt.tensor(x)).numpy())
    assert len(f.plans) == 2


def test_what_cannot_be_an_argument_or_result_is_named() -> None:
    f = krt.jit(lambda batch: batch["x"])
    with pytest.raises(krt.JitError, match=r"batch\['x'\]: .* no object"):
        f({"x": object()})
    with pytest.raises(krt.DTypeError, match="x"):
        krt.jit(lambda x: x)(np.array(["a"]))
    with pytest.raises(krt.JitError, match=r"result\[1\].*set"):
        krt.jit(lambda x: (x, {1}))(1.0)
    with pytest.raises(krt.DTypeError, match="fn"):
        krt.jit(3)


def test_a_function_keeps_its_name_and_docstring() -> None:
    @krt.jit
    def documented(x):
        """Twice."""
        return x * 2

    assert documented.__name__ == "documented"
    assert documented.__doc__ == "Twice."
    assert "documented" in repr(documented)


def test_equal_modules_are_two_modules() -> None:
    @dataclasses.dataclass
    class Scale(nn.Module):
        name: str

        def __post_init__(self) -> None:
            self.by = krt.tensor([2.0])

        def forward(self, x):
            return x * self.by

    a, b = Scale("s"), Scale("s")
    b.by.assign(krt.tensor([5.0]))
    assert a == b
    f = krt.jit(lambda module, x: module(x))
    g = krt.jit(lambda modules, x: modules[0](x))
    one = np.ones(1, np.float32)
    for _ in range(2):
        assert (f(a, one).item(), f(b, one).item()) == (2, 5)
        assert (g([a], one).item(), g([b], one).item()) == (2, 5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "bool"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, k: x * k,
        lambda x, k: k * x,
        lambda x, k: x * (k * 3 + 1),
        lambda x, k: x + (k if isinstance(k, float) else k.exp().log()),
        lambda x, k: x > k,
        lambda x, k: krt.where(x > 1, x, k),
        lambda x, k: (x / k).sum(),
        lambda x, k: x.clamp(k),
        lambda x, k: x**k,
    ],
)
def test_float_arguments_count_as_pythons_numbers(dtype: str, fn: Any) -> None:
    x = np.array([0, 1, 2, 3, 4]).astype(dtype)
    expected = fn(krt.tensor(x), 0.1)
    got = krt.jit(fn)(x, 0.1)
    assert got.dtype is expected.dtype
    tolerance = 1e-15 if dtype == "float64" else 1e-6
    if dtype == "float16":
        tolerance = 2e-3
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=tolerance)


def test_numbers_stay_numbers_whatever_their_shape() -> None:
    f = krt.jit(lambda x, k: (x * k.reshape(1, 1).expand(2, 3), krt.stack([k, k * 2]), k * 2, k))
    x = np.ones((2, 3), F32)
    product, pair, twice, same = f(x, 0.1)
    assert product.dtype is krt.float32
    assert pair.tolist() == [0.1, 0.2]
    assert (twice.item(), same.item()) == (0.2, 0.1)
    mixed = krt.jit(lambda x, k: krt.cat([x, k.reshape(1)]))(np.ones(2, F32), 0.1)
    assert mixed.dtype is krt.float32


def test_a_fresh_result_has_a_repr() -> None:
    f = krt.jit(lambda x: x * 2)
    assert repr(f(np.ones(2, F32))) == "tensor([2., 2.])"
    assert f"{f(np.ones((), F32)):.1f}" == "2.0"


def test_float64_features_beside_a_float32_network_are_told_once() -> None:
    layer = nn.Linear(3, 2)

    @krt.jit
    def predict(scale, batch):
        return layer(batch["features"]) * scale

    wide = np.ones((4, 3))
    text = r"^batch\['features'\]: the argument is float64.*predict"
    with pytest.warns(krt.KernelrtWarning, match=text) as got:
        assert predict(2.0, {"features": wide}).dtype is krt.float64
    assert got[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict(2.0, {"features": wide[:2]})
        predict(2.0, {"features": wide.astype(F32)})
        krt.jit(lambda x: x * 2)(wide)
        krt.jit(lambda x, y: x + y)(wide, wide.astype(F32))


def test_numpys_integers_that_change_are_told_as_pythons() -> None:
    f = krt.jit(lambda x, k: x * k)
    with pytest.warns(krt.RetraceWarning, match=r"last trace: k changed from \d+ to \d+. Pass"):
        [f(np.ones(2, F32), np.int64(i)) for i in range(12)]


def test_objects_that_change_are_told_apart_and_let_go_by_clear() -> None:
    f = krt.jit(lambda layer, x: layer(x))
    layers = [nn.Linear(2, 2), nn.Linear(2, 2), nn.Dropout(0.5)]
    for layer in layers:
        f(layer, np.ones(2, F32))
    assert "layer changed from one Linear to another" in f.explain()
    assert "layer changed from Linear to Dropout" in f.explain()
    kept = [weakref.ref(layer) for layer in layers]
    del layer
    layers.clear()
    f.clear()
    gc.collect()
    assert [r() for r in kept] == [None] * 3


def test_a_class_method_has_a_plan_for_each_class() -> None:
    class Scale:
        factor = 2

        @classmethod
        @krt.jit
        def scale(cls, x):
            return x * cls.factor

    class More(Scale):
        factor = 5

    x = np.ones(1, F32)
    for _ in range(2):
        assert [c.scale(x).item() for c in (Scale, More, Scale(), More())] == [2, 5, 2, 5]
    if sys.version_info < (3, 13):  # later ones pass the class as an argument
        assert Scale.scale.retraces == More.scale.retraces == 0

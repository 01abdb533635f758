"""Functions of model files compute the bits of the jitted functions that were saved."""

from __future__ import annotations

import enum
import os
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.saved_programs import PROGRAMS, arrays_in, normal

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import (
    DomainError,
    DTypeError,
    GradientError,
    JitError,
    KernelrtError,
    ModelFileError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.saved_programs import Program

ROUNDS = 3


@pytest.mark.cases(10)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_results_and_state_have_the_same_bits(
    make: Callable[[], Program], threads: int, tmp_path: Path
) -> None:
    krt.manual_seed(0)
    program = make()
    with krt.num_threads(threads):
        program.function.save(tmp_path / "f.krt", *program.args, **program.kwargs)
        [loaded] = krt.load(tmp_path / "f.krt").functions.values()
        for _ in range(ROUNDS):
            for args in (program.args, *program.more):
                expected = arrays_in(program.function(*args, **program.kwargs))
                assert arrays_in(loaded(*args, **program.kwargs)) == expected


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_wrong_arguments_raise_the_errors_of_the_function(
    make: Callable[[], Program], tmp_path: Path
) -> None:
    program = make()
    program.function.save(tmp_path / "f.krt", *program.args, **program.kwargs)
    [loaded] = krt.load(tmp_path / "f.krt").functions.values()
    for args in program.wrong:
        with pytest.raises((KernelrtError, TypeError)) as found:
            loaded(*args, **program.kwargs)
        if not isinstance(found.value, JitError):  # the plan found it
            with pytest.raises(type(found.value)) as expected:
                program.function(*args, **program.kwargs)
            assert str(found.value) == str(expected.value)
    assert arrays_in(loaded(*program.args, **program.kwargs))


def trained() -> tuple[nn.Module, krt.jit, krt.jit]:
    net = nn.Linear(3, 2)
    opt = nn.optim.SGD(net.parameters(), lr=0.1)

    @krt.jit
    def step(x, y):
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    return net, step, krt.jit(net, freeze=True)


def test_functions_of_one_file_share_state(tmp_path: Path) -> None:
    net, step, predict = trained()
    x, y = normal(8, 3), normal(8, 2)
    krt.save(tmp_path / "net.krt", step=(step, x, y), predict=(predict, x))
    model = krt.load(tmp_path / "net.krt")
    before = model.predict(x).numpy()
    for _ in range(100):
        assert step(x, y).item() == model.step(x, y).item()
    np.testing.assert_array_equal(model.predict(x).numpy(), predict(x).numpy())
    assert not np.array_equal(model.predict(x).numpy(), before)
    np.testing.assert_array_equal(model.state["net.weight"].numpy(), net.weight.numpy())


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        self.scale = nn.Parameter(krt.ones(2))

    def forward(self, x: krt.Tensor) -> krt.Tensor:
        return self.head(x) * self.scale

    @krt.jit
    def step(self, x: krt.Tensor) -> krt.Tensor:
        return self(x)


def test_names_of_state_are_those_of_the_module(tmp_path: Path) -> None:
    net = Doubled()
    functions = [(net, krt.jit(net)), (net, krt.jit(net.forward)), (net, net.step)]
    for module, function in (*functions, (net.head, krt.jit(net.head))):
        krt.save(tmp_path / "f.krt", function=(function, normal(1, 3)))
        assert set(krt.load(tmp_path / "f.krt").state) == set(module.state_dict())


def test_assigned_state_reaches_functions_and_panels(tmp_path: Path) -> None:
    _, _, predict = trained()
    predict.save(tmp_path / "net.krt", normal(8, 3))
    model = krt.load(tmp_path / "net.krt")
    model(normal(8, 3))
    model.state["weight"].assign(krt.ones(2, 3))
    model.state["bias"].copy_(krt.zeros(2))
    found = model(normal(8, 3)).numpy()
    np.testing.assert_allclose(found, np.repeat(normal(8, 3).sum(1)[:, None], 2, 1), rtol=1e-5)


def test_a_lazy_reader_keeps_the_value_that_state_had(tmp_path: Path) -> None:
    total = krt.zeros(2)
    add = krt.jit(lambda x: total.assign(total + x))
    add.save(tmp_path / "add.krt", np.ones(2, np.float32))
    model = krt.load(tmp_path / "add.krt")
    before = model.state["total"] + 0
    model(np.ones(2, np.float32))
    assert before.tolist() == [0.0, 0.0]
    assert model.state["total"].tolist() == [1.0, 1.0]


def test_a_model_saves_its_state_and_goes_on(tmp_path: Path) -> None:
    _, step, predict = trained()
    x, y = normal(8, 3), normal(8, 2)
    krt.save(tmp_path / "net.krt", step=(step, x, y), predict=(predict, x))
    model = krt.load(tmp_path / "net.krt")
    for _ in range(10):
        model.step(x, y)
    model.save(tmp_path / "later.krt")
    later = krt.load(tmp_path / "later.krt")
    for _ in range(10):
        assert later.step(x, y).item() == model.step(x, y).item()
    np.testing.assert_array_equal(later.predict(x).numpy(), model.predict(x).numpy())


def test_all_plans_of_a_function_are_saved(tmp_path: Path) -> None:
    function = krt.jit(lambda x: x * 2, dynamic=False)
    for n in (1, 2, 3):
        function(normal(n))
    function.save(tmp_path / "f.krt")
    model = krt.load(tmp_path / "f.krt")
    for n in (3, 1, 2):
        np.testing.assert_array_equal(model(normal(n)).numpy(), normal(n) * 2)
    with pytest.raises(JitError, match=r"x: shape \(4,\), not"):
        model(normal(4))


def test_an_int_has_a_plan_of_its_own_before_it_counts_as_a_float(tmp_path: Path) -> None:
    function = krt.jit(lambda x, n: x * n)
    few, many = normal(3), normal(4)
    calls = [(few, 2.0), (many, 3), (few, 5)]
    for args in calls[:2]:
        function(*args)
    function.save(tmp_path / "scale.krt")
    model = krt.load(tmp_path / "scale.krt")
    for x, n in calls:
        assert model(x, n).tolist() == (x * np.float32(n)).tolist()
    with pytest.raises(JitError, match="no plan for x: shape"):
        model(normal(5), 3)


def test_arguments_by_keyword_and_of_other_kinds(tmp_path: Path) -> None:
    function = krt.jit(lambda x, scale: x * scale)
    function.save(tmp_path / "f.krt", normal(4), 2.0)
    model = krt.load(tmp_path / "f.krt")
    expected = normal(4) * np.float32(3)
    for x in (normal(4), krt.tensor(normal(4)), normal(8)[::2] * 0 + normal(4)):
        np.testing.assert_array_equal(model(x, scale=3.0).numpy(), expected)
        np.testing.assert_array_equal(model(scale=3.0, x=x).numpy(), expected)
    for wrong in (normal(4).astype(np.float64), normal(4, 1), 1.0):
        with pytest.raises(JitError, match="the model file has no plan for x"):
            model(wrong, 3.0)
    np.testing.assert_array_equal(model(normal(4), 3).numpy(), expected)
    with pytest.raises(JitError, match="scale: True, not a float"):
        model(normal(4), True)


@pytest.mark.parametrize("shuffle", [False, True])
def test_epochs_over_rows(shuffle: bool, tmp_path: Path) -> None:
    _, step, predict = trained()
    x, y = normal(50, 3), normal(50, 2)
    for rows in (8, 2):
        step(x[:rows], y[:rows])
    krt.save(tmp_path / "net.krt", step=step, predict=(predict, x))
    model = krt.load(tmp_path / "net.krt")
    options = {"batch_size": 8, "epochs": 3, "shuffle": shuffle, "seed": 0}
    expected = step.over(x, y, **options)
    np.testing.assert_array_equal(model.step.over(x, y=y, **options).numpy(), expected.numpy())
    np.testing.assert_array_equal(model.predict(x).numpy(), predict(x).numpy())
    seen = []

    def note(k: int, losses: krt.Tensor) -> None:
        seen.append((k, len(losses)))

    model.step.over(x, y, batch_size=8, every=2, callback=note)
    assert seen == [(2, 2), (4, 4), (6, 6)]
    with pytest.raises(JitError, match="no plan for x: shape"):
        model.step.over(x, y, batch_size=7)


def test_a_plan_of_a_builder(tmp_path: Path) -> None:
    table = krt.jit(lambda x: (x * 2, x.sum()))
    plan = table.plan(normal(4))
    plan.save(tmp_path / "plan.krt")
    model = krt.load(tmp_path / "plan.krt")
    plan.execute()
    doubled, total = model.run()
    np.testing.assert_array_equal(doubled.numpy(), normal(4) * 2)
    np.testing.assert_array_equal(total.numpy(), [b.numpy() for b in plan.output_buffers][1])
    [argument] = model.state.values()
    argument.copy_(krt.ones(4))
    assert model.run()[0].tolist() == [2.0] * 4


def test_one_plan_may_have_two_names(tmp_path: Path) -> None:
    function = krt.jit(lambda x: x * 2)
    krt.save(tmp_path / "f.krt", a=(function, normal(3)), b=(function, normal(3)))
    model = krt.load(tmp_path / "f.krt")
    np.testing.assert_array_equal(model.a(normal(3)).numpy(), model.b(normal(3)).numpy())


@pytest.mark.cases(1 / 4)
def test_five_hundred_functions(tmp_path: Path) -> None:
    total = krt.zeros(3)
    functions = {f"f{i}": krt.jit(lambda x, i=i: total.assign(total + x * i)) for i in range(500)}
    krt.save(tmp_path / "f.krt", **{name: (f, normal(3)) for name, f in functions.items()})
    model = krt.load(tmp_path / "f.krt")
    expected = np.zeros(3, np.float32)
    for i in (3, 499, 0, 7):
        expected = expected + normal(3) * np.float32(i)
        np.testing.assert_allclose(model[f"f{i}"](normal(3)).numpy(), expected, rtol=1e-6)


def test_sizes_that_no_kernel_uses_and_thousands_of_sizes(tmp_path: Path) -> None:
    w = krt.tensor(normal(4))
    dynamic = {"x": {0: krt.Variable("n", 1, 9)}}
    unused = krt.jit(lambda x: w.sum() + x.shape[0] * 0, dynamic=dynamic)
    unused.save(tmp_path / "f.krt", normal(3))
    assert krt.load(tmp_path / "f.krt")(normal(5)).item() == unused(normal(5)).item()
    sums = krt.jit(lambda x: x.sum(), dynamic={"x": {0: krt.Variable("n", 1, 3000)}})
    sums.save(tmp_path / "f.krt", normal(3))
    model = krt.load(tmp_path / "f.krt")
    for n in range(1, 2500):
        assert model(np.ones(n, np.float32)).item() == n
    [function] = model.functions.values()
    assert len(function._replays) <= 1024


def test_keywords_in_any_order_and_wrong_ones(tmp_path: Path) -> None:
    function = krt.jit(lambda x, *, a, b: x * a + b)
    function.save(tmp_path / "f.krt", normal(3), a=2.0, b=1.0)
    model = krt.load(tmp_path / "f.krt")
    expected = function(normal(3), a=3.0, b=4.0).numpy()
    for given in ({"a": 3.0, "b": 4.0}, {"b": 4.0, "a": 3.0}):
        np.testing.assert_array_equal(model(normal(3), **given).numpy(), expected)
        np.testing.assert_array_equal(model(x=normal(3), **given).numpy(), expected)
    for args, kwargs in (((), {}), ((normal(3),), {"a": 1.0}), ((normal(3), 1.0), {"a": 1.0}),
                         ((normal(3),), {"a": 1.0, "c": 1.0})):  # fmt: skip
        with pytest.raises(TypeError, match=r"takes 1 positional arguments and a, b, but got"):
            model(*args, **kwargs)


def test_enumerations_are_told_by_class_and_value(tmp_path: Path) -> None:
    class Mode(enum.Enum):
        DOUBLE = 2
        TRIPLE = 3

    function = krt.jit(lambda x, mode: x * mode.value)
    function.save(tmp_path / "f.krt", normal(3), Mode.DOUBLE)
    model = krt.load(tmp_path / "f.krt")
    np.testing.assert_array_equal(model(normal(3), Mode.DOUBLE).numpy(), normal(3) * 2)
    for other in (Mode.TRIPLE, 2):
        with pytest.raises(JitError, match="mode"):
            model(normal(3), other)


def test_traces_and_derivatives_refuse_loaded_functions(tmp_path: Path) -> None:
    total = krt.zeros(3)
    function = krt.jit(lambda x: total.assign(total + x))
    function.save(tmp_path / "f.krt", normal(3))
    model = krt.load(tmp_path / "f.krt")
    for _ in range(2):  # before and after a call outside
        with pytest.raises(JitError, match="traced function"):
            krt.jit(lambda x: model(x) + 1)(krt.ones(3))
        with pytest.raises((GradientError, JitError)):
            krt.func.grad(lambda x: model(x).sum())(krt.ones(3))
        model(np.zeros(3, np.float32))
    assert model.state["total"].tolist() == [0.0] * 3
    x = krt.ones(3, requires_grad=True)
    with pytest.raises(GradientError):
        model(x).sum().backward()


def test_saving_while_another_thread_trains(tmp_path: Path) -> None:
    _, step, predict = trained()
    x, y = normal(8, 3), normal(8, 2)
    krt.save(tmp_path / "net.krt", step=(step, x, y), predict=(predict, x))
    model = krt.load(tmp_path / "net.krt")
    stop = threading.Event()

    def train() -> None:
        while not stop.is_set():
            model.step(x, y)
            step(x, y)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        for _ in range(20):
            model.save(tmp_path / "a.krt")
            krt.save(tmp_path / "b.krt", step=(step, x, y), predict=(predict, x))
            for name in ("a.krt", "b.krt"):
                later = krt.load(tmp_path / name)
                weight, bias = later.state["net.weight"].numpy(), later.state["net.bias"].numpy()
                np.testing.assert_allclose(
                    later.predict(x).numpy(), x @ weight.T + bias, rtol=1e-4, atol=1e-4
                )
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_checkpoints_have_the_permissions_of_new_files(mask: int, tmp_path: Path) -> None:
    function = krt.jit(lambda x: x * 2)
    before = os.umask(mask)
    try:
        function.save(tmp_path / "a.krt", normal(3))
        model = krt.load(tmp_path / "a.krt")
        model.save(tmp_path / "b.krt")
    finally:
        os.umask(before)
    for name in ("a.krt", "b.krt"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o666 & ~mask
    (tmp_path / "b.krt").chmod(0o640)
    model.save(tmp_path / "b.krt")
    assert (tmp_path / "b.krt").stat().st_mode & 0o777 == 0o640


def test_a_seed_restarts_random_numbers(tmp_path: Path) -> None:
    function = krt.jit(lambda x: x + krt.randn(5))
    function.save(tmp_path / "f.krt", normal(5))
    model = krt.load(tmp_path / "f.krt")
    assert {"random.key", "random.counter"} == {*model.state}
    for seed in (3, 2**63, -1):
        krt.manual_seed(seed)
        model.manual_seed(seed)
        for _ in range(3):
            np.testing.assert_array_equal(model(normal(5)).numpy(), function(normal(5)).numpy())
    with pytest.raises(DomainError, match="seed"):
        model.manual_seed(2**64)


def test_what_cannot_be_saved_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "f.krt"
    x = normal(3)
    host = krt.jit(lambda x: krt.call(np.sin, x, out=((3,), krt.float32)))
    with pytest.raises(ModelFileError, match=r"sin.* calls Python"):
        host.save(path, x)
    with pytest.raises(ModelFileError, match="has not been called"):
        krt.jit(lambda x: x).save(path)
    with pytest.raises(DTypeError, match=r"f: expected a function made by kernelrt\.jit"):
        krt.save(path, f=len)
    with pytest.raises(DTypeError, match=r"kernelrt\.nn\.save writes state dicts"):
        krt.save({"w": x}, path)
    with pytest.raises(ModelFileError, match="at least one jitted function"):
        krt.save(path)
    with pytest.raises(ModelFileError, match=r"f: m is a Linear; a model file holds"):
        krt.save(path, f=(krt.jit(lambda m, x: m(x)), nn.Linear(3, 3), x))
    w = krt.tensor(normal(3), requires_grad=True)
    first = krt.jit(lambda x: (w * x).sum().backward())
    with pytest.raises(ModelFileError, match="call zero_grad"):
        first.save(path, x)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        krt.jit(lambda x: x * 2).save(tmp_path / "no" / "f.krt", x)
    assert not path.exists()


def test_a_loaded_function_is_called_from_many_threads(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    function = krt.jit(lambda x: (x @ x.T).sum(1), dynamic={"x": {0: krt.Variable("n", 1, 64)}})
    function.save(tmp_path / "f.krt", normal(3, 8))
    model = krt.load(tmp_path / "f.krt")
    with ThreadPoolExecutor(8) as pool:
        sizes = [1 + i % 64 for i in range(400)]
        found = list(pool.map(lambda n: model(normal(n, 8)).numpy(), sizes))
    for i, value in enumerate(found):
        np.testing.assert_array_equal(value, function(normal(1 + i % 64, 8)).numpy())


def test_opening_and_calling_needs_no_llvmlite(tmp_path: Path) -> None:
    _, step, predict = trained()
    x, y = normal(8, 3), normal(8, 2)
    krt.save(tmp_path / "net.krt", step=(step, x, y), predict=(predict, x))
    np.savez(tmp_path / "data.npz", x=x, y=y)
    script = """
        import sys
        sys.modules["llvmlite"] = None  # an import raises ImportError
        import numpy as np, kernelrt as krt
        data = np.load("data.npz")
        model = krt.load("net.krt")
        losses = [model.step(data["x"], data["y"]).item() for _ in range(5)]
        print(losses)
        model.save("later.krt")
        try:
            krt.jit(lambda x: x + 1)(np.ones(70_000, np.float32))
        except ImportError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    losses, missing = done.stdout.splitlines()
    assert losses == str([step(x, y).item() for _ in range(5)])
    assert "llvmlite" in missing

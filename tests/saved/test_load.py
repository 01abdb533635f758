"""Functions of model files compute the bits of the jitted functions that were saved."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.saved_programs import PROGRAMS, arrays_in, normal

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import DTypeError, JitError, KernelrtError, ModelFileError

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
    with pytest.raises(JitError, match="scale"):
        model(normal(4), 3)


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

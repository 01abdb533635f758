"""Tensor's methods as functions of kernelrt and of nn.functional."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import site
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from support import function_stub
from support.documentation import load

import kernelrt as krt
import kernelrt.nn.functional as F  # noqa: N812 - as everybody calls it
from kernelrt.errors import DTypeError
from kernelrt.tensor.free_functions.from_methods import names

documented = load("names")

X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], np.float32)


@pytest.mark.cases(1 / 4)
def test_the_stub_is_what_the_methods_are() -> None:
    """Otherwise: ``python -m tests.support.function_stub`` in the project's root."""
    assert function_stub.STUB.read_text() == function_stub.written()
    assert function_stub.STUB_OF_LAYERS.read_text() == function_stub.written_of_layers()


def test_every_method_is_a_function() -> None:
    missing = [name for name in names(krt.Tensor) if not callable(getattr(krt, name))]
    assert not missing
    assert {"exp", "sort", "sum", "matmul"} <= set(dir(krt))
    assert {"relu", "dropout", "cross_entropy"} <= set(dir(F))


def test_every_error_is_at_the_top() -> None:
    errors = krt.errors.__all__
    assert {n for n in errors if getattr(krt, n, None) is not getattr(krt.errors, n)} == set()
    assert set(errors) <= set(krt.__all__)


def test_they_compute_what_the_methods_do() -> None:
    x = krt.tensor(X)
    np.testing.assert_array_equal(krt.exp(x).numpy(), x.exp().numpy())
    np.testing.assert_array_equal(krt.sum(x, 1, keepdim=True).numpy(), X.sum(1, keepdims=True))
    np.testing.assert_array_equal(krt.exp(input=x).numpy(), x.exp().numpy())
    assert krt.sort(x, dim=0).indices.shape == (2, 3)
    np.testing.assert_array_equal(F.relu(x, inplace=True).numpy(), np.maximum(X, 0))
    assert F.dropout(x, 0.5, training=False) is x


def test_arrays_and_numbers_may_stand_first() -> None:
    x = krt.tensor(X)
    np.testing.assert_array_equal(krt.maximum(X, x).numpy(), X)
    assert krt.add(1, x).dtype is krt.float32
    assert krt.sub(2, krt.arange(3)).dtype is krt.int64
    np.testing.assert_allclose(krt.exp([0.0, 1.0]).numpy(), np.exp([0, 1]), 1e-6)
    with pytest.raises(DTypeError, match="input: expected"):
        krt.exp("a")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'input'"):
        krt.exp()


def test_what_torch_takes_before_the_tensor_comes_first() -> None:
    x = krt.tensor([0.5, 2.0])
    expected = x.polygamma(1).tolist()
    for given in (krt.polygamma(1, x), krt.polygamma(1, input=x), krt.polygamma(n=1, input=x),
                  krt.polygamma(1, [0.5, 2.0])):  # fmt: skip
        assert given.tolist() == expected
    table, index = krt.tensor(X), krt.tensor([1, 0])
    assert krt.embedding(table, index).tolist() == F.embedding(index, table).tolist()
    assert list(inspect.signature(krt.polygamma).parameters) == ["n", "input"]


def test_torchs_other_names_of_parameters() -> None:
    x, y = krt.tensor(X), krt.tensor(X.T)
    for given, wanted in (
        (krt.mm(x, mat2=y), x @ y), (krt.bmm(x[None], mat2=y[None]), (x @ y)[None]),
        (krt.outer(x[0], vec2=x[1]), x[0].outer(x[1])), (krt.dot(x[0], tensor=x[1]), x[0] @ x[1]),
        (krt.cdist(x1=x, x2=x + 1), x.cdist(x + 1)),
        (krt.isin(elements=x, test_elements=x[0]), x.isin(x[0])),
        (krt.searchsorted(sorted_sequence=x[0], values=x), x[0].searchsorted(x)),
        (krt.split(tensor=x, split_size_or_sections=1)[1], x[1:]),
        (krt.swapaxes(x, axis0=0, axis1=1), y), (x.mm(mat2=y), x @ y),
        (F.cosine_similarity(x1=x, x2=x + 1), x.cosine_similarity(x + 1)),
    ):
        np.testing.assert_array_equal(given.numpy(), wanted.numpy())
    with pytest.raises(TypeError, match="mat2"):
        krt.add(x, mat2=y)


def test_out_is_answered_with_what_to_write() -> None:
    x = krt.tensor(X)
    with pytest.raises(TypeError, match=r"^add\(\) has no out=; write y = add\(\.\.\.\), or out\["):
        krt.add(x, 1, out=x)


def test_they_are_as_functions_are() -> None:
    assert krt.exp is krt.exp
    assert pickle.loads(pickle.dumps(krt.exp)) is krt.exp  # noqa: S301 - our own bytes
    assert copy.deepcopy(krt.exp) is krt.exp
    assert krt.exp.__name__ == "exp"
    assert krt.exp.__module__ == "kernelrt"
    assert krt.exp.__doc__ == krt.Tensor.exp.__doc__
    assert list(inspect.signature(krt.sum).parameters)[:3] == ["input", "dim", "keepdim"]


def test_names_of_numpy() -> None:
    x = krt.tensor(X)
    assert x.sum(axis=0).shape == (3,)
    assert x.sum(axis=1, keepdims=True).shape == (2, 1)
    assert krt.mean(x, axis=(0, 1)).shape == ()
    assert krt.softmax(x, axis=-1).shape == (2, 3)
    assert krt.sort(x, axis=0).values.shape == (2, 3)
    assert krt.cat([x, x], axis=1).shape == (2, 6)
    assert krt.stack([x, x], axis=-1).shape == (2, 3, 2)
    with pytest.raises(DTypeError, match="sum: dim and axis are the same parameter"):
        x.sum(dim=0, axis=0)
    with pytest.raises(TypeError, match="axis"):
        x.exp(axis=0)


def test_padding_gets_no_gradient() -> None:
    weight = krt.ones(4, 2, requires_grad=True)
    index = krt.tensor([[0, 1], [3, 1]])
    F.embedding(index, weight, padding_idx=-3).sum().backward()
    assert weight.grad is not None
    np.testing.assert_array_equal(weight.grad.numpy()[:, 0], [1, 0, 0, 1])
    with pytest.raises(krt.ShapeError, match="padding_idx"):
        F.embedding(index, weight, padding_idx=4)


@pytest.mark.exhaustive
def test_a_users_program_type_checks(tmp_path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent("""
        import kernelrt as krt
        import kernelrt.nn.functional as F

        x: krt.Tensor = krt.exp(krt.ones(3)) + krt.sort(krt.ones(3)).values
        y: krt.Tensor = krt.sum(x, 0, keepdim=True)
        krt.no_such_function(x)
        z: int = krt.exp(x)
    """))
    command = [sys.executable, "-m", "mypy", "--strict", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert len(errors) == 2, done.stdout + done.stderr
    assert "no_such_function" in errors[0]
    assert "Incompatible types" in errors[1]


@pytest.mark.exhaustive
def test_every_public_name_and_example_type_checks(tmp_path) -> None:
    pytest.importorskip("mypy")
    lines = ["import kernelrt as krt", "import kernelrt.nn.functional as F"]
    spaces = [*documented.NAMESPACES, documented.ALIAS[0], f"{documented.ALIAS[0]}.lr_scheduler"]
    for number, module in enumerate(spaces):
        names_of = documented.names_in(module)
        assert names_of
        lines += [f"import {module}", f"from {module} import ("]
        lines += [f"    {n} as n{number}_{n}," for n in names_of]
        lines.append(")")
        lines += [f"n{number}_{n}" for n in names_of]
        if module != "kernelrt.jit":  # a function hides it
            lines += [f"{documented.spelled(module)}.{n}" for n in names_of]
    program = tmp_path / "every_name.py"
    program.write_text("\n".join(lines) + "\n")
    root = Path(krt.__file__).parents[1]
    examples = sorted((root / "examples").glob("*.py"))
    command = [sys.executable, "-m", "mypy", "--config-file", "", "--ignore-missing-imports",
               "--no-implicit-reexport", str(program), *map(str, examples)]  # fmt: skip
    # mypy finds what is installed by itself, and refuses site-packages as a path.
    found = {} if str(root) in site.getsitepackages() else {"MYPYPATH": str(root)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path,
                          env={**os.environ, **found})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_two_families_of_methods_have_one_name() -> None:
    """Otherwise the order of Tensor's bases would say which of them is meant."""
    owners: dict[str, list[str]] = {}
    for family in krt.Tensor.__mro__[1:]:
        if family.__module__.startswith("kernelrt.tensor."):
            for name in vars(family):
                if not name.startswith("__"):
                    owners.setdefault(name, []).append(family.__name__)
    shared = {name: kinds for name, kinds in owners.items() if len(kinds) > 1}
    assert not shared

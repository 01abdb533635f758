"""What errors tell users of PyTorch's names to write gives PyTorch's numbers."""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt.util import unsupported_names as lacking

torch = Package("torch")

F32 = np.float32
#: What names stand for where an example says nothing else.
USUAL = {
    "x": np.array([[-0.5, 0.25, 0.75], [0.1, -0.9, 0.3], [0.6, -0.2, 0.0]], F32),
    "y": np.array([[0.5, -0.25, 0.75], [0.9, -0.9, -0.7], [0.2, 0.4, 1.0]], F32),
    "a": 0.3, "b": 0.6, "n": 3, "dim": 1, "atol": 1e-3, "rtol": 1e-2,
}  # fmt: skip
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -2.5, 3e38], F32)
INTS = {"x": np.array([5, -6, 7, 0]), "y": np.array([3, 3, -1, 0]), "n": 2}
CLOSE = {"x": np.array([1, 1, np.inf, np.inf, 1, np.nan], F32),
         "y": np.array([1.005, 1.5, np.inf, 1, np.inf, np.nan], F32)}  # fmt: skip
VECTORS = {"a": USUAL["x"][0], "b": USUAL["y"][1]}
MATRICES = {"a": USUAL["y"], "b": USUAL["x"]}
STACKS = {"a": np.stack([USUAL["x"], USUAL["y"]]), "b": np.stack([USUAL["y"], USUAL["y"]])}
HOLES = {"x": np.where(USUAL["x"] > 0.2, USUAL["x"], np.nan).astype(F32)}
CUBE = {"x": np.arange(64, dtype=F32).reshape(4, 4, 4) / 10, "sizes": [1, 3], "dim": 0, "n": 2}
MADE = {"shape": (2, 3), "value": 5.0, "data": [1, 2]}
ZERO_ROW = {"x": np.array([[0.0, 0.0], [3.0, 4.0]], F32)}

#: Of a tensor's names: what to compare with, where that is not `x.name()`, and of which inputs.
TENSOR: dict[str, tuple[str, dict[str, object]]] = {}

ONE_HOT = np.eye(3, dtype=F32)
TARGET = {"target": USUAL["y"]}
CLASSES = {"target": np.array([2, 0, 1])}
IMAGE = {"x": np.sin(np.arange(96)).astype(F32).reshape(2, 4, 3, 4), "weight": None, "bias": None,
         "mean": None, "variance": None, "training": True, "groups": 2,
         "widths": (1, 2, 0, 1)}  # fmt: skip
LINES = {**IMAGE, "x": IMAGE["x"].reshape(2, 4, 12), "kernel": 3, "widths": (1, 2)}
SOLID = {**IMAGE, "x": IMAGE["x"].reshape(2, 2, 2, 3, 4), "widths": (1, 2, 0, 1, 1, 1)}
BY_RANK = {"1d": LINES, "2d": IMAGE, "3d": SOLID}

#: Of kernelrt.nn: arguments of PyTorch's class, further ones of its call, and of which inputs.
NN: dict[str, tuple[str, str, dict[str, object]]] = {}

#: Of kernelrt itself.
TOP: dict[str, tuple[str, dict[str, object]]] = {
    "frobenius_norm": ("torch.linalg.matrix_norm(x)", {}),
    "nuclear_norm": ("torch.linalg.matrix_norm(x, 'nuc')", {}),
}

#: What draws numbers: the kind of them and the shape are compared.
RANDOM = {"new_empty"}
#: Calls of PyTorch that are none of `x`.
OTHERS = {"Parameter": "torch.nn.Parameter(torch.tensor(data))"}


def code_of(text: str) -> str | None:
    """The code of a row, without the words behind it; None for words, names and what is near."""
    if text.startswith("near: "):
        return None
    for head in (text, re.split(r": | as |, which", text)[0].rstrip(",")):
        try:
            tree = ast.parse(head, mode="eval")
        except SyntaxError:
            continue
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        dotted = isinstance(tree.body, ast.Name | ast.Attribute) and "x" not in names
        return None if dotted else head
    return None


ROWS = [
    (table, name, code)
    for table, rows in (("Tensor", lacking.TENSOR), ("nn", lacking.NN), ("top", lacking.TOP))
    for name, text in rows.items() if (code := code_of(text)) is not None
]  # fmt: skip


def theirs(table: str, name: str) -> tuple[str, dict[str, object]]:
    """PyTorch's expression and the inputs of an example."""
    if name in OTHERS:
        return OTHERS[name], {"data": [1.0, 2.0]}
    if table == "nn":
        made, called, inputs = NN.get(name, ("", "", {}))
        return f"torch.nn.{name}({made})({', '.join(filter(None, ('x', called)))})", inputs
    text, inputs = (TENSOR if table == "Tensor" else TOP).get(name, ("", {}))
    return text.format(name) or f"x.{name}()", inputs


def arrays(value: object) -> list[np.ndarray]:
    if isinstance(value, tuple | list):
        return [a for v in value for a in arrays(v)]
    if isinstance(value, torch.Tensor | krt.Tensor):
        value = value.detach().numpy()
    return [np.asarray(value)]


@pytest.mark.parametrize(("table", "name", "code"), ROWS, ids=[f"{t}.{n}" for t, n, _ in ROWS])
def test_code_means_the_same(table, name, code):
    text, inputs = theirs(table, name)
    given = {**USUAL, **inputs}
    here = {k: krt.tensor(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    there = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    there |= {"torch": torch, "F": torch.nn.functional}
    found = arrays(eval(code, {"kernelrt": krt, "numpy": np, "nn": krt.nn} | here))  # noqa: S307
    if name == "aminmax":
        found = [np.stack(found)]
    wanted = arrays(eval(text, there))  # noqa: S307
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert a.dtype.kind == b.dtype.kind
        if name not in RANDOM:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_every_example_has_a_row():
    for table, examples in (("Tensor", TENSOR), ("nn", NN), ("top", TOP)):
        assert set(examples) <= {n for t, n, _ in ROWS if t == table}


def test_what_is_near_only_says_so():
    text = "no exact equivalent, the closest is"
    with pytest.raises(AttributeError, match=rf"{text} kernelrt\.grad"):
        _ = krt.nn.Module.register_full_backward_hook
    with pytest.raises(AttributeError, match=rf"{text} nn\.BatchNorm2d"):
        _ = krt.nn.SyncBatchNorm

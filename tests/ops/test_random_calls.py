"""Random calls of every operation: values, types, shapes and gradients against torch."""

from __future__ import annotations

import re
from inspect import getattr_static
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from support.op_cases import generate, run
from support.op_table import ROWS

import kernelrt as krt

#: What changes no value, or is tested by pages of its own.
ELSEWHERE = {
    "conj", "conj_physical", "fill_diagonal_", "is_mps", "is_pinned", "is_xla", "is_xpu", "real",
    "resolve_conj", "resolve_neg",
    "T", "assign", "backward", "bitcast", "copy_", "cpu", "data_ptr", "device", "dim", "dims",
    "bernoulli", "bernoulli_", "cauchy_", "dropout", "exponential_", "geometric_", "gumbel_softmax",
    "log_normal_", "multinomial", "normal_", "random_", "uniform_",
    "dtype", "element_size", "fill_", "grad", "is_leaf", "is_realized", "item", "ndim", "numel",
    "numpy", "prepare", "realize", "requires_grad", "requires_grad_", "shape", "size", "tolist",
    "type", "type_as", "uop", "zero_", "zero_grad", "grad_fn",
    "register_hook", "retain_grad", "retains_grad",
}  # fmt: skip
#: Methods that operators stand for, or that are another name.
SPELLED = {
    "neg": "-x", "mul": "x * y", "pow": "x ** y", "floor_divide": "x // y", "eq": "x == y",
    "ne": "x != y", "lt": "x < y", "le": "x <= y", "gt": "x > y", "ge": "x >= y", "cast": ".to(",
    "clip": "clamp", "add": "x + y", "sub": "x - y", }  # fmt: skip


@pytest.mark.parametrize("number", range(120))
def test_random_calls(number):
    case = generate(np.random.default_rng([7, number]))
    assert run(case) is None, case


def test_every_method_is_in_a_table():
    here = Path(__file__).parent
    pages = [*here.parent.joinpath("surface", "tables").glob("*.py"), here / "test_inquiry.py",
             here / "test_linalg.py"]  # fmt: skip
    words = set(re.findall(r"\w+", " ".join(p.read_text() for p in pages if p.exists())))
    lines = " ".join(row.line for row in ROWS)
    names = {
        n for n in dir(krt.Tensor) if not n.startswith("_") and hasattr(krt.Tensor, n)
    } - ELSEWHERE
    # Those that end in _ are made of the others; tests/ops/test_augmented.py tries all of them.
    names = {n for n in names if not (n.endswith("_") and hasattr(krt.Tensor, n[:-1]))}
    spelled = {n for n in names if f".{n}" in lines or n in words or SPELLED.get(n, "?") in lines}
    known = {id(getattr_static(krt.Tensor, n)) for n in spelled}
    missing = sorted(n for n in names - spelled if id(getattr_static(krt.Tensor, n)) not in known)
    assert not missing


def test_a_wrong_result_is_found(monkeypatch):
    monkeypatch.setattr(krt.Tensor, "exp", lambda x: x.tanh() + 1)
    data = {"dtype": "float32", "shape": [3], "way": "", "data": [0.5, 1.0, 2.0]}
    case = {"line": "x.exp()", "inputs": {"x": data}, "seed": 1}
    assert run(case).startswith("value: ")
    monkeypatch.undo()
    assert run(case) is None

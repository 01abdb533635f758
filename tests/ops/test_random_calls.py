"""Random calls of every row: values, types, shapes and gradients against torch."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from support.op_cases import generate, run

import kernelrt as krt


@pytest.mark.cases(30)
@pytest.mark.parametrize("number", range(360))
def test_random_calls(number):
    case = generate(np.random.default_rng([7, number]))
    assert run(case) is None, case


@pytest.mark.cases(1 / 4)
def test_a_wrong_result_is_found(monkeypatch):
    monkeypatch.setattr(krt.Tensor, "exp", lambda x: x.tanh() + 1)
    data = {"dtype": "float32", "shape": [3], "way": "", "data": [0.5, 1.0, 2.0]}
    case = {"row": "unary-exp", "call": "x.exp()", "inputs": [data], "seed": 1, "rank": 1}
    assert run(case).startswith("value: ")
    monkeypatch.undo()
    assert run(case) is None

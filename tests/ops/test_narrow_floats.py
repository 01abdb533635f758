"""float16 and bfloat16: stored narrow, computed in float32 where it counts."""

from __future__ import annotations

import numpy as np
import pytest
from support.cases import CASES
from support.reference import evaluate

import kernelrt as krt
from kernelrt.tensor.marks import strip

NAMES = (
    "neg", "exp", "log", "sqrt", "tanh", "sigmoid", "relu", "gelu", "add", "mul", "div", "maximum",
    "broadcast_mul", "sum_last", "mean", "amax", "softmax", "logsumexp", "permute", "pad",
    "matmul", "linear", "conv2d", "max_pool2d", "layer_norm", "cross_entropy", "index_tensor",
)  # fmt: skip
BY_NAME = {c.name: c for c in CASES}
# Units in the last place of each type: 2**-10 and 2**-7; a value may be rounded several times.
STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


@pytest.mark.parametrize("dtype", STEP)
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name, dtype):
    case = BY_NAME[name]
    tensors = [krt.tensor(a, dtype=dtype).requires_grad_() for a in case.inputs(3)]
    out = case.op(*tensors)
    weights = np.random.default_rng(1).standard_normal(out.shape)
    (out * krt.tensor(weights, dtype=dtype)).mean().backward()
    results = [out, *(t.grad for t in tensors)]
    expected = evaluate(strip(t.uop for t in results), wide=True)
    krt.realize(*results)
    for got, value in zip(results, expected, strict=True):
        assert got.dtype.name == dtype
        size = float(np.abs(value).max(initial=2.0**-10))
        np.testing.assert_allclose(got.double().numpy() / size, value / size, atol=8 * STEP[dtype])

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


@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_casts_round_every_number_once(kind, source):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    bits = np.concatenate([
        rng.integers(0, 1 << 32, 3000, dtype=np.uint64).astype(np.uint32),
        np.arange(0, 1 << 24, 4099, dtype=np.uint32),  # subnormal
        np.arange(0x33000000, 0x38900000, 65537, dtype=np.uint32),  # subnormal in float16
        np.arange(0x7F7E0000, 0x7F800001, 97, dtype=np.uint32),  # the greatest, and infinity
        np.arange(0x3F800000, 0x3F820000, 127, dtype=np.uint32),  # ties
    ])  # fmt: skip
    x = bits.view(np.float32)
    x = np.concatenate([x, -x])
    x = x[~np.isnan(x)].astype(source)
    got = krt.tensor(x).cast(getattr(krt, kind)).bitcast(krt.uint16).numpy()
    expected = torch.tensor(x).to(getattr(torch, kind)).view(torch.uint16).numpy()
    np.testing.assert_array_equal(got, expected)
    back = krt.tensor(expected).bitcast(getattr(krt, kind)).cast(krt.float64).numpy()
    exact = torch.tensor(expected).view(getattr(torch, kind)).double().numpy()
    np.testing.assert_array_equal(back, exact)
    nan = krt.tensor(np.full(9, np.nan, source)).cast(getattr(krt, kind))
    assert np.isnan(nan.float().numpy()).all()

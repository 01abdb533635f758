"""Random expressions: the pipeline agrees with the graph evaluated node by node."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from support.reference import evaluate

import kernelrt as krt
from kernelrt.tensor.autograd.tags import strip

UNARY = [
    ("-{}", lambda x: -x), ("{}.abs", lambda x: x.abs()), ("{}.tanh", lambda x: x.tanh()),
    ("{}.sigmoid", lambda x: x.sigmoid()), ("{}.relu", lambda x: x.relu()),
    ("{}.exp", lambda x: x.clamp(-3, 3).exp()), ("{}.sqrt", lambda x: (x.abs() + 0.1).sqrt()),
    ("{}.sin", lambda x: x.sin()), ("{}.softmax", lambda x: x.softmax(-1)),
    ("{}.layer_norm", lambda x: x.layer_norm(x.shape[-1], eps=0.5)),
    ("{}*0.5", lambda x: x * 0.5), ("{}+1", lambda x: x + 1),
    ("where({}>0)", lambda x: krt.where(x > 0, x, x * -0.25)),
    ("{}.cumsum", lambda x: x.cumsum(-1)), ("{}.contiguous", lambda x: x.contiguous()),
]  # fmt: skip
MOVES = [
    ("{}.T", lambda x: x.T), ("{}.flip", lambda x: x.flip(0)),
    ("{}.reshape", lambda x: x.reshape(-1, 2) if x.numel() % 2 == 0 else x.reshape(1, -1)),
    ("{}.pad", lambda x: x.pad((1, 0, 0, 2))), ("{}[1:]", lambda x: x[1:] if x.shape[0] > 1 else x),
    ("{}[::2]", lambda x: x[:, ::2]), ("{}.repeat", lambda x: x.repeat(1, 2)),
    ("{}[idx]", lambda x: x[krt.tensor([0, x.shape[0] - 1, 0])]),
    ("cat({0},{0})", lambda x: krt.cat([x, x * 2], 1)), ("{}.roll", lambda x: x.roll(1, 0)),
    ("{}.tril", lambda x: x.tril()),
]  # fmt: skip
REDUCE = [
    ("{}.sum0", lambda x: x.sum(0, keepdim=True)), ("{}.sum1", lambda x: x.sum(1, keepdim=True)),
    ("{}.mean", lambda x: x.mean(0, keepdim=True)), ("{}.max", lambda x: x.amax(1, keepdim=True)),
    ("{}.min", lambda x: x.amin(0, keepdim=True)),
    ("{}.lse", lambda x: x.logsumexp(1, keepdim=True)),
    ("{}.var", lambda x: x.var(1, keepdim=True, correction=0)),
]  # fmt: skip
BINARY = [
    ("{}+{}", lambda x, y: x + y), ("{}*{}", lambda x, y: x * y), ("{}-{}", lambda x, y: x - y),
    ("{}/{}", lambda x, y: x / (y.abs() + 0.5)), ("max({},{})", lambda x, y: x.maximum(y)),
    ("where({},{})", lambda x, y: krt.where(x < y, x, y * 0.5)),
]  # fmt: skip
EXAMPLES = int(os.environ.get("KERNELRT_TEST_EXAMPLES", "25"))


def fit(x, y):
    """`y` cut and padded to broadcast with `x`."""
    for axis in (0, 1):
        size, wanted = y.shape[axis], x.shape[axis]
        if size not in (1, wanted):
            if size > wanted:
                y = y.narrow(axis, 0, wanted)
            else:
                y = y.pad((0, 0, 0, wanted - size) if axis == 0 else (0, wanted - size))
    return y


@st.composite
def graphs(draw):
    """A list of (name, tensor), each made of earlier ones; the first are data."""
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    sizes = st.integers(1, 9)
    values = []
    for i in range(draw(st.integers(1, 3))):
        data = rng.uniform(-2, 2, (draw(sizes), draw(sizes)))
        values.append((f"x{i}", krt.tensor(data, requires_grad=True)))
    for _ in range(draw(st.integers(1, 10))):
        name, x = values[draw(st.integers(0, len(values) - 1))]
        family = draw(st.sampled_from(["unary", "move", "reduce", "binary", "matmul"]))
        if x.numel() > 400:
            family = "reduce"
        if family in ("binary", "matmul"):
            other, y = values[draw(st.integers(0, len(values) - 1))]
            if family == "binary":
                pattern, op = draw(st.sampled_from(BINARY))
                values.append((f"({pattern.format(name, other)})", op(x, fit(x, y))))
            else:
                width = x.shape[1]
                y = y.narrow(1, 0, 1).expand(-1, width) if y.shape[1] != width else y
                values.append((f"({name} @ {other}.T)", (x @ y.T) * 0.3))
            continue
        table = {"unary": UNARY, "move": MOVES, "reduce": REDUCE}[family]
        pattern, op = draw(st.sampled_from(table))
        values.append((f"({pattern.format(name)})", op(x)))
    return values


@pytest.mark.cases(1 / 4)
@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES == 25, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(values=graphs(), data=st.data())
def test_random_graphs(values, data):
    leaves = [t for name, t in values if t._leaf is not None]
    picked = data.draw(st.sets(st.integers(0, len(values) - 1), min_size=1, max_size=3))
    outputs = [values[i][1] * 1 for i in sorted(picked)]
    note(f"outputs: {[values[i][0] for i in sorted(picked)]}")
    total = sum((o.mean() for o in outputs), krt.tensor(0.0, dtype="float64"))
    total.backward()
    results = [*outputs, *(t.grad for t in leaves if t.grad is not None)]
    expected = evaluate(strip(t.uop for t in results))
    krt.realize(*results)
    for got, value in zip(results, expected, strict=True):
        scale = max(1.0, float(np.abs(value).max(initial=0)))
        np.testing.assert_allclose(got.numpy() / scale, value / scale, rtol=1e-9, atol=1e-9)

"""Every operation of the table: values in each floating type, and gradients three ways."""

from __future__ import annotations

import numpy as np
import pytest
from support.cases import CASES, Case
from support.reference import evaluate

import kernelrt as krt
from kernelrt.tensor.marks import strip

# A few units in the last place of each type, for inputs of size one.
TOLERANCE = {krt.float64: 4e-15, krt.float32: 2e-6, krt.float16: 2e-3}


def close(got, expected, tolerance, what=""):
    np.testing.assert_allclose(
        np.asarray(got, np.float64), expected, rtol=tolerance, atol=tolerance, err_msg=what
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_in_float64(case: Case):
    """The value, and the gradient against central differences along random directions."""
    arrays = case.inputs()
    tensors = [krt.tensor(a, requires_grad=case.grad) for a in arrays]
    out = case.op(*tensors)
    truth = np.asarray(case.truth(*arrays))
    assert out.dtype is krt.float64
    assert out.shape == truth.shape
    if not case.grad:
        close(out.numpy(), truth, TOLERANCE[krt.float64] * case.scale * 4)
        return
    rng = np.random.default_rng(1)
    weights = rng.standard_normal(truth.shape)
    out.backward(krt.tensor(weights))
    grads = [t.grad for t in tensors]
    krt.realize(out, *grads)
    close(out.numpy(), truth, TOLERANCE[krt.float64] * case.scale * 4)
    for i, (a, g) in enumerate(zip(arrays, grads, strict=True)):
        assert g.shape == a.shape
        for _ in range(2):
            step = rng.standard_normal(a.shape)
            slope = directional(case, arrays, i, step, weights)
            close((g.numpy() * step).sum(), slope, 2e-6, f"gradient of input {i}")


def directional(case: Case, arrays, i, step, weights, h=1e-6):
    """The derivative along `step`, by central differences of the truth."""
    ends = []
    for sign in (1, -1):
        moved = list(arrays)
        moved[i] = moved[i] + sign * h * step
        ends.append((np.asarray(case.truth(*moved)) * weights).sum())
    return (ends[0] - ends[1]) / (2 * h)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_in_float32(case: Case):
    """As in float64, and as the graph itself evaluated node by node."""
    arrays = [a.astype(np.float32) for a in case.inputs(1)]
    tensors = [krt.tensor(a, requires_grad=case.grad) for a in arrays]
    out = case.op(*tensors)
    results = [out]
    if case.grad:
        weights = np.random.default_rng(1).standard_normal(out.shape).astype(np.float32)
        out.backward(krt.tensor(weights))
        results += [t.grad for t in tensors]
    expected = evaluate(strip(t.uop for t in results), wide=True)
    krt.realize(*results)
    assert out.dtype is krt.float32
    truth = case.truth(*(a.astype(np.float64) for a in arrays))
    close(out.numpy(), truth, TOLERANCE[krt.float32] * case.scale)
    for got, value in zip(results, expected, strict=True):
        size = max(1.0, float(np.abs(value).max(initial=0)))
        close(got.numpy() / size, value / size, TOLERANCE[krt.float32] * case.scale * 2)


@pytest.mark.parametrize("case", [c for c in CASES if c.peer], ids=str)
def test_gradients_agree_with_torch(case: Case):
    torch = pytest.importorskip("torch")
    arrays = case.inputs(2)
    peers = [torch.tensor(a, requires_grad=case.grad) for a in arrays]
    peer = (case.op if case.peer == "same" else case.peer)(*peers)
    tensors = [krt.tensor(a, requires_grad=case.grad) for a in arrays]
    out = case.op(*tensors)
    assert out.shape == tuple(peer.shape)
    results, expected = [out], [peer.detach().numpy()]
    if case.grad:
        out.sum().backward()
        peer.sum().backward()
        results += [t.grad for t in tensors]
        expected += [p.grad.numpy() for p in peers]
    values = evaluate(strip(t.uop for t in results))
    for got, value in zip(values, expected, strict=True):
        close(got, value, 1e-12 * case.scale)

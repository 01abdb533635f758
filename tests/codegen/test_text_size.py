"""Tiles may not make a kernel's text explode, however many loops its reductions share."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.codegen import LLVMRenderer
from kernelrt.codegen.tiling import MOST_INSTRUCTIONS
from kernelrt.device.spec import DeviceSpec, host

TARGETS = [DeviceSpec.avx512(), DeviceSpec.avx2()]
MOST_BYTES = 300_000


@pytest.fixture
def asts(monkeypatch):
    """The kernels that are rendered meanwhile."""
    seen = []
    render = LLVMRenderer.render

    def noted(self, ast, variant=None):
        seen.append(ast)
        return render(self, ast, variant)

    monkeypatch.setattr(LLVMRenderer, "render", noted)
    return seen


def check(asts, *tensors):
    krt.realize(*tensors)
    for ast in list(dict.fromkeys(asts)):
        for target in (host(), *TARGETS):
            source = LLVMRenderer(target).render(ast).src
            assert len(source) < MOST_BYTES
            # What is counted is what is written, within a factor.
            assert source.count("\n") < 2.5 * MOST_INSTRUCTIONS


def leaf(*shape):
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return krt.tensor(values, requires_grad=True)


@pytest.mark.parametrize("rows", [3, 16, 37])
@pytest.mark.parametrize("axis", [0, 1])
def test_parts_along_a_permuted_axis(asts, rows, axis):
    x, c = leaf(rows, 47), leaf(rows)
    parts = x.permute(1, 0).split(7, 0)
    total = (parts[0].sum(0) - parts[-1].sum(0)).log_softmax(0) * c
    other = (x.softmax(axis) * x.log_softmax(1 - axis)).sum(axis).square()
    (total.sum() + other.sum()).backward()
    check(asts, x.grad, c.grad)


@pytest.mark.parametrize("shape", [(33, 10), (7, 100), (31, 31)])
def test_weighted_labels(asts, shape):
    x = leaf(*shape)
    rng = np.random.default_rng(1)
    labels = krt.tensor(rng.integers(0, shape[1], shape[0]))
    x.log_softmax(-1).nll_loss(labels, weight=leaf(shape[1])).backward()
    check(asts, x.grad)


@pytest.mark.parametrize("shapes", [
    ((7, 1, 9), (1, 5, 9)), ((31, 1), (31, 47)), ((5, 1, 1, 7), (5, 6, 7, 1)), ((1, 33), (17, 1)),
    ((3, 1, 15), (3, 40, 1)),
])  # fmt: skip
def test_gradients_of_partial_broadcasts(asts, shapes):
    a, b = (leaf(*shape) for shape in shapes)
    value = (a * b).tanh() + (a + b).softmax(0) * (a - b).exp()
    (value.mean(1).log_softmax(0) * value.amax(1)).sum().backward()
    check(asts, a.grad, b.grad)


@pytest.mark.parametrize("found", [
    lambda x: x.argmin(0, keepdim=True) * x, lambda x: (x - x.amax(0, keepdim=True)).argmax(0),
    lambda x: x.logsumexp(0), lambda x: x.std(0),
])  # fmt: skip
@pytest.mark.parametrize("value", [lambda x: x.gelu().abs(), lambda x: x.erf() * x.exp()])
def test_reductions_of_dear_functions_over_any_size(asts, value, found):
    n = krt.Variable("n", 1, 64)
    f = krt.jit(lambda x: found(value(x)), dynamic={"x": {0: n}})
    f.plan(np.ones(7))
    check(asts)


@pytest.mark.parametrize("shape", [(2, 3, 9, 9), (1, 5, 6, 7)])
def test_convolutions_and_norms(asts, shape):
    x, w = leaf(*shape), leaf(7, shape[1], 3, 3)
    y = x.batch_norm(None, None, training=True).conv2d(w, padding=1).gelu().max_pool2d(2)
    (y.layer_norm(y.shape[-1]) * y.group_norm(7)).sum().backward()
    check(asts, x.grad, w.grad)


def test_many_sums_of_different_sizes(asts):
    leaves = [leaf(3 + i, 5 + i) for i in range(40)]
    check(asts, sum((x * x).sum() for x in leaves))
    check(asts, sum((x.exp().sum(1) * x.amax(1)).sum() for x in leaves[:20]))


def test_rows_over_an_open_size_that_a_pass_reads_along(asts):
    """The array's elements are vectors of columns, so along the rows it is read lane by lane."""
    n = krt.Variable("n", 1, 64)
    run = krt.jit(lambda a: krt.cat([a, a * 0], 0).std(0), dynamic={"a": {0: n}})
    a = np.random.default_rng(1).normal(size=(8, 5)).astype(np.float32)
    twice = np.concatenate([a, a * 0]).astype(np.float64)
    np.testing.assert_allclose(run(a).numpy(), twice.std(0, ddof=1), rtol=1e-6)
    check(asts)


@pytest.mark.parametrize("step", [2, 3, 4])
@pytest.mark.parametrize("kernel", [2, 3])
def test_strides_along_an_open_size(asts, kernel, step):
    """Vectors that the loop ends in are had lane by lane, all others picked from what is loaded."""
    torch = pytest.importorskip("torch")
    sizes = {2: krt.Variable("h", 4, 23), 3: krt.Variable("w", 4, 71)}
    f = krt.jit(lambda x, b: (x + b).max_pool2d(kernel, step), dynamic={"x": sizes})
    x = np.random.default_rng(2).standard_normal((2, 17, 23, 71)).astype(np.float32)
    b = np.arange(17, dtype=np.float32).reshape(17, 1, 1)
    for h, w in [(23, 71), (4, 4), (9, 34), (22, 35)]:
        part = x[:, :, :h, :w]
        want = torch.nn.functional.max_pool2d(torch.from_numpy(part + b), kernel, step)
        np.testing.assert_array_equal(f(part, b).numpy(), want.numpy())
    check(asts)

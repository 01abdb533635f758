"""Tiles may not make a kernel's text explode, however many loops its reductions share."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.spec import DeviceSpec, host
from kernelrt.ir import Op

TARGETS = [DeviceSpec.avx512(), DeviceSpec.avx2()]
MOST_BYTES = 100_000


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


def leaf(*shape):
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return krt.tensor(values, requires_grad=True)


@pytest.mark.cases(1)
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


@pytest.mark.parametrize("sizes", [(9, 16, 9), (16, 16, 16), (17, 31, 9)])
def test_products_of_every_second_column(asts, sizes):
    rows, n, columns = sizes
    x, y = leaf(rows, 2 * n).detach(), leaf(n, columns).detach()
    x, y = (t.cast("bfloat16").realize().requires_grad_() for t in (x, y))
    part = x[:, ::2]
    out = part.mm(y)
    (out * out + out).sum().backward()
    check(asts, out, x.grad, y.grad)


@pytest.mark.parametrize("shapes", [
    ((7, 1, 9), (1, 5, 9)), ((31, 1), (31, 47)), ((5, 1, 1, 7), (5, 6, 7, 1)), ((1, 33), (17, 1)),
    ((3, 1, 15), (3, 40, 1)),
])  # fmt: skip
@pytest.mark.cases(1)
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


@pytest.mark.parametrize("place", [lambda x: -((x * 2) * 2 // 2), lambda x: (x + 384) % 64 // 9])
def test_values_added_at_computed_places(asts, place):
    """Each lane computes and checks its place by itself."""
    n = krt.Variable("n", 1, 64)
    total = krt.zeros(12)
    f = krt.jit(
        lambda x, v: total.assign(total + (total * 0).scatter_add(0, place(x), v)),
        dynamic={"x": {0: n}, "v": {0: n}},
    )
    f.plan(np.zeros(7, np.int64), np.ones(7, np.float32))
    check(asts)


@pytest.mark.cases(1)
@pytest.mark.parametrize("shape", [(2, 3, 9, 9), (1, 5, 6, 7)])
def test_convolutions_and_norms(asts, shape):
    x, w = leaf(*shape), leaf(7, shape[1], 3, 3)
    y = x.batch_norm(None, None, training=True).conv2d(w, padding=1).gelu().max_pool2d(2)
    (y.layer_norm(y.shape[-1]) * y.group_norm(7)).sum().backward()
    check(asts, x.grad, w.grad)


def test_products_of_pairs_that_a_transposed_convolution_scatters(asts):
    x = leaf(1, 9, 6, 2).bfloat16()
    weight = leaf(9, 17, 1, 1).bfloat16().flip(3)
    check(asts, krt.nn.functional.conv_transpose2d(x, weight, stride=2))


def test_a_transposed_block_of_costly_values(asts):
    """The block's remainders are written out in every loop around it."""
    leaves = [leaf(*s).detach().abs().bfloat16().realize() for s in ((33, 17), (19, 33), (19, 1))]
    x, y, z = leaves
    operands = [t.detach().requires_grad_() for t in (x.permute(1, 0), y[1:18], z[1:18])]
    losses = [
        krt.nn.functional.gaussian_nll_loss(*operands, full=True, reduction=kind)
        for kind in ("none", "sum", "mean")
    ]
    weights = [leaf(*loss.shape).detach().double().realize().bfloat16() for loss in losses]
    total = sum((loss * w).sum().double() for loss, w in zip(losses, weights, strict=True))
    check(asts, *losses, *krt.grad(total, operands))


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


def test_a_number_beside_many_vectors_is_spread_once(asts):
    """The gradient of the greatest product compares each of an open size with every other."""
    torch = pytest.importorskip("torch")
    n = krt.Variable("n", 1, 20_000)

    def step(a):
        a = a.clone().requires_grad_()
        top = a.outer(a).max()
        return top, *krt.grad(top * top * 0.5 + top, [a])

    f = krt.jit(step, dynamic={"a": {0: n}})
    for size in (1, 4, 5, 70):
        a = np.random.default_rng(size).normal(size=size)
        x = torch.from_numpy(a).requires_grad_()
        top = torch.outer(x, x).max()
        [want] = torch.autograd.grad(top * top * 0.5 + top, [x])
        found, gradient = f(a)
        assert found.item() == top.item()
        np.testing.assert_allclose(gradient.numpy(), want.numpy(), rtol=1e-12, atol=1e-12)
    for target in (host(), *TARGETS):
        sizes = [len(LLVMRenderer(target).render(ast).src) for ast in dict.fromkeys(asts)]
        assert max(sizes) < MOST_BYTES


def of_open_sizes(function, *axes):
    """`function` of arrays whose axes have these sizes: numbers, or the names of open ones."""
    open_ = {name: krt.Variable(name, 1, 300) for axis in axes for name in axis if name in "nmk"}
    names = [f"x{i}" for i in range(len(axes))]
    sizes = {
        name: {at: open_[size] for at, size in enumerate(axis) if size in open_}
        for name, axis in zip(names, axes, strict=True)
    }
    scope = {"function": function}
    exec(f"def program({', '.join(names)}): return function({', '.join(names)})", scope)  # noqa: S102
    return krt.jit(scope["program"], dynamic=sizes)


def given(axes, dtype, **sizes):
    rng = np.random.default_rng(3)
    shapes = [[sizes.get(size) or int(size) for size in axis] for axis in axes]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def with_gradient(function):
    def both(*inputs):
        leaves = [x.clone().requires_grad_() for x in inputs]
        value = function(*leaves)
        return value, *krt.grad(value.square().sum(), leaves)

    return both


@pytest.mark.cases(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("function", "axes"), [
    (lambda a, b: (a @ b).tanh(), ["nk", "km"]),
    (lambda a, b: a @ b, ["3nk", "3km"]),
    (lambda q, k: (q @ k.permute(1, 0)).softmax(-1) @ k, ["n8", "m8"]),
    (lambda q, k: (q * k.sum(0)).layer_norm(9) @ k.permute(1, 0), ["n9", "m9"]),
    (lambda a, b: (a.outer(b).gelu() * 0.5).sum(0), ["n", "m"]),
    (lambda a, b: a.conv2d(b, padding=1), ["n3mk", "4333"]),
], ids=["product", "batched", "attention", "norm", "outer", "convolution"])  # fmt: skip
def test_programs_open_on_several_axes(asts, function, axes, dtype):
    """Each open loop has a part for every size of tile, and parts of loops within multiply."""
    run = of_open_sizes(with_gradient(function), *axes)
    for sizes in ({"n": 1, "m": 2, "k": 3}, {"n": 37, "m": 21, "k": 50}):
        arrays = given(axes, dtype, **sizes)
        found = [t.numpy() for t in run(*arrays)]
        wanted = [t.numpy() for t in with_gradient(function)(*map(krt.tensor, arrays))]
        for have, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4 * abs(want).max())
    check(asts)


@pytest.mark.cases(1)
@pytest.mark.parametrize("repeats", [4, 12])
def test_norms_one_after_the_other(asts, repeats):
    x = leaf(33, 20)
    y = x
    for number in range(repeats):
        y = y.layer_norm(20).softmax(-1) * (number + 2.0)
    y.square().sum().backward()
    check(asts, x.grad)


def test_gradients_of_wide_rows(asts):
    x = leaf(8, 50_000)
    labels = krt.tensor(np.arange(8))
    x.log_softmax(-1).nll_loss(labels).backward()
    check(asts, x.grad)


def test_a_contraction_spreads_each_factor_once(build):
    i, j, k = (build.range(size, number) for number, size in enumerate((64, 64, 64)))
    a, b = build.param(1, 64 * 64), build.param(2, 64 * 64)
    total = build.reduce(Op.ADD, build.load(a, i * 64 + k) * build.load(b, k * 64 + j), k)
    ast = build.sink(build.store(build.param(0, 64 * 64), i * 64 + j, total))
    text = LLVMRenderer(DeviceSpec.avx512()).render(ast).src
    spread = re.findall(r"insertelement <16 x float> poison, float (%\w+), i64 0", text)
    assert spread
    assert len(spread) == len(set(spread))


def work(asts, layer, count):
    """Calls of functions that it takes to write the kernels of so many layers."""
    x = krt.tensor(np.random.default_rng(0).standard_normal((8, 33)).astype(np.float32))
    asts.clear()
    for _ in range(count):
        x = layer(x) * (1 + 2.0**-count)  # kernels of its own
    x.realize()
    calls = 0

    def called(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        for ast in list(dict.fromkeys(asts)):
            LLVMRenderer(TARGETS[1]).render(ast)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.cases(1)
@pytest.mark.parametrize("layer", [
    lambda x: x.layer_norm(33), lambda x: x.softmax(-1), lambda x: x.layer_norm(33).softmax(-1),
])  # fmt: skip
def test_work_grows_with_the_passes_of_a_kernel_not_with_their_square(asts, layer):
    # Pass after pass, each reading the one before, in as few kernels as hold them.
    assert work(asts, layer, 20) < 5 * work(asts, layer, 5)


@pytest.mark.cases(1)
@pytest.mark.parametrize("sizes", [(64, 64, 64), (131, 129, 127), (1000, 100, 63), (3, 70, 200)])
@pytest.mark.parametrize("kinds", [("int8", "int8"), ("uint8", "int16")], ids=str)
def test_products_of_narrow_integers(asts, sizes, kinds):
    m, n, k = sizes
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 100, shape).astype(kind) for shape, kind in
            zip(((m, k), (k, n)), kinds, strict=True))  # fmt: skip
    for left, right in ((a, b), (a.T.copy().T, b.T.copy().T)):
        x, y = krt.tensor(left).cast("int32"), krt.tensor(right).cast("int32")
        check(asts, x @ y, (x @ y).float().gelu(), x.T[:40] @ x)


def test_scarce_text_takes_vectors_from_no_sum():
    """The products could use all of the text, and the sum of each row would be scalar code."""
    attention = krt.nn.functional.scaled_dot_product_attention
    causal = krt.jit(lambda q, k, v: attention(q, k, v, is_causal=True))
    ast = causal.plan(*(leaf(1, 8, 512, 64).detach() for _ in range(3))).kernels[-1].ast
    for target in TARGETS:
        lines = LLVMRenderer(target).outline(ast).splitlines()
        depths = [len(line) - len(line.lstrip()) for line in lines]
        sums = [i for i, line in enumerate(lines) if "+=" in line]
        assert len(sums) == 3
        for i in sums:
            outer, depth = [], depths[i]
            for line, at in zip(lines[i::-1], depths[i::-1], strict=True):
                if at < depth:
                    outer.append(line)
                    depth = at
            assert any("vectors" in line for line in outer), "\n".join(lines)


def test_gradients_of_a_long_function_that_is_repeated(asts):
    """The tile of the stores shrinks; the sum of the gradients must not enlarge it again."""
    x = leaf(3, 33)
    y = krt.ones(2, 1, 1) * (x + 0.25).lgamma()
    (y + y * y * 0.5).sum().backward()
    check(asts, x.grad, y)

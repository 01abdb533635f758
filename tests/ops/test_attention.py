"""Attention as it is written out: values, gradients, and how much memory it takes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt.ir import Op, Variable, toposort

torch = Package("torch")

#: Batch, heads, queries, keys, width.
SHAPES = [
    (1, 2, 0, 5, 3), (2, 1, 1, 1, 4), (1, 1, 3, 7, 2), (2, 3, 17, 17, 5), (1, 2, 64, 64, 32),
    (1, 2, 97, 131, 31), (1, 1, 256, 300, 16), (3, 1, 40, 513, 8),
]  # fmt: skip
#: Large enough for its scores not to be stored.
LONG = (1, 2, 700, 700, 32)


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def attend(q, k, v, mask=None):
    scores = (q @ k.transpose(-1, -2)) * (1 / math.sqrt(q.shape[-1]))
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf)
    return scores.softmax(-1) @ v


def causal(q, k, v):
    lib = torch if isinstance(q, torch.Tensor) else krt
    ones = lib.ones(q.shape[-2], k.shape[-2])
    return attend(q, k, v, ones.triu(1) != 0)


def inputs(rng, shape, dtype=np.float32):
    batch, heads, queries, keys, width = shape
    lengths = (queries, keys, keys)
    return [rng.standard_normal((batch, heads, n, width)).astype(dtype) for n in lengths]


def wide(arrays, *, requires_grad=False):
    return [
        torch.tensor(x.astype(np.float64), requires_grad=requires_grad) for x in arrays
    ]


def kernels(plan):
    return [op.kernel.ast for op in plan.prepared_ops if hasattr(op, "kernel")]


def arrays_in(plan):
    return sum(node.op is Op.LOCAL for ast in kernels(plan) for node in toposort([ast]))


def test_scores_lie_in_arrays_of_the_kernel(rng):
    q, k, v = map(krt.tensor, inputs(rng, LONG))
    plan = krt.jit(causal).plan(q, k, v)
    assert arrays_in(plan) == 3  # scores, their exponentials, weights


def test_what_is_masked_throughout_is_left_out(rng):
    q, k, v = map(krt.tensor, inputs(rng, LONG))
    text = krt.jit(causal).plan(q, k, v).kernels[-1].loops()
    assert text.count("unless all ") == 1
    assert text.count("one row where ") == 1
    plain = krt.jit(attend).plan(q, k, v).kernels[-1].loops()
    assert "unless" not in plain
    assert "one row" not in plain


def test_exponentials_of_masked_scores_are_computed_once_a_row(rng):
    q, k, v = map(krt.tensor, inputs(rng, (1, 4, 128, 128, 32)))
    assert "once a row where local0 is -inf" in krt.jit(causal).plan(q, k, v).kernels[-1].loops()
    assert "once a row" not in krt.jit(attend).plan(q, k, v).kernels[-1].loops()


@pytest.mark.parametrize("length", [5, 64, 128, 131])
@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf, -1e30, 1e30])
def test_masked_scores_beside_special_values(rng, special, length):
    """A row whose maximum is not finite, and one that is masked as a whole."""

    def weights(x):
        lib = torch if isinstance(x, torch.Tensor) else krt
        ones = lib.ones(length, length)
        near = ones.tril() * ones.triu(-70)
        return (x * 2.0).masked_fill((near == 0) | (near.cumsum(0) > 100), -math.inf).softmax(-1)

    x = rng.standard_normal((length, length)).astype(np.float32)
    x[length // 2, : length // 2 + 1] = special
    x[length - 1, 0] = special
    found = krt.jit(weights)(krt.tensor(x)).numpy()
    expected = weights(torch.tensor(x.astype(np.float64))).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 2, 97, 131, 31), LONG], ids=str)
@pytest.mark.parametrize("shift", [-40, 0, 3, 90])
def test_bands(rng, shape, shift):
    def band(q, k, v):
        lib = torch if isinstance(q, torch.Tensor) else krt
        ones = lib.ones(q.shape[-2], k.shape[-2])
        near = ones.triu(shift) * ones.tril(shift + 70)
        return attend(q, k, v, near == 0)

    given = inputs(rng, shape)
    found = krt.jit(band)(*map(krt.tensor, given)).numpy()
    np.testing.assert_allclose(found, band(*wide(given)).numpy(), atol=3e-6)


def test_sums_that_no_one_looks_at(rng):
    x, y = (rng.standard_normal((200, 64)).astype(np.float32) for _ in range(2))
    x[150] = np.inf

    def lower(x, y):
        lib = torch if isinstance(x, torch.Tensor) else krt
        keep = lib.ones(200, 200).tril() != 0
        return lib.where(keep, x @ y.T, lib.zeros(1))

    f = krt.jit(lower)
    given = krt.tensor(x), krt.tensor(y)
    assert "if any " in f.plan(*given).kernels[-1].loops()
    np.testing.assert_allclose(f(*given).numpy(), lower(*wide([x, y])).numpy(), atol=3e-5)


def test_in_a_layer(rng):
    batch, length, heads, width = 2, 300, 3, 32
    size = heads * width

    def layer(x, w, out):
        parts = (x @ w).reshape(batch, length, 3, heads, width)
        q, k, v = (parts[:, :, n].transpose(1, 2) for n in range(3))
        return x + causal(q, k, v).transpose(1, 2).reshape(batch, length, size) @ out

    shapes = (batch, length, size), (size, 3 * size), (size, size)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    given[1:] = [x * np.float32(0.1) for x in given[1:]]
    f, ours = krt.jit(layer), [krt.tensor(x) for x in given]
    # Queries, keys and values; keys by columns; attention; the sum.
    assert len(f.plan(*ours).kernels) == 4
    np.testing.assert_allclose(f(*ours).numpy(), layer(*wide(given)).numpy(), atol=2e-5)


@pytest.mark.parametrize("f", [attend, causal])
@pytest.mark.parametrize("length", [1024, 4096])
def test_no_memory_for_all_scores(rng, f, length):
    q, k, v = map(krt.tensor, inputs(rng, (1, 1, length, length, 16)))
    plan = krt.jit(f).plan(q, k, v)
    # A result, and keys by columns.
    assert plan.memory.peak <= 3 * 4 * q.numel() < length * length

@pytest.mark.parametrize("f", [attend, causal])
@pytest.mark.parametrize("shape", [*SHAPES, LONG], ids=str)
def test_values(rng, f, shape):
    given = inputs(rng, shape)
    found = krt.jit(f)(*map(krt.tensor, given)).numpy()
    np.testing.assert_allclose(found, f(*wide(given)).numpy(), atol=3e-6)


@pytest.mark.parametrize("shape", [(2, 3, 17, 17, 5), (1, 2, 97, 131, 31), LONG], ids=str)
def test_gradients(rng, shape):
    given = inputs(rng, shape)
    slope = rng.standard_normal(given[0].shape).astype(np.float32)
    ours = [krt.tensor(x, requires_grad=True) for x in given]

    def step():
        for x in ours:
            x.grad = None
        y = causal(*ours)
        (y * krt.tensor(slope)).sum().backward()
        return (y, *(x.grad for x in ours))

    theirs = wide(given, requires_grad=True)
    wanted = causal(*theirs)
    (wanted * torch.tensor(slope)).sum().backward()
    for found, meant in zip(krt.jit(step)(), (wanted, *(x.grad for x in theirs)), strict=True):
        np.testing.assert_allclose(found.numpy(), meant.detach().numpy(), atol=2e-5)


@pytest.mark.parametrize(
    ("name", "tolerance"), [("float64", 1e-14), ("float16", 4e-3), ("bfloat16", 4e-2)]
)
@pytest.mark.parametrize("shape", [(1, 2, 97, 131, 31), LONG], ids=str)
def test_other_floats(rng, name, tolerance, shape):
    given = [krt.tensor(x).cast(name) for x in inputs(rng, shape, np.float64)]
    found = krt.jit(causal)(*given)
    meant = causal(*wide([x.cast("float64").numpy() for x in given]))
    np.testing.assert_allclose(
        found.cast("float64").numpy(), meant.numpy(), atol=tolerance, rtol=0
    )


@pytest.mark.parametrize("shape", [(2, 3, 17, 17, 5), LONG], ids=str)
def test_rows_that_are_masked_throughout_are_nan(rng, shape):
    given = inputs(rng, shape)
    queries, keys = shape[2:4]
    mask = rng.random((queries, keys)) < 0.5
    mask[::3] = True
    mask[1::3, keys // 2 :] = True
    found = krt.jit(attend)(*map(krt.tensor, given), krt.tensor(mask)).numpy()
    wanted = attend(*wide(given), torch.tensor(mask)).numpy()
    assert np.isnan(wanted[:, :, ::3]).all()
    np.testing.assert_allclose(found, wanted, atol=3e-6)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_masked_is_still_multiplied(rng, value):
    given = inputs(rng, LONG)
    given[2][0, 0, 400, 3] = value
    found = krt.jit(causal)(*map(krt.tensor, given)).numpy()
    np.testing.assert_allclose(found, causal(*wide(given)).numpy(), atol=3e-6)
    assert np.isnan(found[0, 0, 5, 3])


@pytest.mark.parametrize("most", [300, 4000])
def test_lengths_known_at_run_time(rng, most):
    n = Variable("n", 0, most)
    for attention in (attend, causal):
        f = krt.jit(attention, dynamic={"k": {2: n}, "v": {2: n}})
        for length in (0, 1, 5, 64, 299):
            given = inputs(rng, (1, 2, 700, length, 16))
            found = f(*map(krt.tensor, given)).numpy()
            np.testing.assert_allclose(found, attention(*wide(given)).numpy(), atol=3e-6)


@pytest.mark.parametrize("queries", [2, 40])
def test_keys_are_turned_for_many_queries(rng, queries):
    n = Variable("n", 1, 50)
    scores = krt.jit(lambda q, k: q @ k.transpose(-1, -2), dynamic={"k": {1: n}})
    for length in (1, 7, 50):
        q, k = rng.normal(size=(3, queries, 16)), rng.normal(size=(3, length, 16))
        np.testing.assert_allclose(scores(q, k).numpy(), q @ k.swapaxes(1, 2), rtol=1e-12)
    copies = len(scores.plans[0].prepared_ops) - 1
    assert copies == (queries > 2)


def test_bits_do_not_depend_on_threads(rng):
    given = [krt.tensor(x) for x in inputs(rng, LONG)]
    results = []
    for count in (1, 2):
        with krt.num_threads(count):
            results.append(krt.jit(causal)(*given).numpy())
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(
    ("shape", "gqa"),
    [((2, 1, 1, 6), False), ((3, 1, 1, 7), False), ((1, 1, 1, 1, 7), False), ((2, 2, 1, 7), True),
     ((2, 4, 5, 7), True), ((6,), True)],
)  # fmt: skip
def test_masks_that_do_not_fit_are_refused_as_torch_does(shape, gqa):
    query, key = (2, 4, 7, 8), (2, 2 if gqa else 4, 7, 8)

    def attended(lib):
        given = (lib.ones(query), lib.ones(key), lib.ones(key), lib.ones(shape))
        return lib.nn.functional.scaled_dot_product_attention(*given, enable_gqa=gqa)

    with pytest.raises((RuntimeError, IndexError)):
        attended(torch)
    with pytest.raises(krt.ShapeError, match=r"attn_mask: shape .* \(2, 4, 7, 7\) of the scores"):
        attended(krt)


@pytest.mark.parametrize(
    "axes", [{"q": {2: Variable("L", 1, 16)}}, {"mask": {3: Variable("L", 1, 16)}}]
)
def test_masks_of_a_fixed_length_beside_one_that_is_not(axes):
    attend_to = krt.nn.functional.scaled_dot_product_attention
    f = krt.jit(lambda q, mask: attend_to(q, q, q, mask), dynamic=axes)
    q, mask = np.ones((2, 4, 7, 8), np.float32), np.ones((2, 1, 1, 7), bool)
    with pytest.raises(krt.ShapeError, match=r"attn_mask: shape .*\bL\b.*the same Variable"):
        f(q, mask)
    length = Variable("L", 1, 16)

    @krt.jit(dynamic={"q": {2: length}, "mask": {3: length}})
    def both(q, mask):
        return attend_to(q, q, q, mask)

    assert both(q, mask).shape == q.shape

"""float16 and bfloat16: stored narrow, computed in float32 where it counts."""

from __future__ import annotations

import numpy as np
import pytest
from support.reference import evaluate
from surface import compare, rows

import kernelrt as krt
from kernelrt.tensor.autograd.tags import strip

torch = pytest.importorskip("torch")
F = torch.nn.functional
NAMES = (
    "unary-operator_neg", "unary-exp", "unary-log", "unary-sqrt", "unary-tanh", "unary-sigmoid",
    "activation-relu", "activation-gelu", "binary-add_same", "binary-mul_same",
    "binary-truediv_same", "binary-maximum", "binary-mul_spread", "reduction-sum_last",
    "reduction-mean_all", "reduction-amax_pair", "reduction-softmax_-1",
    "reduction-logsumexp_last", "movement-permute", "movement-pad", "products-operator",
    "products-linear_bias", "convolution-conv2d_plain", "convolution-max_pool2d",
    "loss-layer_norm_affine", "loss-cross_entropy_plane_mean", "indexing-tensor",
)  # fmt: skip
BY_NAME = {f"{table}-{row.name}": row for table, row in rows.tables()}
# Units in the last place of each type: 2**-10 and 2**-7; a value may be rounded several times.
STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


@pytest.mark.parametrize("dtype", STEP)
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name, dtype):
    row = BY_NAME[name]
    tensors, _ = compare.given(row, rows.draw(row, rows.sizes(row), seed=3), dtype, grad=True)
    out = row.call(krt, *tensors)
    weights = np.random.default_rng(1).standard_normal(out.shape)
    (out * krt.tensor(weights, dtype=dtype)).mean().backward()
    results = [out, *(t.grad for t in tensors if t.requires_grad)]
    expected = evaluate(strip(t.uop for t in results), wide=True)
    krt.realize(*results)
    for got, value in zip(results, expected, strict=True):
        assert got.dtype.name == dtype
        size = float(np.abs(value).max(initial=2.0**-10))
        np.testing.assert_allclose(got.double().numpy() / size, value / size, atol=8 * STEP[dtype])


@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_casts_round_every_number_once(kind, source):
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


def rms(x):
    return x / (x * x).mean(-1, keepdim=True).sqrt()


#: Of a matrix, in kernelrt and in torch: what adds up several elements and then goes on.
TOTALS = {
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "mean of all": lambda x: x.mean(),
    "var": lambda x: x.var(-1, correction=0),
    "std": lambda x: x.std(-1, correction=0),
    "norm": lambda x: x.norm(2, -1),
    "1-norm": lambda x: x.norm(1, -1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "cumsum of columns": lambda x: x.cumsum(0),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-6)
    if isinstance(x, torch.Tensor) else x.layer_norm(x.shape[-1], eps=1e-6),
    "rms_norm": lambda x: rms(x) if isinstance(x, torch.Tensor) else x.rms_norm(x.shape[-1], eps=0),
    "mse_loss": lambda x: F.mse_loss(x, x / 2) if isinstance(x, torch.Tensor)
    else x.mse_loss(x / 2),
    "product": lambda x: (x @ x.T).diagonal(),
}  # fmt: skip
PLAIN = ("sum", "mean", "mean of all", "cumsum", "cumsum of columns")


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 130, 300])
@pytest.mark.parametrize("name", TOTALS)
def test_totals_are_rounded_once_and_do_not_overflow_on_the_way(name, size):
    """Wherever the rounded result of exact arithmetic is finite, it is the result."""
    rng = np.random.default_rng([size, len(name)])
    for dtype, top in (("float16", 60000.0), ("bfloat16", 1e18)):
        ramp = np.linspace(-1, 1, 3 * size).reshape(3, size)
        turn = np.where(np.arange(size) < (size + 1) // 2, 1, -1) * np.array([[1.0], [0.9], [-1]])
        for data in (ramp * top, turn * 1100, rng.standard_normal((3, size)) * 300, turn * 1e-3):
            x = krt.tensor(data, dtype=dtype)
            exact = torch.tensor(x.double().numpy())
            with np.errstate(over="ignore"):
                want = TOTALS[name](exact).to(getattr(torch, dtype)).double().numpy()
            for got in (TOTALS[name](x), krt.jit(TOTALS[name])(x)):
                assert got.dtype.name == dtype
                have = got.double().numpy()
                known = np.isfinite(want)
                # What sums in float32 lose, and the least number of float16.
                lost = np.abs(data).max() * size * 2e-6 if name in PLAIN else 0
                lost += 1e-4 * np.abs(want[known]).max(initial=0) + 2.0**-24
                np.testing.assert_allclose(
                    have[known], want[known], rtol=2 * STEP[dtype], atol=lost
                )


STEPS = {
    "add": lambda a, b: a + b, "sub": lambda a, b: b - a, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b, "rdiv": lambda a, b: b / a,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", STEP)
def test_rounding_where_it_is_asked_for_gives_the_bits_of_single_operations(kind, seed):
    rng = np.random.default_rng(seed)
    names = rng.choice(list(STEPS), 8)
    data = [rng.standard_normal(37).astype(np.float32) * 10.0 ** rng.integers(-3, 3, 37)
            for _ in range(2)]  # fmt: skip
    data = [d.astype(np.float32) for d in data]

    def chain(a, b, rounded):
        for name in names:
            a, b = b, rounded(STEPS[name](a, b))
        return rounded(b.abs()), b

    theirs = [torch.tensor(d).to(getattr(torch, kind)) for d in data]
    expected = [t.view(torch.uint16).numpy() for t in chain(*theirs, lambda t: t)]
    ours = [krt.tensor(d, dtype=kind).realize() for d in data]
    for run in (chain, krt.jit(chain)):
        found = run(*ours, lambda t: t.float().cast(kind))
        for got, bits in zip(found, expected, strict=True):
            a, b = got.bitcast(krt.uint16).numpy(), bits
            nans = np.isnan(got.double().numpy())
            np.testing.assert_array_equal(a[~nans], b[~nans])
    realized = chain(*ours, lambda t: t.realize())
    np.testing.assert_array_equal(realized[1].bitcast(krt.uint16).numpy(),
                                  found[1].bitcast(krt.uint16).numpy())  # fmt: skip

"""Computed weights, packed sequences, first values, dropout's numbers, and what layers refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import DomainError, DTypeError, IndexBoundsError, ShapeError, StateError

torch = Package("torch")


def near(ours, theirs, tol=1e-5):
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(), rtol=tol, atol=tol
    )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("name", "layer", "sizes", "shape", "options"),
    [
        ("weight_norm", "Linear", (5, 3), (2, 5), {}),
        ("weight_norm", "Linear", (5, 3), (2, 5), {"dim": None}),
        ("weight_norm", "Conv2d", (5, 3, 2), (2, 5, 4, 4), {"dim": 1}),
        ("spectral_norm", "Linear", (5, 3), (2, 5), {"n_power_iterations": 3}),
        ("spectral_norm", "ConvTranspose2d", (5, 3, 2), (2, 5, 4, 4), {}),
    ],
)
@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_computed_weights_are_those_of_torch(name, layer, sizes, shape, options, training):
    # By chance, the weights may be divided by a norm near 0, which magnifies rounding errors.
    torch.manual_seed(0)
    theirs = getattr(torch.nn.utils, name)(getattr(torch.nn, layer)(*sizes), **options)
    ours = getattr(nn.utils, name)(getattr(nn, layer)(*sizes), **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    ours.train(training), theirs.train(training)
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for _ in range(2):
        y, ty = ours(krt.tensor(data)), theirs(torch.tensor(data))
        near(y, ty)
    (y * y).sum().backward()
    (ty * ty).sum().backward()
    expected = dict(theirs.named_parameters())
    assert [n for n, _ in ours.named_parameters()] == list(expected)
    for key, p in ours.named_parameters():
        near(p.grad, expected[key].grad, 1e-4)
    for key, value in ours.state_dict().items():
        near(value, theirs.state_dict()[key])
    near(krt.jit(ours)(krt.tensor(data)), theirs(torch.tensor(data)))
    weight = ours.weight.detach().numpy()
    with pytest.raises(StateError, match="computes it from other tensors"):
        ours.weight = krt.zeros(1)
    getattr(nn.utils, f"remove_{name}")(ours)
    assert list(ours.state_dict()) == ["bias", "weight"]
    np.testing.assert_array_equal(ours.weight.detach().numpy(), weight)
    with pytest.raises(StateError):
        getattr(nn.utils, f"remove_{name}")(ours)


def test_sequences_are_padded_packed_and_apart_again():
    rnn = nn.utils.rnn
    parts = [np.arange(n * 2, dtype=np.float32).reshape(n, 2) + n for n in (4, 2, 3)]
    ours, theirs = [krt.tensor(p) for p in parts], [torch.tensor(p) for p in parts]
    for options in ({}, {"batch_first": True}, {"padding_value": -1.0, "padding_side": "left"}):
        near(rnn.pad_sequence(ours, **options),
             torch.nn.utils.rnn.pad_sequence(theirs, **options))  # fmt: skip
    packed = rnn.pack_sequence(ours, enforce_sorted=False)
    padded, lengths = rnn.pad_packed_sequence(packed, batch_first=True, padding_value=7.0)
    near(padded, torch.nn.utils.rnn.pad_sequence(theirs, True, 7.0))
    assert lengths.tolist() == [4, 2, 3]
    back = rnn.unpad_sequence(padded, lengths, batch_first=True)
    for a, b in zip(back, parts, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
    assert rnn.pad_packed_sequence(packed, total_length=6)[0].shape == (6, 3, 2)
    with pytest.raises(ShapeError, match="lengths: expected descending lengths"):
        rnn.pack_sequence(ours)
    with pytest.raises(ShapeError, match="numbers from 1 to 4"):
        rnn.pack_padded_sequence(padded, [5, 1, 1], batch_first=True)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_packed_sequences_through_recurrent_layers(kind):
    theirs = getattr(torch.nn, kind)(2, 3, bidirectional=True)
    ours = getattr(nn, kind)(2, 3, bidirectional=True)
    ours.load_state_dict(theirs.state_dict())
    data = np.random.default_rng(1).standard_normal((4, 3, 2)).astype(np.float32)
    results = []
    for k, layer, x in (
        (krt.nn.utils.rnn, ours, krt.tensor(data)),
        (torch.nn.utils.rnn, theirs, torch.tensor(data)),
    ):
        packed = k.pack_padded_sequence(x, [4, 1, 2], enforce_sorted=False)
        out, state = layer(packed)
        state = state[0] if isinstance(state, tuple) else state
        results.append((k.pad_packed_sequence(out)[0], state))
    for a, b in zip(*results, strict=True):
        near(a, b)


def test_first_values():
    krt.manual_seed(0)
    x = nn.init.trunc_normal_(krt.empty(100, 100), 0.5, 2.0, -1.0, 3.0).numpy()
    assert x.min() >= -1
    assert x.max() <= 3
    want = torch.nn.init.trunc_normal_(torch.empty(100, 100), 0.5, 2.0, -1.0, 3.0)
    assert abs(x.mean() - float(want.mean())) < 0.05
    assert abs(x.std() - float(want.std())) < 0.05
    for shape in ((3, 2, 4), (7, 3)):
        q = nn.init.orthogonal_(krt.empty(*shape), 2.0).numpy().reshape(shape[0], -1)
        q = q if q.shape[0] <= q.shape[1] else q.T
        np.testing.assert_allclose(q @ q.T, 4 * np.eye(len(q)), atol=1e-5)
    for shape, groups in (((4, 2, 3), 2), ((4, 2, 3, 2), 1), ((2, 3, 2, 3, 1), 1)):
        want = torch.nn.init.dirac_(torch.empty(*shape), groups)
        near(nn.init.dirac_(krt.empty(*shape), groups), want)
    near(nn.init.eye_(krt.empty(3, 5)), torch.eye(3, 5))
    assert ((nn.init.sparse_(krt.empty(10, 6), 0.33).numpy() == 0).sum(0) == 4).all()
    for name in ("selu", "conv_transpose2d", "tanh"):
        assert nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)


def test_dropout_of_channels_keeps_or_drops_whole_ones():
    krt.manual_seed(0)
    for layer, shape, lead in (
        (nn.Dropout1d(0.25), (40, 30, 3), 2), (nn.Dropout1d(0.25), (900, 3), 1),
        (nn.Dropout2d(0.25), (40, 30, 3, 2), 2), (nn.Dropout3d(0.25), (40, 30, 2, 1, 2), 2),
        (nn.Dropout3d(0.25), (900, 2, 1, 2), 1),
    ):  # fmt: skip
        y = layer(krt.ones(*shape)).numpy().reshape(math.prod(shape[:lead]), -1)
        assert (y == y[:, :1]).all()
        assert set(np.unique(y)) == {0, np.float32(1 / 0.75)}
        assert abs((y == 0).mean() - 0.25) < 0.06


def test_alpha_dropout_keeps_mean_and_variance():
    krt.manual_seed(0)
    x = krt.randn(200, 300)
    for layer in (nn.AlphaDropout(0.3), nn.FeatureAlphaDropout(0.3)):
        y = layer(x).numpy()
        assert abs(y.mean()) < 0.03
        assert abs(y.std() - 1) < 0.03
    given = krt.ones(3, 4, requires_grad=True)
    y = nn.AlphaDropout(0.5)(given)
    y.sum().backward()
    assert len(np.unique(given.grad.numpy())) == 2



@pytest.mark.parametrize("padding_idx", [0, 2, -1, -5])
@pytest.mark.parametrize("bag", [False, True])
def test_a_row_of_padding_in_a_table_of_open_size(bag, padding_idx):
    torch = pytest.importorskip("torch")
    table = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    index = np.array([[0, 4], [2, 0]])

    def looked_up(lib, table):
        options = {"padding_idx": padding_idx, **({"mode": "mean"} if bag else {})}
        name = "embedding_bag" if bag else "embedding"
        return getattr(lib.nn.functional, name)(lib.tensor(index), table, **options)

    sizes = {"table": {0: krt.Variable("n", 1, 64)}}
    run = krt.jit(lambda table: looked_up(krt, table), dynamic=sizes)
    want = looked_up(torch, torch.tensor(table)).numpy()
    np.testing.assert_allclose(run(table).numpy(), want, rtol=1e-6)


def test_from_pretrained():
    table = krt.randn(4, 3)
    frozen = nn.Embedding.from_pretrained(table, padding_idx=1)
    assert [n for n, _ in frozen.named_parameters()] == ["weight"]
    assert not frozen.weight.requires_grad
    np.testing.assert_array_equal(frozen(krt.tensor([2])).numpy(), table.numpy()[[2]])
    assert nn.EmbeddingBag.from_pretrained(table, freeze=False).weight.requires_grad
    assert (nn.Embedding(4, 3, padding_idx=-2).weight.detach().numpy()[2] == 0).all()


def test_inplace_is_a_hint():
    x = krt.tensor([-1.0, 1.0])
    for layer in (nn.ReLU(True), nn.ELU(inplace=True), nn.Dropout(0.5, True)):
        layer(x)
        assert x.tolist() == [-1.0, 1.0]
        assert "inplace=True" in repr(layer)


def test_what_is_refused():
    x = krt.randn(2, 3, 4)
    for error, match, call in (
        (DTypeError, "inplace: expected a bool", lambda: nn.ReLU(1)),
        (DomainError, "min_val, max_val", lambda: nn.Hardtanh(1, -1)),
        (DomainError, "reduction: expected one of", lambda: nn.MSELoss(reduction="batchmean")),
        (DomainError, "margin: expected a number above 0", lambda: nn.TripletMarginLoss(0.0)),
        (krt.DomainError, "max_norm: expected a number of at least 0, not -1",
         lambda: nn.Embedding(3, 4, max_norm=-1)),
        (DTypeError, "max_norm: expected a number", lambda: nn.EmbeddingBag(3, 4, max_norm="a")),
        (DTypeError, "sparse: expected False", lambda: nn.EmbeddingBag(3, 4, sparse=True)),
        (DTypeError, "divide weight.grad", lambda: nn.Embedding(3, 4, scale_grad_by_freq=True)),
        (DomainError, "expected one of 'zeros'", lambda: nn.Conv2d(1, 1, 1, padding_mode="x")),
        (DomainError, "expected one of 'zeros', not",
         lambda: nn.ConvTranspose2d(1, 1, 1, padding_mode="circular")),
        (ShapeError, "at least 5 elements, not 4", lambda: x.pad((4, 0), "reflect")),
        (ShapeError, "at least 5 elements, not 4", lambda: x.pad((0, 5), "circular")),
        (ShapeError, "expects one to three pairs", lambda: krt.ones(3).pad((1, 1), "reflect")),
        (ShapeError, "value: mode 'reflect' takes no value", lambda: x.pad((1, 1), "reflect", 2.0)),
        (DomainError, "mode: expected one of", lambda: x.pad((1, 1), "mirror")),
        (ShapeError, "are not divisible by 2", lambda: x.unsqueeze(0).pixel_shuffle(2)),
        (ShapeError, "expected a divisor of the 3 channels, not 2", lambda: x.channel_shuffle(2)),
        (ShapeError, "do not fit", lambda: nn.functional.unfold(x, 5)),
        (ShapeError, "expected 12 windows", lambda: nn.functional.fold(krt.ones(4, 3), (4, 5), 2)),
        (ShapeError, "output_size: expected sizes above 6",
         lambda: x.max_unpool1d(krt.zeros(2, 3, 4, dtype="int64"), 2, output_size=[5])),
        (ShapeError, "output_size: expected a list or tuple of the sizes length, or of all 3",
         lambda: nn.ConvTranspose1d(3, 1, 2, 2)(x, 8)),
        (ShapeError, r"output_size: .* not \[1, 8\]",
         lambda: nn.ConvTranspose1d(3, 1, 2, 2)(x, [1, 8])),
        (ShapeError, "size from 8 to 9 for an input axis of 4 elements and stride 2, not 7",
         lambda: nn.ConvTranspose1d(3, 1, 2, 2)(x, [7])),
        (ShapeError, "output_size: .* from 8 to 9 .* not 10",
         lambda: nn.ConvTranspose1d(3, 1, 2, 2)(x, (2, 1, 10))),
        (DTypeError, "output_size", lambda: nn.ConvTranspose1d(3, 1, 2, 2)(x, [8.0])),
        (ShapeError, "dropout1d: expected 2 or 3 axes", lambda: nn.Dropout1d()(krt.ones(3))),
    ):  # fmt: skip
        with pytest.raises(error, match=match):
            call()
    with pytest.raises(IndexBoundsError):
        x.max_unpool1d(krt.full((2, 3, 4), 8, dtype="int64"), 2).numpy()
    with pytest.raises(IndexBoundsError):
        nn.EmbeddingBag(3, 2)(krt.tensor([1, 2]), krt.tensor([1])).numpy()


@pytest.mark.parametrize("offsets", [None, [0, 2, 2, 5], [0, 6], [0, 0, 0], [0, 1]])
@pytest.mark.parametrize("padding_idx", [None, 1])
@pytest.mark.parametrize("values", ["equal", "apart", "infinite"])
def test_the_first_maximum_of_a_bag_gets_the_gradient(offsets, padding_idx, values):
    rng = np.random.default_rng(0)
    table = rng.integers(-1, 2, (4, 5)) if values == "equal" else rng.standard_normal((4, 5))
    table = np.where(table < 0, -np.inf, table) if values == "infinite" else table
    index = rng.integers(0, 4, 6)
    index = index.reshape(2, 3) if offsets is None else index

    def results(lib):
        weight = lib.tensor(table.astype(np.float64)).requires_grad_()
        where = None if offsets is None else lib.tensor(offsets)
        out = lib.nn.functional.embedding_bag(
            lib.tensor(index), weight, where, mode="max", padding_idx=padding_idx
        )
        factors = lib.arange(1.0, out.numel() + 1).reshape(out.shape)
        (out.where(out.isfinite(), lib.zeros_like(out)) * factors).sum().backward()
        return out.detach().numpy(), weight.grad.numpy()

    for mine, theirs in zip(results(krt), results(torch), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_bags_of_no_rows_have_gradients():
    n = krt.Variable("n", 0, 16)
    for jitted in (False, True):
        weight = krt.ones(4, 3, requires_grad=True)

        def total(index, weight=weight):
            out = nn.functional.embedding_bag(index, weight, krt.tensor([0, 0]), mode="max")
            out.sum().backward()
            return out

        run = krt.jit(total, dynamic={"index": {0: n}}) if jitted else total
        assert run(krt.zeros(0).long()).tolist() == [[0] * 3] * 2
        assert weight.grad.tolist() == [[0] * 3] * 4


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_no_bags_have_no_rows(mode):
    weight = krt.ones(4, 3, requires_grad=True)
    index, offsets = krt.tensor([0, 1]), krt.zeros(0, dtype=krt.int64)
    out = nn.functional.embedding_bag(index, weight, offsets, mode=mode, padding_idx=1)
    assert out.shape == (0, 3)
    out.sum().backward()
    assert weight.grad.tolist() == [[0] * 3] * 4


def test_a_padded_row_takes_no_gradient_of_infinite_maxima():
    weight = krt.tensor([[5.0], [-np.inf]]).requires_grad_()
    index, offsets = krt.tensor([0, 1]), krt.tensor([0])
    out = nn.functional.embedding_bag(index, weight, offsets, mode="max", padding_idx=0)
    out.sum().backward()
    assert weight.grad.tolist() == [[0], [1]]

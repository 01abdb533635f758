"""Layers against PyTorch: values and gradients, with the same parameters."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import kernelrt as krt
import kernelrt.nn.functional as F  # noqa: N812 - its usual name
from kernelrt import nn
from kernelrt.errors import DomainError, DTypeError, ShapeError

torch = pytest.importorskip("torch")
tnn = torch.nn

CASES = {
    "linear": (lambda n: n.Linear(5, 7), (3, 5)),
    "linear, no bias": (lambda n: n.Linear(5, 7, bias=False), (2, 3, 5)),
    "linear of one": (lambda n: n.Linear(1, 1), (1,)),
    "conv": (lambda n: n.Conv2d(3, 4, 3), (2, 3, 6, 7)),
    "conv, stride and padding": (lambda n: n.Conv2d(3, 4, 3, 2, 1), (2, 3, 7, 6)),
    "conv, pairs": (
        lambda n: n.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(2, 0), dilation=(2, 1)),
        (1, 2, 8, 9),
    ),
    "conv, groups": (lambda n: n.Conv2d(4, 6, 3, groups=2, bias=False), (2, 4, 5, 5)),
    "conv 1d": (lambda n: n.Conv1d(3, 4, 3, stride=2, padding=1), (2, 3, 9)),
    "conv 3d": (lambda n: n.Conv3d(2, 4, (1, 2, 3), padding=(0, 1, 1), groups=2), (2, 2, 3, 4, 5)),
    "transposed": (lambda n: n.ConvTranspose2d(3, 4, 4, 2, 1), (2, 3, 5, 4)),
    "transposed, groups": (
        lambda n: n.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0), (1, 2), 2, False, (1, 2)),
        (2, 4, 3, 5),
    ),
    "transposed 1d": (lambda n: n.ConvTranspose1d(3, 2, 5, 3, dilation=2), (2, 3, 6)),
    "transposed 3d": (lambda n: n.ConvTranspose3d(2, 3, 3, 2, 1, 1), (1, 2, 2, 3, 2)),
    "conv 1x1": (lambda n: n.Conv2d(4, 2, 1), (2, 4, 3, 3)),
    "max pool": (lambda n: n.MaxPool2d(2), (2, 3, 6, 7)),
    "max pool, overlapping": (lambda n: n.MaxPool2d(3, stride=2, padding=1), (2, 3, 7, 7)),
    "avg pool": (lambda n: n.AvgPool2d(2), (2, 3, 6, 7)),
    "avg pool, padding": (lambda n: n.AvgPool2d(3, stride=1, padding=1), (1, 2, 5, 5)),
    "layer norm": (lambda n: n.LayerNorm(6), (4, 6)),
    "layer norm, two axes": (lambda n: n.LayerNorm((3, 4), eps=1e-3), (5, 3, 4)),
    "layer norm, plain": (lambda n: n.LayerNorm(6, elementwise_affine=False), (2, 3, 6)),
    "relu": (lambda n: n.ReLU(), (3, 4)),
    "leaky relu": (lambda n: n.LeakyReLU(0.2), (3, 4)),
    "tanh": (lambda n: n.Tanh(), (3, 4)),
    "sigmoid": (lambda n: n.Sigmoid(), (3, 4)),
    "silu": (lambda n: n.SiLU(), (3, 4)),
    "softplus": (lambda n: n.Softplus(2.0, 3.0), (3, 4)),
    "gelu": (lambda n: n.GELU(), (3, 4)),
    "gelu, tanh": (lambda n: n.GELU("tanh"), (3, 4)),
    "softmax": (lambda n: n.Softmax(dim=1), (3, 4)),
    "log softmax": (lambda n: n.LogSoftmax(dim=-1), (3, 4)),
    "flatten": (lambda n: n.Flatten(), (2, 3, 4)),
    "flatten, middle": (lambda n: n.Flatten(1, 2), (2, 3, 4, 5)),
    "dropout of none": (lambda n: n.Dropout(0.0), (3, 4)),
    "identity": (lambda n: n.Identity(), (3, 4)),
    "network": (
        lambda n: n.Sequential(
            n.Conv2d(1, 4, 3, padding=1), n.ReLU(), n.MaxPool2d(2), n.Flatten(), n.Linear(16, 3)
        ),
        (2, 1, 4, 4),
    ),
}


def pair(make) -> tuple:
    torch.manual_seed(0)
    theirs, ours = make(tnn), make(nn)
    for p in theirs.parameters():  # LayerNorm's ones and zeros would hide mistakes
        p.data.add_(torch.randn_like(p) * 0.3)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_torch(name: str) -> None:
    make, shape = CASES[name]
    ours, theirs = pair(make)
    data = np.random.default_rng(1).standard_normal(shape).astype(np.float32) * 2
    x, tx = krt.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    y, ty = ours(x), theirs(tx)
    np.testing.assert_allclose(y.detach().numpy(), ty.detach().numpy(), rtol=2e-5, atol=2e-5)
    weights = np.random.default_rng(2).standard_normal(tuple(ty.shape)).astype(np.float32)
    (y * krt.tensor(weights)).sum().backward()
    (ty * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), tx.grad.numpy(), rtol=1e-4, atol=1e-4)
    expected = dict(theirs.named_parameters())
    assert [n for n, _ in ours.named_parameters()] == list(expected)
    for key, p in ours.named_parameters():
        np.testing.assert_allclose(
            p.grad.numpy(), expected[key].grad.numpy(), rtol=1e-4, atol=1e-4, err_msg=key
        )


@pytest.mark.parametrize("name", CASES)
def test_names_shapes_and_text_are_those_of_torch(name: str) -> None:
    make, _ = CASES[name]
    ours, theirs = make(nn), make(tnn)
    shapes = {k: tuple(v.shape) for k, v in theirs.state_dict().items()}
    assert {k: v.shape for k, v in ours.state_dict().items()} == shapes
    assert repr(ours).startswith(type(theirs).__name__ + "(")


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("name", ["Conv", "ConvTranspose", "LazyConv", "reflect"])
def test_convolutions_take_inputs_without_a_batch(axes: int, name: str) -> None:
    options = {"padding": 1, "padding_mode": name} if name == "reflect" else {}
    kind = ("Conv" if name == "reflect" else name) + f"{axes}d"
    channels = (4, 3) if name.startswith("Lazy") else (2, 4, 3)
    layer = getattr(nn, kind)(*channels, **options)
    x = krt.randn(2, *(5,) * axes)
    y = layer(x)
    np.testing.assert_array_equal(y.detach().numpy(), layer(x.unsqueeze(0))[0].detach().numpy())
    with pytest.raises(krt.ShapeError, match=r"shape \(batch, 2, .*\) or \(2, "):
        layer(krt.randn(3, *(5,) * axes))
    for wrong in (x[0], x.unsqueeze(0).unsqueeze(0)):
        with pytest.raises(krt.ShapeError, match="expected an input of shape"):
            layer(wrong)


def test_embedding() -> None:
    ours, theirs = pair(lambda n: n.Embedding(10, 4))
    index = np.array([[1, 9, 0], [1, 1, 5]])
    y, ty = ours(krt.tensor(index)), theirs(torch.tensor(index))
    np.testing.assert_array_equal(y.detach().numpy(), ty.detach().numpy())
    (y * y).sum().backward()
    (ty * ty).sum().backward()
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), rtol=1e-5)
    with pytest.raises(krt.IndexBoundsError):
        ours(krt.tensor([10])).numpy()


def test_padding_by_word():
    x = krt.randn(2, 3, 6, 7)
    for dims, layer, theirs in (
        (2, nn.Conv2d(3, 4, (3, 4), padding="same", dilation=(2, 1)), "Conv2d"),
        (2, nn.Conv2d(3, 4, 3, padding="valid", stride=2), "Conv2d"),
        (1, nn.Conv1d(3, 4, 4, padding="same", groups=1), "Conv1d"),
    ):
        image = x if dims == 2 else x[:, :, 0]
        twin = getattr(torch.nn, theirs)(
            3, 4, layer.kernel_size, layer.stride, layer.padding, layer.dilation
        )
        twin.load_state_dict(
            {n: torch.tensor(t.detach().numpy()) for n, t in layer.state_dict().items()}
        )
        want = twin(torch.tensor(image.numpy())).detach().numpy()
        np.testing.assert_allclose(layer(image).detach().numpy(), want, rtol=1e-4, atol=1e-5)
        assert f"padding={layer.padding!r}" in repr(layer)


def test_padding_that_cannot_be():
    with pytest.raises(DomainError, match="padding: expected numbers, 'valid' or 'same', not 'x'"):
        nn.Conv2d(3, 4, 3, padding="x")
    with pytest.raises(ShapeError, match="'same' needs a stride of 1, not"):
        nn.Conv2d(3, 4, 3, stride=(1, 2), padding="same")
    with pytest.raises(DTypeError, match="padding: expected an int or a pair of ints"):
        nn.ConvTranspose2d(3, 4, 3, padding="same")


def test_only_an_lstm_has_projections():
    torch = pytest.importorskip("torch")
    for name in ("GRU", "RNN"):
        with pytest.raises(ValueError, match="proj_size"):
            getattr(torch.nn, name)(3, 4, proj_size=1)
        with pytest.raises(TypeError, match="proj_size"):
            getattr(nn, name)(3, 4, proj_size=1)


def test_errors_of_calls_name_the_layer():
    with pytest.raises(TypeError, match=r"^Conv2d\.__init__\(\) missing 2"):
        nn.Conv2d(3)
    with pytest.raises(TypeError, match=r"^ConvTranspose1d\.__init__\(\) got an unexpected"):
        nn.ConvTranspose1d(3, 4, 3, foo=1)

    class Mine(nn.Conv2d):
        def __init__(self):
            super().__init__(3, 4, 3)

    assert Mine().kernel_size == (3, 3)


def test_upsampling_flattening_and_loss():
    x = np.random.default_rng(0).random((2, 4, 3, 5)).astype(np.float32)
    pairs = [
        (nn.Upsample(scale_factor=2), torch.nn.Upsample(scale_factor=2)),
        (nn.Upsample(scale_factor=(1.5, 0.5)), torch.nn.Upsample(scale_factor=(1.5, 0.5))),
        (nn.Upsample((6, 3)), torch.nn.Upsample((6, 3))),
        (nn.Upsample(2), torch.nn.Upsample(2)),
        (nn.Unflatten(1, (2, -1)), torch.nn.Unflatten(1, (2, -1))),
    ]
    for ours, theirs in pairs:
        got, want = ours(krt.tensor(x)).numpy(), theirs(torch.tensor(x)).numpy()
        np.testing.assert_array_equal(got, want)
    assert repr(pairs[0][0]) == "Upsample(scale_factor=2)"
    target = (x > 0.5).astype(np.float32)
    for reduction in ("mean", "sum", "none"):
        got = nn.BCELoss(reduction=reduction)(krt.tensor(x), krt.tensor(target))
        want = torch.nn.BCELoss(reduction=reduction)(torch.tensor(x), torch.tensor(target))
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    for wrong in (
        nn.Upsample, lambda: nn.Upsample(2, 2), lambda: nn.Upsample(2, mode="cubic"),
        lambda: krt.ones(2, 3).interpolate(2), lambda: krt.ones(1, 1, 2).interpolate((2, 2)),
        lambda: krt.ones(1, 1, 2).interpolate(scale_factor=0.1),
        lambda: krt.ones(1, 1, 2).interpolate(scale_factor=-2),
    ):  # fmt: skip
        with pytest.raises(ShapeError):
            wrong()


def test_sure_probabilities_cost_at_most_a_hundred():
    p, t = np.float32([0, 1, 0, 1, 0.25]), np.float32([0, 1, 1, 0, 0.5])
    x, y = krt.tensor(p, requires_grad=True), torch.tensor(p, requires_grad=True)
    ours = x.binary_cross_entropy(krt.tensor(t), reduction="none")
    theirs = torch.nn.functional.binary_cross_entropy(y, torch.tensor(t), reduction="none")
    ours.sum().backward()
    theirs.sum().backward()
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("old", [1, 2, 3, 5, 8, 20, 50])
def test_interpolation_by_fractions(old, mode, dtype):
    """Nearest elements, as PyTorch picks them: a whole number of results a piece is no reason."""
    torch = pytest.importorskip("torch")
    x = np.arange(old).astype(dtype).reshape(1, 1, old)
    for factor in (0.5, 1, 1.1, 1.3, 1.5, 1.7, 2, 2.1, 2.5, 3.3, 4):
        if int(old * factor) == 0:
            continue
        options = {"scale_factor": factor, "mode": mode}
        want = torch.nn.functional.interpolate(torch.from_numpy(x), **options)
        np.testing.assert_array_equal(krt.tensor(x).interpolate(**options).numpy(), want)


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize(("mode", "shape"), [
    ("linear", (9,)), ("bilinear", (20, 9)), ("bicubic", (20, 9)), ("trilinear", (20, 9, 4)),
    ("nearest", (20, 9)), ("nearest", (9,)), ("nearest", (20, 9, 4)), ("nearest-exact", (20, 9)),
    ("area", (20, 9)),
])  # fmt: skip
def test_an_axis_may_keep_or_double_its_size(mode, shape, smooth):
    torch = pytest.importorskip("torch")
    if smooth and mode not in ("bilinear", "bicubic"):
        with pytest.raises(krt.DomainError, match="antialias: expected mode 'bilinear' or"):
            krt.ones(1, 1, *shape).interpolate(scale_factor=0.5, mode=mode, antialias=True)
        return
    x = np.random.default_rng(0).standard_normal((2, 1, *shape))
    for factor in (1.1, 2.05, 0.4):
        a, b = krt.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        options = {"scale_factor": factor, "mode": mode, "antialias": smooth}
        ours, theirs = a.interpolate(**options), torch.nn.functional.interpolate(b, **options)
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), atol=1e-12)
        (ours * ours).sum().backward()
        (theirs * theirs).sum().backward()
        # Where torch copies, its gradient is at times that of what it would do elsewhere.
        if not (mode == "nearest" and len(shape) != 2) and not (smooth and factor == 1.1):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), atol=1e-12)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("p", [2.0, 1.0, float("inf")])
@pytest.mark.parametrize("kind", ["Embedding", "EmbeddingBag"])
def test_tables_are_scaled_where_they_are_looked_up(kind, p, jitted):
    torch = pytest.importorskip("torch")
    table = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32) * 2
    table[4] = np.nan
    layers = [
        getattr(k.nn, kind)(6, 3, max_norm=1.5, norm_type=p, padding_idx=1,
                            _weight=k.tensor(table.copy())) for k in (krt, torch)
    ]  # fmt: skip
    run = krt.jit(layers[0]) if jitted else layers[0]
    for index in ([[0, 2], [2, 1], [0, 0]], [[3, 4], [3, 0], [0, 4]]):
        ours, theirs = run(krt.tensor(index)), layers[1](torch.tensor(index))
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)
        weights = [layer.weight.detach().numpy() for layer in layers]
        np.testing.assert_allclose(*weights, rtol=1e-6)
    if not jitted:
        (ours * ours).sum().backward()
        (theirs * theirs).sum().backward()
        np.testing.assert_allclose(layers[0].weight.grad.numpy(), layers[1].weight.grad.numpy(),
                                   rtol=1e-5)  # fmt: skip
    assert "max_norm=1.5" in repr(layers[0])


def test_tables_that_are_scaled_are_no_results():
    weight = krt.ones(3, 2, requires_grad=True)
    index = krt.tensor([0, 2])
    for look in (F.embedding, lambda i, *a, **k: F.embedding_bag(i[None], *a, **k)):
        with pytest.raises(krt.GradientError, match=r"weight: .*result of operations.*renorm"):
            look(index, weight * 2, max_norm=1.0)
        with pytest.raises(krt.errors.IndexBoundsError, match="index 3"):
            look(index + 1, weight, max_norm=1.0).numpy()
        assert weight.tolist() == [[1, 1]] * 3
    assert F.embedding(index[:0], weight, max_norm=1.0).shape == (0, 2)
    plain = weight.detach() * 2
    assert F.embedding(index, plain, max_norm=0.0).tolist() == [[0, 0], [0, 0]]
    assert plain.tolist() == [[0, 0], [2, 2], [0, 0]]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize(
    ("offsets", "closed"),
    [([0, 5], False), ([0, 2, 9], False), ([0, 1, 3], True), ([1, 2], False), ([0, -1], False),
     ([0, 2], False), ([0, 1, 2], True), ([0, 0, 1], False)],
)  # fmt: skip
def test_bags_lie_within_the_input_as_those_of_torch(offsets, closed, mode):
    torch = pytest.importorskip("torch")

    def bags(lib):
        index, weight = lib.tensor([0, 1]), lib.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        found = lib.nn.functional.embedding_bag(
            index, weight, lib.tensor(offsets), mode=mode, include_last_offset=closed
        )
        return found.tolist()

    try:
        wanted = bags(torch)
    except (RuntimeError, IndexError):
        with pytest.raises(krt.IndexBoundsError):
            bags(krt)
    else:
        assert bags(krt) == wanted


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_lengths_of_sequences_are_checked_to_lie_within_the_steps(kind):
    layer, x = kind(2, 3), krt.ones(5, 2, 2)
    jitted = krt.jit(lambda x, lengths: layer(x, lengths=lengths)[0])
    for run in (lambda x, n: layer(x, lengths=n)[0], jitted):
        assert run(x, krt.tensor([5, 0])).numpy()[:, 1].tolist() == [[0, 0, 0]] * 5
        for lengths in ([6, 1], [2, -1]):
            with pytest.raises(krt.IndexBoundsError):
                run(x, krt.tensor(lengths)).numpy()


def test_tensors_are_called_as_in_torch():
    """Each layer takes its tensors by PyTorch's names of them."""
    known = set()
    for name in dir(tnn):
        theirs = getattr(tnn, name)
        if not isinstance(theirs, type) or not issubclass(theirs, tnn.Module):
            continue
        ours = getattr(nn, name, None) if hasattr(nn, name) else None
        if not isinstance(ours, type) or name in ("Module", "Container"):
            continue
        wanted, found = (list(inspect.signature(k.forward).parameters) for k in (theirs, ours))
        if not {"args", "kwargs"} & {*wanted, *found}:
            known.add(name)
            assert [n for n in wanted if n not in found] == [], name
    assert len(known) > 120


@pytest.mark.parametrize(("name", "given"), [
    ("BatchNorm1d", (6,)), ("InstanceNorm1d", (6, 1e-5, 0.1, True)), ("GroupNorm", (2, 6)),
    ("LazyBatchNorm1d", ()), ("LazyInstanceNorm1d", ()),
])  # fmt: skip
def test_norms_may_have_scales_alone(name, given):
    x = np.random.default_rng(0).standard_normal((4, 6, 5)).astype(np.float32)
    ours, theirs = (getattr(k, name)(*given, bias=False) for k in (nn, tnn))
    ours(krt.tensor(x))
    theirs(torch.tensor(x))
    assert ours.bias is None
    with torch.no_grad():
        theirs.weight.fill_(1.5)
    ours.load_state_dict({**ours.state_dict(), "weight": np.full(6, 1.5)})
    a, b = krt.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    found, wanted = ours(input=a), theirs(input=b)
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), atol=2e-6)
    (found * krt.tensor(x)).sum().backward()
    (wanted * torch.tensor(x)).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), atol=1e-5)
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), atol=1e-4)
    ours.reset_parameters()
    assert ours.weight.tolist() == [1.0] * 6
    with pytest.raises(DTypeError, match="bias"):
        getattr(nn, name)(*given, bias="no")(krt.tensor(x))


@pytest.mark.parametrize(("name", "options"), [
    ("cosine_embedding_loss", {"input1": (3, 2), "input2": (3, 2), "target": (3,)}),
    ("margin_ranking_loss", {"input1": (3,), "input2": (3,), "target": (3,)}),
    ("triplet_margin_loss", {"anchor": (3, 2), "positive": (3, 2), "negative": (3, 2)}),
    ("triplet_margin_with_distance_loss",
     {"anchor": (3, 2), "positive": (3, 2), "negative": (3, 2)}),
])  # fmt: skip
def test_functions_call_their_tensors_as_torch_does(name, options):
    rng = np.random.default_rng(0)
    given = {k: rng.standard_normal(s).astype(np.float32) for k, s in options.items()}
    if "target" in given:
        given["target"] = np.sign(given["target"])
    ours, theirs = (
        float(getattr(m, name)(**{k: lib.tensor(v) for k, v in given.items()}))
        for m, lib in ((F, krt), (tnn.functional, torch))
    )
    assert ours == pytest.approx(theirs, rel=1e-5)
    with pytest.raises(TypeError, match=f"{name}.*missing.*{next(iter(options))}"):
        getattr(F, name)()

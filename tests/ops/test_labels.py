"""Losses of class numbers and of probabilities, as torch's by default."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kernelrt as krt

torch = pytest.importorskip("torch")
functional = torch.nn.functional


def scores(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape)


def compare(op: str, x: np.ndarray, target: np.ndarray, **options) -> None:
    """Value and gradient; options hold arrays where torch has tensors."""
    ours, theirs = krt.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    peers = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    options = {k: krt.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    got = getattr(ours, op)(krt.tensor(target), **options)
    want = getattr(functional, op)(theirs, torch.tensor(target), **peers)
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-12)
    got.sum().backward()
    want.sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-12, atol=1e-15)


OPTIONS = list(itertools.product(["mean", "sum", "none"], [None, np.array([0.5, 2.0, 1.0])],
                                 [{}, {"ignore_index": 1}], [0.0, 0.2]))  # fmt: skip


@pytest.mark.parametrize(("reduction", "weight", "ignore", "smooth"), OPTIONS)
@pytest.mark.parametrize("op", ["cross_entropy", "nll_loss"])
def test_class_numbers(op, reduction, weight, ignore, smooth):
    if op == "nll_loss" and smooth:
        return
    more = {"label_smoothing": smooth} if op == "cross_entropy" else {}
    skip = ignore.get("ignore_index", -100)
    for x, y in ((scores(5, 3), [0, 2, skip, 1, 1]), (scores(2, 3, 4), [[0, skip, 2, 1]] * 2),
                 (scores(3), 2)):  # fmt: skip
        compare(op, x, np.array(y), reduction=reduction, weight=weight, **ignore, **more)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weight", [None, np.array([0.5, 2.0, 1.0])])
@pytest.mark.parametrize("smooth", [0.0, 0.2])
def test_probabilities(reduction, weight, smooth):
    for shape in ((5, 3), (2, 3, 4), (3,)):
        y = np.abs(scores(*shape))
        compare("cross_entropy", scores(*shape), y, reduction=reduction, weight=weight,
                label_smoothing=smooth)  # fmt: skip


def test_a_loss_of_ignored_samples_is_not_looked_at():
    x = krt.tensor([[np.inf, -np.inf], [0.0, 0.0]], requires_grad=True)
    loss = x.cross_entropy(krt.tensor([-100, 1]))
    np.testing.assert_allclose(loss.item(), np.log(2), rtol=1e-6)
    assert np.isnan(x.cross_entropy(krt.tensor([-100, -100])).item())


def test_one_hot_labels_are_told_what_they_can_be():
    x, y = krt.zeros(4, 3), krt.tensor([0, 1, 2, 0]).one_hot(3)
    np.testing.assert_allclose(x.cross_entropy(y.float()).item(), np.log(3), rtol=1e-6)
    with pytest.raises(krt.ShapeError, match=r"or floats, as in y.float\(\).*y.argmax\(1\)"):
        x.cross_entropy(y)
    with pytest.raises(krt.ShapeError, match=r"one-hot .* y.argmax\(1\)"):
        x.nll_loss(y.float())
    with pytest.raises(krt.DTypeError, match=r"y.long\(\)"):
        x.cross_entropy(krt.zeros(4))


def test_a_bad_class_is_an_error():
    x = krt.tensor(scores(4, 3))
    for bad in (3, -1, -99):
        with pytest.raises(krt.IndexBoundsError, match=f"{bad} .*cross_entropy"):
            x.cross_entropy(krt.tensor([0, 1, bad, 2])).item()
    with pytest.raises(krt.IndexBoundsError):
        x.cross_entropy(krt.tensor([0, 1, -100, 2]), ignore_index=None).item()


def test_each_question_for_a_value_names_itself():
    asked = {
        "bool": lambda t: 1 if t.sum() else 2, "min": lambda t: min(t[0], t[1]),
        "float": lambda t: __import__("math").sqrt(t[0]), "int": lambda t: int(t[0]),
        "item": lambda t: t[0].item(), "range": lambda t: list(range(t[0].long())),
    }  # fmt: skip
    for name, function in asked.items():
        with pytest.raises(krt.JitError, match=rf"{name}\(\).* reads a value"):
            krt.jit(function)(krt.ones(2))
    with pytest.raises(krt.ShapeError, match=r"maximum\(\) or minimum\(\)"):
        max(krt.ones(2), krt.zeros(2))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_one_class_costs_exactly_nothing(smoothing):
    scores = krt.tensor(np.random.default_rng(0).standard_normal((50, 1)).astype(np.float32) * 9)
    labels = krt.zeros(50, dtype="int64")
    assert scores.cross_entropy(labels, label_smoothing=smoothing).item() == 0


LOSSES = [
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits",
    "kl_div", "cross_entropy",
]  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("pair", [("float32", "float64"), ("float64", "float32"),
                                  ("float16", "float32")], ids="-".join)  # fmt: skip
def test_a_loss_has_the_type_in_which_scores_and_targets_meet(loss, pair, reduction):
    x, y = np.random.default_rng(4).random((2, 3, 4))
    own = [krt.tensor(a).cast(kind) for a, kind in zip((x, y), pair, strict=True)]
    found = getattr(own[0], loss)(own[1], reduction=reduction)
    wide = [torch.tensor(t.double().numpy()) for t in own]
    want = getattr(functional, loss)(*wide, reduction=reduction).numpy()
    meeting = torch.promote_types(*(getattr(torch, kind) for kind in pair))
    assert found.dtype.name == str(meeting).removeprefix("torch.")
    eps = torch.finfo(meeting).eps
    np.testing.assert_allclose(found.double().numpy(), want, rtol=32 * eps, atol=8 * eps)


@pytest.mark.parametrize("name", ["weight", "pos_weight"])
def test_factors_of_a_loss_widen_it(name):
    x, y, w = np.random.default_rng(5).random((3, 3, 4))
    single = [krt.tensor(a).float() for a in (x, y)]
    found = single[0].binary_cross_entropy_with_logits(single[1], **{name: krt.tensor(w)})
    wide = [torch.tensor(t.double().numpy()) for t in single]
    want = functional.binary_cross_entropy_with_logits(*wide, **{name: torch.tensor(w)})
    assert found.dtype is krt.float64
    assert found.item() == pytest.approx(want.item(), rel=1e-14)

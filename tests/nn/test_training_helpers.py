"""Clipping gradients, parameters as a vector, averages of weights."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.nn.optim import swa_utils
from kernelrt.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    get_total_norm,
    parameters_to_vector,
    vector_to_parameters,
)

torch = pytest.importorskip("torch")
SHAPES = ((3, 4), (5,), (), (2, 0))


def pair(scale: float = 1.0, dtype: str = "float32") -> tuple[list, list]:
    rng = np.random.default_rng(2)
    ours, theirs = [], []
    for shape in SHAPES:
        data, grad = rng.standard_normal(shape), rng.standard_normal(shape) * scale
        a = krt.tensor(data, dtype=dtype, requires_grad=True)
        b = torch.tensor(data, dtype=getattr(torch, dtype), requires_grad=True)
        a.grad, b.grad = krt.tensor(grad, dtype=dtype), torch.tensor(grad, dtype=b.dtype)
        ours.append(a)
        theirs.append(b)
    bare = krt.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    return [*ours, bare[0]], [*theirs, bare[1]]


def same_gradients(ours: list, theirs: list, near: float = 1e-6) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if b.grad is not None:
            assert a.grad.dtype.name == str(b.grad.dtype).removeprefix("torch.")
            np.testing.assert_allclose(a.grad.double().numpy(), b.grad.double().numpy(),
                                       rtol=near, atol=near)  # fmt: skip


@pytest.mark.parametrize("order", [2.0, 1, 3.5, math.inf, 0.5])
@pytest.mark.parametrize("most", [1.0, 1000.0, 0.0])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_norms_are_clipped_as_in_torch(order, most, dtype):
    a, b = pair(3.0, dtype)
    a, b = ([p for p in side if p.grad is None or p.grad.numel()] for side in (a, b))
    found = clip_grad_norm_(a, most, order)
    wanted = torch.nn.utils.clip_grad_norm_(b, most, order)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-5)
    same_gradients(a, b)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_values_and_norms_of_all_kinds(dtype):
    a, b = pair(3.0, dtype)
    clip_grad_value_(a, 0.5)
    torch.nn.utils.clip_grad_value_(b, 0.5)
    same_gradients(a, b)
    clip_grad_norm_(a, 0.25)
    torch.nn.utils.clip_grad_norm_(b, 0.25)
    same_gradients(a, b, 1e-6 if dtype != "float16" else 2e-3)
    grads = [p.grad for p in a if p.grad is not None]
    peers = [p.grad for p in b if p.grad is not None]
    assert get_total_norm(grads).item() == pytest.approx(
        torch.nn.utils.get_total_norm(peers).item(), rel=1e-2)  # fmt: skip
    assert clip_grad_norm_([krt.ones(2, requires_grad=True)], 1.0).item() == 0
    assert clip_grad_norm_(a[0], 1.0).shape == ()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite(bad):
    a, b = pair()
    a[1].grad = krt.tensor([bad, 1, 2, 3, 4])
    b[1].grad = torch.tensor([bad, 1, 2, 3, 4])
    before = a[1].grad.tolist()
    with pytest.raises(krt.GradientError, match="error_if_nonfinite=False"):
        clip_grad_norm_(a, 1.0, error_if_nonfinite=True)
    np.testing.assert_array_equal(a[1].grad.tolist(), before)
    clip_grad_norm_(a, 1.0)
    torch.nn.utils.clip_grad_norm_(b, 1.0)
    same_gradients(a, b)


def test_clipping_is_part_of_a_jitted_step():
    w = krt.tensor([3.0, 4.0], requires_grad=True)
    opt = nn.optim.SGD([w], 1.0)

    @krt.jit
    def step(x):
        opt.zero_grad()
        (w * x).sum().backward()
        norm = clip_grad_norm_([w], 1.0)
        opt.step()
        return norm

    assert step(krt.tensor([3.0, 4.0])).item() == 5
    np.testing.assert_allclose(w.tolist(), [2.4, 3.2], rtol=1e-6)
    assert step(krt.tensor([0.3, 0.4])).item() == 0.5
    np.testing.assert_allclose(w.tolist(), [2.1, 2.8], rtol=1e-6)
    with pytest.raises(krt.JitError, match="error_if_nonfinite"):
        krt.jit(lambda g: get_total_norm([g], error_if_nonfinite=True))(krt.ones(2))


def test_parameters_as_a_vector():
    a, _ = pair()
    vector = parameters_to_vector(a)
    assert vector.shape == (20,)
    vector_to_parameters(vector * 2, a)
    np.testing.assert_allclose(parameters_to_vector(a).numpy(), vector.numpy() * 2)
    with pytest.raises(krt.ShapeError, match=r"vec: expected shape \(20,\)"):
        vector_to_parameters(vector[1:], a)


def test_bad_arguments_are_named():
    a, _ = pair()
    for kind, text, call in (
        (krt.DTypeError, "parameters", lambda: clip_grad_norm_(3, 1.0)),
        (krt.DTypeError, r"parameters\[0\]", lambda: clip_grad_norm_([3], 1.0)),
        (krt.DTypeError, "max_norm", lambda: clip_grad_norm_(a, "x")),
        (krt.DomainError, "norm_type", lambda: clip_grad_norm_(a, 1.0, math.nan)),
        (krt.DomainError, "clip_value", lambda: clip_grad_value_(a, -1)),
        (krt.DTypeError, "tensors", lambda: get_total_norm([krt.arange(3)])),
        (krt.DTypeError, "model", lambda: swa_utils.AveragedModel(3)),
        (krt.DomainError, "decay", lambda: swa_utils.get_ema_avg_fn(1.5)),
        (krt.ShapeError, "avg_fn", lambda: swa_utils.AveragedModel(
            nn.Linear(1, 1), avg_fn=max, multi_avg_fn=max)),
        (krt.DomainError, "anneal_epochs", lambda: swa_utils.SWALR(nn.optim.SGD(a), 0.1, -1)),
    ):  # fmt: skip
        with pytest.raises(kind, match=text):
            call()


# ---- averages

WAYS = {
    "swa": ({}, {}),
    "ema": ({"avg_fn": swa_utils.get_ema_avg_fn(0.75)},
            {"avg_fn": torch.optim.swa_utils.get_ema_avg_fn(0.75)}),
    "ema of many": ({"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.75)},
                    {"multi_avg_fn": torch.optim.swa_utils.get_ema_multi_avg_fn(0.75)}),
    "swa of many": ({"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()},
                    {"multi_avg_fn": torch.optim.swa_utils.get_swa_multi_avg_fn()}),
    "own": ({"avg_fn": lambda a, v, n: a * 0.5 + v * 0.5 * (n + 1)},
            {"avg_fn": lambda a, v, n: a * 0.5 + v * 0.5 * (n + 1)}),
}  # fmt: skip


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_averages_are_those_of_torch(way, jitted):
    model, peer = nn.Linear(3, 2), torch.nn.Linear(3, 2)
    nn.load_state_dict(model, peer.state_dict())
    model.codes = nn.Parameter(krt.tensor([3]), requires_grad=False)  # torch averages no integers
    mine = swa_utils.AveragedModel(model, **WAYS[way][0])
    other = torch.optim.swa_utils.AveragedModel(peer, **WAYS[way][1])
    update = krt.jit(lambda: mine.update_parameters(model)) if jitted else (
        lambda: mine.update_parameters(model))  # fmt: skip
    for k in range(4):
        with krt.no_grad():
            model.weight.assign(model.weight * 1.5 + k)
        with torch.no_grad():
            peer.weight.mul_(1.5).add_(k)
        update()
        other.update_parameters(peer)
    np.testing.assert_allclose(mine.module.weight.numpy(), other.module.weight.detach().numpy(),
                               rtol=1e-6)  # fmt: skip
    assert mine.n_averaged.item() == 4
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(mine(krt.tensor(x)).numpy(),
                               other(torch.tensor(x)).detach().numpy(), rtol=1e-5)  # fmt: skip
    assert "n_averaged" in mine.state_dict()
    assert {n.removeprefix("module.") for n, _ in mine.named_parameters()} == {
        "weight", "bias", "codes"
    }  # fmt: skip
    assert mine.module.codes.tolist() == [3]
    model.codes.fill_(5)
    update()
    assert mine.module.codes.tolist() == [5]


@pytest.mark.parametrize("options", [{}, {"anneal_strategy": "linear", "anneal_epochs": 7},
                                     {"anneal_epochs": 0}])  # fmt: skip
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_learning_rate_of_averaging(options):
    opt = nn.optim.SGD([krt.ones(1, requires_grad=True)], 0.5)
    peer = torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.5)
    mine = swa_utils.SWALR(opt, 0.05, **options)
    other = torch.optim.swa_utils.SWALR(peer, 0.05, **options)
    for _ in range(15):
        assert mine.get_last_lr() == pytest.approx(other.get_last_lr(), rel=1e-12)
        mine.step()
        other.step()


def test_running_statistics_are_computed_anew():
    class Norm(nn.Module):
        def __init__(self):
            self.running_mean, self.running_var = krt.ones(3).realize(), krt.zeros(3).realize()
            self.momentum = 0.1

        def forward(self, x):
            return x.batch_norm(self.running_mean, self.running_var, None, None, self.training,
                                self.momentum)  # fmt: skip

    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((8, 3)).astype(np.float32) + k for k in range(4)]
    model, peer = Norm(), torch.nn.BatchNorm1d(3)
    model.eval()
    swa_utils.update_bn([(krt.tensor(b), 0) for b in batches], model)
    torch.optim.swa_utils.update_bn([torch.tensor(b) for b in batches], peer)
    np.testing.assert_allclose(model.running_mean.numpy(), peer.running_mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(model.running_var.numpy(), peer.running_var.numpy(), rtol=1e-5)
    assert (model.momentum, model.training) == (0.1, False)


def test_the_names_of_torch_are_there():
    import kernelrt.optim as optim
    from kernelrt.optim.lr_scheduler import StepLR
    from kernelrt.optim.swa_utils import AveragedModel

    assert krt.optim is optim
    assert optim.AdamW is nn.optim.AdamW
    assert optim.Muon is nn.optim.Muon
    assert StepLR is nn.optim.lr_scheduler.StepLR
    assert AveragedModel is swa_utils.AveragedModel
    assert optim.lr_scheduler.StepLR is StepLR
    with pytest.raises(AttributeError, match="SparseAdam"):
        _ = optim.SparseAdam

"""Schedules of learning rates against PyTorch's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.nn.optim import lr_scheduler as ours

torch = pytest.importorskip("torch")
theirs = torch.optim.lr_scheduler

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # torch asks for the order of calls


class Halving:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, epoch: int) -> float:
        self.calls += 1
        return 0.5 ** (epoch / 7)


CASES = {
    "StepLR": lambda s, o: s.StepLR(o, 7, 0.5),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [3, 9, 9, 30], 0.3),
    "ConstantLR": lambda s, o: s.ConstantLR(o, 0.25, 6),
    "LinearLR": lambda s, o: s.LinearLR(o, 0.2, 0.9, 12),
    "LinearLR default": lambda s, o: s.LinearLR(o),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.93),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o, 20, 1.7),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 11, 1e-3),
    "WarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 5, 2, 1e-3),
    "WarmRestarts even": lambda s, o: s.CosineAnnealingWarmRestarts(o, 6),
    "LambdaLR": lambda s, o: s.LambdaLR(o, [lambda e: 0.95**e, Halving()]),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, lambda e: 1 - 1 / (e + 9)),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, 0.3, 60),
    "OneCycleLR linear": lambda s, o: s.OneCycleLR(
        o, [0.3, 0.4], epochs=6, steps_per_epoch=9, anneal_strategy="linear", three_phase=True,
        pct_start=0.4, div_factor=5.0, final_div_factor=50.0),
    "CyclicLR": lambda s, o: s.CyclicLR(o, 0.01, [0.1, 0.2], 6, 9),
    "CyclicLR 2": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 5, mode="triangular2", base_momentum=0.5),
    "CyclicLR exp": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 5, mode="exp_range", gamma=0.97,
                                            cycle_momentum=False),
    "CyclicLR fn": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 5, scale_fn=lambda x: 1 / (1 + x),
                                           scale_mode="iterations"),
    "LambdaLR below 0": lambda s, o: s.LambdaLR(o, lambda e: 1 - e / 5),
    "CyclicLR below 0": lambda s, o: s.CyclicLR(o, 0.0, 0.1, 5, scale_fn=lambda c: -c,
                                                max_momentum=0.3),
    "OneCycleLR momentum": lambda s, o: s.OneCycleLR(o, 0.3, 50, anneal_strategy="linear",
                                                     base_momentum=0.1, max_momentum=0.999),
    "SequentialLR": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 5), s.CosineAnnealingLR(o, 20), s.ExponentialLR(o, 0.9)],
        [5, 30]),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler(
        [s.ConstantLR(o, 0.1, 4), s.ExponentialLR(o, 0.9), s.StepLR(o, 10)], o),
    "nested": lambda s, o: s.SequentialLR(o, [s.SequentialLR(
        o, [s.ConstantLR(o, 0.5, 3), s.StepLR(o, 4)], [6]), s.PolynomialLR(o, 30)], [15]),
}  # fmt: skip


def pair(kind: str = "SGD"):
    x, y = (krt.tensor([1.0], requires_grad=True) for _ in range(2))
    a, b = (torch.ones(1, requires_grad=True) for _ in range(2))
    options = {"momentum": 0.9} if kind == "SGD" else {}
    groups = [({"params": [p]}, {"params": [q], "lr": 0.03}) for p, q in ((x, y), (a, b))]
    return (getattr(nn.optim, kind)(list(groups[0]), lr=0.1, **options),
            getattr(torch.optim, kind)(list(groups[1]), lr=0.1, **options))  # fmt: skip


def numbers(opt) -> list[float]:
    found = []
    for group in opt.param_groups:
        found += [group["lr"], *group["betas"]] if "betas" in group else [
            group["lr"], group["momentum"]]  # fmt: skip
    return found


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", CASES)
def test_learning_rates_are_those_of_torch(name, kind):
    opt, peer = pair(kind)
    mine, other = CASES[name](ours, opt), CASES[name](theirs, peer)
    for _ in range(50):
        assert numbers(opt) == pytest.approx(numbers(peer), rel=1e-12, abs=1e-15)
        assert mine.get_last_lr() == pytest.approx(other.get_last_lr(), rel=1e-12, abs=1e-15)
        assert mine.last_epoch == other.last_epoch if hasattr(other, "last_epoch") else True
        mine.step()
        other.step()


@pytest.mark.parametrize("name", CASES)
def test_a_state_goes_on_where_it_was_saved(name):
    opt, _ = pair()
    mine = CASES[name](ours, opt)
    for _ in range(13):
        mine.step()
    saved = pickle.loads(pickle.dumps(mine.state_dict()))  # noqa: S301
    rates = {k: v.numpy().copy() for k, v in opt.state_dict().items()}
    twin_opt, _ = pair()
    twin = CASES[name](ours, twin_opt)
    twin.load_state_dict(saved)
    twin_opt.load_state_dict(rates)
    assert numbers(opt) == numbers(twin_opt)
    for _ in range(20):
        mine.step()
        twin.step()
        assert numbers(opt) == pytest.approx(numbers(twin_opt), rel=1e-12, abs=1e-15)
    with pytest.raises(krt.errors.StateError, match="missing"):
        twin.load_state_dict({"nothing": 1})


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", ["OneCycleLR", "CyclicLR", "nested cycle"])
def test_training_goes_on_with_the_momentum_of_then(name, kind):
    cases = {**CASES, "nested cycle": lambda s, o: s.SequentialLR(
        o, [s.OneCycleLR(o, 0.2, 20), s.CyclicLR(o, 0.01, 0.1, 4)], [15])}  # fmt: skip
    more = {"momentum": 0.9} if kind == "SGD" else {}

    def begin():
        w = krt.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
        v = krt.tensor([3.0], dtype="float64", requires_grad=True)
        opt = getattr(nn.optim, kind)([{"params": [w]}, {"params": [v]}], lr=0.02, **more)
        return (w, v), opt, cases[name](ours, opt)

    def train(held, opt, schedule):
        opt.zero_grad()
        sum((p * p).sum() for p in held).backward()
        opt.step()
        schedule.step()
        return [p.detach().numpy() for p in held]

    first = begin()
    for _ in range(7):
        train(*first)
    second = begin()
    for here, there in zip(second[0], first[0], strict=True):
        here.data.copy_(there.data)
    saved = pickle.loads(pickle.dumps([o.state_dict() for o in first[1:]]))  # noqa: S301
    for whose, held in zip(second[1:], saved, strict=True):
        whose.load_state_dict(held)
    for _ in range(9):
        for a, b in zip(train(*first), train(*second), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("three", [False, True])
def test_the_last_step_of_one_cycle_goes_past_its_end_as_torch_s(three):
    opt, peer = pair("AdamW")
    mine, other = (s.OneCycleLR(o, 1.0, total_steps=10, anneal_strategy="linear",
                                max_momentum=0.99, three_phase=three)
                   for s, o in ((ours, opt), (theirs, peer)))  # fmt: skip
    for _ in range(10):
        mine.step()
        other.step()
    assert numbers(opt)[0] < 0
    assert numbers(opt) == pytest.approx(numbers(peer), rel=1e-12)


def test_a_loop_may_set_a_rate_below_0_but_none_that_is_not_finite():
    opt, _ = pair()
    opt.param_groups[0]["lr"] = -1e-9
    assert opt.lr == -1e-9
    with pytest.raises(krt.DomainError, match="lr: expected a finite number, not nan"):
        opt.param_groups[0]["lr"] = float("nan")
    with pytest.raises(krt.DomainError, match="lr: expected a finite number, not -inf"):
        ours.LambdaLR(opt, lambda _: float("inf"))
    with pytest.raises(krt.DomainError, match="at least 0"):
        opt.lr = -1e-9


def test_momentums_of_other_groups_are_refused():
    opt, _ = pair()
    schedule = ours.OneCycleLR(opt, 0.3, 60)
    before = schedule.state_dict()
    with pytest.raises(krt.errors.StateError, match="momentum of 2 groups, not of 1"):
        schedule.load_state_dict({**before, "momentums": [0.5], "last_epoch": 9})
    assert schedule.state_dict() == before


@pytest.mark.parametrize("name", ["StepLR", "MultiStepLR", "ConstantLR", "LinearLR",
                                  "ExponentialLR", "PolynomialLR", "CosineAnnealingLR", "LambdaLR",
                                  "WarmRestarts", "WarmRestarts even"])  # fmt: skip
def test_an_epoch_can_be_gone_to(name):
    opt, peer = pair()
    mine, other = CASES[name](ours, opt), CASES[name](theirs, peer)
    for epoch in (3, 0, 17, 9, 12, 40):
        mine.step(epoch)
        other.step(epoch)
        assert mine.get_last_lr() == pytest.approx(other.get_last_lr(), rel=1e-12, abs=1e-15)
    if name.startswith("Warm"):
        for epoch in (0.5, 4.9, 16.25):
            mine.step(epoch)
            other.step(epoch)
            assert mine.get_last_lr() == pytest.approx(other.get_last_lr(), rel=1e-12)


@pytest.mark.parametrize("options", [
    {}, {"mode": "max", "patience": 1, "cooldown": 2, "factor": 0.5},
    {"threshold": 0.1, "threshold_mode": "abs", "patience": 0, "min_lr": [0.01, 0.02]},
    {"mode": "max", "threshold": 0.05, "threshold_mode": "abs", "patience": 2, "eps": 1e-3},
])  # fmt: skip
def test_plateaus_are_those_of_torch(options):
    opt, peer = pair()
    mine = ours.ReduceLROnPlateau(opt, **options)
    other = theirs.ReduceLROnPlateau(peer, **options)
    rng = np.random.default_rng(0)
    for k in range(50):
        value = 1 / (k + 1) + 0.1 * rng.standard_normal() if k != 20 else float("nan")
        mine.step(krt.tensor(value, dtype="float64"))
        other.step(value)
        assert mine.get_last_lr() == pytest.approx(other.get_last_lr(), rel=1e-12)
        assert (mine.num_bad_epochs, mine.in_cooldown) == (other.num_bad_epochs, other.in_cooldown)
        if k == 25:
            fresh = ours.ReduceLROnPlateau(opt, **options)
            fresh.load_state_dict(mine.state_dict())
            mine = fresh


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_a_jitted_step_sees_each_learning_rate_without_another_trace(name, kind):
    w = krt.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
    v = krt.tensor([3.0], dtype="float64", requires_grad=True)
    a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    more = {"momentum": 0.5} if kind == "SGD" else {}
    opt = getattr(nn.optim, kind)([{"params": [w]}, {"params": [v]}], lr=0.02, **more)
    peer = getattr(torch.optim, kind)([{"params": [a]}, {"params": [b]}], lr=0.02, **more)
    mine, other = CASES[name](ours, opt), CASES[name](theirs, peer)

    @krt.jit
    def train():
        opt.zero_grad()
        ((w * w).sum() + (v * v).sum()).backward()
        opt.step()

    for _ in range(20):
        train()
        mine.step()
        peer.zero_grad()
        ((a * a).sum() + (b * b).sum()).backward()
        peer.step()
        other.step()
    np.testing.assert_allclose(w.numpy(), a.detach().numpy(), rtol=1e-9)
    np.testing.assert_allclose(v.numpy(), b.detach().numpy(), rtol=1e-9)
    cycles = any(group.get("max_momentum") is not None for group in opt.param_groups)
    assert train.retraces <= (1 if cycles else 0)


def test_a_schedule_of_ones_own():
    class Root(ours.LRScheduler):
        def get_lr(self):
            return [base / (self.last_epoch + 1) ** 0.5 for base in self.base_lrs]

    opt, _ = pair()
    schedule = Root(opt)
    for _ in range(3):
        schedule.step()
    assert opt.lr == pytest.approx(0.05)
    assert schedule.get_last_lr() == pytest.approx([0.05, 0.015])


def test_bad_arguments_are_named():
    opt, peer = pair()
    other, _ = pair()
    bad = [
        (krt.DTypeError, "optimizer", lambda: ours.StepLR(peer, 3)),
        (krt.DomainError, "step_size", lambda: ours.StepLR(opt, 0)),
        (krt.DTypeError, "step_size", lambda: ours.StepLR(opt, 1.5)),
        (krt.DTypeError, "gamma", lambda: ours.ExponentialLR(opt, "slow")),
        (krt.DomainError, r"milestones\[1\]", lambda: ours.MultiStepLR(opt, [1, -2])),
        (krt.DomainError, "factor", lambda: ours.ConstantLR(opt, 1.5)),
        (krt.DomainError, "start_factor", lambda: ours.LinearLR(opt, 0)),
        (krt.DomainError, "end_factor", lambda: ours.LinearLR(opt, 0.5, 2)),
        (krt.DomainError, "total_iters", lambda: ours.PolynomialLR(opt, 0)),
        (krt.DomainError, "T_max", lambda: ours.CosineAnnealingLR(opt, 0)),
        (krt.DomainError, "T_0", lambda: ours.CosineAnnealingWarmRestarts(opt, 0)),
        (krt.DomainError, "T_mult", lambda: ours.CosineAnnealingWarmRestarts(opt, 3, 0)),
        (krt.ShapeError, "lr_lambda: expected 2", lambda: ours.LambdaLR(opt, [abs])),
        (krt.DTypeError, "lr_lambda", lambda: ours.MultiplicativeLR(opt, 3)),
        (krt.ShapeError, "total_steps", lambda: ours.OneCycleLR(opt, 0.1)),
        (krt.DomainError, "pct_start", lambda: ours.OneCycleLR(opt, 0.1, 9, pct_start=2)),
        (krt.DomainError, "anneal_strategy", lambda: ours.OneCycleLR(opt, 0.1, 9,
                                                                   anneal_strategy="x")),
        (krt.ShapeError, "max_lr: expected 2", lambda: ours.OneCycleLR(opt, [0.1], 9)),
        (krt.DomainError, "mode", lambda: ours.CyclicLR(opt, 0.1, 0.2, mode="x")),
        (krt.DomainError, "scale_mode", lambda: ours.CyclicLR(opt, 0.1, 0.2, scale_mode="x")),
        (krt.ShapeError, "cycle_momentum", lambda: ours.CyclicLR(
            nn.optim.Adagrad(opt.params), 0.1, 0.2)),
        (krt.ShapeError, "the same optimizer", lambda: ours.ChainedScheduler(
            [ours.StepLR(opt, 3), ours.StepLR(other, 3)])),
        (krt.DTypeError, r"schedulers\[0\]", lambda: ours.SequentialLR(
            opt, [ours.ReduceLROnPlateau(opt)], [])),
        (krt.ShapeError, "milestones", lambda: ours.SequentialLR(opt, [ours.StepLR(opt, 3)], [1])),
        (krt.DomainError, "factor", lambda: ours.ReduceLROnPlateau(opt, factor=1.0)),
        (krt.DomainError, "mode", lambda: ours.ReduceLROnPlateau(opt, mode="least")),
        (krt.errors.StateError, "initial_lr", lambda: ours.StepLR(
            nn.optim.SGD(opt.params), 3, last_epoch=4)),
        (krt.JitError, "StepLR.step", krt.jit(ours.StepLR(opt, 3).step)),
    ]  # fmt: skip
    for kind, text, call in bad:
        with pytest.raises(kind, match=text):
            call()
    schedule = ours.OneCycleLR(opt, 0.1, 3)
    for _ in range(3):
        schedule.step()
    with pytest.raises(krt.DomainError, match="OneCycleLR: cannot go to step 4"):
        schedule.step()


@pytest.mark.parametrize(("name", "given"), [
    ("StepLR", (3,)), ("ExponentialLR", (0.9,)), ("CosineAnnealingLR", (10,)), ("LinearLR", ()),
    ("MultiStepLR", ([3, 5],)), ("LambdaLR", (lambda epoch: 1 / (epoch + 1),)),
    ("PolynomialLR", (10,)), ("ReduceLROnPlateau", ()),
])  # fmt: skip
def test_states_of_torch_are_taken(name, given):
    there = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    here = nn.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    theirs = getattr(torch.optim.lr_scheduler, name)(there, *given)
    mine = getattr(ours, name)(here, *given)
    metric = (1.0,) if name == "ReduceLROnPlateau" else ()
    for _ in range(4):
        there.step()
        theirs.step(*metric)
    here.load_state_dict(there.state_dict())
    mine.load_state_dict(theirs.state_dict())
    for _ in range(20):
        there.step()
        theirs.step(*metric)
        mine.step(*metric)
        assert here.param_groups[0]["lr"] == pytest.approx(there.param_groups[0]["lr"], rel=1e-12)
    with pytest.raises(krt.errors.StateError, match="unexpected"):
        mine.load_state_dict({**theirs.state_dict(), "other": 1})

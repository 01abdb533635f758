"""Populations: their members are what they would be alone, in values and in training."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn, optim

N = 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 6, 3)).astype(np.float32)
Y = RNG.standard_normal((N, 6, 2)).astype(np.float32)


def mlp():
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def alone(members, make, x, y, steps=5, jit=True):
    """What training each by itself leaves in its tensors, and the last losses."""
    losses = []
    for k, member in enumerate(members):
        opt = make(member, k)

        def step(x, y, member=member, opt=opt):
            opt.zero_grad()
            loss = member(x).mse_loss(y)
            loss.backward()
            opt.step()
            return loss

        run = krt.jit(step) if jit else step
        for _ in range(steps):
            loss = run(krt.tensor(x[k]), krt.tensor(y[k]))
        losses.append(loss.item())
    return losses


def together(pop, opt, x, y, steps=5, jit=True):
    def step(x, y):
        opt.zero_grad()
        losses = (pop(x) - y).square().mean((1, 2))
        losses.sum().backward()
        opt.step()
        return losses

    run = krt.jit(step) if jit else step
    for _ in range(steps):
        losses = run(krt.tensor(x), krt.tensor(y))
    return losses.tolist()


def check_members(pop, members, rtol=2e-5, atol=2e-6):
    assert len(pop) == len(members)
    for k, member in enumerate(members):
        found = pop.member(k).state_dict()
        for name, value in member.state_dict().items():
            np.testing.assert_allclose(
                found[name].numpy(), value.numpy(), rtol=rtol, atol=atol, err_msg=name
            )


# ---- what it is


def test_tensors_are_those_of_the_members_on_a_new_axis():
    members = [mlp() for _ in range(N)]
    pop = nn.stack_modules(members)
    assert list(pop.state_dict()) == [f"members.{name}" for name in members[0].state_dict()]
    for name, stacked in pop.members.named_parameters():
        each = [dict(m.named_parameters())[name] for m in members]
        np.testing.assert_array_equal(stacked.numpy(), np.stack([t.numpy() for t in each]))
        assert stacked.requires_grad
        assert stacked.is_leaf
    out = pop(krt.tensor(X))
    expected = np.stack([m(krt.tensor(X[k])).numpy() for k, m in enumerate(members)])
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert "4 members" in repr(pop)
    with krt.no_grad():
        members[0][0].weight.fill_(0)
    assert pop.members[0].weight.numpy()[0].any()


def test_a_function_makes_members_that_differ():
    pop = nn.stack_modules(mlp, N)
    weights = pop.members[0].weight.numpy()
    assert weights.shape == (N, 5, 3)
    assert len(np.unique(weights)) == weights.size


def test_members_are_taken_out_and_put_back():
    pop = nn.stack_modules(mlp, N)
    one = pop.member(-1)
    assert isinstance(one, nn.Sequential)
    assert all(p.requires_grad for p in one.parameters())
    before = pop.members[0].weight.numpy().copy()
    with krt.no_grad():
        one[0].weight.fill_(2.0)
    np.testing.assert_array_equal(pop.members[0].weight.numpy(), before)
    jitted = krt.jit(pop)
    first = jitted(krt.tensor(X)).numpy()
    pop.set_member(1, one)
    second = jitted(krt.tensor(X)).numpy()
    np.testing.assert_array_equal(first[[0, 2, 3]], second[[0, 2, 3]])
    np.testing.assert_allclose(second[1], one(krt.tensor(X[1])).numpy(), rtol=1e-5)
    assert jitted.retraces == 0
    np.testing.assert_array_equal(pop.members[0].weight.numpy()[0], before[0])


def test_inputs_that_members_share():
    members = [mlp() for _ in range(N)]
    pop = nn.stack_modules(members, in_axes=None, out_axes=1)
    x = krt.tensor(X[0])
    out = pop(x)
    assert out.shape == (6, N, 2)
    for k, m in enumerate(members):
        np.testing.assert_allclose(out.numpy()[:, k], m(x).numpy(), rtol=1e-5, atol=1e-6)
    two = nn.stack_modules(lambda: nn.Bilinear(3, 3, 2), N, in_axes=(0, None))
    assert two(krt.tensor(X), x).shape == (N, 6, 2)
    with pytest.raises(krt.ShapeError, match=r"has size 3, but|has size 4, but"):
        nn.stack_modules(members)(krt.ones(3, 6, 3))


def test_state_dicts_and_types():
    pop, other = nn.stack_modules(mlp, N), nn.stack_modules(mlp, N)
    other.load_state_dict(pop.state_dict())
    np.testing.assert_array_equal(pop(krt.tensor(X)).numpy(), other(krt.tensor(X)).numpy())
    assert pop.double()(krt.tensor(X).double()).dtype is krt.float64
    low = nn.stack_modules([mlp().bfloat16() for _ in range(2)])
    assert low.members[0].weight.dtype is krt.bfloat16
    assert low.member(1)[0].weight.dtype is krt.bfloat16


def test_frozen_parameters_stay_frozen():
    def make():
        made = mlp()
        made[0].requires_grad_(False)
        made[0].codes = nn.Parameter(krt.tensor([3]), requires_grad=False)
        return made

    pop = nn.stack_modules(make, N)
    assert [p.requires_grad for p in pop.parameters()] == [False, False, False, True, True]
    one = pop.member(0)
    assert [p.requires_grad for p in one.parameters()] == [False, False, False, True, True]
    assert one[0].codes.tolist() == [3]
    assert one[0].codes.dtype is krt.int64


def pair(*, tied):
    layers = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    if tied:
        layers[1].weight = layers[0].weight
    return layers


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.stack_modules([]), krt.ShapeError, "at least one"),
        (lambda: nn.stack_modules(mlp()), krt.DTypeError, "list of modules"),
        (lambda: nn.stack_modules(3), krt.DTypeError, "list of modules"),
        (lambda: nn.stack_modules([mlp(), 3]), krt.DTypeError, r"modules\[1\]"),
        (lambda: nn.stack_modules([mlp()], 3), krt.DTypeError, "count"),
        (lambda: nn.stack_modules(mlp), krt.DTypeError, "count"),
        (lambda: nn.stack_modules([nn.Linear(2, 3), nn.Linear(2, 4)]), krt.KernelrtError,
         r"modules\[1\].*'weight' is float32 of shape \(4, 2\), a parameter, instead"),
        (lambda: nn.stack_modules([nn.Dropout(0.1), nn.Dropout(0.2)]), krt.KernelrtError,
         "computes the same as the first"),
        (lambda: nn.stack_modules([nn.Linear(2, 3), nn.Linear(2, 3, bias=False)]),
         krt.KernelrtError, r"modules\[1\].*it lacks the tensor 'bias' \(float32 of shape"),
        (lambda: nn.stack_modules([nn.Linear(2, 3, bias=False), nn.Linear(2, 3)]),
         krt.KernelrtError, r"modules\[1\].*it has the extra tensor 'bias' \(float32 of shape"),
        (lambda: nn.stack_modules([nn.ReLU(), nn.Tanh()]), krt.KernelrtError,
         r"modules\[1\]: expected a module of the same class as the first one, ReLU, not Tanh"),
        (lambda: nn.stack_modules([pair(tied=True), pair(tied=False)]), krt.KernelrtError,
         r"modules\[1\].* '1\.weight' is the tensor '0\.weight'; here '1\.weight' is a"),
        (lambda: nn.stack_modules([pair(tied=False), pair(tied=True)]), krt.KernelrtError,
         r"modules\[1\].* '1\.weight' is a tensor of its own; here '1\.weight' is the"),
        (lambda: nn.stack_modules(mlp, 2).member(2), krt.ShapeError, "from -2 to 1, not 2"),
        (lambda: nn.stack_modules(mlp, 2).set_member(0, nn.Linear(3, 5)), krt.KernelrtError,
         "expected a module with the tensors of a member"),
    ],
)  # fmt: skip
def test_what_is_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()


# ---- training


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: optim.Adam(p, 0.01), "AdamW": lambda p: optim.AdamW(p, 0.01),
    "RMSprop": lambda p: optim.RMSprop(p, 0.01), "Adagrad": lambda p: optim.Adagrad(p, 0.05),
    "Lion": lambda p: optim.Lion(p, 0.01), "NAdam": lambda p: optim.NAdam(p, 0.01),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("jit", [True, False], ids=["jit", "eager"])
def test_training_is_that_of_each_member(name, jit):
    members = [mlp() for _ in range(N)]
    pop = nn.stack_modules(members)
    opt = OPTIMIZERS[name](pop.parameters())
    found = together(pop, opt, X, Y, jit=jit)
    expected = alone(members, lambda m, k: OPTIMIZERS[name](m.parameters()), X, Y, jit=jit)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    check_members(pop, members)


def test_batch_norm_in_members():
    def make():
        return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))

    members = [make() for _ in range(N)]
    pop = nn.stack_modules(members)
    opt = optim.SGD(pop.parameters(), 0.05)
    together(pop, opt, X, Y)
    alone(members, lambda m, k: optim.SGD(m.parameters(), 0.05), X, Y)
    check_members(pop, members, rtol=2e-4, atol=1e-5)
    assert pop.members[1].num_batches_tracked.tolist() == [5] * N
    pop.eval()
    out = pop(krt.tensor(X)).numpy()
    for k, m in enumerate(members):
        m.eval()
        np.testing.assert_allclose(out[k], m(krt.tensor(X[k])).numpy(), rtol=1e-3, atol=1e-4)
    assert pop.members[1].num_batches_tracked.tolist() == [5] * N


def test_dropout_in_members():
    pop = nn.stack_modules([nn.Dropout(0.5) for _ in range(N)])
    x = krt.ones(N, 1000)
    for call in (pop, krt.jit(pop)):
        out = call(x).numpy()
        assert all((out[i] != out[j]).any() for i in range(N) for j in range(i))
        assert 300 < (out == 0).sum(1).min() <= (out == 0).sum(1).max() < 700
        assert (call(x).numpy() != out).any()
    same = nn.stack_modules([nn.Dropout(0.5) for _ in range(N)], randomness="same")(x).numpy()
    assert (same == same[0]).all()
    pop.eval()
    np.testing.assert_array_equal(pop(x).numpy(), x.numpy())


def test_recurrent_and_convolutional_members():
    lstms = [nn.LSTM(3, 4) for _ in range(3)]
    out, (h, _) = nn.stack_modules(lstms)(krt.tensor(X[:3]))
    for k, m in enumerate(lstms):
        one, (last, _) = m(krt.tensor(X[k]))
        np.testing.assert_allclose(out[k].numpy(), one.numpy(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(h[k].numpy(), last.numpy(), rtol=1e-4, atol=1e-6)
    nets = [nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)) for _ in "ab"]
    images = RNG.standard_normal((2, 5, 2, 8, 8)).astype(np.float32)
    out = nn.stack_modules(nets)(krt.tensor(images)).numpy()
    for k, m in enumerate(nets):
        np.testing.assert_allclose(out[k], m(krt.tensor(images[k])).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("order", [2.0, 1.0, float("inf")])
def test_gradients_are_clipped_by_the_norm_of_each_member(order):
    members = [mlp() for _ in range(N)]
    pop = nn.stack_modules(members)
    assert pop.clip_grad_norm_(1.0).tolist() == [0.0] * N

    @krt.jit
    def step(x, y):
        pop.zero_grad()
        (pop(x) - y).square().sum().backward()
        return pop.clip_grad_norm_(30.0, order), [p.grad for p in pop.parameters()]

    norms, clipped = step(krt.tensor(X * [[[1]], [[10]], [[0]], [[3]]]).float(), krt.tensor(Y))
    for k, m in enumerate(members):
        scale = [1, 10, 0, 3][k]
        (m(krt.tensor(X[k] * scale)) - krt.tensor(Y[k])).square().sum().backward()
        expected = nn.utils.clip_grad_norm_(m.parameters(), 30.0, order)
        np.testing.assert_allclose(norms[k].item(), expected.item(), rtol=1e-4)
        for found, p in zip(clipped, m.parameters(), strict=True):
            np.testing.assert_allclose(found[k].numpy(), p.grad.numpy(), rtol=1e-3, atol=1e-5)


# ---- hyperparameters of each member's own

RATES = np.array([0.1, 0.01, 0.001, 0.05])

VECTORS = {
    "Adam": ("lr", "betas", "eps", "weight_decay"), "AdamW": ("lr", "weight_decay"),
    "SGD": ("lr", "momentum", "weight_decay"), "RMSprop": ("lr", "alpha", "momentum"),
    "Adagrad": ("lr", "weight_decay"), "Adadelta": ("lr", "rho"), "Adamax": ("lr", "betas"),
    "NAdam": ("lr", "weight_decay"), "RAdam": ("lr", "eps"), "Lion": ("lr", "betas"),
    "LAMB": ("lr", "weight_decay"), "Rprop": ("lr",),
}  # fmt: skip
VALUES = {
    "lr": RATES, "eps": np.array([1e-8, 1e-3, 1e-5, 1e-2]),
    "weight_decay": np.array([0.0, 0.1, 0.01, 0.5]), "momentum": np.array([0.9, 0.0, 0.5, 0.2]),
    "alpha": np.array([0.9, 0.99, 0.5, 0.7]), "rho": np.array([0.9, 0.8, 0.5, 0.7]),
}  # fmt: skip


def own(names, k=None):
    """Options with values of the members, or of one."""
    found = {}
    for name in names:
        if name == "betas":
            first = np.array([0.9, 0.8, 0.5, 0.7])
            found[name] = (krt.tensor(first), 0.99) if k is None else (float(first[k]), 0.99)
        else:
            found[name] = krt.tensor(VALUES[name]) if k is None else float(VALUES[name][k])
    return found


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("jit", [True, False], ids=["jit", "eager"])
def test_each_member_has_its_own_numbers(name, jit):
    kind, names = getattr(optim, name), VECTORS[name]
    members = [mlp() for _ in range(N)]
    pop = nn.stack_modules(members)
    found = together(pop, kind(pop.parameters(), **own(names)), X, Y, jit=jit)
    expected = alone(members, lambda m, k: kind(m.parameters(), **own(names, k)), X, Y, jit=jit)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    check_members(pop, members, rtol=1e-4, atol=1e-5)


def test_products_of_matrices_are_those_of_each_member():
    members = [nn.Linear(5, 3, bias=False) for _ in range(N)]
    pop = nn.stack_modules(members)
    opt = optim.Muon(pop.parameters(), lr=RATES)
    x, y = RNG.standard_normal((N, 6, 5)).astype(np.float32), X[..., :3]
    together(pop, opt, x, y, steps=2)
    alone(members, lambda m, k: optim.Muon(m.parameters(), lr=float(RATES[k])), x, y, steps=2)
    check_members(pop, members, rtol=1e-3, atol=1e-4)
    with pytest.raises(krt.ShapeError, match="expected a matrix, as Muon"):
        optim.Muon(pop.parameters(), lr=0.1)


def test_setting_them_makes_no_new_plan():
    members = [mlp() for _ in range(N)]
    pop = nn.stack_modules(members)
    decays = np.array([0.0, 0.1, 0.2, 0.3])
    opt = optim.Adam(pop.parameters(), RATES, weight_decay=decays)
    peers = [optim.Adam(m.parameters(), RATES[k], weight_decay=decays[k])
             for k, m in enumerate(members)]  # fmt: skip

    @krt.jit
    def step(x, y):
        opt.zero_grad()
        (pop(x) - y).square().mean((1, 2)).sum().backward()
        opt.step()

    for turn in range(4):
        step(krt.tensor(X), krt.tensor(Y))
        for k, (member, peer) in enumerate(zip(members, peers, strict=True)):
            peer.zero_grad()
            member(krt.tensor(X[k])).mse_loss(krt.tensor(Y[k])).backward()
            peer.step()
        np.testing.assert_allclose(opt.lr, [p.lr for p in peers])
        if turn == 0:
            opt.lr = krt.tensor(RATES / 2)
        elif turn == 1:
            opt.param_groups[0]["lr"] = RATES / 4
            opt.weight_decay = decays[::-1].copy()
        else:
            opt.lr = 0.01
        for k, peer in enumerate(peers):
            peer.lr = [RATES[k] / 2, RATES[k] / 4, 0.01, 0.01][turn]
            if turn == 1:
                peer.weight_decay = decays[N - 1 - k]
    assert len(step.plans) == 1
    check_members(pop, members, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(opt.weight_decay, decays[::-1])


def test_schedules_of_members():
    pop = nn.stack_modules(mlp, N)
    opt = optim.SGD(pop.parameters(), krt.tensor(RATES))
    schedule = optim.lr_scheduler.StepLR(opt, 1, 0.5)
    together(pop, opt, X, Y, steps=1)
    schedule.step()
    np.testing.assert_allclose(opt.lr, RATES / 2)
    assert opt.state_dict()["lr"].shape == (N,)


def test_a_number_becomes_one_of_each_member():
    members = [mlp() for _ in range(N)]
    pop = nn.stack_modules(members)
    opt = optim.SGD(pop.parameters(), 0.1, momentum=0.5)
    peers = [optim.SGD(m.parameters(), 0.1, momentum=0.5) for m in members]
    momenta = np.array([0.1, 0.9, 0.5, 0.0])
    for turn in range(3):
        together(pop, opt, X, Y, steps=1, jit=False)
        for k, (member, peer) in enumerate(zip(members, peers, strict=True)):
            alone([member], lambda m, _, peer=peer: peer, X[k : k + 1], Y[k : k + 1], 1, jit=False)
            if turn == 0:
                peer.momentum = momenta[k]
        if turn == 0:
            opt.momentum = momenta
    check_members(pop, members)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: optim.Adam(p, np.ones(3)), krt.ShapeError,
         r"lr: with 3 values.*params\[0\].* has shape \(4, 5, 3\)"),
        (lambda p: optim.Adam(p, krt.ones(4, 1)), krt.ShapeError, r"lr: expected.*\(4, 1\)"),
        (lambda p: optim.Adam(p, -np.ones(4)), krt.DomainError, "lr: .*at least 0"),
        (lambda p: optim.Adam(p, betas=(np.ones(4), 0.9)), krt.DomainError, "betas: .*below 1"),
        (lambda p: optim.Adam(p, betas=(np.zeros(4), np.zeros(3))), krt.ShapeError, "3 and 4"),
        (lambda p: optim.Adam(p, eps=np.array(["a"] * 4)), krt.DTypeError, "eps: .*numbers"),
        (lambda p: optim.Adam(p, amsgrad=np.ones(4, bool)), krt.DTypeError, "amsgrad"),
        (lambda p: optim.LBFGS(p, np.ones(4)), krt.ShapeError, "LBFGS computes one step of all"),
        (lambda p: setattr(optim.SGD(p, 0.1), "lr", np.ones(4)), krt.ShapeError, "one number"),
        (lambda p: setattr(optim.SGD(p, np.ones(4)), "lr", np.ones(3)), krt.ShapeError, r"\(4,\)"),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit(make, error, text):
    with pytest.raises(error, match=text):
        make(nn.stack_modules(mlp, N).parameters())


def test_what_all_members_count_together_is_refused():
    pop = nn.stack_modules(mlp, N)
    opt = optim.NAdam(pop.parameters(), betas=(np.full(N, 0.9), 0.99))
    pop(krt.tensor(X)).sum().backward()
    with pytest.raises(krt.ShapeError, match=r"NAdam: .*into one number.*betas"):
        opt.step()
    opt = optim.Adafactor(pop.parameters(), lr=np.full(N, 0.1))
    with pytest.raises(krt.ShapeError, match="Adafactor: the state 'row_var'"):
        opt.step()


def test_rates_that_are_read_are_copies_and_say_so():
    pop = nn.stack_modules([mlp() for _ in range(N)])
    opt = optim.SGD(pop.parameters(), lr=np.full(N, 0.5))
    with pytest.raises(ValueError, match="read-only"):
        opt.lr[0] = 0.0
    opt.lr = opt.lr / 2
    assert opt.lr.tolist() == [0.25] * N


def test_a_plateau_is_each_members_own():
    pop = nn.stack_modules([mlp() for _ in range(3)])
    opt = optim.SGD(pop.parameters(), lr=np.full(3, 0.8))
    schedule = optim.lr_scheduler.ReduceLROnPlateau(
        opt, factor=0.5, patience=1, cooldown=1, min_lr=0.1
    )
    alone = []
    for _ in range(3):
        one = optim.SGD(mlp().parameters(), lr=0.8)
        alone.append(optim.lr_scheduler.ReduceLROnPlateau(
            one, factor=0.5, patience=1, cooldown=1, min_lr=0.1
        ))  # fmt: skip
    rng = np.random.default_rng(0)
    for k in range(12):
        metrics = np.array([1.0 / (k + 1), 1.0, rng.random()])
        schedule.step(krt.tensor(metrics) if k % 2 else metrics)
        for member, metric in zip(alone, metrics, strict=True):
            member.step(metric)
        assert opt.lr.tolist() == pytest.approx([s.get_last_lr()[0] for s in alone])
    assert len(set(opt.lr.tolist())) > 1
    saved = schedule.state_dict()
    schedule.load_state_dict(saved)
    for number in (krt.tensor(0.001), np.zeros(1), krt.zeros(1), [0.0], np.float32(0)):
        schedule.step(number)  # one number is that of all
    with pytest.raises(krt.errors.DTypeError, match="metrics"):
        schedule.step("less")
    with pytest.raises(krt.errors.ShapeError, match="as the learning rate of group"):
        schedule.step(np.ones(4))
    with pytest.raises(krt.errors.ShapeError, match="full"):
        alone[0].step(np.ones(3))

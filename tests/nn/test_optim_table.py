"""Every optimizer with every option takes PyTorch's steps, eager and jitted."""

from __future__ import annotations

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt import nn

torch = Package("torch")

SHAPES = ((3, 4), (5,), ())
STEPS = 20

#: Optimizer, options, and how much float32 may differ relatively.
TABLE = [
    *(("SGD", o) for o in (
        {}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "momentum": 0.9, "nesterov": True},
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.4, "weight_decay": 0.1, "maximize": True},
        {"lr": 0.1, "foreach": False, "fused": None}, {"lr": 0.1, "dampening": 0.3},
    )),
    *((n, o) for n in ("Adam", "AdamW") for o in (
        {}, {"lr": 0.1, "amsgrad": True}, {"maximize": True, "weight_decay": 0.3},
        {"betas": (0.5, 0.6), "eps": 1e-3, "amsgrad": True, "weight_decay": 0.1},
        {"foreach": True, "capturable": False, "fused": None, "differentiable": False},
    )),
    ("Adam", {"weight_decay": 0.2, "decoupled_weight_decay": True}),
    *(("RMSprop", o) for o in (
        {}, {"centered": True}, {"momentum": 0.9, "weight_decay": 0.1}, {"maximize": True},
        {"lr": 0.1, "alpha": 0.5, "eps": 1e-2, "centered": True, "momentum": 0.5},
    )),
    *(("Adagrad", o) for o in (
        {}, {"lr": 0.3, "lr_decay": 0.1, "weight_decay": 0.1}, {"maximize": True},
        {"initial_accumulator_value": 0.5, "eps": 1e-3},
    )),
    *(("Adadelta", o) for o in (
        {}, {"lr": 0.5, "rho": 0.5, "eps": 1e-3, "weight_decay": 0.1}, {"maximize": True},
    )),
    *(("Adamax", o) for o in (
        {}, {"lr": 0.1, "betas": (0.5, 0.6), "eps": 1e-2, "weight_decay": 0.1}, {"maximize": True},
    )),
    *(("NAdam", o) for o in (
        {}, {"weight_decay": 0.1, "momentum_decay": 0.1, "betas": (0.8, 0.9)}, {"maximize": True},
        {"weight_decay": 0.1, "decoupled_weight_decay": True, "eps": 1e-3},
    )),
    *(("RAdam", o) for o in (
        {}, {"weight_decay": 0.1, "betas": (0.8, 0.9)}, {"maximize": True, "lr": 0.1},
        {"weight_decay": 0.1, "decoupled_weight_decay": True, "eps": 1e-3},
    )),
    *(("Rprop", o) for o in (
        {}, {"lr": 0.1, "etas": (0.3, 1.5), "step_sizes": (1e-2, 0.2)}, {"maximize": True},
    )),
    *(("ASGD", o) for o in (
        {}, {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 5.0, "weight_decay": 0.1},
        {"maximize": True},
    )),
    *(("Adafactor", o) for o in (
        {}, {"lr": 0.3, "weight_decay": 0.1, "eps": (1e-3, 1e-2), "d": 2.0},
        {"beta2_decay": -0.5, "maximize": True},
    )),
]  # fmt: skip
IDS = [f"{n}-{i}" for i, (n, _) in enumerate(TABLE)]


def start(shapes: tuple = SHAPES) -> list[np.ndarray]:
    rng = np.random.default_rng(99)
    return [rng.standard_normal(shape) for shape in shapes]


def gradients(step: int, shapes: tuple = SHAPES) -> list[np.ndarray]:
    rng = np.random.default_rng(step)
    return [rng.standard_normal(shape) * 10.0 ** (step % 3 - 1) for shape in shapes]


def has_gradient(step: int, i: int) -> bool:
    """The second parameter has none in every fourth step, nor in the first."""
    return not (i == 1 and step % 4 == 0)


def ours(make, dtype: str, jitted: bool, shapes: tuple = SHAPES) -> list[np.ndarray]:
    params = [krt.tensor(p, dtype=dtype, requires_grad=True) for p in start(shapes)]
    still = nn.Parameter(krt.ones(3, 2, dtype=krt.int8), requires_grad=False)
    opt = make([*params, still])

    def step(everything, *grads):
        for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
            param.grad = grad * 1 if everything or i != 1 else None
        opt.step()

    run = krt.jit(step) if jitted else step
    for k in range(STEPS):
        run(has_gradient(k, 1), *(krt.tensor(g, dtype=dtype) for g in gradients(k, shapes)))
    assert still.tolist() == [[1, 1]] * 3
    assert still.grad is None
    return [p.numpy() for p in params]


def theirs(make, dtype: str, shapes: tuple = SHAPES) -> list[np.ndarray]:
    kind = getattr(torch, dtype)
    params = [torch.tensor(p, dtype=kind, requires_grad=True) for p in start(shapes)]
    opt = make(params)
    for k in range(STEPS):
        for i, (param, grad) in enumerate(zip(params, gradients(k, shapes), strict=True)):
            param.grad = torch.tensor(grad, dtype=kind) if has_gradient(k, i) else None
        opt.step()
    return [p.detach().numpy() for p in params]


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "options"), TABLE, ids=IDS)
def test_steps_are_those_of_torch(name, options, dtype, jitted):
    found = ours(lambda p: getattr(nn.optim, name)(p, **options), dtype, jitted)
    wanted = theirs(lambda p: getattr(torch.optim, name)(p, **options), dtype)
    # Some counters of torch's ASGD and NAdam are float32 whatever the parameters are.
    near = 1e-5 if dtype == "float32" else 1e-6 if name in ("ASGD", "NAdam") else 1e-12
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=near, atol=near * 0.1)


@pytest.mark.parametrize("name", sorted({n for n, _ in TABLE}))
def test_defaults_are_those_of_torch(name):
    w = krt.tensor([[1.0]], requires_grad=True)
    peer = getattr(torch.optim, name)([torch.ones(1, 1, requires_grad=True)]).defaults
    group = getattr(nn.optim, name)([w]).param_groups[0]
    for key in group:
        if key not in ("params", "decoupled_weight_decay"):
            assert group[key] == peer[key], key
    assert set(peer) - set(group) <= {"foreach", "fused", "capturable", "differentiable"}


def lion(p, m, g, o, _t):
    b1, b2 = o["betas"]
    u = np.sign(b1 * m["m"] + (1 - b1) * g)
    m["m"] = b2 * m["m"] + (1 - b2) * g
    return p * (1 - o["lr"] * o["weight_decay"]) - o["lr"] * u


def lamb(p, m, g, o, t):
    b1, b2 = o["betas"]
    m["m"] = b1 * m["m"] + (1 - b1) * g
    m["v"] = b2 * m["v"] + (1 - b2) * g * g
    step = m["m"] / (1 - b1**t) / (np.sqrt(m["v"] / (1 - b2**t)) + o["eps"])
    step = step + o["weight_decay"] * p
    a, b = np.sqrt((p * p).sum()), np.sqrt((step * step).sum())
    return p - o["lr"] * (a / b if a > 0 and b > 0 else 1.0) * step


def muon(p, m, g, o, _t):
    m["m"] = o["momentum"] * m["m"] + (1 - o["momentum"]) * g
    x = g + (m["m"] - g) * o["momentum"] if o["nesterov"] else m["m"]
    a, b, c = 3.4445, -4.775, 2.0315
    x = x / np.sqrt((x * x).sum())
    for _ in range(5):  # the matrices are wide
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    wide = o["adjust_lr_fn"] == "match_rms_adamw"
    factor = 0.2 * np.sqrt(max(p.shape)) if wide else np.sqrt(max(1, p.shape[0] / p.shape[1]))
    return p * (1 - o["lr"] * o["weight_decay"]) - o["lr"] * factor * x


FORMULAS = [
    ("Lion", lion, {"lr": 1e-2, "betas": (0.9, 0.99), "weight_decay": 0.1}),
    ("LAMB", lamb, {"lr": 0.1, "betas": (0.9, 0.99), "weight_decay": 0.1, "eps": 1e-6}),
    ("LAMB", lamb, {"lr": 0.1, "betas": (0.5, 0.6), "weight_decay": 0.0, "eps": 1e-3}),
    *(("Muon", muon, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "nesterov": n,
                      "adjust_lr_fn": a}) for n, a in ((True, None), (False, "match_rms_adamw"))),
]  # fmt: skip


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize(("name", "rule", "options"), FORMULAS)
def test_what_torch_has_not_or_rounds_otherwise_follows_its_formula(name, rule, options, jitted):
    shapes = ((3, 4), (2, 6))
    found = ours(lambda p: getattr(nn.optim, name)(p, **options), "float64", jitted, shapes)
    wanted, counts = start(shapes), [0, 0]
    memory = [{"m": np.zeros(s), "v": np.zeros(s)} for s in shapes]
    for k in range(STEPS):
        for i, g in enumerate(gradients(k, shapes)):
            if has_gradient(k, i):
                counts[i] += 1
                wanted[i] = rule(wanted[i], memory[i], g, options, counts[i])
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_muon_goes_where_torch_s_goes_in_bfloat16():
    shapes = ((6, 3), (4, 4))
    found = ours(nn.optim.Muon, "float32", False, shapes)
    for a, b in zip(found, theirs(torch.optim.Muon, "float32", shapes), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", sorted({n for n, _ in TABLE} | {"Lion", "LAMB", "Muon"}))
def test_narrow_types_step_near_wide_ones(name, dtype):
    shapes = ((3, 4), (2, 2))
    narrow = [krt.tensor(p, dtype=dtype, requires_grad=True) for p in start(shapes)]
    wide = [krt.tensor(p, dtype="float64", requires_grad=True) for p in start(shapes)]
    # The usual epsilon, and small squares, are nothing in float16.
    options = {"eps": 1e-3} if name in ("Adam", "AdamW", "NAdam", "RAdam") else {}
    pair = [getattr(nn.optim, name)(p, lr=0.01, **options) for p in (narrow, wide)]
    for k in range(3):
        for p, q, g in zip(narrow, wide, gradients(k, shapes), strict=True):
            p.grad, q.grad = krt.tensor(g, dtype=dtype), krt.tensor(g)
        for opt in pair:
            opt.step()
    for p, q in zip(narrow, wide, strict=True):
        assert p.dtype.name == dtype
        np.testing.assert_allclose(p.double().numpy(), q.numpy(), atol=0.05)


@pytest.mark.parametrize("name", sorted({n for n, _ in TABLE}))
def test_what_is_not_finite_stays_in_its_place_as_in_torch(name):
    data, grad = np.array([1.0, 2.0, 3.0]), np.array([np.nan, 0.5, -1.0])
    a, b = krt.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    opt, peer = getattr(nn.optim, name)([a]), getattr(torch.optim, name)([b])
    for _ in range(3):
        a.grad, b.grad = krt.tensor(grad), torch.tensor(grad)
        opt.step()
        peer.step()
    np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-6)


def after(library, opt, dtype: str, slopes) -> float:
    """An element after steps along these gradients."""
    param = library.ones(1, dtype=getattr(library, dtype), requires_grad=True)
    stepper = opt([param])
    for slope in slopes:
        param.grad = library.ones(1, dtype=getattr(library, dtype)) * slope
        stepper.step()
    return float(param.detach()[0])


@pytest.mark.parametrize("slopes", [(3e19, 1.0, 1.0), (1.0, 3e19, 3e19)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adadelta", "LAMB"])
def test_a_mean_square_holds_gradients_whose_square_is_no_float32(name, dtype, slopes):
    make = getattr(nn.optim, name)
    found, wanted = (after(krt, make, t, slopes) for t in (dtype, "float64"))
    assert found == pytest.approx(wanted, rel=1e-4 if dtype == "float32" else 0.05)


@pytest.mark.parametrize("slopes", [(1e19, 1e19), (1e20, 1.0, 1.0), (1e-25, 1e-25), (1e-20, 1e-15)])
@pytest.mark.parametrize("name", sorted({n for n, _ in TABLE} - {"Adafactor", "NAdam"}))
def test_gradients_near_the_ends_of_float32_step_as_torch_s(name, slopes):
    found, wanted = (after(k, getattr(k.optim, name), "float32", slopes) for k in (krt, torch))
    assert found == pytest.approx(wanted, rel=1e-5, abs=1e-18, nan_ok=True)


def test_dampening_without_momentum_changes_nothing():
    plain, damped = ((nn.optim.SGD, {"dampening": d, "lr": 0.1}) for d in (0.0, 0.3))
    for jitted in (False, True):
        found = [ours(lambda p, o=o: o[0](p, **o[1]), "float64", jitted) for o in (plain, damped)]
        for a, b in zip(*found, strict=True):
            np.testing.assert_array_equal(a, b)


def test_dampening_may_come_after_a_momentum_that_went():
    w, v = krt.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    opt, peer = nn.optim.SGD([w], 0.1, momentum=0.9), torch.optim.SGD([v], 0.1, momentum=0.9)
    for group in (opt.param_groups[0], peer.param_groups[0]):
        group["momentum"] = 0.0
        group["dampening"] = 0.3
    for _ in range(3):
        w.grad, v.grad = krt.ones(1), torch.ones(1)
        opt.step()
        peer.step()
    assert w.tolist() == pytest.approx(v.tolist())

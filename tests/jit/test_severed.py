"""jit: gradients do not pass results of jitted functions, and none is lost without a word."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def leaf(*shape):
    return krt.ones(shape or (3,), requires_grad=True)


def refuses(loss, name):
    """Whether the loss has no gradient because a jitted function of that name is behind it."""
    with pytest.raises(krt.GradientError, match=rf"jitted function {name}\. .*detach"):
        loss.backward()
    return True


def model_and_head():
    enc, head = nn.Linear(3, 4), nn.Linear(4, 2)

    @krt.jit
    def encode(x):
        return enc(x)

    return enc, head, encode


def test_backward_through_a_result_names_the_function_and_leaves_no_gradient():
    enc, head, encode = model_and_head()
    for _ in range(2):
        assert refuses(head(encode(X)).sum(), "encode")
        assert refuses(encode(X).sum(), "encode")
        assert enc.weight.grad is None
        assert head.weight.grad is None


def test_what_was_computed_from_a_result_is_severed_too():
    _, head, encode = model_and_head()
    y = encode(X)
    computed = (y * 2).realize()
    later = copy.deepcopy(computed) + y.clone()
    assert not later.requires_grad
    assert refuses(head(later).sum(), "encode")
    total = 0
    for _ in range(300):
        total = total + encode(X).sum()
    total.item()
    assert refuses(total * head.weight.sum(), "encode")
    again = krt.jit(lambda h: h * 2)
    assert refuses(head(again(y)).sum(), "<lambda>")
    assert again.retraces == 0


@pytest.mark.parametrize("stored", [True, False])
def test_a_result_that_is_copied_is_not_forgotten(stored):
    _, head, encode = model_and_head()
    y = krt.zeros(2, 4) * 1
    if stored:
        y.realize()
    y.copy_(encode(X))
    assert refuses(head(y).sum(), "encode")
    with krt.no_grad():
        y.copy_(encode(X))
    head(y).sum().backward()
    assert head.weight.grad is not None


def test_an_argument_with_a_history_severs_what_is_computed_from_it_alone():
    enc, head, _ = model_and_head()

    @krt.jit
    def both(h, x):
        return h * 2, x * 2, (h > 0).float()

    plain = krt.ones(2, 4)
    for h in (enc(krt.tensor(X)), enc(krt.tensor(X)).realize()):
        first, second, third = both(h, plain)
        assert refuses(head(first).sum(), "both")
        head(second + third).sum().backward()
    first, _, _ = both(plain, enc(krt.tensor(X)))
    head(first).sum().backward()
    assert both.retraces == 0


def test_ways_out():
    enc, head, encode = model_and_head()
    y = encode(X)
    with krt.no_grad():
        other = encode(X)
        third = y * 1
    stored = krt.zeros(2, 4)
    stored.assign(y)
    inside = krt.jit(krt.no_grad()(enc.forward))(X)
    for h in (y.detach(), other, third, stored, inside, (y > 0).float(), y.round().detach()):
        head.weight.grad = None
        head(h).sum().backward()
        expected = np.broadcast_to(h.numpy().sum(0), (2, 4))
        np.testing.assert_allclose(head.weight.grad.numpy(), expected, rtol=1e-6)
    assert encode.retraces == 0


def test_a_result_may_be_used_as_any_tensor():
    _, _, encode = model_and_head()
    y = encode(X)
    assert not y.requires_grad
    assert y.is_leaf
    assert bool((y == encode(y @ krt.ones(4, 3) * 0 + krt.tensor(X))).all())
    assert krt.jit(lambda h: h.sum())(y).item() == y.sum().item()
    assert encode.retraces == 0
    with pytest.raises(krt.GradientError, match=r"^requires_grad: .*encode.*detach"):
        y.requires_grad_()
    z = y.detach().requires_grad_()
    (z * z).sum().backward()
    np.testing.assert_allclose(z.grad.numpy(), 2 * y.numpy(), rtol=1e-6)


def test_functions_that_take_gradients_refuse_results_where_the_gradient_meets_them():
    _, head, encode = model_and_head()
    optimizer = nn.optim.SGD(nn.parameters(head), lr=0.1)

    @krt.jit
    def step(h, target):
        optimizer.zero_grad()
        loss = (head(h) - (target > 0).float()).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(2):
        with pytest.raises(krt.JitError, match=r"^h: the argument is the result of a jitted"):
            step(encode(X), krt.ones(2, 2))
    # No gradient flows into what is only compared.
    step(encode(X).detach(), head(encode(X)))
    assert step.retraces == 0
    kept = encode(X)
    with pytest.raises(krt.GradientError, match="encode"):
        krt.jit(lambda x: head(kept + x).sum().backward())(1.0)


def test_results_of_training_steps_add_up_without_retraces():
    w = leaf()

    @krt.jit
    def step(x):
        w.grad = None
        loss = (w * x).sum()
        loss.backward()
        return loss

    total = krt.zeros(())
    for _ in range(5):
        total = total + step(X)
    assert total.item() == 5 * X.sum()
    assert step.retraces == 0


def test_what_is_asked_for_may_not_be_behind_the_result():
    enc, head, encode = model_and_head()
    loss = head(encode(X)).sum()
    expected = krt.grad(head(encode(X).detach()).sum(), head.weight)
    assert krt.grad(loss, head.weight).tolist() == expected.tolist()
    for wanted in (enc.weight, [head.weight, enc.bias]):
        with pytest.raises(krt.GradientError, match=r"^grad: .*encode"):
            krt.grad(loss, wanted)
    with pytest.raises(krt.GradientError, match=r"^grad: .*"):
        krt.grad(krt.jit(lambda h: h * 1)(encode(X)).sum() * head.weight.sum(), enc.weight)


def test_freezing_and_thawing_is_seen():
    enc, head, encode = model_and_head()
    parameters = enc.weight, enc.bias
    for _ in range(3):
        assert refuses(head(encode(X)).sum(), "encode")
        for p in parameters:
            p.requires_grad_(False)
        head(encode(X)).sum().backward()
        for p in parameters:
            p.requires_grad_(True)
        with pytest.raises(krt.GradientError):
            krt.grad(head(encode(X)).sum(), enc.weight)
    assert encode.retraces == 1
    later = krt.ones(3)
    scale = krt.jit(lambda x: x * later)
    (scale(X) * head.bias[0]).sum().backward()
    later.requires_grad_()
    assert refuses((scale(X) * head.bias[0]).sum(), "<lambda>")


def test_dynamic_sizes():
    w = leaf()
    f = krt.jit(lambda x: x * w, dynamic={"x": {0: krt.Variable("n", 1, 9)}})
    for n in (1, 4, 9, 4):
        assert refuses(f(np.ones((n, 3), np.float32)).sum(), "<lambda>")
    by_argument = krt.jit(lambda x: x * 2, dynamic={"x": {0: krt.Variable("n", 1, 9)}})
    for n in (2, 3):
        assert refuses(by_argument(leaf(n)).sum(), "<lambda>")
        assert not by_argument(krt.ones(n)).requires_grad


OPS = {
    "mul": lambda a, b: a * b,
    "tanh": lambda a, b: a.tanh() + b,
    "square": lambda a, b: (a - b) * (a - b),
    "above": lambda a, b: (a > b).float() + b * 0.5,
    "first": lambda a, _: a * 2,
}


@pytest.mark.parametrize("seed", range(60))
def test_gradients_of_random_programs_are_those_of_torch_or_an_error(seed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    ours = [leaf() for _ in range(3)]
    theirs = [torch.ones(3, requires_grad=True) for _ in range(3)]
    start = rng.random(3, np.float32) + 0.5
    values = [(krt.tensor(start), torch.tensor(start), False)]
    jitted = {(name, i): krt.jit(lambda a, op=op, p=p: op(a, p))
              for name, op in OPS.items() for i, p in enumerate(ours)}  # fmt: skip
    on_two = {name: krt.jit(op) for name, op in OPS.items()}
    for _ in range(rng.integers(2, 8)):
        a, t, cut = values[rng.integers(len(values))]
        name, how = rng.choice(list(OPS)), rng.choice(["eager", "jit", "jit2", "detach", "no_grad"])
        i, j = rng.integers(3), rng.integers(len(values))
        op = OPS[name]
        if how == "jit2":
            b, u, _ = values[j]
            mine, their = on_two[name](a, b), op(t, u)
            cut = their.requires_grad
        elif how == "jit":
            mine, their = jitted[name, i](a), op(t, theirs[i])
            cut = their.requires_grad
        elif how == "detach":
            mine, their, cut = a.detach(), t.detach(), False
        elif how == "no_grad":
            with krt.no_grad(), torch.no_grad():
                mine = jitted[name, i](a) if rng.random() < 0.5 else op(a, ours[i])
                their, cut = op(t, theirs[i]), False
        else:
            mine, their = op(a, ours[i]), op(t, theirs[i])
            cut = cut and name != "above"
        if rng.random() < 0.3:
            mine.realize()
        values.append((mine, their, cut))
    mine = sum((v for v, _, _ in values[-3:]), krt.zeros(3)).sum()
    their = sum(t for _, t, _ in values[-3:]).sum()
    cut = any(c for _, _, c in values[-3:])
    assert np.isclose(mine.item(), their.item(), rtol=1e-4)
    if cut or not their.requires_grad:
        with pytest.raises(krt.GradientError, match="jitted function" if cut else "any tensor"):
            mine.backward()
        assert all(p.grad is None for p in ours)
        return
    mine.backward()
    their.backward()
    for p, q in zip(ours, theirs, strict=True):
        assert (p.grad is None) == (q.grad is None)
        if q.grad is not None:
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4)

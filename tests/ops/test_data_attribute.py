"""What is written to `data` is written to the tensor, as in PyTorch."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import DTypeError, GradientError, JitError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable

torch = Package("torch")

WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "polyak": lambda p, q: p.data.mul_(0.9).add_(q.data, alpha=0.1),
    "two_steps": lambda p, q: (p.data.mul_(0.9), p.data.add_(0.1 * q.data)),
    "copy": lambda p, q: p.data.copy_(0.1 * q.data + 0.9 * p.data),
    "fill": lambda p, _: p.data.fill_(0.5),
    "zero": lambda p, _: p.data.zero_(),
    "clamp": lambda p, _: p.data.clamp_(-0.1, 0.2),
    "part": lambda p, _: p.data.__setitem__(1, 7.0),
    "every_part": lambda p, q: p.data.__setitem__(slice(None), q.data + 1),
    "mask": lambda p, _: p.data.__setitem__(p.data > 1, 0.0),
    "set": lambda p, q: setattr(p, "data", p.data + q.data),
}


def _augmented(p: Any, q: Any) -> None:
    p.data += q.data
    p.data *= 2


WAYS["augmented"] = _augmented


def _leaves(k: Any) -> tuple[Any, Any]:
    start = np.arange(6, dtype=np.float32).reshape(2, 3) / 3
    p = k.tensor(start.tolist(), requires_grad=True)
    return p, k.tensor((start * 2 + 1).tolist(), requires_grad=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("jitted", [False, True])
def test_writing_to_data_writes_to_the_tensor(way: str, jitted: bool) -> None:
    p, q = _leaves(krt)
    wanted, other = _leaves(torch)

    def step() -> None:
        WAYS[way](p, q)

    do = krt.jit(step) if jitted else step
    for _ in range(3):
        do()
        WAYS[way](wanted, other)
    np.testing.assert_allclose(p.numpy(), wanted.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(q.numpy(), other.detach().numpy(), rtol=1e-6)
    assert p.requires_grad
    assert p.is_leaf


@pytest.mark.parametrize("read", [False, True])
def test_data_that_is_kept_follows_what_is_written_to_it(read: bool) -> None:
    p, _ = _leaves(krt)
    kept = p.data
    if read:
        assert kept.sum().item() == 5
        krt.realize(kept)
    kept.mul_(2)
    assert kept.tolist() == p.tolist()
    kept.add_(1)
    assert kept.tolist() == p.tolist()
    kept[0] = 3.0
    assert kept.tolist() == p.tolist()


def test_initial_values_are_written_by_data() -> None:
    layer = nn.Linear(3, 2)
    layer.weight.data.normal_(0.0, 0.02)
    layer.bias.data.zero_()
    assert 0 < layer.weight.abs().max().item() < 0.2
    assert layer.bias.tolist() == [0, 0]
    nn.init.constant_(layer.weight.data, 0.25)
    assert layer.weight.tolist() == [[0.25] * 3] * 2


def test_data_takes_no_history() -> None:
    p, q = _leaves(krt)
    before = p.tolist()
    with pytest.raises(GradientError, match="history"):
        p.data.add_(q)
    with pytest.raises(GradientError, match="history"):
        p.data[0] = q[0]
    assert p.tolist() == before
    with krt.no_grad():
        p.data.add_(q)
    np.testing.assert_allclose(p.numpy(), np.array(before) + q.numpy(), rtol=1e-6)


def test_writing_to_data_computes_the_tensor_alone() -> None:
    p, _ = _leaves(krt)
    p.data.mul_(2)
    krt.realize()
    old = p * 1.0
    p.data.mul_(2)  # `old` keeps the value that it was made from
    np.testing.assert_allclose(old.detach().numpy() * 2, p.numpy())


# ---- handles that are kept


def _clipped(k: Any, p: Any) -> None:
    kept = p.data
    opt = k.optim.SGD([p], lr=0.1, momentum=0.5)
    for _ in range(3):
        (p * p).sum().backward()
        opt.step()
        opt.zero_grad()
        kept.clamp_(-10, 1.1)


def _two_handles(_: Any, p: Any) -> None:
    kept = p.data
    for _i in range(2):
        p.data.sub_(0.25)
    kept.mul_(2.0)


def _set_on_a_handle(k: Any, p: Any) -> None:
    kept = p.data
    kept.data = k.ones(2, 3)
    kept.mul_(3)
    p.data.data = kept
    with k.no_grad():
        p.add_(kept)


def _state_dict(k: Any, p: Any) -> None:
    saved = {"p": p.data}
    with k.no_grad():
        p.mul_(3)
    saved["p"].copy_(saved["p"] + 1)


def _data_of_data(_: Any, p: Any) -> None:
    p.data.data.data.add_(1)
    p.data.data[0] = 9


def _other_parameter(k: Any, p: Any) -> None:
    q = p.data.requires_grad_()
    opt = k.optim.SGD([q], lr=1.0)
    (q * q * q).sum().backward()
    opt.step()
    with k.no_grad():
        q.add_(1)
    assert q.requires_grad
    assert q.is_leaf


def _set_between(k: Any, p: Any) -> None:
    kept = p.data
    p.data = k.ones(2, 3)
    p.data.add_(kept)
    with k.no_grad():
        p[1] += kept[0]


def _stored_first(k: Any, p: Any) -> None:
    kept = p.data
    kept.tolist()
    with k.no_grad():
        p.copy_(k.full((2, 3), 7.0))
    p.tolist()
    kept.clamp_(0, 5)


def _of_a_gradient(_: Any, p: Any) -> None:
    (p * p).sum().backward()
    kept = p.grad.data
    p.grad.data.clamp_(0, 1)
    kept.mul_(2)
    p.data.sub_(p.grad)


KEPT = [_clipped, _two_handles, _set_on_a_handle, _state_dict, _data_of_data, _other_parameter,
        _set_between, _stored_first, _of_a_gradient]  # fmt: skip


@pytest.mark.parametrize("program", KEPT)
@pytest.mark.parametrize("lazy", [False, True])
def test_a_kept_handle_is_the_tensor(program: Callable[..., None], lazy: bool) -> None:
    p, _ = _leaves(krt)
    if lazy:
        p = (krt.arange(6).reshape(2, 3) / 3).float().requires_grad_()
    wanted, _ = _leaves(torch)
    kept, known = p.data, wanted.data
    program(krt, p)
    program(torch, wanted)
    np.testing.assert_allclose(kept.numpy(), known.numpy(), rtol=1e-6)
    np.testing.assert_allclose(p.detach().numpy(), wanted.detach().numpy(), rtol=1e-6)
    assert p.requires_grad
    assert p.is_leaf


STEPS: list[Callable[[Any, Any, Any], Any]] = [
    lambda p, d, x: p.add_(x),
    lambda p, d, x: d.mul_(x),
    lambda p, d, x: d.__setitem__(0, x[1]),
    lambda p, d, x: p.__setitem__(slice(1, 2), d[0] * 2),
    lambda p, d, x: p.data.sub_(d),
    lambda p, d, x: d.copy_(p + x),
    lambda p, d, x: d.add_(p.data),
    lambda p, d, x: setattr(p, "data", d),
    lambda p, d, x: d.clamp_(-3, 3),
    lambda p, d, x: d.masked_fill_(p > 2, 1.5),
]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("inside", [False, True])
def test_programs_of_reads_and_writes(seed: int, inside: bool) -> None:
    """Reads of both names between writes to both, traced or not, with handles made where."""
    chosen = np.random.default_rng(seed).integers(len(STEPS), size=6)

    def program(k: Any, p: Any, made: Any, x: Any) -> Any:
        out = []
        with k.no_grad():
            d = p.data if inside else made
            for i in chosen:
                STEPS[i](p, d, x)
                out += [p * 1, d + 1]
        return out

    p, x = _leaves(krt)
    q, y = _leaves(torch)
    x, y = x.detach(), y.detach()
    kept, known = p.data, q.data
    jitted = krt.jit(lambda x: program(krt, p, kept, x))
    for turn in range(4):
        got = jitted(x) if turn % 2 else program(krt, p, kept, x)
        wanted = program(torch, q, known, y)
        for a, b in zip([*got, p, kept], [*wanted, q, known], strict=True):
            np.testing.assert_allclose(
                a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5
            )


def test_values_are_swapped() -> None:
    """As for an evaluation with averaged weights."""

    def program(k: Any, p: Any) -> Any:
        backup, too = p.data, p.data
        p.data = k.ones(2, 3)
        p.data.mul_(3)
        averaged = p.data
        too.mul_(2)
        inside = p * 1
        p.data = backup
        averaged.zero_()
        p.data.add_(0.5)
        return inside, averaged, p

    for a, b in zip(program(krt, _leaves(krt)[0]), program(torch, _leaves(torch)[0]), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6)


def test_values_are_swapped_in_a_traced_function() -> None:
    def program(k: Any, p: Any, x: Any) -> Any:
        backup = p.data
        p.data = p.data * x
        out = p.data.sum() + p.data[0, 1]
        other = p.data
        p.data = backup + 1
        return out, other, backup

    p, x = _leaves(krt)
    q, y = _leaves(torch)
    x, y = x.detach(), y.detach()
    jitted = krt.jit(lambda x: program(krt, p, x))
    for _ in range(3):
        for a, b in zip([*jitted(x), p], [*program(torch, q, y), q], strict=True):
            np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-5)
    kept = p.data
    with pytest.raises(JitError, match="outside"):
        krt.jit(lambda x: setattr(kept, "data", x))(x)


def test_a_value_that_does_not_fit_parts_nothing() -> None:
    p, _ = _leaves(krt)
    kept = p.data
    for wrong in (krt.ones(5), 3):
        with pytest.raises((ShapeError, DTypeError)):
            p.data = wrong
    kept.zero_()
    assert not p.numpy().any()


def test_handles_of_what_a_traced_function_makes() -> None:
    @krt.jit
    def f(x: krt.Tensor) -> tuple[krt.Tensor, ...]:
        total = krt.zeros(3)
        kept = total.data
        total.add_(x)
        before = kept * 1
        kept.mul_(2)
        return before, kept, total

    for _ in range(3):
        found = f(krt.tensor([1.0, 2.0, 3.0]))
        assert [t.tolist() for t in found] == [[1, 2, 3], [2, 4, 6], [2, 4, 6]]


def test_gradients_pass_a_handle_that_became_a_leaf_in_a_traced_function() -> None:
    p, _ = _leaves(krt)
    wanted, _ = _leaves(torch)

    def step(k: Any, p: Any) -> Any:
        q = p.data.requires_grad_()
        (q * q).sum().backward()
        g = q.grad
        with k.no_grad():
            q.sub_(g * 0.1)
        return g

    jitted = krt.jit(lambda: step(krt, p))
    for _ in range(3):
        np.testing.assert_allclose(jitted().numpy(), step(torch, wanted).numpy(), rtol=1e-6)
    np.testing.assert_allclose(p.numpy(), wanted.detach().numpy(), rtol=1e-6)


def test_a_handle_as_an_argument() -> None:
    p, _ = _leaves(krt)
    kept = p.data
    f = krt.jit(lambda x: x.data * 2)
    for _ in range(3):
        kept.add_(1)
        np.testing.assert_array_equal(f(kept).numpy(), 2 * p.numpy())
    into = krt.jit(lambda x: x.data.add_(1))
    with pytest.raises(JitError, match="argument"):
        into(krt.ones(3))


def test_copies_of_a_handle_are_apart() -> None:
    p, _ = _leaves(krt)
    kept = p.data
    copies = [copy.deepcopy(kept), pickle.loads(pickle.dumps(kept)), kept.clone()]  # noqa: S301
    before = p.tolist()
    for other in copies:
        assert other.tolist() == before
        other.add_(1)
    assert p.tolist() == before
    kept.add_(1)
    assert p.tolist() != before
    assert all(c.tolist() == p.tolist() for c in copies)


def test_handles_do_not_pile_up() -> None:
    x = krt.ones(3)
    for _ in range(1000):
        x = x.data
    assert not hasattr(x._whose, "_whose")


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("write", [
    lambda y: y.data.mul_(3),
    lambda y: y.data.__setitem__(0, 1.0),
    lambda y: setattr(y, "data", krt.zeros(2, 3)),
    lambda y: y.data.data.zero_(),
])  # fmt: skip
def test_a_result_keeps_its_history_and_its_value(write: Any, jitted: bool) -> None:
    p, _ = _leaves(krt)

    def f() -> krt.Tensor:
        y = p * 2
        assert y.data.requires_grad is False
        with pytest.raises(GradientError, match="gradients recorded"):
            write(y)
        assert y.requires_grad
        (y * p).sum().backward()
        assert p.grad is not None
        return y.data * 1

    y = (krt.jit(f) if jitted else f)()
    np.testing.assert_allclose(y.numpy(), 2 * p.numpy())
    np.testing.assert_allclose(p.grad.numpy(), 4 * p.numpy())


def test_a_handle_of_what_has_no_memory_is_not_written() -> None:
    n = krt.Variable("n", 1, 8)
    x = krt.zeros(8)[:n] + 1
    with pytest.raises(ShapeError, match="Variables"):
        x.data.add_(1)

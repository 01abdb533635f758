"""Values with a gradient rule of their own: what a loop over batches costs, keeps and computes."""

from __future__ import annotations

import gc
import re
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from surface import compare, rows

import kernelrt as krt
from kernelrt.ir import UOp, toposort
from kernelrt.tensor.autograd import gradient
from kernelrt.tensor.autograd.tags import Custom
from kernelrt.tensor.eager.plan_cache import plans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from surface.rows import Row

STEPS = 7
#: After so many steps everything that a loop computes has its plan.
KNOWN = 3


def marks(root: UOp) -> Iterator[Custom]:
    """All rules of their own in the graph of `root`, and in what they read."""
    todo, seen = [root], set()
    while todo:
        for node in toposort([todo.pop()]):
            if node not in seen and isinstance(node.arg, Custom):
                yield node.arg
                todo += [*node.arg.inputs, *node.arg.parts]
            seen.add(node)


def loss_of(k: Any, row: Row, operands: list[Any], batch: list[Any]) -> Any:
    """A number made of a row by the library `k`: its first operands are weights times a batch."""
    graded = iter(batch)
    given = [x * next(graded) if spec.grad else x
             for x, spec in zip(operands, row.specs, strict=True)]  # fmt: skip
    out = row.call(k, *given) if k is krt else row.peer(k, *given)
    total = 0
    for x in rows.leaves(out):
        if getattr(x, "requires_grad", False):
            total = total + (x * x).sum()
    return total


def operands_of(row: Row) -> list[krt.Tensor]:
    arrays = rows.draw(row, rows.sizes(row))
    return compare.given(row, arrays, krt.float64, grad=True)[0]


def batch_of(row: Row, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = rows.draw(row, rows.sizes(row))
    return [rng.uniform(0.95, 1.0, a.shape)
            for a, spec in zip(arrays, row.specs, strict=True) if spec.grad]  # fmt: skip


def with_rules() -> list[tuple[str, Row]]:
    """Rows whose gradients have rules of their own, one for each op and each set of options."""
    found: dict[tuple[str, ...], tuple[str, Row]] = {}
    for table, row in rows.true_rows():
        if not row.grad or not isinstance(row.op, str) or not row.second:
            continue
        called = tuple(re.findall(r"\w+(?=[(=])", row.op))
        if called not in found:
            loss = loss_of(krt, row, operands_of(row), [1.0] * len(row.specs))
            if any(marks(loss.uop)):
                found[called] = table, row
    return list(found.values())


OWN = [pytest.param(row, id=f"{table}-{row.name}") for table, row in with_rules()]


def test_there_are_such_operations():
    text = " ".join(param.values[0].op for param in OWN)
    for name in ("var", "std", "max", "logsumexp", "layer_norm", "batch_norm", "cross_entropy",
                 "norm", "max_pool2d", "conv1d", "conv2d", "softplus"):  # fmt: skip
        assert f".{name}(" in text, name


def plain(arg: object) -> bool:
    """Whether `arg` is data that is equal wherever it is written down again."""
    if isinstance(arg, tuple):
        return all(plain(a) for a in arg)
    return arg is None or isinstance(arg, bool | int | float | str)


@pytest.mark.parametrize("row", OWN)
def test_rules_hold_nodes_where_they_are_looked_for(row: Row):
    batch = [krt.tensor(b) for b in batch_of(row, 0)]
    for mark in marks(loss_of(krt, row, operands_of(row), batch).uop):
        assert plain(mark.arg), mark.rule


def gradients_of_torch(row: Row, batch: list[np.ndarray]) -> list[np.ndarray]:
    torch = pytest.importorskip("torch")
    arrays = rows.draw(row, rows.sizes(row))
    given = [torch.tensor(a, requires_grad=spec.grad)
             for a, spec in zip(arrays, row.specs, strict=True)]  # fmt: skip
    loss_of(torch, row, given, [torch.tensor(b) for b in batch]).backward()
    return [np.zeros(x.shape) if x.grad is None else x.grad.numpy(force=True)
            for x in given if x.requires_grad]  # fmt: skip


@pytest.mark.parametrize("row", OWN)
def test_a_loop_over_batches_finds_its_plan_again(row: Row):
    operands = operands_of(row)
    weights = [x for x in operands if x.requires_grad]
    lying: list[weakref.ref[Any]] = []
    misses = []
    for step in range(STEPS):
        arrays = batch_of(row, step)
        batch = [krt.tensor(b) for b in arrays]
        krt.realize(*batch)
        before = plans.misses
        loss = loss_of(krt, row, operands, batch)
        loss.backward()
        loss.item()
        grads = [w.grad.numpy() for w in weights]
        misses.append(plans.misses - before)
        for got, want in zip(grads, gradients_of_torch(row, arrays), strict=True):
            assert not compare.mismatch(got, want, 1e-9 * row.tol * row.tol64, 1.0)
        for w in weights:
            w.grad = None
        if step >= KNOWN:
            lying += [weakref.ref(b._buffer) for b in batch]
        del batch, loss
    gc.collect()
    assert not any(misses[KNOWN:]), misses
    assert not any(ref() is not None for ref in lying)


@pytest.mark.parametrize("carried", [
    lambda h: h.detach(), lambda h: h.detach() * 0.5, lambda h: h.detach().flip(0),
    lambda h: h.detach().clone(), lambda h: h.data,
])  # fmt: skip
@pytest.mark.parametrize("read", [False, True])
def test_a_state_that_is_carried_past_gradients_finds_its_plan_again(monkeypatch, carried, read):
    """No gradient flows into the step before, whose history is stale by now."""
    rng = np.random.default_rng(0)
    start, steps = rng.normal(size=(2, 3)), rng.normal(size=(STEPS, 2, 3))
    first = rng.normal(size=(3, 3))
    applied = []
    flow = gradient.flow
    monkeypatch.setattr(gradient, "flow", lambda *a: applied.append(1) or flow(*a))
    plans.clear()

    def trained(k: Any) -> Iterator[Any]:
        w, h = k.tensor(first, requires_grad=True), k.tensor(start)
        for data in steps:
            h = (k.tensor(data) + h @ w).tanh()
            loss = (h * h).sum()
            loss.backward()
            if read:
                h.sum().item()
            with k.no_grad():
                w -= 0.1 * w.grad
            yield w.grad.numpy(), loss.item()
            w.grad = None
            h = carried(h)

    torch = pytest.importorskip("torch")
    for got, want in zip(trained(krt), trained(torch), strict=True):
        np.testing.assert_allclose(got[0], want[0], 1e-9)
        np.testing.assert_allclose(got[1], want[1], 1e-9)
    assert 1 <= len(applied) <= KNOWN, "the rules of gradients are applied for the first plans"

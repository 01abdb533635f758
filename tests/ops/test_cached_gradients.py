"""Values with a gradient rule of their own: what a loop over batches costs, keeps and computes."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.cases import CASES, Case

import kernelrt as krt
from kernelrt.ir import UOp, toposort
from kernelrt.tensor.execute import plans
from kernelrt.tensor.marks import Custom

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def loss_of(case: Case, weights: list[Any], batch: list[Any]) -> Any:
    out = case.op(*(w * b for w, b in zip(weights, batch, strict=True)))
    return (out * out).sum()


def weights_of(case: Case) -> list[krt.Tensor]:
    return [krt.tensor(a, requires_grad=True) for a in case.inputs()]


def batch_of(case: Case, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(0.95, 1.0, s) for s in case.shapes]


OWN = [
    case for case in CASES if case.grad
    and any(marks(loss_of(case, weights_of(case), [1.0] * len(case.shapes)).uop))
]  # fmt: skip


def test_there_are_such_operations():
    names = {case.name for case in OWN}
    assert {"var", "std", "max_values", "logsumexp", "layer_norm", "batch_norm",
            "cross_entropy", "norm", "max_pool2d", "conv1d", "softplus"} <= names  # fmt: skip


def plain(arg: object) -> bool:
    """Whether `arg` is data that is equal wherever it is written down again."""
    if isinstance(arg, tuple):
        return all(plain(a) for a in arg)
    return arg is None or isinstance(arg, bool | int | float | str)


@pytest.mark.parametrize("case", OWN, ids=str)
def test_rules_hold_nodes_where_they_are_looked_for(case: Case):
    batch = [krt.tensor(b) for b in batch_of(case, 0)]
    for mark in marks(loss_of(case, weights_of(case), batch).uop):
        assert plain(mark.arg), mark.rule


def gradients_of_torch(case: Case, batch: list[np.ndarray]) -> list[np.ndarray]:
    torch = pytest.importorskip("torch")
    weights = [torch.tensor(a, requires_grad=True) for a in case.inputs()]
    factors = [w * torch.tensor(b) for w, b in zip(weights, batch, strict=True)]
    out = (case.op if case.peer == "same" else case.peer)(*factors)
    (out * out).sum().backward()
    return [w.grad.numpy() for w in weights]


@pytest.mark.parametrize("case", OWN, ids=str)
def test_a_loop_over_batches_finds_its_plan_again(case: Case):
    weights = weights_of(case)
    lying: list[weakref.ref[Any]] = []
    misses = []
    for step in range(STEPS):
        arrays = batch_of(case, step)
        batch = [krt.tensor(b) for b in arrays]
        krt.realize(*batch)
        before = plans.misses
        loss = loss_of(case, weights, batch)
        loss.backward()
        loss.item()
        grads = [w.grad.numpy() for w in weights]
        misses.append(plans.misses - before)
        if case.peer is not None:
            for got, want in zip(grads, gradients_of_torch(case, arrays), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
        for w in weights:
            w.grad = None
        if step >= KNOWN:
            lying += [weakref.ref(b._buffer) for b in batch]
        del batch, loss
    gc.collect()
    assert not any(misses[KNOWN:]), misses
    assert not any(ref() is not None for ref in lying)

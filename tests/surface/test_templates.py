"""Operations give the same graphs by their templates as by their Python code."""

from __future__ import annotations

import functools
import threading
import warnings

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.native import graph_templates

torch = pytest.importorskip("torch")

from support.crowd import crowd  # noqa: E402
from surface import compare, rows  # noqa: E402

EVERY = [pytest.param(row, id=f"{table}-{row.name}") for table, row in rows.tables()]
CALLS = 3


@pytest.fixture(autouse=True)
def verified():
    graph_templates.verify(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        graph_templates.verify(False)


def computed(x):
    """An operand that is not computed yet."""
    if x.dtype is krt.bool_:
        return x.logical_not().logical_not()
    return x + x.new_zeros(()) if x.dtype.is_float else x.clone() + 0


@pytest.mark.cases(150)
@pytest.mark.parametrize("row", EVERY)
def test_templates_of_every_row_give_the_graphs_of_its_code(row):
    """With other data each time, with operands of three kinds, with gradients and without."""
    drawn = rows.draw(row, rows.sizes(row))
    for grad in (False, True):
        for kind in ("leaf", "computed", "view"):
            with krt.set_grad_enabled(grad):
                for _ in range(CALLS):
                    arrays = [a.copy() for a in drawn]
                    _, given = compare.given(
                        row, arrays, krt.float32, grad and row.grad, kind == "view"
                    )
                    if kind == "computed":
                        given = [computed(x) for x in given]
                    row.call(krt, *given)


@pytest.mark.parametrize("call", [
    lambda x, i: x.softmax(-1), lambda x, i: x.var(1), lambda x, i: x[i], lambda x, i: x.T,
    lambda x, i: krt.cat([x, x * 2], 1), lambda x, i: x.max(1).values, lambda x, i: x[:, 1:3],
    lambda x, i: krt.where(x > 0, x, 0.0), krt.nn.functional.cross_entropy,
    lambda x, i: krt.cat([x, x.exp()]), lambda x, i: krt.maximum(x.exp(), x),
    lambda x, i: x.reshape(-1), lambda x, i: x.T.reshape(2, -1), lambda x, i: x.exp(),
])  # fmt: skip
def test_common_calls_have_templates(call):
    before = graph_templates.count_uses()
    for _ in range(CALLS):
        x = krt.tensor(np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32))
        call(x, krt.tensor([1, 0, 3, 2]))
    assert graph_templates.count_uses() > before


def test_an_operation_that_had_calls_without_templates_gets_some_later():
    for n in range(200):
        krt.tensor([0.0] * n).to(krt.float32)  # gives its operand, which is no graph of its own
    before = graph_templates.count_uses()
    for _ in range(CALLS):
        krt.zeros(4).realize().to(krt.float64)
    assert graph_templates.count_uses() > before


@pytest.mark.cases(1 / 4)
def test_an_operation_whose_arguments_do_not_come_again_makes_templates_later():
    x = krt.zeros(5000).realize()
    for n in range(2500):
        x.logcumsumexp(0)[n:]
    before = graph_templates.count_uses()
    x.logcumsumexp(0)
    assert graph_templates.count_uses() == before + 1
    found = [x.logcumsumexp(0)[2600:] for _ in range(3)]
    assert graph_templates.count_uses() == before + 5
    assert all(t.shape == (2400,) for t in found)


def test_an_operand_made_of_another_one_is_told_from_what_the_code_makes_of_it():
    """The code of the loss makes the same sigmoid of x that its second operand is."""
    F = krt.nn.functional  # noqa: N806
    for y in (lambda x: x.sigmoid(), lambda x: x * 0 + 0.5):
        for _ in range(CALLS):
            x = krt.tensor([[0.5, -1.0, 2.0]])
            F.binary_cross_entropy_with_logits(x, y(x))
            (x * 2).lerp(x, x.sigmoid())


def test_templates_hold_arrays_that_newer_ones_displace():
    """Equal arrays of operations stay one while a template has them."""
    x = krt.tensor([[3.0, 1.0, 2.0]])
    for _ in range(CALLS):
        x.quantile(0.5)
    for n in range(300):
        x.quantile(n / 1000)
    before = graph_templates.count_uses()
    x.quantile(0.5)
    assert graph_templates.count_uses() > before


def test_threads_make_templates_of_what_another_one_writes():
    graph_templates.verify(False)
    failures = []

    def add(y, k, begun):
        begun.wait()
        try:
            for _ in range(6):
                y[krt.tensor(np.array(k))] += 1
        except krt.KernelrtError as error:
            failures.append(error)

    for size in range(2, 150):
        y, begun = krt.tensor(np.zeros((size, 2))), threading.Barrier(2)
        crowd(*[functools.partial(add, y, k, begun) for k in (0, 1)])
        assert not failures
        assert y[:2].tolist() == [[6, 6], [6, 6]]

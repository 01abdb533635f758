"""The checks themselves: what is wrong fails, and a row in which nothing is compared, too."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

torch = pytest.importorskip("torch")

from surface import rows, test_rows  # noqa: E402
from surface.rows import Bool, In, Index, Pos, Row, each, function, method  # noqa: E402

GOOD = Row("exp", lambda k, x: x.exp(), ("a b",), ints=True)


def other(ours, theirs=lambda k, x: x.exp(), shapes=("a b",), **options):
    """A row that is not the same in both libraries."""
    return Row("other", ours, shapes, torch=theirs, **options)


def fails(check, row):
    with pytest.raises((AssertionError, krt.KernelrtError, RuntimeError, AttributeError)):
        check(row)


CHECKS = [
    test_rows.test_values_and_gradients, test_rows.test_second_gradients,
    test_rows.test_half_types, test_rows.test_integers, test_rows.test_sizes_of_zero_and_one,
    test_rows.test_transposed_operands, test_rows.test_special_values,
    test_rows.test_jit_gives_the_same_bits,
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_a_right_row_passes(check):
    check(GOOD)


def test_wrong_values_types_and_gradients_fail():
    check = test_rows.test_values_and_gradients
    fails(check, other(lambda k, x: x.exp() * (1 + 1e-9)))
    fails(check, other(lambda k, x: x.exp().float()))
    fails(check, other(lambda k, x: x.exp().detach() + 0 * x))
    fails(check, other(lambda k, x: x.exp().reshape(-1)))
    fails(check, other(lambda k, x: (x.exp(), x)))
    # In float32 alone.
    fails(check, other(lambda k, x: x.exp() * (1 + 1e-4 * (x.dtype is krt.float32))))


def test_wrong_second_gradients_fail():
    def flat(k, x):
        first = x.detach().exp()
        return first * x - (first * x - x.exp()).detach()

    fails(test_rows.test_second_gradients, other(flat))


def test_wrong_halves_integers_and_sizes_fail():
    def refuses(kind):
        def call(k, x):
            if x.dtype is kind:
                raise krt.DTypeError("not this one")
            return x.exp()

        return call

    for dtype in (krt.float16, krt.bfloat16):
        fails(test_rows.test_half_types, other(refuses(dtype)))
        fails(test_rows.test_half_types,
              other(lambda k, x, d=dtype: x.exp() * (1.02 if x.dtype is d else 1)))  # fmt: skip
    for dtype in (krt.int8, krt.uint8, krt.int64):
        fails(test_rows.test_integers, other(refuses(dtype), ints=True))
    for shape in ((0, 3), (1, 3), (3, 0), (3, 1)):
        row = other(lambda k, x, s=shape: x.exp() + (s in (x.shape, (*x.shape[:1], 3), (3,
                    *x.shape[1:])) and x.numel() != 9 and 1), sizes={"a": 3, "b": 3})  # fmt: skip
        if 0 not in shape:
            fails(test_rows.test_sizes_of_zero_and_one, row)
    crash = other(lambda k, x: x.exp() if x.numel() else x.nothing())
    fails(test_rows.test_sizes_of_zero_and_one, crash)


def test_wrong_special_values_fail():
    check = test_rows.test_special_values
    fails(check, other(lambda k, x: k.where(x.isnan(), 0.0, x.exp())))
    fails(check, other(lambda k, x: k.where(x == float("-inf"), float("nan"), x.exp())))


def test_bits_that_a_jit_changes_fail():
    calls = []

    def call(k, x):
        calls.append(x)
        return x.exp() * (1 + 1e-6 * (len(calls) > 1))

    fails(test_rows.test_jit_gives_the_same_bits, other(call))


def test_rows_that_compare_nothing_fail():
    def nothing(k, *tensors):
        raise ValueError

    refused = other(nothing, nothing, ints=True)
    for check in CHECKS:
        if check is not test_rows.test_half_types:
            with pytest.raises((AssertionError, ValueError)):
                check(refused)
    with pytest.raises(AssertionError):
        Row("silent", lambda k, x: x, ("a",), zero=False)
    with pytest.raises(AssertionError):
        Row("no floats", lambda k, i: i, (Index("a", "3"),))


def test_a_gradient_that_torch_does_not_have_must_be_left_out():
    row = Row("floor", lambda k, x: x.isnan(), ("a",))
    fails(test_rows.test_values_and_gradients, row)


def test_what_is_drawn():
    row = Row(
        "all", lambda k, *xs: xs, ("a b", In("b", 3, 4), Pos(""), Index("a n", "n"), Bool("7 a")),
        sizes={"n": 6},
    )  # fmt: skip
    of = rows.sizes(row)
    assert list(of) == ["a", "b", "n"]
    assert of["n"] == 6
    x, y, z, i, m = rows.draw(row, of)
    assert x.shape == (of["a"], of["b"])
    assert y.min() >= 3
    assert y.max() <= 4
    assert z.shape == ()
    assert z > 0
    assert (i.dtype, i.shape, i.max() < 6) == (np.int64, (of["a"], 6), True)
    assert (m.dtype, m.shape) == (np.bool_, (7, of["a"]))
    assert all(np.array_equal(p, q) for p, q in zip(rows.draw(row, of), rows.draw(row, of),
                                                    strict=True))  # fmt: skip
    assert rows.sizes(row, a=0)["a"] == 0
    distinct = Row("d", lambda k, i: i, (Index("a 5", "9", distinct=True),), grad=False)
    drawn = rows.draw(distinct, rows.sizes(distinct))[0]
    assert all(len(set(line)) == 5 for line in drawn.tolist())


def test_text_calls_both_libraries_with_operands_in_the_order_of_their_letters():
    row = Row("r", "T.where(m, F.relu(b), a * 2)", (Bool("n"), "n", "n"))
    assert row.operands == ["m", "b", "a"]
    arrays = rows.draw(row, rows.sizes(row))
    m, b, a = arrays
    wanted = np.where(m, np.maximum(b, 0), a * 2)
    np.testing.assert_array_equal(row.call(krt, *map(krt.tensor, arrays)).numpy(), wanted)
    np.testing.assert_array_equal(row.peer(torch, *map(torch.tensor, arrays)).numpy(), wanted)
    np.testing.assert_array_equal(row.truth(*arrays)[0], wanted)
    assert Row("r", method("sum", 1, keepdim=True), ("a b",)).op == "x.sum(1, keepdim=True)"
    assert Row("r", function("F.mse_loss"), ("a", "a")).op == "F.mse_loss(x, y)"
    assert Row("r", method("norm", float("inf")), ("a",)).op == "x.norm(float('inf'))"
    with pytest.raises(AssertionError):
        Row("r", "x + y", ("a",))


def test_words_and_axes_are_drawn():
    (row,) = each("x.sum({d}, {k}) + {c} * y", "...", "...")
    drawn = [rows.settled(row, np.random.default_rng(s), rank=3, spread=True) for s in range(40)]
    assert len({r.op for r in drawn}) > 20
    assert not any("{" in r.op for r in drawn)
    shapes = {r.shapes for r in drawn}
    assert {len(spec.split()) for pair in shapes for spec in pair} == {0, 1, 2, 3}
    assert any("1" in spec for pair in shapes for spec in pair)
    again = rows.settled(row, np.random.default_rng(0), rank=3, spread=True)
    assert (again.op, again.shapes) == (drawn[0].op, drawn[0].shapes)


def test_a_truth_is_there_or_is_none():
    arrays = [np.array([1.0, -2.0])]
    assert Row("r", "x.no_such_op()", ("a",)).truth(*arrays) is None
    assert Row("r", "x.softmax(0, no_such_option=1)", ("a",)).truth(*arrays) is None
    np.testing.assert_array_equal(Row("r", "x.relu()", ("a",)).truth(*arrays)[0], [1.0, 0.0])
    # A mistake in support.numpy_truth would leave rows without a truth, and untested.
    assert len(rows.true_rows()) >= 1120

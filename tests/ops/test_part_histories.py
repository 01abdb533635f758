"""What gradients meet in a tensor of which a part was written: torch's result, or an error."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

X = np.ones(3, np.float32)
MADE = {
    "lazy": lambda: krt.zeros(2, 3),
    "stored": lambda: krt.zeros(2, 3).realize(),
    "of memory": lambda: krt.from_numpy(np.zeros((2, 3), np.float32)),
}
PARTS = {
    "row": 0,
    "column": (slice(None), 1),
    "element": (1, 2),
    "all": ...,
    "steps": (slice(None), slice(0, 3, 2)),
    "mask": krt.tensor([[True, False, True], [False, True, False]]),
}
AFTER = {
    "nothing": lambda y: y,
    "computed": lambda y: y.realize(),
    "committed": lambda y: krt.realize() or y,
    "another part": lambda y: y.__setitem__((1, slice(0, 2)), 3.0) or y,
    "derived": lambda y: (y * 2).realize() + 1,
    "copied": lambda y: y.clone().contiguous(),
}


@pytest.fixture
def weight():
    return krt.ones(3, requires_grad=True)


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("made", MADE)
def test_a_jitted_result_in_a_part_is_not_forgotten(weight, made, part, after):
    f = krt.jit(lambda x: x * weight)
    y = MADE[made]()
    y[PARTS[part]] = f(X)[0] if part in ("column", "element", "steps", "mask") else f(X)
    y = AFTER[after](y)
    value = y.numpy().copy()
    with pytest.raises(krt.GradientError, match="jitted function"):
        (y.sum() + weight.sum()).backward()
    assert not y.requires_grad
    (y.detach().sum() + weight.sum()).backward()
    np.testing.assert_array_equal(weight.grad.numpy(), X)
    np.testing.assert_array_equal(y.numpy(), value)


@pytest.mark.parametrize("part", PARTS)
def test_writing_to_a_jitted_result_does_not_hide_what_it_is(weight, part):
    y = krt.jit(lambda x: x * weight + krt.zeros(2, 1))(X)
    y[PARTS[part]] = 0.5
    y[0, 0] = 0.25
    with pytest.raises(krt.GradientError, match="jitted function"):
        (y.sum() + weight.sum()).backward()
    assert y[0, 0].item() == 0.25


@pytest.mark.parametrize("when", ["lazy", "computed"])
@pytest.mark.parametrize("part", PARTS)
def test_a_history_is_not_lost_where_none_is_recorded(weight, part, when):
    """torch goes on as if nothing were written; that is one way to a wrong gradient."""
    y = weight * krt.full((2, 1), 2.0)
    if when == "computed":
        y.realize()
    with krt.no_grad():
        y[PARTS[part]] = 5.0
        y[0, 0] = 6.0
    assert y.requires_grad
    assert y[0, 0].item() == 6
    with pytest.raises(krt.GradientError, match="assigned since"):
        (y.sum() + weight.sum()).backward()


def test_a_whole_new_value_has_no_history(weight):
    f = krt.jit(lambda x: x * weight)
    for y in (f(X), krt.zeros(3), krt.zeros(3).realize()):
        y[0] = f(X)[1]
        y.assign(krt.ones(3))
        y[1] = 4.0
        weight.grad = None
        ((y * weight).sum()).backward()
        assert weight.grad.tolist() == [1, 4, 1]


def test_no_history_is_recorded_where_none_is_wanted(weight):
    f, y = krt.jit(lambda x: x * weight), krt.zeros(2, 3).realize()
    with krt.no_grad():
        y[0] = f(X)
    y[1] = f(X).detach()
    (y.sum() + weight.sum()).backward()
    assert weight.grad.tolist() == [1, 1, 1]


def test_within_a_trace(weight):
    f = krt.jit(lambda x: x * weight)

    @krt.jit
    def step(v):
        weight.grad = None
        y = weight * 2
        with krt.no_grad():
            y[0] = 5.0
        (y.sum() + weight.sum()).backward()
        return v

    with pytest.raises(krt.GradientError, match="assigned since"):
        step(f(X))


def test_rows_of_jitted_results_are_written_alone(weight, monkeypatch):
    """Not the whole of the buffer for each, and the marks do not heap up."""
    f, buffer = krt.jit(lambda x: x * weight), krt.zeros(50, 3).realize()
    depths = set()
    whole = []
    become = type(buffer)._become_value

    def spy(tensor, *arguments, **options):
        if tensor is buffer:
            whole.append(1)
        become(tensor, *arguments, **options)

    monkeypatch.setattr(type(buffer), "_become_value", spy)
    for i in range(50):
        buffer[i] = f(X * i)
        depths.add(buffer._uop.depth)
    assert not whole
    assert len(depths) == 1
    np.testing.assert_array_equal(buffer.numpy(), np.arange(50.0)[:, None] * X)
    with pytest.raises(krt.GradientError, match="jitted function"):
        (buffer.sum() + weight.sum()).backward()


def test_results_of_two_functions_in_one_buffer(weight):
    other = krt.ones(3, requires_grad=True)
    f, g = krt.jit(lambda x: x * weight), krt.jit(lambda x: x * other)
    y = krt.zeros(2, 3).realize()
    y[0], y[1] = f(X), g(X)
    for wanted in (weight, other):
        with pytest.raises(krt.GradientError, match="jitted function"):
            krt.grad((y.sum() + wanted.sum()), [wanted])

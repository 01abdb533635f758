"""One assignment that fails takes no other with it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.tensor import state
from kernelrt.tensor.base import assign_all


def table():
    return krt.tensor([1.0, 2.0, 3.0]).realize()


def beyond():
    """A value that cannot be computed."""
    return table()[krt.tensor([1, 7, 0])]


READS = {
    "the sound one": lambda a, _: a.numpy(),
    "the failing one": lambda _, b: b.numpy(),
    "everything": lambda *_: krt.realize(),
    "both": krt.realize,
    "a value of both": lambda a, b: (a + b).numpy(),
    "a jitted function": lambda a, b: krt.jit(lambda: a + b)(),
    "another assignment": lambda a, b: a.assign(a + b - b),
    "a plan": lambda a, b: krt.prepare(a + b),
}


@pytest.mark.parametrize("first", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("read", READS)
def test_what_was_assigned_beside_a_failure_is_there(read, first):
    a, b = krt.zeros(3).realize(), krt.ones(3).realize()
    if first:
        a.assign(a + 2)
    b.assign(beyond())
    if not first:
        a.assign(a + 2)
    with pytest.raises(krt.IndexBoundsError, match="index 7 is out of range"):
        READS[read](a, b)
    assert not state.pending
    assert a.tolist() == [2, 2, 2]
    assert b.tolist() == [1, 1, 1]
    a.assign(a + 1)
    assert a.tolist() == [3, 3, 3]


def test_a_failing_value_leaves_assignments_alone():
    count = krt.zeros(1).realize()
    for index in (0, 7, 1):
        count.assign(count + 1)
        wanted = table()[krt.tensor([index])]
        if index == 7:
            with pytest.raises(krt.IndexBoundsError):
                krt.realize(wanted)
        else:
            krt.realize(wanted)
    assert count.tolist() == [3]


def test_what_another_thread_assigned_stays():
    theirs, mine = krt.zeros(2).realize(), krt.zeros(3).realize()

    def assign():
        theirs.assign(theirs + 5)

    thread = threading.Thread(target=assign)
    thread.start()
    thread.join()
    mine.assign(beyond())
    with pytest.raises(krt.IndexBoundsError):
        mine.numpy()
    assert theirs.tolist() == [5, 5]


@pytest.mark.parametrize("kind", [nn.optim.SGD, nn.optim.Adam])
def test_the_step_of_an_optimizer_is_done_or_not(kind):
    """Some parameters do not depend on the index that fails; they stay with the others."""
    a, b = krt.zeros(3, requires_grad=True), krt.ones(3, requires_grad=True)
    krt.realize(a, b)
    opt, count = kind([a, b], lr=0.5), krt.zeros(1).realize()
    before = {name: t.numpy().copy() for name, t in nn.state_dict(opt).items()}
    a.grad, b.grad = krt.ones(3), beyond()
    count.assign(count + 1)
    with pytest.raises(krt.IndexBoundsError):
        opt.step()
    assert a.tolist() == [0, 0, 0]
    assert b.tolist() == [1, 1, 1]
    assert count.tolist() == [1]
    after = nn.state_dict(opt)
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name].numpy(), value)
    b.grad = krt.ones(3)
    opt.step()
    assert (a.numpy() < 0).all()


def test_what_was_assigned_in_one_step_is_one_piece():
    a, b, c = (krt.zeros(3).realize() for _ in range(3))
    assign_all([(a, a + 1), (b, beyond())])
    c.assign(c + 1)
    with pytest.raises(krt.IndexBoundsError):
        krt.realize()
    assert [a.tolist(), b.tolist(), c.tolist()] == [[0] * 3, [0] * 3, [1] * 3]
    assign_all([(a, a + 1), (b, b + 2)])
    c.assign(beyond())
    with pytest.raises(krt.IndexBoundsError):
        krt.realize()
    assert [a.tolist(), b.tolist(), c.tolist()] == [[1] * 3, [2] * 3, [1] * 3]
    assert not state.units


def test_assignments_to_overlapping_memory_keep_their_order():
    memory = np.zeros(4, np.float32)
    left, right = krt.from_numpy(memory[:3]), krt.from_numpy(memory[1:])
    bad = krt.zeros(3).realize()
    left.assign(krt.full((3,), 1.0))
    bad.assign(beyond())
    right.assign(krt.full((3,), 2.0))
    with pytest.raises(krt.IndexBoundsError):
        krt.realize()
    assert memory.tolist() == [1, 2, 2, 2]


def test_a_lazy_value_that_cannot_be_computed_keeps_what_it_reads():
    """It would have to be computed before the memory changes; the error says that it cannot."""
    a = krt.tensor([1, 7, 0]).realize()
    lazy = table()[a]
    for _ in range(2):
        a.assign(a + 1)
        with pytest.raises(krt.IndexBoundsError, match="index 7"):
            krt.realize()
        assert a.tolist() == [1, 7, 0]
    del lazy
    a.assign(a + 1)
    assert a.tolist() == [2, 8, 1]


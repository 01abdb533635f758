"""One assignment that fails takes no other with it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.tensor import state
from kernelrt.tensor.eager import realize
from kernelrt.tensor.eager.assign import assign_all


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


def four(count=1):
    made = [krt.tensor(np.arange(4.0)) for _ in range(count)]
    return made[0] if count == 1 else made


FOUR = [0, 1, 2, 3]


@pytest.mark.parametrize("read", ["another", "the lazy one", "everything", "the written one"])
def test_a_failing_lazy_value_stands_in_the_way_of_what_it_reads_alone(read):
    t, o, p = four(3)
    o.assign(o * 2)
    lazy = t[krt.tensor([7])]
    p.assign(p + 1)
    t.assign(t * 2)
    with pytest.raises(krt.IndexBoundsError, match="index 7"):
        {
            "another": p.numpy, "the lazy one": lazy.numpy, "everything": krt.realize,
            "the written one": t.numpy,
        }[read]()  # fmt: skip
    assert not state.pending
    assert [o.tolist(), p.tolist(), t.tolist()] == [[0, 2, 4, 6], [1, 2, 3, 4], FOUR]


def test_a_failing_lazy_value_stands_in_the_way_of_elements_it_reads_alone():
    t, o = four(2)
    lazy = o[krt.tensor([7])]
    t[0] = 5.0
    o[0] = 7.0
    with pytest.raises(krt.IndexBoundsError):
        t.numpy()
    assert [t.tolist(), o.tolist()] == [[5, 1, 2, 3], FOUR]
    del lazy


def test_several_failing_lazy_values_beside_sound_ones():
    kept = four(6)
    lazy = [t[krt.tensor([i])] for t, i in zip(kept, (1, 7, 2, 9, 3, 0), strict=True)]
    for t in kept:
        t.assign(t + 1)
    with pytest.raises(krt.IndexBoundsError):
        krt.realize()
    assert not state.pending
    assert [t.tolist()[0] for t in kept] == [1, 0, 1, 0, 1, 1]
    assert [lazy[i].item() for i in (0, 2, 4, 5)] == [1, 2, 3, 0]


def test_one_step_is_one_piece_where_a_lazy_value_reads_a_part_of_it():
    a, b, c = four(3)
    lazy = a[krt.tensor([7])]
    assign_all([(a, a + 1), (b, b + 1)])
    c.assign(c + 1)
    with pytest.raises(krt.IndexBoundsError):
        krt.realize()
    assert [a.tolist(), b.tolist(), c.tolist()] == [FOUR, FOUR, [1, 2, 3, 4]]
    del lazy


def test_what_is_carried_out_reads_what_was_there_when_it_was_assigned():
    t, o, p, u = four(4)
    lazy = u[krt.tensor([7])]
    u.assign(o * 10)  # given up, and reads what is written
    o.assign(t + 1)
    t.assign(t * 2)
    p.assign(p * 3)
    with pytest.raises(krt.IndexBoundsError):
        p.numpy()
    assert [t.tolist(), o.tolist()] == [[0, 2, 4, 6], [1, 2, 3, 4]]
    assert [p.tolist(), u.tolist()] == [[0, 3, 6, 9], FOUR]
    del lazy


def test_a_value_that_reads_what_cannot_be_written_is_not_assigned():
    t, o, p = four(3)
    lazy = t[krt.tensor([7])]
    p.assign(p + 1)
    t.assign(t * 2)
    with pytest.raises(krt.IndexBoundsError):
        o.assign(t + 1)
    assert [t.tolist(), o.tolist(), p.tolist()] == [FOUR, FOUR, [1, 2, 3, 4]]
    o.assign(t + 1)
    assert o.tolist() == [1, 2, 3, 4]
    del lazy


def test_gradients_beside_a_failing_lazy_value_know_what_changed():
    t, o = four(2)
    w = krt.ones(4, requires_grad=True).realize()
    lazy, sound = t[krt.tensor([7])], w * o
    t.assign(t * 2)
    o.assign(o * 2)
    with pytest.raises(krt.IndexBoundsError):
        krt.realize()
    assert [o.tolist(), sound.tolist()] == [[0, 2, 4, 6], FOUR]
    with pytest.raises(krt.GradientError, match="assigned since"):
        sound.sum().backward()
    del lazy


def test_what_has_to_wait_keeps_the_others_waiting(monkeypatch):
    """One that stays to be done reads memory that another one writes."""
    t, o, bad = four(3)
    bad.assign(bad[krt.tensor([7, 0, 1, 2])])
    o.assign(t + 1)
    t.assign(t * 2)
    compute, value = realize.evaluate, o._uop
    left = [1]

    def warns(targets, commits, readers, *more):
        if left[0] and not commits and [t._uop for t in targets] == [value]:
            left[0] -= 1
            raise RuntimeWarning("of something beside")
        return compute(targets, commits, readers, *more)

    monkeypatch.setattr(realize, "evaluate", warns)
    with pytest.raises(krt.IndexBoundsError):
        krt.realize()
    assert [t.tolist(), o.tolist(), bad.tolist()] == [[0, 2, 4, 6], [1, 2, 3, 4], FOUR]
    assert not left[0]

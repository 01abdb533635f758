"""Memory that is shared with NumPy or torch is read where the program says so."""

from __future__ import annotations

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt

torch = Package("torch")

OPERATIONS = {
    "clone": lambda x: x.clone(),
    "tensor": krt.tensor,
    "add": lambda x: x + 1,
    "twice": lambda x: x * x,
    "row": lambda x: x[1] * 2,
    "rows": lambda x: x[1:] + 0,
    "column": lambda x: x[:, 1] * 2,
    "turned": lambda x: x.T * 2,
    "turned and flat": lambda x: x.T.reshape(-1) * 1,
    "element": lambda x: x[krt.tensor(1), 0] + 1,
    "gather": lambda x: x[[1, 0]],
    "sum": lambda x: x.sum(),
    "product": lambda x: x @ x.T,
    "stack": lambda x: krt.stack([x, x]),
    "cat": lambda x: krt.cat([x[:1], x]),
    "where": lambda x: krt.where(x > 1, x, -x),
    "diagonal": lambda x: x.diagonal() * 1,
    "cast": lambda x: x.double(),
    "scan": lambda x: krt.scan(lambda c, r: (c + r, c * 2), x[0], x)[1],
    "assigned": lambda x: krt.zeros(2, 3).assign(x),
    "copied": lambda x: krt.zeros(2, 3).realize().copy_(x),
    "put": lambda x: put(krt.zeros(4, 3), x),
    "put where stored": lambda x: put(krt.zeros(4, 3).realize(), x),
    "vmap": krt.func.vmap(lambda row: row * 2),
    "vmap around": lambda x: krt.func.vmap(lambda row: row + x[0])(krt.zeros(2, 3)),
    "scan around": lambda x: krt.scan(lambda c, r: (c + x, r), krt.zeros(2, 3), krt.arange(2))[0],
    "fori_loop": lambda x: krt.fori_loop(0, 2, lambda i, c: c + x, krt.zeros(2, 3)),
    "while_loop": lambda x: krt.while_loop(lambda c: c.sum() < 9, lambda c: c + x, x),
    "cond": lambda x: krt.cond(krt.tensor(True), lambda: x * 2, lambda: x),
    "switch": lambda x: krt.switch(krt.tensor(1), [lambda y: y, lambda y: x + y], x),
}  # fmt: skip
START = np.arange(6, dtype=np.float32).reshape(2, 3)


def put(target, x):
    target[1:3] = x
    return target


def shares():
    """The ways to share memory: a tensor, and the array that others write to."""
    array = START.copy()
    yield "from_numpy", krt.from_numpy(array), array
    array = START.copy()
    yield "asarray", krt.asarray(array, copy=False), array
    array = START.T.copy()
    yield "transposed", krt.from_numpy(array.T), array.T
    array = np.zeros((4, 3), np.float32)
    array[1:3] = START
    yield "part", krt.from_numpy(array[1:3]), array
    own = krt.tensor(START).realize()
    yield "exported", own, np.from_dlpack(own)
    taken = krt.from_numpy(START.copy())
    yield "taken and exported", taken, np.from_dlpack(taken)


@pytest.mark.parametrize("name", OPERATIONS)
def test_results_are_of_what_the_memory_held_at_the_call(name):
    wanted = OPERATIONS[name](krt.tensor(START)).numpy()
    for way, x, array in shares():
        made = OPERATIONS[name](x)
        array[...] = 100
        np.testing.assert_array_equal(made.numpy(), wanted, err_msg=way)
        assert x.tolist() == np.full((2, 3), 100).tolist()


def test_what_waits_is_computed_before_memory_is_handed_out():
    w = krt.ones(2, 2).realize()
    turned, late = w.T, w * 3
    memory = np.from_dlpack(w)
    memory[0, 1] = 7
    assert late.tolist() == [[3, 3], [3, 3]]
    assert turned.tolist() == [[1, 1], [7, 1]]
    memory[0, 1] = 8
    assert turned.tolist() == [[1, 1], [8, 1]]
    assert (w * 1).tolist() == [[1, 8], [1, 1]]


def test_a_buffer_that_is_filled_again_and_again():
    memory, sums = np.zeros(3, np.float32), []
    x = krt.from_numpy(memory)
    for i in range(4):
        memory[:] = i
        sums.append((x * x).sum())
        sums.append(x.clone()[1])
    assert [s.item() for s in sums] == [0, 0, 3, 1, 12, 2, 27, 3]


def test_a_tensor_of_torch():
    theirs = torch.ones(3)
    x = krt.from_dlpack(theirs)
    made = x * 2
    theirs.fill_(5)
    assert made.tolist() == [2, 2, 2]
    assert (x * 2).tolist() == [10, 10, 10]


def test_gradients_are_of_what_the_memory_held():
    memory = np.array([1.0, 2.0], np.float32)
    w = krt.from_numpy(memory).requires_grad_()
    loss = (w * w).sum()
    memory[:] = 50
    loss.backward()
    assert w.grad.tolist() == [2, 4]
    assert loss.item() == 5
    assert w.is_leaf


def test_gradients_of_a_value_that_was_handed_out():
    w = krt.tensor([1.0, 2.0], requires_grad=True)
    y = (w * 3).realize()
    memory = np.from_dlpack(y.detach())
    memory[0] = 5
    loss = (y * y).sum()
    memory[:] = 50
    loss.backward()
    assert w.grad.tolist() == [30, 36]
    assert loss.item() == 61
    assert y.tolist() == [50, 50]


def test_assignments_are_seen_outside_at_once():
    memory = np.zeros((2, 2), np.float32)
    x = krt.from_numpy(memory)
    for change, wanted in (
        (lambda: x.add_(1), [[1, 1], [1, 1]]), (lambda: x.T[0].add_(1), [[2, 1], [2, 1]]),
        (lambda: x.__setitem__(x > 1, 7), [[7, 1], [7, 1]]), (x.zero_, [[0, 0], [0, 0]]),
    ):  # fmt: skip
        change()
        assert memory.tolist() == wanted


def test_a_lazy_root_is_handed_out_with_its_view():
    for make in (lambda: krt.ones(4), lambda: krt.ones(4).realize()):
        x = make() + 1
        view = x[1:3]
        assert view.data_ptr() == x.data_ptr() + 4
        y = make() + 1
        memory = np.from_dlpack(y[1:3])
        memory[0] = 9
        assert y.tolist() == [2, 9, 2, 2]


def test_a_plan_and_a_jitted_function_read_the_memory_itself():
    memory = np.zeros(3, np.float32)
    x = krt.from_numpy(memory)
    y = x + 1
    plan = krt.prepare(y[1:] * 2)
    f = krt.jit(lambda: x * 2)
    for i in range(3):
        memory[:] = i
        plan.execute()
        assert plan.output_buffers[0].numpy().tolist() == [2 * i + 2] * 2
        assert f().tolist() == [2 * i] * 3
    assert y.tolist() == [1, 1, 1]


def test_writes_of_both_sides_meet():
    memory = np.zeros((2, 2), np.float32)
    x = krt.from_numpy(memory)
    x[0] += 1
    krt.realize(x)
    memory[1] = 5
    x[1] *= 2
    assert x.tolist() == [[1, 1], [10, 10]]
    assert memory.tolist() == [[1, 1], [10, 10]]


def test_a_part_is_written_and_no_other_element():
    """The others have what is written there meanwhile."""
    for put in (
        lambda x: x.__setitem__(0, 1), lambda x: x.__setitem__((slice(None), 0), 1),
        lambda x: x.T[0].fill_(1), lambda x: x.__setitem__([0, 1], x[[0, 1]] + 1),
        lambda x: x.diagonal().add_(1), lambda x: x[:, :1].expand(3, 1).add_(1),
        lambda x: x.as_strided((2, 2), (1, 4)).add_(1), lambda x: x.add_(1),
        lambda x: x.copy_(x.T + 1), lambda x: x.T.fill_(1),
    ):  # fmt: skip
        memory, wanted = np.zeros((2, 3, 3), np.float32)
        x = krt.from_numpy(memory)
        put(x)
        put(torch.from_numpy(wanted))
        memory[2, 2] = wanted[2, 2] = 9
        krt.realize()
        np.testing.assert_array_equal(memory, wanted)
        assert x.tolist() == wanted.tolist()


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("step", [-3, -2, -1, 2, 3])
def test_slices_with_steps_are_written_in_memory_of_any_length(size, step):
    for start in (0, 3):  # the memory as a whole, and a part of it
        memory = np.arange(float(start + size))
        wanted = memory.copy()
        part = krt.from_numpy(memory)[start:]
        part[::step] = -1
        wanted[start:][::step] = -1
        assert (part.tolist(), memory.tolist()) == (wanted[start:].tolist(), wanted.tolist())


def test_views_that_were_read_see_what_is_written_later():
    memory = np.zeros((2, 2), np.float32)
    x = krt.from_numpy(memory)
    turned, diagonal, strided = x.T, x.diagonal(), x.as_strided((2,), (2,), 1)
    own = krt.ones(2, 2).realize()
    mine = own.T
    f = krt.jit(lambda v: v * 1)
    for _ in range(2):
        assert turned.tolist() == f(turned).tolist() == memory.T.tolist()
        assert diagonal.tolist() == memory.diagonal().tolist()
        assert strided.tolist() == memory[:, 1].tolist()
        assert mine.tolist() == f(mine).tolist()
        memory[:] += [[1, 9], [5, 7]]
    lent = np.from_dlpack(own)
    for _ in range(2):
        lent[0, 1] += 7
        assert mine.tolist() == f(mine).tolist() == lent.T.tolist()


def test_what_nobody_else_can_write_is_not_copied():
    for make in (START.copy, lambda: np.frombuffer(START.tobytes(), np.float32)):
        x = krt.from_numpy(make())
        assert (x * 2).tolist() == (START.reshape(x.shape) * 2).tolist()
        assert not hasattr(x, "_taken")
    array = START.copy()
    x = krt.from_numpy(array)
    assert (x * 2).tolist() == (START * 2).tolist()
    known = x._taken
    assert (x * 3).tolist() == (START * 3).tolist()
    assert x._taken is known, "the same elements are not copied again"


def test_functions_of_shared_memory_are_differentiated_where_they_are_called():
    memory = np.array([1.0, 2.0, 3.0], np.float32)
    x = krt.from_numpy(memory)
    slope = krt.func.grad(lambda v: (v * v * v).sum())(x)
    leaf = x[1:].requires_grad_()
    loss = (leaf * leaf).sum()
    memory[:] = 9
    assert slope.tolist() == [3, 12, 27]
    assert loss.item() == 13


def test_gradients_are_added_to_memory_that_is_shared():
    w = krt.ones(3, requires_grad=True)
    memory = np.zeros(3, np.float32)
    w.grad = krt.from_numpy(memory)
    for turn in (1, 2):
        (w * 2).sum().backward()
        krt.realize(w.grad)
        assert memory.tolist() == [2 * turn] * 3


@pytest.mark.parametrize("name", ["cond", "switch"])
def test_what_a_branch_assigns_together_is_carried_out_together(name):
    """The branch draws a number for `w` and so moves the state of the generator."""
    shared = krt.from_numpy(np.zeros(4, np.float32))
    w = krt.tensor(np.ones(4, np.float32), requires_grad=True)

    def drawn(x):
        w.assign(w.detach() * 0 + krt.rand(()))
        return x * 1

    def other(x):
        return x * 2

    krt.manual_seed(0)
    want = [krt.rand(()).item() for _ in range(3)]
    krt.manual_seed(0)
    for number in want:
        if name == "cond":
            krt.cond(krt.tensor(True), drawn, other, shared[0])
        else:
            krt.switch(krt.tensor(0), [drawn, other], shared[0])
        assert w.tolist() == [number] * 4


STRIDED = {
    "every other": lambda x: x[::2], "of an axis": lambda x: x[:, ::2],
    "of columns": lambda x: x.T[::2], "of a part": lambda x: x[1:][::3],
    "of a row": lambda x: x[1][1::2],
}  # fmt: skip


@pytest.mark.parametrize("name", STRIDED)
def test_a_strided_view_shares_the_memory(name):
    memory = np.arange(30.0).reshape(5, 6)
    x, part = krt.from_numpy(memory), STRIDED[name]
    view = part(x)
    view.mul_(2)
    krt.realize(x)
    want = np.arange(30.0).reshape(5, 6)
    part(want)[...] *= 2
    np.testing.assert_array_equal(memory, want)
    memory += 10
    np.testing.assert_array_equal(view.numpy(), part(memory))
    x.add_(1)
    np.testing.assert_array_equal(view.numpy(), part(memory))


@pytest.mark.parametrize("index", [
    lambda: krt.tensor(np.array(3)), lambda: krt.tensor([3, 1])[0], lambda: krt.tensor(2) + 1,
])  # fmt: skip
def test_a_value_made_of_a_view_keeps_its_place_where_the_index_changes(index):
    a = np.arange(10.0).reshape(5, 2)
    x, s = krt.from_numpy(a), index()
    v = x[s]
    y = v * 2
    s.zero_()
    assert v.tolist() == [6, 7]
    assert y.tolist() == [12, 14]

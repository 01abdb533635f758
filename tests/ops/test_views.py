"""Views: a change in place reaches what they show, as in PyTorch."""

from __future__ import annotations

import contextlib
import functools
import gc
import operator
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from support import view_programs
from support.crowd import crowd
from support.skip_list import Package

import kernelrt as krt
from kernelrt.errors import GradientError, JitError, ShapeError

torch = Package("torch")

#: Changes of a tensor of shape (3, 4) by way of views of it.
CHANGES = [
    lambda k, x: x[0].copy_(k.ones(4)),
    lambda k, x: x[0].add_(1),
    lambda k, x: x[k.tensor(1)].add_(1),
    lambda k, x: x[:, k.tensor(1)].add_(1),
    lambda k, x: x[1][k.tensor(2)].add_(1),
    lambda k, x: x.view(-1).fill_(1),
    lambda k, x: x.T.zero_(),
    lambda k, x: x.T[0].add_(1),
    lambda k, x: x.mT.mul_(3),
    lambda k, x: x.t()[1].mul_(3),
    lambda k, x: x.swapaxes(0, 1)[1].mul_(3),
    lambda k, x: x.movedim(0, 1)[1:].mul_(3),
    lambda k, x: x.permute(1, 0)[2].mul_(3),
    lambda k, x: x.detach().mul_(2),
    lambda k, x: x.detach()[1].mul_(2),
    lambda k, x: x[0].__setitem__(1, 5),
    lambda k, x: x[::2].add_(1),
    lambda k, x: x[:, 1::2].add_(1),
    lambda k, x: x[1:, :2].clamp_(1),
    lambda k, x: x[..., -1].sub_(1),
    lambda k, x: x[None][0, 1].sub_(1),
    lambda k, x: x.reshape(2, 6)[0].sub_(1),
    lambda k, x: x[1:].reshape(-1).add_(1),
    lambda k, x: x.data[0].add_(1),
    lambda k, x: x[0].data.add_(1),
    lambda k, x: x.narrow(1, 1, 2).add_(1),
    lambda k, x: x.select(1, 2).add_(1),
    lambda k, x: x.unbind(1)[3].add_(1),
    lambda k, x: x.split(2)[0].add_(1),
    lambda k, x: x.chunk(2, 1)[1].add_(1),
    lambda k, x: x.tensor_split(2)[0].add_(1),
    lambda k, x: x.diagonal().fill_(7),
    lambda k, x: x.diagonal(1).mul_(2),
    lambda k, x: x.unfold(1, 2, 2).add_(1),
    lambda k, x: x.as_strided((2,), (5,), 1).add_(1),
    lambda k, x: x.contiguous().add_(1),
    lambda k, x: x[:2].contiguous().add_(1),
    lambda k, x: x.unsqueeze(0).squeeze(0).add_(1),
    lambda k, x: x.unflatten(1, (2, 2))[:, 0].add_(1),
    lambda k, x: x.flatten().add_(1),
    lambda k, x: x.ravel()[3:5].add_(1),
    lambda k, x: x.view_as(k.ones(4, 3))[1].add_(1),
    lambda k, x: x.expand(3, 4)[1].add_(1),
    lambda k, x: [row.add_(i) for i, row in enumerate(x)],
    lambda k, x: operator.iadd(x[1], 1),
    lambda k, x: operator.iadd(x.T[1:], 1),
    lambda k, x: x[1].masked_fill_(x[1] > 4, 0),
    lambda k, x: x[0].__setitem__(k.tensor([0, 2]), 9),
    lambda k, x: x[:2].__setitem__(x[:2] > 2, 0),
    lambda k, x: x.T.__setitem__((slice(None), 1), k.arange(4).float()),
    lambda k, x: x[0].sin_().mul_(2),
    lambda k, x: x[1].copy_(x[0] + 1),
    lambda k, x: x.unfold(1, 3, 1)[1, 0].add_(5),
    lambda k, x: x.unfold(0, 2, 1)[0, 1, 1].fill_(5),
    lambda k, x: x.view(-1).unfold(0, 4, 2)[1].mul_(3),
    lambda k, x: x.as_strided((3, 3), (1, 1))[0].add_(10),
    lambda k, x: x[:, :1].expand(3, 4)[:, 0].add_(1),
    lambda k, x: x[:1].expand(3, 4)[2].fill_(9),
]  # fmt: skip
#: Changes of what is no view.
COPIES = [
    lambda k, x: x[0].clone().add_(1),
    lambda k, x: (x[0] + 1).add_(1),
    lambda k, x: x[[0, 1]].add_(1),
    lambda k, x: x[x > 2].add_(1),
    lambda k, x: x[k.tensor([1])].add_(1),
    lambda k, x: x.T.reshape(-1).add_(1),
    lambda k, x: x[:, :2].reshape(-1).add_(1),
    lambda k, x: x.T.contiguous().add_(1),
    lambda k, x: x.T.flatten().add_(1),
    lambda k, x: x.flip(0).add_(1),
    lambda k, x: k.cat([x]).add_(1),
    lambda k, x: k.stack([x]).add_(1),
    lambda k, x: x[:1].sum(0).add_(1),
    lambda k, x: x.repeat(1, 1).add_(1),
    lambda k, x: x.repeat_interleave(1, 0).add_(1),
    lambda k, x: x.diff(n=0).add_(1),
    lambda k, x: k.linalg.matrix_power(x[:, :3], 1).add_(1),
    lambda k, x: k.nn.functional.pixel_shuffle(x[None, :, None], 1).add_(1),
    lambda k, x: k.nn.functional.channel_shuffle(x[None, :, None], 1).add_(1),
    lambda k, x: k.nn.functional.interpolate(x[None], scale_factor=1.0).add_(1),
    lambda k, x: x[:, 0].ravel().fill_(7),
]  # fmt: skip


def start(k):
    return k.arange(12).float().reshape(3, 4).clone()


def same(ours, theirs):
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)


@pytest.mark.cases(40)
@pytest.mark.parametrize("change", [*CHANGES, *COPIES], ids=range(len(CHANGES) + len(COPIES)))
def test_a_change_reaches_what_the_view_shows(change):
    """Of what is stored, what is not computed yet, what a trace makes, its state, and a carry."""
    wanted = start(torch)
    before = wanted[1:2].view(-1)
    change(torch, wanted)
    for stored in (False, True):
        x = start(krt)
        if stored:
            x.numpy()
        row, twice = x[1:2].view(-1), x * 2
        change(krt, x)
        same(x, wanted)
        same(row, before)
        same(twice, start(torch) * 2)
    state = start(krt).realize()

    @krt.jit
    def step(scale):
        made = start(krt) * scale
        change(krt, state)
        change(krt, made)
        return made, state * 1

    if change in (CHANGES[48], COPIES[3]):  # masks
        return
    made, after = step(1.0)
    for found in (made, after, state):
        same(found, wanted)

    def turn(carry, _):
        change(krt, carry)
        return carry, carry.sum()

    theirs = start(torch)
    for _ in range(3):
        change(torch, theirs)
    same(krt.scan(turn, start(krt), krt.arange(3))[0], theirs)


@pytest.mark.cases(60)
@pytest.mark.parametrize("seed", range(600))
def test_random_programs(seed):
    assert torch.tensor
    with contextlib.suppress(view_programs.Refused):
        view_programs.check(view_programs.generate(np.random.default_rng(seed)))


def test_programs_see_a_write_that_is_lost(monkeypatch):
    assert torch.tensor
    case = {"lines": ["t0 = given((3, 4), 1)", "t1 = t0[1]", "t1.add_(1)"], "way": "eager"}
    view_programs.check(case)
    monkeypatch.setattr(krt.Tensor, "add_", lambda self, other: self)
    with pytest.raises(AssertionError, match="array 0"):
        view_programs.check(case)


# ---- without torch


def test_a_view_follows_its_root_and_the_other_way_round():
    x = krt.zeros(3, 4)
    row, column, one = x[1], x[:, 2], x[1, 2]
    row += 1
    assert (row.tolist(), column.tolist(), one.item()) == ([1] * 4, [0, 1, 0], 1)
    column.mul_(5)
    assert (row.tolist(), one.item()) == ([1, 1, 5, 1], 5)
    x.assign(krt.ones(3, 4) * 2)
    assert (row.tolist(), column.tolist(), one.item()) == ([2] * 4, [2] * 3, 2)
    one.zero_()
    assert x.sum().item() == 22


def test_a_view_outlives_the_name_of_its_root():
    x = krt.zeros(3, 2)
    row, both = x[0], x[:2]
    del x
    row.add_(1)
    assert both.tolist() == [[1, 1], [0, 0]]


def test_a_view_of_an_index_tensor_stays_where_it_is():
    x, i = krt.zeros(3), krt.tensor(1)
    one = x[i]
    i.add_(1)
    one.add_(5)
    assert x.tolist() == [0, 5, 0]


@pytest.mark.parametrize("make", [
    lambda: krt.tensor(0), lambda: np.array(0), lambda: (krt.tensor(0), slice(None)),
])  # fmt: skip
def test_an_index_that_has_changed_names_another_row(make):
    x = krt.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    index = make()
    row = x[index]
    changing = index[0] if isinstance(index, tuple) else index
    changing += 1
    assert row.tolist() == [0, 1]
    x[index] = row
    assert x.tolist() == [[0, 1], [0, 1], [4, 5]]


@pytest.mark.parametrize("turns", range(40, 60))
def test_an_index_made_of_many_lazy_operations(turns):
    """Some of these indices are one operation below ``MOST_DEPTH``, where values are computed."""
    x, index = krt.zeros(3).realize(), krt.tensor(0)
    for _ in range(turns):
        index = (index + 1).clamp(0, 0)
    view = x[index]
    view += 1
    assert x.tolist() == [1, 0, 0]


def test_a_view_that_retains_its_gradient_does_so_when_its_root_changes():
    w = krt.ones(2, 2, requires_grad=True)
    y = w * 2
    row = y[0]
    row.retain_grad()
    y[1].mul_(3)
    (row**2).sum().backward()
    assert row.grad.tolist() == [4, 4]


@pytest.mark.parametrize("stored", [False, True])
def test_threads_write_to_parts_at_once(stored):
    x = krt.zeros(8, 2)
    if stored:
        x.realize()
    columns, ready = [x[:, 0], x[:, 1], x[3]], threading.Barrier(3)

    def write(view):
        ready.wait()
        for _ in range(20):
            view.add_(1)

    threads = [threading.Thread(target=write, args=(c,)) for c in columns[:2]]
    for thread in threads:
        thread.start()
    ready.wait()
    for thread in threads:
        thread.join()
    assert x.tolist() == [[20, 20]] * 8


def test_an_expanded_view_is_not_assigned_to():
    x = krt.zeros(3, 1)
    wide = x.expand(3, 4)
    for write in (lambda x: x.add_(1), lambda x: x.__setitem__(0, 1), lambda x: x[0].zero_()):
        with pytest.raises(ShapeError, match=r"expanded view.*clone\(\)"):
            write(wide)
    assert not x.numpy().any()
    x.expand(3, 1).add_(1)
    assert x.sum().item() == 3


def test_gradients():
    """Leaves refuse, results take part, no_grad writes values."""
    w = krt.ones(3, requires_grad=True)
    for write in (lambda: w[0].add_(1), lambda: w[1:].mul_(w[:2])):
        with pytest.raises(GradientError):
            write()
    with krt.no_grad():
        w[0].add_(1)
        w[1:].view(-1).mul_(3)
    assert w.tolist() == [2, 3, 3]
    for stored in (False, True):
        y = w * 2
        if stored:
            y.tolist()
        y[0].mul_(10)
        y[1:].zero_()
        w.grad = None
        (y * y).sum().backward()
        assert w.grad.tolist() == [2 * 20 * 20 * 2, 0, 0]
    y = w * 2
    with pytest.raises(GradientError, match=r"write to y\.detach"):
        y.detach()[0].zero_()
    assert y.requires_grad
    w.detach().fill_(1)
    assert w.tolist() == [1, 1, 1]
    assert w.requires_grad


def test_arguments_of_a_jitted_function_are_not_assigned_to():
    @krt.jit
    def f(x):
        x[0].add_(1)
        return x * 2

    with pytest.raises(JitError, match="argument"):
        f(krt.zeros(3, 4))


@pytest.mark.parametrize("view", [
    lambda x: x[1], lambda x: x.T, lambda x: x.reshape(-1), lambda x: x[:, ::2], lambda x: x[1:],
])  # fmt: skip
def test_views_as_arguments_are_what_they_are_at_the_call(view):
    f = krt.jit(lambda v: v * 2)
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = krt.tensor(values)
    shown = view(x)
    for _ in range(4):
        np.testing.assert_array_equal(f(shown).numpy(), 2 * view(values))
        x.add_(1)
        values = values + 1


def test_one_plan_serves_all_rows():
    f = krt.jit(lambda row, total: total + row)
    x = krt.tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    total = krt.zeros(4)
    for row in x:
        total = f(row, total)
    assert total.tolist() == [12, 15, 18, 21]
    assert f.retraces == 0


def test_a_step_that_changes_the_root_is_seen_by_views():
    x = krt.zeros(3, 4).realize()
    row, turned = x[1], x.T
    assert row.tolist() == [0] * 4
    assert turned.sum().item() == 0
    step = krt.jit(lambda: x.assign(x + 1))
    for turn in (1, 2):
        step()
        assert row.tolist() == [turn] * 4
        assert turned.tolist() == [[turn] * 3] * 4


def test_views_are_copied_as_values():
    x = krt.zeros(3, 4)
    other = pickle.loads(pickle.dumps(x[1]))  # noqa: S301
    other.add_(1)
    leaf = x[2].requires_grad_()
    with krt.no_grad():
        leaf.add_(1)
    assert not x.numpy().any()
    assert leaf.tolist() == [1] * 4


def test_roots_are_freed_with_their_views():
    x = krt.zeros(100, 100)
    known = weakref.ref(x)
    row = x[3]
    del x
    assert known() is not None
    row.add_(1)
    krt.realize()  # what is assigned is kept until it is written
    del row
    gc.collect()
    assert known() is None


def test_a_chain_of_views_is_one_step_from_its_root():
    x = y = krt.zeros(6)
    for _ in range(300):
        y = y.reshape(2, 3).reshape(-1)
    y.add_(1)
    assert x.tolist() == [1] * 6
    assert y._link.root is x


def test_out_of_memory_shared_with_numpy():
    values = np.zeros((2, 3), np.float32)
    x = krt.from_numpy(values.T)
    x[1].add_(5)
    krt.realize(x)
    assert values.tolist() == [[0, 5, 0], [0, 5, 0]]


STRIDED = {
    "column": lambda x: x[:, 1], "columns": lambda x: x[:, 1:3], "of an axis": lambda x: x[1, :, 2],
    "transposed": lambda x: x.transpose(0, 2)[1:, 2], "last": lambda x: x[..., -1],
    "permuted": lambda x: x.permute(2, 0, 1)[3], "diagonal": lambda x: x[0].diagonal(),
    "reshaped": lambda x: x.reshape(12, 5)[:, 4], "every other": lambda x: x[:, ::2, 1],
    "none": lambda x: x[:, 4:], "all of them": lambda x: x.transpose(0, 1),
}  # fmt: skip


@pytest.mark.parametrize("value", ["number", "data", "lazy", "broadcast", "own", "shared"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "float16", "bool"])
@pytest.mark.parametrize("name", STRIDED)
def test_parts_that_are_no_run_of_memory_are_written(name, dtype, value):
    """Of the root nothing else is written, and what reads it lazily has the value of before."""
    start = (np.arange(60).reshape(3, 4, 5) % 7).astype(dtype)
    x, want = krt.tensor(start).realize(), torch.tensor(start)
    before, copy = x * 1, x.clone()
    shape = STRIDED[name](want).shape
    data = (np.arange(np.prod(shape)).reshape(shape) % 3 + 1).astype(dtype)
    made = {
        "number": lambda k, _: np.array(2, dtype).item(),
        "data": lambda k, _: k.tensor(data),
        "lazy": lambda k, _: k.tensor(data) * k.tensor(data),
        "broadcast": lambda k, _: k.tensor(data[..., :1].reshape(-1)[:1]) if data.size else 1,
        "own": lambda k, x: STRIDED[name](x).flip(0),
        "shared": lambda k, _: (krt.from_numpy if k is krt else torch.from_numpy)(data),
    }[value]  # fmt: skip
    for k, target in ((krt, x), (torch, want)):
        STRIDED[name](target)[...] = made(k, target)
    np.testing.assert_array_equal(x.numpy(), want.numpy())
    np.testing.assert_array_equal(before.numpy(), start)
    np.testing.assert_array_equal(copy.numpy(), start)


def test_threads_that_write_different_rows_of_one_tensor():
    """A view whose root is computed while it follows the root shows no copy."""
    rows = 4
    wrong: list[object] = []

    def change(table, i):
        row, want = table[i], 0
        for k in range(40):
            table[i : i + 1].sub_(1.0)
            want -= 1
            if k % 5 == 0:
                found = row.numpy() if k % 2 else table[i].numpy()
                if found.tolist() != [want] * 5:
                    wrong.append((i, k, found, want))

    for _ in range(8):
        table = krt.zeros(rows, 5)
        crowd(*[functools.partial(change, table, i) for i in range(rows)], seconds=1e-5)
        assert not wrong, wrong[:3]
        assert (table.numpy() == -40).all()


def test_a_thread_reads_what_another_one_computes_before_it_writes():
    """The writer frees a gather while the reader infers its shape; in a child, as it crashed."""
    text = """
        import time
        import numpy as np
        import kernelrt as krt
        from support.crowd import crowd

        x, index, end = krt.zeros(512).realize(), np.arange(1, 512, 2), time.monotonic() + 1.5

        def write():
            while time.monotonic() < end:
                x[5] = 2.0

        def read():
            while time.monotonic() < end:
                x[index].numpy()

        crowd(write, read)
    """
    program = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(text)]
    tests = str(Path(view_programs.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, *filter(None, sys.path)])}
    assert subprocess.run(program, check=False, env=environment).returncode == 0


@pytest.mark.parametrize("parts", [
    lambda i, j: ((slice(None), i), (j,)), lambda i, j: ((j,), (slice(None), i)),
    lambda i, j: ((slice(None), i), (slice(None, None, -1), j)),
    lambda i, j: ((i, slice(None, None, 2)), (i, slice(1, 3))),
])  # fmt: skip
def test_parts_that_cross_are_read_before_they_are_written(parts):
    for i, j in np.ndindex(4, 4):
        data = np.arange(16, dtype=np.float32).reshape(4, 4)
        x = krt.tensor(data)
        there, source = parts(i, j)
        x[there] = x[source]
        data[there] = data[source].copy()
        np.testing.assert_array_equal(x.numpy(), data)


@pytest.mark.parametrize("dtype", [krt.float32, krt.float64, krt.int8, krt.bool_])
@pytest.mark.parametrize("change", [
    lambda x: x.assign((1 - x.cast(krt.int64)).cast(x.dtype)),
    lambda x: x.__setitem__((1, slice(None)), 0),
    lambda x: x[:, 1:].copy_(x[:, :-1].clone()), lambda x: x.numpy(), lambda x: None,
])  # fmt: skip
@pytest.mark.parametrize("view", [
    lambda x: x.permute(1, 0), lambda x: x[:, 1], lambda x: x[::2, 1:], lambda x: x.diagonal(),
    lambda x: x.expand(2, 3, 4), lambda x: x.unfold(1, 2, 1), lambda x: x[2], lambda x: x[1, 3],
    lambda x: x[3:].permute(1, 0), lambda x: x.T[1:3].reshape(2, 3), lambda x: x[krt.tensor(1)],
])  # fmt: skip
def test_a_view_is_read_from_memory_as_it_is_now(view, change, dtype):
    x = krt.tensor(np.arange(12).reshape(3, 4) % 2 == 1).cast(dtype).realize()
    shown = view(x)
    shown.numpy()
    change(x)
    expected = view(x.clone()).clone().numpy()
    np.testing.assert_array_equal(shown.numpy(), expected, strict=True)


def test_a_view_of_a_temporary_tensor_is_read_twice():
    x = krt.tensor(np.arange(6.0))
    shown = (x * 2).reshape(2, 3)
    first = shown.numpy()
    x += 1
    np.testing.assert_array_equal(first, shown.numpy())
    shown[0] = 9.0
    np.testing.assert_array_equal(shown.numpy(), [[9, 9, 9], [6, 8, 10]])


BITS = [
    "x = K.arange(6.).reshape(2, 3); v = x.view(K.int32); v[0] = 7",
    "x = K.arange(6.).reshape(2, 3); v = x.view(K.int32); v[0, 1] = 7; v += 1",
    "x = K.arange(6.); v = x.view(K.int32); v.fill_(3)",
    "x = K.arange(6.); v = x.view(K.int32); v.zero_(); x[1] = 2.0",
    "x = K.arange(6.); v = x.view(K.int8); v[3] = 0; v[7] = 64",
    "x = K.arange(6.); v = x.view(K.int64); v[1] = 5",
    "x = K.ones(3, 4); v = x[1:].view(K.int32)[:, 2]; v.copy_(K.tensor([5, 6]))",
    "x = K.ones(3, 4); v = x.T.view(K.int32); v[1] = 5",
    "x = K.ones(3, 4); v = x.view(K.int16).view(2, 12)[1].view(K.float32); v[1] = 5.5",
    "x = K.ones(3, 4); v = x.view(K.int16).reshape(-1)[3::2]; v.zero_()",
    "x = K.ones(4).bfloat16(); v = x.view(K.int16); v[1] = 17000; x = x.float()",
    "x = K.zeros(3); v = x.view(K.int32); v[K.tensor([0, 2])] = 3",
    "x = K.ones(3); v = x.view(K.int32); v[v > 0] = 3",
    "x = K.ones(3); v = x.view(K.int32).clone(); v[0] = 3",
    "x = K.ones(3); v = x.view(K.float32); v[0] = 3",
    "x = K.tensor(1.0); v = x.view(K.int32); v.fill_(3)",
    "x = K.zeros(2, 2); v = x.view(dtype=K.uint8); v[1, 3] = 64; x.mul_(2)",
    "x = K.zeros(4); v = x.view(K.int32); x = v + 1; v[0] = 3",
    "x = K.arange(6.).requires_grad_(); v = x.view(K.int32); v[0] = 7; x = x.detach()",
    "x = K.ones(2, 4); v = x[:, ::2].view(K.int64)",
    "x = K.ones(2, 3); v = x[:, 1:].view(K.int64)",
    "x = K.ones(4); v = x.expand(3, 4).view(K.int32); v[0] = 1",
    "x = K.ones(4); v = x.unfold(0, 2, 1).view(K.int32); v[1] = 1",
]


@pytest.mark.cases(len(BITS))
@pytest.mark.parametrize("way", ["lazy", "stored", "jit"])
@pytest.mark.parametrize("lines", BITS)
def test_views_of_the_bits_share_memory_as_in_torch(lines, way):
    first, rest = lines.split("; ", 1)

    def run(k):
        names = {"K": k}
        exec(first, names)  # noqa: S102
        if k is krt and way == "stored":
            names["x"].realize()
        exec(rest, names)  # noqa: S102
        return names["x"], names["v"]

    try:
        wanted = run(torch)
    except RuntimeError:
        with pytest.raises(krt.ShapeError):
            run(krt)
        return
    found = krt.jit(lambda: run(krt))() if way == "jit" else run(krt)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
        assert a.numpy().dtype == b.numpy().dtype


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_a_write_to_a_view_of_bits_keeps_the_bits_of_the_others(narrow, jit):
    """Half of a float32 may be a signaling NaN of 16 bits, which loads make quiet."""
    every = np.arange(1 << 16, dtype=np.uint32)
    data = (every << 16 | every[::-1]).view(np.float32).reshape(256, 256)
    wanted = data.copy()
    wanted.view(np.uint16)[::3, 1::2] = 0

    def write(x):
        x = x.clone()
        x.view(getattr(krt, narrow))[::3, 1::2] = 0
        return x.view(krt.int32)

    found = (krt.jit(write) if jit else write)(krt.tensor(data))
    assert np.array_equal(found.numpy(), wanted.view(np.int32))


def test_halves_of_elements_of_windows_are_not_written():
    windows = krt.arange(4.0).unfold(0, 2, 1).view("int16")
    with pytest.raises(krt.ShapeError, match=r"through view\(int16\) to sliding windows"):
        windows[0] = 3

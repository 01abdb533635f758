"""Joining many tensors: by several kernels that write one buffer, within a bounded time."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.schedule.fuse import fusion

RNG = np.random.default_rng(5)


@pytest.fixture(params=[1, 2, 3])
def few(request, monkeypatch):
    """So few operands of a kernel that small graphs have several."""
    monkeypatch.setattr(fusion, "MOST_PARTS", request.param)


def rolled(t):
    return krt.cat([t[i : i + 1] for i in (*range(2, 7), 0, 1)])


PROGRAMS = {
    "data": lambda a, b: krt.cat([a, b, a, b * 2, a]),
    "axis": lambda a, b: krt.cat([a, b, a, b, a, b], 1),
    "stack": lambda a, b: krt.stack([a, b, a + b, a - b, a], 1),
    "read": lambda a, b: krt.cat([a, b, a, b, a]).square().sum(0) + a,
    "computed": lambda a, b: krt.cat([(a @ b.permute(1, 0)).softmax(1), (b @ b.permute(1, 0)),
                                      a @ a.permute(1, 0)], 1),
    "sums": lambda a, b: krt.cat([a.sum(0), b.sum(0), a.sum(1), b[:, 0], a[0]]),
    "empty": lambda a, b: krt.cat([a[:0], a[:0], a, b[:0], b, a[:0]]),
    "nothing": lambda a, b: krt.cat([a[:0], b[:0], a[:0], b[:0]]),
    "nested": lambda a, b: krt.cat([krt.cat([a, b, a], 1), krt.cat([b, b, a], 1)] * 2),
    "split": lambda a, b: krt.cat([p * i for i, p in enumerate(krt.cat([a, b]).split(2))]),
    "indexed": lambda a, b: krt.cat([a[krt.tensor([0, 2])], b[krt.tensor([1])], a, b]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(few, name):
    torch = pytest.importorskip("torch")
    arrays = [RNG.standard_normal((7, 5)).astype(np.float32) for _ in range(2)]

    def by_torch():
        a, b = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in arrays)
        names = {"cat": torch.cat, "stack": torch.stack, "tensor": torch.tensor}
        program = PROGRAMS[name]
        kit = type("Kit", (), {k: staticmethod(v) for k, v in names.items()})
        code = type(program)(program.__code__, {**program.__globals__, "krt": kit})
        out = code(a, b)
        weights = torch.arange(out.numel(), dtype=torch.float64).reshape(out.shape) / 7
        if out.numel():
            (out * weights).sum().backward()
        zero = torch.zeros_like(a)
        return [out, *(zero if x.grad is None else x.grad for x in (a, b))]

    def step(a, b):
        out = PROGRAMS[name](a, b)
        weights = krt.arange(out.numel()).float().reshape(*out.shape) / 7
        return out, *krt.grad((out * weights).sum(), [a, b])

    wanted = [x.detach().numpy() for x in by_torch()]
    a, b = (krt.tensor(x, requires_grad=True) for x in arrays)
    for run in (step, krt.jit(lambda: step(a, b))):
        found = run(a, b) if run is step else run()
        for have, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(have.numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("jitted", [False, True])
def test_what_is_joined_may_be_where_it_goes(few, jitted):
    """Kernels that read the old value come before all that write the new one."""
    t, u = (krt.tensor(np.arange(7.0) + i).realize() for i in (0, 10))

    def turn():
        t.assign(rolled(t))

    def swap():
        t.assign(krt.cat([u[:3], t[3:5], u[5:6], t[6:]]))
        u.assign(krt.cat([u[4:], t[:3], u[3:4]]))

    first, second = np.arange(7.0), np.arange(7.0) + 10
    for _ in range(3):
        for act in (turn, swap):
            (krt.jit(act) if jitted else act)()
            if act is turn:
                first = np.roll(first, -2)
            else:
                first = np.concatenate([second[:3], first[3:5], second[5:6], first[6:]])
                second = np.concatenate([second[4:], first[:3], second[3:4]])
            np.testing.assert_array_equal(t.numpy(), first)
            np.testing.assert_array_equal(u.numpy(), second)


def test_open_sizes_and_threads(few):
    n = krt.Variable("n", 0, 9)

    @krt.jit
    def fixed(x):
        return krt.cat([x, x * 2, x[:1], x + 1, x[-1:]])

    run = krt.jit(lambda x: krt.cat([x, x * 2, krt.ones(2), x + 1, x]), dynamic={"x": {0: n}})
    for size in (0, 1, 5, 9):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(
            run(x).numpy(), np.concatenate([x, x * 2, np.ones(2), x + 1, x])
        )
    x = np.arange(300_000, dtype=np.float32)
    np.testing.assert_array_equal(
        fixed(x).numpy(), np.concatenate([x, x * 2, x[:1], x + 1, x[-1:]])
    )


def test_an_index_out_of_range_in_a_part_raises_and_commits_nothing(few):
    t = krt.tensor(np.arange(4.0)).realize()

    @krt.jit
    def step(i):
        t.assign(krt.cat([t[1:2] + 1, t[i], t[2:3], t[:1]]))

    step(np.array([3]))
    np.testing.assert_array_equal(t.numpy(), [2, 3, 2, 0])
    with pytest.raises(krt.IndexBoundsError):
        step(np.array([4]))
    np.testing.assert_array_equal(t.numpy(), [2, 3, 2, 0])


def test_the_time_for_a_part_does_not_grow_with_their_number():
    """Parts by number, one after the other; and a plan has as many kernels as that takes."""
    parts = [krt.tensor(np.full(3, i, np.float32)) for i in range(500)]
    plan = krt.prepare(krt.cat(parts))
    assert len(plan.kernels) == -(-500 // fusion.MOST_PARTS)
    plan.execute()
    np.testing.assert_array_equal(krt.cat(parts).numpy(), np.repeat(np.arange(500), 3))

"""Random movements of axes whose size is known at run time, against NumPy at several sizes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import kernelrt as krt
from kernelrt.errors import DTypeError, ShapeError

N = krt.Variable("n", 1, 17)
M = krt.Variable("m", 2, 9)
SIZES = [(1, 2), (2, 3), (3, 9), (4, 2), (8, 5), (16, 4), (17, 9)]
MOST = 60_000


class Step:
    """One operation, drawn for arrays of the shapes that `values` have at each size."""

    def __init__(self, rng: np.random.Generator, values: list[np.ndarray]) -> None:
        shapes = np.array([v.shape for v in values])
        self.least = shapes.min(0) if shapes.size else shapes.sum(0)
        self.fixed = (shapes == shapes[0]).all(0)
        rank = values[0].ndim
        kinds = ["pad", "cut", "merge", "split", "permute", "flip", "grow", "contiguous", "twice"]
        kinds += ["margin", "margin", "conv", "sum", "add_row", "cat", "tail"]
        kinds += ["pad", "merge", "contiguous"]
        self.kind = str(rng.choice(kinds))
        self.axis = int(rng.integers(rank))
        self.next = int(rng.integers(rank))
        self.order = tuple(int(a) for a in rng.permutation(rank))
        self.low, self.high = int(rng.integers(0, 3)), int(rng.integers(0, 3))
        self.start = int(rng.integers(0, self.least[self.axis]))
        self.stop = int(rng.integers(self.start, self.least[self.axis])) + 1
        divisors = [d for d in (1, 2, 3, 4, 5, 6) if self.least[self.axis] % d == 0]
        self.factor = int(rng.choice(divisors))
        self.taps = int(rng.integers(1, min(4, self.least[self.axis] + 1)))
        self.weight = rng.integers(-2, 3, self.taps).astype(np.float64)

    def possible(self, rank: int) -> bool:
        if self.kind in ("split", "grow") and rank > 4:
            return False
        if self.kind == "merge":
            return self.axis + 1 < rank
        if self.kind == "split":
            return bool(self.fixed[self.axis])
        return rank > 1 if self.kind == "sum" else True

    def tensor(self, x: krt.Tensor) -> krt.Tensor:
        axis, last = self.axis, x.ndim - 1
        shape = list(x.shape)
        if self.kind in ("pad", "margin"):
            x = x.pad([*([0, 0] * (last - axis)), self.low, self.high])
            if self.kind == "pad":
                return x
            # Of rows that are stored as long as an open size and a number, that number.
            return x.contiguous()[self.at(slice(self.margin), last)]
        if self.kind == "merge":
            return x.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
        if self.kind == "split":
            inner = (shape[axis] // self.factor, self.factor)
            return x.reshape(*shape[:axis], *inner, *shape[axis + 1 :])
        if self.kind == "grow":
            shape.insert(axis, self.low + 1)
            return x.unsqueeze(axis).expand(*shape)
        if self.kind == "contiguous":
            return x.contiguous()
        if self.kind == "permute":
            return x.permute(*self.order)
        if self.kind == "flip":
            return x.flip(axis)
        if self.kind == "conv":
            x = x.transpose(axis, last)
            flat = x.reshape(-1 if x.ndim == 2 else rows(x), 1, x.shape[-1])
            out = flat.conv1d(krt.tensor(self.weight).reshape(1, 1, -1))
            return out.reshape(*x.shape[:-1], out.shape[-1]).transpose(axis, last)
        if self.kind == "sum":
            return x.sum(axis)
        if self.kind == "add_row":
            return x + x[self.at(slice(0, 1), last)]
        if self.kind == "cat":
            return krt.cat([x, x * 2], axis)
        if self.kind == "twice":
            return x * 2
        return x[self.at(self.slice(), last)]

    @property
    def margin(self) -> int:
        return max(1, self.low + self.high)

    def slice(self) -> slice:
        return slice(self.start, None if self.kind == "tail" else self.stop)

    def at(self, part: slice, last: int) -> tuple[slice, ...]:
        return tuple(part if a == self.axis else slice(None) for a in range(last + 1))

    def array(self, x: np.ndarray) -> np.ndarray:
        axis, last = self.axis, x.ndim - 1
        shape = list(x.shape)
        if self.kind in ("pad", "margin"):
            widths = [(self.low, self.high) if a == axis else (0, 0) for a in range(last + 1)]
            x = np.pad(x, widths)
            return x[self.at(slice(self.margin), last)] if self.kind == "margin" else x
        if self.kind == "merge":
            return x.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
        if self.kind == "split":
            inner = (shape[axis] // self.factor, self.factor)
            return x.reshape(*shape[:axis], *inner, *shape[axis + 1 :])
        if self.kind == "grow":
            shape.insert(axis, self.low + 1)
            return np.broadcast_to(np.expand_dims(x, axis), shape)
        if self.kind == "permute":
            return x.transpose(self.order)
        if self.kind == "flip":
            return np.flip(x, axis)
        if self.kind == "conv":
            return (sliding_window_view(x, self.taps, axis) * self.weight).sum(-1)
        if self.kind == "sum":
            return x.sum(axis)
        if self.kind == "add_row":
            return x + x[self.at(slice(0, 1), last)]
        if self.kind == "cat":
            return np.concatenate([x, x * 2], axis)
        if self.kind == "contiguous":
            return x
        return x * 2 if self.kind == "twice" else x[self.at(self.slice(), last)]


def rows(x: krt.Tensor):
    count = 1
    for size in x.shape[:-1]:
        count = size * count
    return count


def program(seed: int):
    rng = np.random.default_rng(seed)
    dynamic = {0: N, 1: M} if seed % 3 == 0 else {int(rng.integers(2)): N}
    inputs = []
    for n, m in SIZES:
        shape = [5, 4]
        for axis, variable in dynamic.items():
            shape[axis] = n if variable is N else m
        inputs.append(rng.integers(-9, 10, shape).astype(np.float64))
    values, steps = list(inputs), []
    for _ in range(int(rng.integers(3, 9))):
        step = Step(rng, values)
        if not step.possible(values[0].ndim):
            continue
        new = [step.array(v) for v in values]
        if max(v.size for v in new) <= MOST and min(v.ndim for v in new) > 0:
            values = new
            steps.append(step)

    def run(x):
        for step in steps:
            x = step.tensor(x)
        return x

    return run, dynamic, inputs, values, [s.kind for s in steps]


@pytest.mark.parametrize("seed", range(60))
def test_movements(seed):
    run, dynamic, inputs, expected, names = program(seed)
    jitted = krt.jit(run, dynamic={"x": dynamic})
    for x, wanted in zip(inputs, expected, strict=True):
        got = jitted(x)
        assert got.shape == wanted.shape, names
        np.testing.assert_array_equal(got.numpy(), wanted, err_msg=f"{names} at {x.shape}")
    assert jitted.retraces == 0
    np.testing.assert_array_equal(run(krt.tensor(x)).numpy(), wanted, err_msg=f"{names} static")


@pytest.mark.parametrize(
    ("least", "most", "refused"), [(1, 30, True), (1, 20, False), (20, 30, False)]
)
def test_padding_whose_sign_is_open_is_refused(least, most, refused):
    def to_20(x):
        return (x * 2).pad((0, 20 - x.shape[0]))

    w = krt.tensor([3.0], requires_grad=True)
    sizes = {"x": {0: krt.Variable("n", least, most)}}
    padded = krt.jit(to_20, dynamic=sizes)
    slope = krt.jit(lambda x: krt.grad(to_20(x * w).sum(), w), dynamic=sizes)
    for size in (most, least):
        x = np.arange(size, dtype=np.float32)
        if refused:
            with pytest.raises(ShapeError, match="adds or removes elements"):
                padded(x)
            continue
        want = np.pad(x, (0, max(0, 20 - size)))[:20] * 2
        np.testing.assert_array_equal(padded(x).numpy(), want)
        np.testing.assert_array_equal(slope(x).numpy(), [want.sum()])


NEGATIVE = {
    "repeat": lambda x: x[:1].repeat(x.shape[0] - 5),
    "repeat_interleave": lambda x: x.repeat_interleave(x.shape[0] - 5, 0),
    "expand": lambda x: x[:1].reshape(1, 1).expand(x.shape[0] - 5, 3),
    "arange": lambda x: krt.arange(x.shape[0] - 5),
    "arange from": lambda x: krt.arange(5, x.shape[0]),
    "zeros": lambda x: krt.zeros(x.shape[0] - 5) + 1,
    "reshape": lambda x: krt.arange((x.shape[0] - 5) * (x.shape[0] - 5)).reshape(
        5 - x.shape[0], 5 - x.shape[0]
    ),
    "unflatten": lambda x: krt.arange((x.shape[0] - 5) * (x.shape[0] - 5)).unflatten(
        0, (5 - x.shape[0], 5 - x.shape[0])
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEGATIVE)
def test_sizes_that_may_be_negative_are_refused(name):
    f = NEGATIVE[name]
    short = krt.jit(lambda x: f(x).sum(), dynamic={"x": {0: krt.Variable("n", 1, 64)}})
    joined = krt.jit(
        lambda x: krt.cat([f(x).flatten().float(), krt.ones(9)]),
        dynamic={"x": {0: krt.Variable("n", 4, 64)}},
    )
    for size in (64, 5, 1):
        with pytest.raises(ShapeError, match="raise the lower bound of its Variable"):
            short(np.ones(size, np.float32))
    for size in (64, 4):
        with pytest.raises(ShapeError, match="raise the lower bound of its Variable"):
            joined(np.ones(size, np.float32))
    if "flat" in name or name == "reshape":
        return
    enough = krt.jit(f, dynamic={"x": {0: krt.Variable("n", 5, 64)}})
    for size in (64, 6, 5):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(enough(x).numpy(), f(krt.from_numpy(x)).numpy())


def test_sizes_that_are_never_negative_are_taken_however_they_are_written():
    halves = krt.jit(
        lambda x: (krt.zeros(x.shape[0] - x.shape[0] // 2) + x[x.shape[0] // 2 :], x * 2),
        dynamic={"x": {0: krt.Variable("n", 0, 50_000)}},
    )
    for size in (7, 0, 1, 6):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(halves(x)[0].numpy(), x[size // 2 :])


SMALL = np.array([1, 100], np.int8)
MISFITS = {
    "arange": lambda n: krt.arange(n, dtype="int8"),
    "full": lambda n: krt.full((2,), n, dtype="int8"),
    "less": lambda n: krt.tensor(SMALL) < n,
    "equal": lambda n: krt.tensor(SMALL) == n,
    "maximum": lambda n: krt.tensor(SMALL).maximum(n),
    "clamp": lambda n: krt.tensor(SMALL).clamp(max=n),
    "floor_divide": lambda n: krt.tensor(SMALL) // n,
    "masked_fill": lambda n: krt.tensor(SMALL).masked_fill(krt.tensor([True, False]), n),
}


@pytest.mark.parametrize("name", MISFITS)
def test_sizes_that_a_type_may_not_hold_are_refused(name):
    f = MISFITS[name]
    wide = krt.jit(lambda x: f(x.shape[0]), dynamic={"x": {0: krt.Variable("n", 1, 300)}})
    for size in (200, 3):
        with pytest.raises(DTypeError, match="narrow the bounds"):
            wide(np.ones(size, np.float32))
    narrow = krt.jit(lambda x: f(x.shape[0]), dynamic={"x": {0: krt.Variable("n", 1, 127)}})
    for size in (127, 3):
        got = narrow(np.ones(size, np.float32)).numpy()
        np.testing.assert_array_equal(got, f(size).numpy())


@pytest.mark.parametrize("size", [0, 2])
def test_reductions_along_axes_that_repeat_may_be_over_nothing(size):
    def reduced(x):
        wide = (x.sum() * 0 + krt.tensor([[np.inf], [2.0]])).reshape(1, 2).expand(x.shape[0], 2)
        return wide.sum(0), (wide > 1).any(0), wide.prod(0), wide.logsumexp(0)

    x = np.ones(size, np.float32)
    wide = np.broadcast_to(np.array([np.inf, 2.0]), (size, 2))
    want = wide.sum(0), (wide > 1).any(0), wide.prod(0)
    for f in (reduced, krt.jit(reduced, dynamic={"x": {0: krt.Variable("n", 0, 9)}})):
        for got, right in zip(f(krt.from_numpy(x)), want, strict=False):
            np.testing.assert_array_equal(got.numpy(), right)


@pytest.mark.parametrize("part", [
    lambda t, n: t.narrow(0, n, 3), lambda t, n: t[n : n + 3], lambda t, n: t[:-1].narrow(0, n, 3),
    lambda t, n: t[n - 1 : n + 2, 1:], lambda t, n: t.narrow(0, n, 3).narrow(1, 1, 2),
])  # fmt: skip
@pytest.mark.parametrize("then", [
    lambda v: v.reshape(-1), lambda v: v.unsqueeze(0).squeeze(0), lambda v: v.contiguous(),
    lambda v: v.T, lambda v: v.reshape(-1)[2:],
])  # fmt: skip
def test_parts_of_fixed_size_that_begin_at_a_variable(part, then):
    table = np.arange(80.0).reshape(20, 4)
    held = krt.tensor(table)
    run = krt.jit(
        lambda x: then(part(held, x.shape[0])) * 1, dynamic={"x": {0: krt.Variable("n", 1, 8)}}
    )
    for n in (1, 5, 8):
        want = then(part(krt.tensor(table), n))
        np.testing.assert_array_equal(run(np.ones(n, np.float32)).numpy(), want.numpy())

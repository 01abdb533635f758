"""Random programs through the whole pipeline: Tensor, schedule, machine code, plan.

Each program runs three ways (eager, jitted, NumPy in float64) on sizes that leave every kind of
vector remainder. KERNELRT_RANDOM_PROGRAMS=5000 runs more of them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

import kernelrt as krt

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = int(os.environ.get("KERNELRT_RANDOM_PROGRAMS", "120"))
SIZES = (1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 33, 40)
MOST_ELEMENTS = 20_000
Pair = tuple[krt.Tensor, np.ndarray]


class Program:
    """Grows pairs of (tensor, float64 array) by random operations, which a replay repeats."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.steps: list[Callable[[list], object]] = []
        self.inputs = [self.fresh() for _ in range(self.rng.integers(1, 4))]
        self.values = [x.astype(np.float64) for x in self.inputs]
        for _ in range(self.rng.integers(3, 14)):
            self.grow()

    def fresh(self) -> np.ndarray:
        rank = int(self.rng.integers(1, 4))
        shape = self.rng.choice(SIZES, rank)
        while np.prod(shape) > 4000:
            shape = self.rng.choice(SIZES, rank)
        return self.rng.uniform(-1, 1, shape).astype(np.float32)

    def grow(self) -> None:
        rules = [
            self.unary, self.unary, self.binary, self.binary, self.reduce, self.reduce,
            self.reshape, self.permute, self.cut, self.pad, self.flip, self.cat, self.softmax,
            self.product, self.product, self.select, self.pick,
        ]  # fmt: skip
        rule = rules[self.rng.integers(len(rules))]
        found = rule(int(self.rng.integers(len(self.values))))
        if found is None:
            return
        step, reference = found
        tame = np.isfinite(reference).all() and np.abs(reference).max(initial=0) < 1e4
        if tame and reference.size <= MOST_ELEMENTS:
            self.steps.append(step)
            self.values.append(reference)

    def run(self, inputs: list[krt.Tensor]) -> tuple[krt.Tensor, ...]:
        values = list(inputs)
        for step in self.steps:
            values.append(step(values))
        return tuple(values[len(inputs) :][-3:])

    # Rules give the step on tensors and its value in float64.

    def unary(self, i: int):
        names = {
            "tanh": np.tanh, "exp": np.exp, "sin": np.sin, "abs": np.abs, "neg": np.negative,
            "relu": lambda a: np.maximum(a, 0), "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
        }  # fmt: skip
        name = list(names)[self.rng.integers(len(names))]
        return lambda v: getattr(v[i], name)(), names[name](np.clip(self.values[i], -50, 50))

    def binary(self, i: int):
        j = int(self.rng.integers(len(self.values)))
        a, b = self.values[i], self.values[j]
        try:
            shape = np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            return None
        if np.prod(shape) > MOST_ELEMENTS:
            return None
        kind = self.rng.integers(4)
        if kind == 0:
            return lambda v: v[i] + v[j], a + b
        if kind == 1:
            return lambda v: v[i] * v[j] - 0.5, a * b - 0.5
        if kind == 2:
            return lambda v: v[i].maximum(v[j]), np.maximum(a, b)
        return lambda v: v[i] - 2 * v[j], a - 2 * b

    def reduce(self, i: int):
        a = self.values[i]
        if a.ndim == 0:
            return None
        axis = int(self.rng.integers(a.ndim))
        keep = bool(self.rng.integers(2))
        if self.rng.integers(2):
            return lambda v: v[i].mean(axis, keepdim=keep), a.mean(axis, keepdims=keep)
        return lambda v: v[i].amax(axis, keepdim=keep), a.max(axis, keepdims=keep)

    def reshape(self, i: int):
        a = self.values[i]
        sizes = [n for n in range(1, a.size + 1) if a.size % n == 0]
        n = int(sizes[self.rng.integers(len(sizes))])
        return lambda v: v[i].reshape(n, a.size // n), a.reshape(n, a.size // n)

    def permute(self, i: int):
        a = self.values[i]
        order = tuple(int(x) for x in self.rng.permutation(a.ndim))
        return lambda v: v[i].permute(*order) if order else v[i], a.transpose(order)

    def cut(self, i: int):
        a = self.values[i]
        if a.ndim == 0:
            return None
        axis = int(self.rng.integers(a.ndim))
        low = int(self.rng.integers(a.shape[axis]))
        step = int(self.rng.integers(1, 4))
        index = (slice(None),) * axis + (slice(low, None, step),)
        return lambda v: v[i][index], a[index]

    def pad(self, i: int):
        a = self.values[i]
        if a.ndim == 0:
            return None
        low, high = (int(x) for x in self.rng.integers(0, 4, 2))
        widths = [(0, 0)] * (a.ndim - 1) + [(low, high)]
        return lambda v: v[i].pad((low, high)), np.pad(a, widths)

    def flip(self, i: int):
        a = self.values[i]
        if a.ndim == 0:
            return None
        axis = int(self.rng.integers(a.ndim))
        return lambda v: v[i].flip(axis), np.flip(a, axis)

    def cat(self, i: int):
        a = self.values[i]
        if a.ndim == 0:
            return None
        axis = int(self.rng.integers(a.ndim))
        return lambda v: krt.cat([v[i], v[i] * 2], axis), np.concatenate([a, a * 2], axis)

    def softmax(self, i: int):
        a = self.values[i]
        if a.ndim == 0:
            return None
        axis = int(self.rng.integers(a.ndim))
        e = np.exp(a - a.max(axis, keepdims=True))
        return lambda v: v[i].softmax(axis), e / e.sum(axis, keepdims=True)

    def product(self, i: int):
        a = self.values[i]
        if a.ndim != 2:
            return None
        n = int(self.rng.choice(SIZES))
        w = self.rng.uniform(-1, 1, (a.shape[1], n)).astype(np.float32)
        weight = krt.tensor(w if self.rng.integers(2) else np.ascontiguousarray(w.T))
        turned = weight.shape != w.shape or not np.array_equal(weight.numpy(), w)
        return lambda v: v[i] @ (weight.T if turned else weight), a @ w.astype(np.float64)

    def select(self, i: int):
        a = self.values[i]
        return lambda v: krt.where(v[i] > 0.25, v[i], v[i] * 0.1), np.where(a > 0.25, a, a * 0.1)

    def pick(self, i: int):
        a = self.values[i]
        if a.ndim == 0:
            return None
        rows = self.rng.integers(0, a.shape[0], int(self.rng.choice(SIZES)))
        index = krt.tensor(rows)
        return lambda v: v[i][index], a[rows]


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_program_gives_numpys_values_and_replays_bit_for_bit(seed):
    program = Program(seed)
    if not program.steps:
        return
    expected = program.values[len(program.inputs) :][-3:]
    eager = [t.numpy() for t in program.run([krt.tensor(x) for x in program.inputs])]

    @krt.jit
    def replayed(*inputs):
        return program.run(list(inputs))

    for _ in range(2):
        outputs = replayed(*program.inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    for want, first, again in zip(expected, eager, outputs, strict=True):
        assert first.shape == want.shape
        scale = max(1.0, float(np.abs(want).max(initial=0)))
        np.testing.assert_allclose(first, want, rtol=2e-4, atol=2e-4 * scale)
        np.testing.assert_allclose(again.numpy(), want, rtol=2e-4, atol=2e-4 * scale)

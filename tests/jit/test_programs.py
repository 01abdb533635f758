"""Random programs over shared state: a jitted one does what NumPy does, step after step.

Integers leave no room for rounding, so every element of every result and every state must be equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelrt as krt

N = 4
STATES = 3
STEPS = 4


@dataclass(frozen=True)
class Assign:
    state: int
    value: int


@dataclass(frozen=True)
class Apply:
    op: str
    operands: tuple[int, ...]


UNARY = {
    "negate": (lambda x: -x, lambda x: -x),
    "transpose": (lambda x: x.transpose(0, 1), lambda x: x.T),
    "flip": (lambda x: x.flip(0), lambda x: x[::-1]),
    "rows": (lambda x: x.sum(1, keepdim=True) + x * 0, lambda x: x.sum(1, keepdims=True) + x * 0),
    "largest": (
        lambda x: x.amax(0, keepdim=True) + x * 0,
        lambda x: x.max(0, keepdims=True) + x * 0,
    ),
    "shift": (
        lambda x: krt.cat([x[1:], x[:1]], 0),
        lambda x: np.concatenate([x[1:], x[:1]], 0),
    ),
    "border": (lambda x: x[1:3, 1:3].pad((1, 1, 1, 1)), lambda x: np.pad(x[1:3, 1:3], 1)),
    "twice": (lambda x: x * 2, lambda x: x * 2),
    "picked": (
        lambda x: x[krt.tensor([3, 0, 0, 2])],
        lambda x: x[[3, 0, 0, 2]],
    ),
}
BINARY = {
    "add": (lambda x, y: x + y, lambda x, y: x + y),
    "subtract": (lambda x, y: x - y, lambda x, y: x - y),
    "multiply": (lambda x, y: x * y, lambda x, y: x * y),
    "product": (lambda x, y: x @ y, lambda x, y: x @ y),
    "chosen": (lambda x, y: krt.where(x < y, x, y), lambda x, y: np.where(x < y, x, y)),
}
OPS: dict[str, Any] = UNARY | BINARY


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Assign | Apply], list[int]]:
    """Instructions, and which values are returned. Values 0.. are the states and one argument."""
    count = STATES + 1
    instructions: list[Assign | Apply] = []
    for _ in range(draw(st.integers(1, 14))):
        value = st.integers(0, count - 1)
        if draw(st.integers(0, 2)) == 0:
            instructions.append(Assign(draw(st.integers(0, STATES - 1)), draw(value)))
            continue
        name = draw(st.sampled_from(sorted(OPS)))
        operands = tuple(draw(value) for _ in range(2 if name in BINARY else 1))
        instructions.append(Apply(name, operands))
        count += 1
    returned = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=4))
    return instructions, returned


def run_tensors(program: list[Assign | Apply], returned: list[int], states: list, x: Any) -> tuple:
    values = [*states, x]
    for step in program:
        if isinstance(step, Assign):
            states[step.state].assign(values[step.value])
        else:
            # The result may be a view, which the model in NumPy does not follow.
            values.append(OPS[step.op][0](*(values[i] for i in step.operands)).clone())
    return tuple(values[i] for i in returned)


def run_numpy(program: list[Assign | Apply], returned: list[int], states: list, x: Any) -> tuple:
    values: list[Any] = [None] * STATES + [x]

    def read(i: int) -> Any:
        return states[i] if i < STATES else values[i]

    with np.errstate(over="ignore"):
        for step in program:
            if isinstance(step, Assign):
                # NumPy sums int32 in int64; what is assigned takes the type of the state.
                states[step.state] = read(step.value).astype(np.int32)
            else:
                values.append(OPS[step.op][1](*(read(i) for i in step.operands)))
    return tuple(read(i).copy() for i in returned)


def start(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-5, 6, (N, N)).astype(np.int32) for _ in range(STATES)]


@pytest.mark.cases(1 / 4)
@given(programs(), st.integers(0, 3))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_jitted_programs_do_what_numpy_does(
    drawn: tuple[list[Assign | Apply], list[int]], seed: int
) -> None:
    program, returned = drawn
    states = start(seed)
    tensors = [krt.tensor(s) for s in states]
    jitted = krt.jit(lambda x: run_tensors(program, returned, tensors, x))
    for step in range(STEPS):
        x = np.random.default_rng(step).integers(-5, 6, (N, N)).astype(np.int32)
        if step == 2:  # an eager assignment, and a lazy tensor that is read after the call
            states[0] = states[0] + 1
            tensors[0].assign(tensors[0] + 1)
        lazy, meant = tensors[1] * 3, states[1] * 3
        expected = run_numpy(program, returned, states, x)
        found = jitted(x)
        found = found if isinstance(found, tuple) else (found,)
        for ours, theirs in zip(found, expected, strict=True):
            assert np.array_equal(ours.numpy(), theirs)
        for tensor, state in zip(tensors, states, strict=True):
            assert np.array_equal(tensor.numpy(), state)
        assert np.array_equal(lazy.numpy(), meant)
    assert jitted.retraces == 0

"""Code that comes in between any two lines, as a finalizer does, and computes the same tensors."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import PlanBusyError
from kernelrt.tensor import state

OURS = str(Path(krt.__file__).parent / "tensor")
X = np.arange(3, dtype=np.float32)


class Between:
    """Calls `act` before the line number `at` that runs within `kernelrt.tensor`; counts them."""

    def __init__(self, act, at):
        self.act, self.at, self.lines = act, at, 0

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.enter)
        return self

    def __exit__(self, *_):
        sys.settrace(self.before)

    def enter(self, frame, *_):
        return self.line if frame.f_code.co_filename.startswith(OURS) else None

    def line(self, _frame, event, _argument):
        if event == "line":
            if self.lines == self.at:
                sys.settrace(None)
                try:
                    self.act()
                except PlanBusyError:
                    pass  # what it reads is being written just then
                finally:
                    sys.settrace(self.enter)
            self.lines += 1
        return self.line


class Program:
    """Tensors, what works with them, what comes in between, and what they are in the end."""

    def __init__(self, more):
        self.x = krt.from_numpy(X.copy())
        self.w = krt.tensor([1.0, 2.0, 4.0], requires_grad=True)
        self.more = more
        self.first = self.x * 2 + more
        self.second = self.first * self.x
        self.old = self.w.detach() * 3
        self.product = self.w * self.x
        self.loss = self.product.sum()

    def one(self):
        self.first.realize()

    def later(self):
        self.second.realize()

    def both(self):
        krt.realize(self.first, self.second)

    def assign(self):
        with krt.no_grad():
            self.w.assign(self.w + 1)
        krt.realize()

    def backward(self):
        self.loss.backward()

    def held(self):
        self.product.realize()

    def everything(self):
        krt.realize(self.old, self.product, self.loss, self.first)

    def check(self, assigned, differentiated):
        first = X * 2 + self.more
        np.testing.assert_array_equal(self.first.numpy(), first)
        np.testing.assert_array_equal(self.second.numpy(), first * X)
        np.testing.assert_array_equal(self.old.numpy(), [3, 6, 12])
        np.testing.assert_array_equal(self.product.numpy(), [0, 2, 8])
        assert self.loss.item() == 10
        np.testing.assert_array_equal(self.w.numpy(), np.array([1, 2, 4]) + assigned)
        if differentiated:
            np.testing.assert_array_equal(self.w.grad.numpy(), X)
        assert not state.pending
        assert state.changing is None


WORKS = [Program.one, Program.both, Program.assign, Program.backward, Program.everything]
ACTS = [Program.one, Program.later, Program.both, Program.held, Program.everything]


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("work", WORKS)
def test_code_between_any_two_lines(work, act):
    # Each line comes before one of the acts at least.
    at, lines = ACTS.index(act) % 3, 0
    while at <= lines:
        program = Program(at % 7)
        with Between(lambda program=program: act(program), at) as between:
            work(program)
        lines = max(lines, between.lines)
        program.check(work is Program.assign, work is Program.backward)
        at += 3

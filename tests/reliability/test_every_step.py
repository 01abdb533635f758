"""An interrupt before any bytecode: state is as before or as after, and later calls are right.

``KERNELRT_INTERRUPTS`` sets how many bytecodes of each piece of work are tried, for a soak.
"""

from __future__ import annotations

import os
import random
import sys

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt._modes import local
from tests.support.interrupts import count_steps, interrupted_at

pytestmark = pytest.mark.skipif(
    sys.implementation.name != "cpython" or sys.platform == "win32",
    reason="traces the bytecode of CPython",
)

MOST = int(os.environ.get("KERNELRT_INTERRUPTS", "150"))
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def each_step(work, prepare=lambda: None):
    """Give interrupts at steps of `work`, `prepare` called before each, with what was prepared."""
    made = prepare()
    args = () if made is None else (made,)
    work(*args)
    made = prepare()
    args = () if made is None else (made,)
    total = count_steps(lambda: work(*args))
    steps = range(1, total + 1)
    if total > MOST:
        steps = random.Random(1).sample(steps, MOST)  # noqa: S311 - no secrets here
    for step in steps:
        made = prepare()
        args = () if made is None else (made,)
        error = interrupted_at(step, lambda args=args: work(*args))
        check_modes()
        yield made, error


def check_modes():
    assert local.grad
    assert local.trace is None
    assert local.scope is None
    assert local.observed is None


def test_modes_are_left_as_they_were():
    def work():
        with krt.no_grad():
            len("")
            with krt.enable_grad():
                assert krt.is_grad_enabled()
            assert not krt.is_grad_enabled()
        krt.no_grad()(len)("")

    assert sum(error is not None for _, error in each_step(work)) > 10


def test_a_first_trace():
    model = nn.Linear(3, 2)

    def work(f):
        f(X)

    expected = model(krt.tensor(X)).tolist()
    hits = 0
    for f, error in each_step(work, lambda: krt.jit(model)):
        hits += error is not None
        assert f(X).tolist() == expected
        assert len(f.plans) == 1
    assert hits

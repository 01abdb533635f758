"""Each allocation of Python fails in turn: the call ends in a MemoryError, later ones are right.

Each call is tested in a child process, so that a crash fails one test and does not end the session.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import CodeType, FunctionType

import numpy as np
import pytest
from support.skip_list import has, needs

import kernelrt as krt
from kernelrt.tensor import state

pytestmark = needs("an allocator that can fail")
if has("an allocator that can fail"):
    import _testcapi as testcapi

ROOT = Path(__file__).parents[2]
MOST = 2000
QUIET = 40
"""Calls without a failure behind which there are no more allocations to fail."""


class Programs:
    """Calls that repeat themselves, each with a check of what it gives."""

    def __init__(self):
        self.x = np.ones((4, 4), np.float32)
        self.big = np.ones((64, 64), np.float32)
        self.lent = krt.tensor(self.big)
        self.w = krt.zeros(3).realize()
        self.p = krt.tensor([1.0, 2.0, 3.0], requires_grad=True)
        self.f = krt.jit(lambda x, s: x * s + 1)
        self.g = krt.jit(lambda x, y: x * y + 1)

    def small(self):
        return self.f(self.x, 2.0)

    def bound(self):
        return self.g(self.big, self.lent)

    def eager(self):
        return (self.lent * 3 + 1).realize()

    def assign(self):
        self.w.assign(self.w + 1)
        krt.realize()

    def backward(self):
        self.p.grad = None
        (self.p * self.p).sum().backward()

    def all(self):
        for call in (self.small, self.bound, self.eager, self.assign, self.backward):
            call()

    def check(self):
        assert (self.small().numpy() == 3).all()
        assert (self.bound().numpy() == 2).all()
        assert (self.eager().numpy() == 4).all()
        before = self.w.numpy().copy()
        self.assign()
        np.testing.assert_array_equal(self.w.numpy(), before + 1)
        self.backward()
        assert self.p.grad.tolist() == [2, 4, 6]
        assert not state.pending
        assert state.changing is None


def codes_within(code):
    """The code of all functions that `code` makes, and that these make."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_within(constant)


def keep_codes():
    """Give the code of each function that another one makes references to spare.

    Where MAKE_FUNCTION gets no memory, CPython 3.12 and 3.13 give back a reference to the code
    that is not theirs. After a few such failures the code would be freed while it is in use.
    """
    functions = [f for f in gc.get_objects() if isinstance(f, FunctionType)]
    codes = {code for f in functions for code in codes_within(f.__code__)}
    spare = [*codes] * MOST
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(spare))  # what is left of them must stay, too


def fail_each_allocation(name):
    warnings.simplefilter("ignore")
    programs = Programs()
    for _ in range(3):
        programs.all()
    keep_codes()
    call = getattr(programs, name)
    failures = quiet = 0
    gc.collect()
    gc.disable()
    try:
        for i in range(1, MOST):
            failed = False
            testcapi.set_nomemory(i, i + 1)
            try:
                call()
            except MemoryError:
                failed = True
            except AttributeError:
                failed = True  # Python forgets why it could not look an attribute up
            finally:
                testcapi.remove_mem_hooks()
            failures += failed
            quiet = 0 if failed else quiet + 1
            if quiet == QUIET:
                break
    finally:
        gc.enable()
    assert failures
    assert quiet == QUIET
    programs.check()
    print(failures, "allocations failed")


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["small", "bound", "eager", "assign", "backward"])
def test_an_allocation_fails(name):
    code = f"from {__name__} import fail_each_allocation; fail_each_allocation({name!r})"
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith(" allocations failed\n")

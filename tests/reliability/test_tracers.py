"""The tracers that other tests count with do count, from the first one of a process on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.between import Between
from support.interrupts import count_steps, interrupted_at
from support.work import lines_run

COUNT_TWICE = """
from support.interrupts import count_steps

def inner():
    for _ in range(3):
        len("")

def outer():
    inner()
    inner()

print(count_steps(outer), count_steps(outer), count_steps(inner))
"""

def test_the_first_count_of_a_process_is_that_of_later_ones():
    result = subprocess.run(
        [sys.executable, "-c", COUNT_TWICE], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    first, second, part = map(int, result.stdout.split())
    assert first == second > 2 * part > 0


def test_what_is_prepared_is_not_counted():
    def prepare():
        seen.append(0)
        return (seen,)

    seen: list[int] = []
    steps = count_steps(lambda held: held.append(1), prepare)
    assert seen == [0, 1, 0, 1]
    assert steps < 20


def test_interrupts_come_at_steps_that_were_counted():
    def work():
        for _ in range(3):
            len("")

    steps = count_steps(work)
    hits = [interrupted_at(step, work) is not None for step in range(1, steps + 1)]
    assert sum(hits) > steps / 2
    assert interrupted_at(steps + 1, work) is None


def test_a_count_of_nothing_fails():
    with pytest.raises(AssertionError, match="counts no bytecode"):
        count_steps(len, lambda: ("",))
    with pytest.raises(AssertionError, match="counts no line"):
        lines_run(list)
    with pytest.raises(AssertionError, match="counts no line below /nowhere"):  # noqa: SIM117
        with Between(lambda: None, 0, "/nowhere"):
            test_what_is_prepared_is_not_counted()


def test_the_error_of_a_block_without_lines_comes_through():
    with pytest.raises(ZeroDivisionError), Between(lambda: None, 0, "/nowhere"):
        raise ZeroDivisionError

"""Threads that are in the core at the same time: their kernels wait for each other there.

What threads share between these moments, ThreadSanitizer sees unordered if nothing orders it;
whether they would have met by chance does not matter. `python -m tests.sanitize thread` runs this.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from support.patience import PATIENCE
from support.skip_list import needs

from kernelrt._dispatch import HOST_PARALLEL_SAFE, KERNEL, PlanCore

#: Costs of plans: one that is run without the GIL but serially, and one for several threads.
SERIAL_NS, PARALLEL_NS = 20_000, 10_000_000


@pytest.fixture
def log():
    """How many came, and how many gave up waiting."""
    return np.zeros(2, np.int64)


def meeting(kernels, log, *, of, chunks, cost_ns):
    """A plan with one op, of which each chunk waits until `of` chunks of any plan have begun."""
    here = (log.ctypes.data, log.ctypes.data + 8)
    values = (of, int(PATIENCE * 1e6), 0)
    op = (KERNEL, kernels.meet, here, values, chunks, 2, HOST_PARALLEL_SAFE, cost_ns, ())
    return PlanCore([op])


def at_once(*plans):
    threads = [threading.Thread(target=plan.execute) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@needs("two threads")
def test_two_workers_of_a_region(kernels, log):
    """The caller and a worker of the pool, each in a chunk of the same op."""
    meeting(kernels, log, of=2, chunks=2, cost_ns=PARALLEL_NS).execute()
    assert log.tolist() == [2, 0]


@needs("two threads")
def test_two_workers_of_a_region_with_a_clock(kernels, log):
    plan = meeting(kernels, log, of=2, chunks=2, cost_ns=PARALLEL_NS)
    [(_, _, _, chunks, _, _)] = plan.execute_profiled_raw()
    assert chunks == 2
    assert log.tolist() == [2, 0]


def test_two_plans_without_the_gil(kernels, log):
    """Two threads of Python, each with a plan of its own that runs serially."""
    plans = [meeting(kernels, log, of=2, chunks=1, cost_ns=SERIAL_NS) for _ in range(2)]
    at_once(*plans)
    assert log.tolist() == [2, 0]


@needs("two threads")
def test_a_plan_beside_one_that_has_the_pool(kernels, log):
    """Three threads: of two plans one has the worker, the other goes on alone."""
    plans = [meeting(kernels, log, of=3, chunks=2, cost_ns=PARALLEL_NS) for _ in range(2)]
    at_once(*plans)
    assert log.tolist() == [4, 0]

"""Plans and compiling in forked children, while other threads of the parent compile."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from support import forks, plan_kernels
from support.plan_kernels import Chain


@pytest.fixture
def compiling():
    """Two threads that compile without a break."""
    stop = threading.Event()

    def work(number: int) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            body = f"%r = add i64 %x1, {count}"
            plan_kernels.kernel(f"busy{number}_{count}", body, 1, count=16)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join()


def test_a_plan_of_the_parent_runs_in_a_child():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.scale(1, 0, 3)
    plan = chain.build(1)

    def run():
        plan.execute()
        assert chain.arrays[1].tolist() == [3 * i for i in range(16)]

    assert forks.run(run) == 0
    assert not chain.arrays[1].any()
    plan.execute()


@pytest.mark.cases(1 / 4)
def test_a_child_compiles_while_threads_of_its_parent_did(compiling):
    def run():
        chain = Chain(np.arange(16), np.zeros(16))
        kernel = plan_kernels.kernel("child", "%r = add i64 %x1, 1000", 1, count=16)
        chain.builder.add_kernel(kernel, [1, 0])
        chain.build(1).execute()
        assert chain.arrays[1][3] == 1003

    statuses = []
    for _ in range(12):
        time.sleep(0.004)
        statuses.append(forks.run(run))
    assert statuses == [0] * 12

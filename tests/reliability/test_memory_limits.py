"""Programs that ask for more memory than there is end in a typed error, and go on."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from support.patience import PATIENCE
from support.skip_list import needs

PRELUDE = """
import resource
import numpy as np
import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import OutOfMemoryError

assert issubclass(OutOfMemoryError, MemoryError)
X = np.ones((4, 8), np.float32)
Y = np.ones((4, 1), np.float32)
model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 1))
opt = nn.optim.SGD(model.parameters(), lr=0.01)

@krt.jit
def step(x, y):
    opt.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    opt.step()
    return loss

@krt.jit
def outer(x):
    return x[:, None] * x[None, :]

def large(n):
    return krt.ones(n) * 2 + krt.arange(n)

def small():
    assert (krt.tensor([1.0, 2.0]) * 2).tolist() == [2, 4]
    assert outer(np.ones(3, np.float32)).numpy().sum() == 9

first = step(X, Y).item()
small()
large(8).realize()
limit = int(open("/proc/self/statm").read().split()[0]) * 4096 + (600 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

def refused(act):
    try:
        act()
    except OutOfMemoryError as error:
        return str(error)
    raise AssertionError("there was memory for it")
"""


def run(body: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(body)],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.cases(1)
@needs("Linux")
@pytest.mark.parametrize(
    "act",
    [
        "krt.ones(1 << 30).realize()",
        "large(1 << 29).realize()",
        "krt.zeros(1 << 45).realize()",
        "krt.randn(1 << 30).realize()",
        "outer(np.ones(1 << 15, np.float32))",
        "krt.ones(1 << 15).reshape(-1, 1).expand(1 << 15, 1 << 15).contiguous().realize()",
        "krt.tensor(X).expand(1 << 24, 4, 8).numpy()",
    ],
)
def test_too_much_is_refused_and_all_goes_on(act):
    run(f"""
    for _ in range(3):
        refused(lambda: {act})
        small()
    losses = [step(X, Y).item() for _ in range(20)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < first
    """)


@needs("Linux")
def test_a_training_loop_in_which_some_steps_have_no_memory():
    run("""
    @krt.jit
    def hungry(x, y, z):
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss, z[:, None] * z[None, :]

    few, many = np.ones(4, np.float32), np.ones(1 << 15, np.float32)
    hungry(X, Y, few)
    before = [p.numpy().copy() for p in model.parameters()]
    for _ in range(3):
        refused(lambda: hungry(X, Y, many))
        for p, b in zip(model.parameters(), before):
            np.testing.assert_array_equal(p.numpy(), b)
    last = step(X, Y).item()
    for _ in range(10):
        loss, z = hungry(X, Y, few)
        assert loss.item() < last and z.numpy().sum() == 16
        last = loss.item()
        refused(lambda: outer(many))
    """)

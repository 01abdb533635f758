"""Every process writes the same kernels, and so computes the same bits.

Nodes are hashed by where they lie in memory, so a set of them has another order each time.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import hashlib, random, sys
import numpy as np
import kernelrt as krt
from kernelrt import nn

held = [bytearray(random.randrange(16, 400)) for _ in range(random.randrange(20_000))]
del held[:: random.randrange(2, 5)]


def tell(name, f, *arrays):
    plan = krt.jit(f).plan(*(krt.from_numpy(a) for a in arrays))
    text = "".join(kernel.code + kernel.variant for kernel in plan.kernels)
    print(name, len(plan.kernels), hashlib.sha256(text.encode()).hexdigest()[:16])


def full(*shape):
    return np.ones(shape, np.float32)


def attention(q, k, v):
    scores = q @ k.transpose(-1, -2) / 4.0
    mask = krt.ones(q.shape[-2], q.shape[-2]).tril() == 0
    return scores.masked_fill(mask, float("-inf")).softmax(-1) @ v


def train(loss, *leaves):
    def step(*args):
        for leaf in leaves:
            leaf.grad = None
        value = loss(*args)
        value.backward()
        for leaf in leaves:
            leaf.assign(leaf.detach() - 0.01 * leaf.grad)
        return value
    return step


def leaf(*shape):
    return krt.tensor(full(*shape), requires_grad=True)


tell("attention", attention, *(full(2, 3, 128, 16) for _ in range(3)))
q = leaf(2, 2, 64, 16)
tell("its gradient", train(lambda k, v: attention(q, k, v).square().sum(), q),
     full(2, 2, 64, 16), full(2, 2, 64, 16))
tell("strip", lambda a, b: a @ b, full(8, 4096), full(4096, 4096))
tell("blocks", lambda a, b: (a.T @ b).relu() + 1, full(1024, 1024), full(1024, 1024))
tell("softmax", lambda x: x.softmax(-1).log_softmax(0), full(64, 1000))
w = [leaf(3, 1, 3, 3), leaf(5, 3, 3, 3), leaf(5 * 49, 10)]


def convolutions(x):
    x = x.conv2d(w[0], padding=1, stride=2).relu()
    x = x.conv2d(w[1], padding=1).relu()
    return (x.reshape(x.shape[0], -1) @ w[2]).log_softmax(-1).square().mean()


tell("convolutions", train(convolutions, *w), full(8, 1, 14, 14))
cell = [leaf(20, 64), leaf(16, 64)]


def lstm(x):
    h = c = krt.zeros(x.shape[1], 16)
    for t in range(x.shape[0]):
        i, f, g, o = (x[t] @ cell[0] + h @ cell[1]).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return h.square().mean()


tell("lstm", train(lstm, *cell), full(5, 9, 20))
layers = nn.Sequential(nn.Linear(20, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))
opt = nn.optim.Adam(nn.parameters(layers), 0.01)


def step(x, y):
    opt.zero_grad()
    loss = layers(x).cross_entropy(y)
    loss.backward()
    opt.step()
    return loss


tell("mlp", step, full(16, 20), np.arange(16) % 4)
tell("rows", lambda x: (x.mean(0), x.var(1), x.max(0), x.argmax(), x.cumsum(1)), full(77, 130))
"""


@pytest.mark.exhaustive
def test_processes_write_the_same_kernels():
    told = [
        subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
        for _ in range(4)
    ]
    for done in told:
        assert done.returncode == 0, done.stderr
    assert len(told[0].stdout.splitlines()) == 9
    assert len({done.stdout for done in told}) == 1, "\n".join(done.stdout for done in told)

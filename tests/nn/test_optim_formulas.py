"""Optimizers take the steps of their formulas, written out in NumPy; test_optim_table has torch's.

The formulas are those of the papers: Adam and AMSGrad (Kingma and Ba, 2015; Reddi et al., 2018),
AdamW (Loshchilov and Hutter, 2019), RMSprop (Hinton, 2012), Adagrad (Duchi et al., 2011).
"""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

#: Large slopes, then small ones: what remembers the largest differs from what does not.
SCALES = [1.0, 8.0, 3.0, 0.1, 0.01, 0.3, 0.02, 1.0]


def sgd(p, slopes, lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.0):
    pace = None
    for slope in slopes:
        g = slope + weight_decay * p
        pace = g if pace is None else momentum * pace + g
        yield (p := p - lr * (g + momentum * pace if nesterov else pace if momentum else g))


def adam(p, slopes, lr=0.1, b1=0.9, b2=0.999, eps=1e-8, decay=0.0, coupled=0.0, amsgrad=False):
    mean = square = most = np.zeros_like(p)
    for t, slope in enumerate(slopes, 1):
        g = slope + coupled * p
        p = p * (1 - lr * decay)
        mean, square = b1 * mean + (1 - b1) * g, b2 * square + (1 - b2) * g * g
        most = np.maximum(most, square)
        size = np.sqrt((most if amsgrad else square) / (1 - b2**t)) + eps
        yield (p := p - lr * mean / (1 - b1**t) / size)


def rmsprop(p, slopes, lr=0.1, alpha=0.9, eps=1e-8, centered=False):
    square = mean = np.zeros_like(p)
    for g in slopes:
        square, mean = alpha * square + (1 - alpha) * g * g, alpha * mean + (1 - alpha) * g
        yield (p := p - lr * g / (np.sqrt(square - mean * mean * centered) + eps))


def adagrad(p, slopes, lr=0.1, eps=1e-10, lr_decay=0.0):
    total = np.zeros_like(p)
    for t, g in enumerate(slopes):
        total = total + g * g
        yield (p := p - lr / (1 + t * lr_decay) * g / (np.sqrt(total) + eps))


#: Name, options of the optimizer, formula, options of the formula where they are others.
TABLE = [
    ("SGD", {"lr": 0.1}, sgd, {}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}, sgd, {}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.2}, sgd, {}),
    ("Adam", {"lr": 0.1}, adam, {}),
    ("Adam", {"lr": 0.1, "amsgrad": True}, adam, {}),
    ("Adam", {"lr": 0.1, "betas": (0.5, 0.6)}, adam, {"lr": 0.1, "b1": 0.5, "b2": 0.6}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.2}, adam, {"lr": 0.1, "coupled": 0.2}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.2}, adam, {"lr": 0.1, "decay": 0.2}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.2, "amsgrad": True}, adam,
     {"lr": 0.1, "decay": 0.2, "amsgrad": True}),
    ("RMSprop", {"lr": 0.1, "alpha": 0.9}, rmsprop, {}),
    ("RMSprop", {"lr": 0.1, "alpha": 0.9, "centered": True}, rmsprop, {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}, adagrad, {}),
]  # fmt: skip


@pytest.mark.cases(2 * len(TABLE))
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}-{'-'.join(row[1])}")
def test_steps_are_those_of_the_formula(row, jitted):
    name, options, formula, others = row
    rng = np.random.default_rng(0)
    start = rng.standard_normal((3, 4))
    slopes = [scale * rng.standard_normal((3, 4)) for scale in SCALES]
    param = krt.tensor(start, requires_grad=True)
    optimizer = getattr(nn.optim, name)([param], **options)

    def step(g):
        optimizer.zero_grad()
        (param * g).sum().backward()
        optimizer.step()

    function = krt.jit(step) if jitted else step
    for g, expected in zip(slopes, formula(start, slopes, **(others or options)), strict=True):
        function(krt.tensor(g))
        np.testing.assert_allclose(param.detach().numpy(), expected, rtol=1e-12, atol=1e-13)

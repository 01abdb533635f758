"""Errors are those that PyTorch raises, too: a handler written for it catches them."""

from __future__ import annotations

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt.nn import functional

torch = Package("torch")

CALLS = {
    "sum over an axis": lambda k, x: x.sum(5),
    "axis of a scalar": lambda k, x: x.sum().unsqueeze(0).squeeze(3),
    "transpose": lambda k, x: x.transpose(0, 7),
    "softmax": lambda k, x: x.softmax(-4),
    "sort": lambda k, x: x.sort(2),
    "cat": lambda k, x: k.cat([x, x], 4),
    "stack": lambda k, x: k.stack([x, x], 4),
    "permute": lambda k, x: x.permute(0, 3),
    "flatten": lambda k, x: x.flatten(0, 5),
    "narrow": lambda k, x: x.narrow(6, 0, 1),
    "unbind": lambda k, x: x.unbind(3),
    "gather": lambda k, x: x.gather(4, x.argsort(0)),
    "too many indices": lambda k, x: x[0, 0, 0],
    "too many slices": lambda k, x: x[:, :, 0],
    "index": lambda k, x: x[9],
    "matmul": lambda k, x: x @ x,
    "add": lambda k, x: x + x.T,
    "reshape": lambda k, x: x.reshape(7),
    "expand": lambda k, x: x.expand(5, 5),
    "cat of others": lambda k, x: k.cat([x, x.T], 0),
    "bmm": lambda k, x: k.bmm(x, x),
    "split": lambda k, x: x.split([1, 5], 0),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_handlers_for_torch_catch_them(call) -> None:
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    with pytest.raises((IndexError, RuntimeError)) as theirs:
        call(torch, torch.tensor(data))
    kind = IndexError if isinstance(theirs.value, IndexError) else RuntimeError
    with pytest.raises(kind) as ours:
        call(krt, krt.tensor(data))
    assert isinstance(ours.value, krt.errors.KernelrtError)


def test_they_are_numpys_too() -> None:
    x = krt.ones(2, 3)
    for call in (lambda: x.sum(5), lambda: x @ x):
        with pytest.raises(ValueError, match="ax"):
            call()
    with pytest.raises(krt.AxisError):
        x.sum(5)
    with pytest.raises(IndexError):
        functional.cross_entropy(x, krt.tensor([0, 9])).item()

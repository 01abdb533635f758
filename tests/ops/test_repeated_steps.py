"""Compositions of equal steps are computed by few kernels: what differs is read from memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.runtime.kernel_cache import kernels

if TYPE_CHECKING:
    from collections.abc import Callable


def _ctc(x: krt.Tensor) -> krt.Tensor:
    times, count, classes = x.shape
    labels = krt.arange(count * 7).reshape(count, 7) % (classes - 1) + 1
    steps = krt.full((count,), int(times), dtype=krt.int64)
    return x.log_softmax(-1).ctc_loss(labels, steps, krt.full((count,), 7, dtype=krt.int64))


@pytest.mark.cases(1)
@pytest.mark.parametrize(("call", "shape", "most"), [
    (_ctc, (60, 3, 11), 40),  # 60 steps
    (lambda x: x.matrix_exp(), (37, 37), 27),  # 12 squarings and the products of a Pade approximant
    (lambda x: (x + 15).mvlgamma(30), (3, 43), 4),  # 30 terms
])  # fmt: skip
def test_steps_share_kernels(
    call: Callable[[krt.Tensor], krt.Tensor], shape: tuple[int, ...], most: int
) -> None:
    x = krt.tensor(np.linspace(0, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape))
    x.requires_grad_()
    before = kernels.compiled
    out = call(x)
    out.realize()
    krt.grad(out.sum(), [x])[0].realize()
    assert 0 < kernels.compiled - before <= most


@pytest.mark.cases(1 / 4)
def test_a_ctc_loss_of_any_number_of_samples() -> None:
    torch = pytest.importorskip("torch")
    n = krt.Variable("n", 1, 6)

    @krt.jit(dynamic={"x": {1: n}, "labels": {0: n}, "steps": {0: n}, "lengths": {0: n}})
    def step(
        x: krt.Tensor, labels: krt.Tensor, steps: krt.Tensor, lengths: krt.Tensor
    ) -> tuple[krt.Tensor, krt.Tensor]:
        scores = x.detach().requires_grad_()
        losses = scores.log_softmax(-1).ctc_loss(labels, steps, lengths, reduction="none")
        return losses, krt.grad(losses.sum(), [scores])[0]

    rng = np.random.default_rng(0)
    for count in (3, 6, 1):
        x = rng.standard_normal((9, count, 5)).astype(np.float32)
        whole = rng.integers(1, 5, (count, 3)), rng.integers(7, 10, count), np.full(count, 3)
        found, gradient = step(*map(krt.tensor, (x, *whole)))
        scores = torch.tensor(x, requires_grad=True)
        expected = torch.nn.functional.ctc_loss(
            scores.log_softmax(-1), *map(torch.tensor, whole), reduction="none"
        )
        expected.sum().backward()
        np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-5)
        np.testing.assert_allclose(gradient.numpy(), scores.grad.numpy(), rtol=1e-4, atol=1e-5)

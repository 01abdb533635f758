"""The small networks that all frameworks run: weights and batches as NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8
"""Adam's constants, the same for all."""


@dataclass(frozen=True)
class Network:
    """A multi-layer perceptron, its loss and its batch."""

    sizes: tuple[int, ...]
    activation: Literal["tanh", "relu"]
    loss: Literal["mse", "cross_entropy"]
    batch: int
    lr: float = 1e-3
    seed: int = 0

    def weights(self) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Return new (weight of shape (out, in), bias of shape (out,)) of each layer."""
        rng = np.random.default_rng(self.seed)
        layers = []
        for fan_in, fan_out in zip(self.sizes, self.sizes[1:], strict=False):
            bound = fan_in**-0.5
            weight = rng.uniform(-bound, bound, (fan_out, fan_in)).astype(np.float32)
            bias = rng.uniform(-bound, bound, fan_out).astype(np.float32)
            layers.append((weight, bias))
        return layers

    def example(self) -> tuple[NDArray[np.float32], NDArray[np.generic]]:
        """Return one batch: inputs, and targets (class labels for cross entropy)."""
        rng = np.random.default_rng(self.seed + 1)
        x = rng.standard_normal((self.batch, self.sizes[0])).astype(np.float32)
        if self.loss == "cross_entropy":
            return x, rng.integers(0, self.sizes[-1], self.batch)
        return x, rng.standard_normal((self.batch, self.sizes[-1])).astype(np.float32)


CONTROL = Network((8, 64, 64, 4), "tanh", "mse", batch=1)
CONTROL_TRAIN = Network((8, 64, 64, 4), "tanh", "mse", batch=32)
DIGITS = Network((64, 128, 10), "relu", "cross_entropy", batch=64)
MNIST = Network((784, 128, 10), "relu", "cross_entropy", batch=128)

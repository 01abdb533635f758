"""Plain NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bench.cases import Call
    from bench.networks import Network


def inference(network: Network) -> Call:
    """Build the forward pass of one batch."""
    layers = [(np.ascontiguousarray(w.T), b) for w, b in network.weights()]
    x, _ = network.example()
    *hidden, (last_weight, last_bias) = layers

    def call() -> object:
        h = x
        for weight, bias in hidden:
            h = h @ weight + bias
            h = np.tanh(h) if network.activation == "tanh" else np.maximum(h, 0)
        return h @ last_weight + last_bias

    call()
    return call

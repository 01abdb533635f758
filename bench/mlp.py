"""Small networks: inference at batch 1, training steps, the digits."""

from __future__ import annotations

import functools

from bench import deep
from bench.cases import OURS, Case, Side
from bench.networks import CONTROL, CONTROL_TRAIN, DIGITS, MNIST, Network
from bench.peers import jax_side, kernelrt_side, numpy_side, onnx_side, torch_side


def inference(network: Network, name: str, title: str, aim: float) -> Case:
    """Compare forward passes, from a NumPy array to a NumPy array."""
    sides = (
        Side(OURS, functools.partial(kernelrt_side.inference, network)),
        *(
            Side(
                f"torch, {n} thread{'s' if n > 1 else ''}",
                functools.partial(torch_side.inference, network),
                functools.partial(torch_side.threads, n),
                ("torch",),
            )
            for n in (1, 2)
        ),
        Side("jax.jit", functools.partial(jax_side.inference, network), needs=("jax",)),
        Side(
            "onnxruntime",
            functools.partial(onnx_side.inference, network),
            needs=("onnxruntime", "onnx"),
        ),
        Side("numpy", functools.partial(numpy_side.inference, network)),
    )
    return Case(name, title, sides, aim=aim)


def training(network: Network, name: str, title: str, aim: float) -> Case:
    """Compare training steps (forward, backward, Adam), from NumPy arrays to the loss, a float."""
    sides = (
        Side(OURS, functools.partial(kernelrt_side.training, network)),
        *(
            Side(
                f"torch{' fused' if fused else ''}, {n} thread{'s' if n > 1 else ''}",
                functools.partial(torch_side.training, network, fused=fused),
                functools.partial(torch_side.threads, n),
                ("torch",),
            )
            for n in (1, 2)
            for fused in (False, True)
        ),
        Side("jax.jit", functools.partial(jax_side.training, network), needs=("jax",)),
    )
    return Case(name, title, sides, aim=aim)


def cases() -> tuple[Case, ...]:
    """Return all small networks."""
    return (
        inference(CONTROL, "mlp-inference", "MLP 8-64-64-4 tanh, inference, batch 1", aim=5),
        deep.case(),
        training(CONTROL_TRAIN, "mlp-training", "MLP 8-64-64-4 tanh, Adam step, batch 32", aim=5),
        training(DIGITS, "digits-training", "digits MLP 64-128-10, Adam step, batch 64", aim=2),
        training(MNIST, "mnist-training", "MLP 784-128-10, Adam step, batch 128", aim=2),
    )

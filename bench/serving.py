"""Inference of trained networks on batches of requests, from NumPy to NumPy."""

from __future__ import annotations

import functools

from bench.cases import OURS, Case, Side
from bench.limits import THREADS, our_threads
from bench.networks import Network
from bench.peers import kernelrt_side, onnx_side, torch_side

#: Name, title, layer sizes and batch sizes.
NETWORKS = (
    ("classifier", "MLP 784-256-256-16", (784, 256, 256, 16), (16, 64, 256)),
    ("feed-forward", "MLP 256-1024-256", (256, 1024, 256), (16, 512)),
)
AIM = 1.0


def _case(name: str, title: str, network: Network, threads: int, *, freeze: bool) -> Case:
    ours = functools.partial(our_threads, threads)
    sides = (
        Side(OURS, functools.partial(kernelrt_side.inference, network, freeze=freeze), ours),
        Side(
            "torch",
            functools.partial(torch_side.inference, network),
            functools.partial(torch_side.threads, threads),
            ("torch",),
        ),
        Side(
            "onnxruntime",
            functools.partial(onnx_side.inference, network, threads=threads),
            needs=("onnxruntime", "onnx"),
        ),
    )
    count = f"{threads} thread{'s' if threads > 1 else ''}"
    kind = "frozen" if freeze else "inference"
    return Case(
        f"{name}-{network.batch}-{kind}-{threads}",
        f"{title}, batch {network.batch}, {kind}, {count}",
        sides,
        aim=AIM,
    )


def cases() -> tuple[Case, ...]:
    """Return each network with ordinary and with frozen weights."""
    return tuple(
        _case(name, title, Network(sizes, "relu", "mse", batch), threads, freeze=freeze)
        for name, title, sizes, batches in NETWORKS
        for batch in batches
        for freeze in (False, True)
        for threads in THREADS
    )

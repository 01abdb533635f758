"""The overhead of sizes that are known only at run time, compared with code for a fixed size.

Both sides are kernelrt. The target is that code compiled once for all sizes takes at most 15%
longer than code compiled for each size. The cases are bandwidth-bound kernels, matrix products, and
losses and gradients of models in jitted functions. One axis of these models' inputs has the bounds
of an axis that has become dynamic with its third size.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.cases import OURS, Case, Side
from bench.peers import kernelrt_side

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cases import Call

STATIC = "compiled for the size"
LARGEST, WIDTH = 1024, 256
SIZES = (100, 1000)
AIM = round(1 / 1.15, 2)


def matmul(x: Any) -> Any:
    import kernelrt as krt

    weight = np.random.default_rng(1).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    return x @ krt.from_numpy(weight)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "relu(x * 1.5 + 2)": lambda x: (x * 1.5 + 2.0).relu(),
    "softmax": lambda x: x.softmax(-1),
    "sum over rows": lambda x: x.sum(0),
    "matmul": matmul,
}


def plan(function: Callable[[Any], Any], size: int, *, dynamic: bool) -> Call:
    """Prepare a plan. If it is dynamic, all calls run it with the given size."""
    import kernelrt as krt

    rows = np.random.default_rng(0).standard_normal((LARGEST, WIDTH)).astype(np.float32)
    x = krt.from_numpy(rows)[: krt.Variable("n", 1, LARGEST) if dynamic else size]
    prepared = function(x).prepare()
    if dynamic:
        prepared.execute_with_vars(n=size)
    prepared.execute()
    result = prepared.output_buffer.numpy()
    used = result if result.size == WIDTH else result[: size * WIDTH]
    execute = prepared.execute

    def call() -> object:
        execute()
        return used

    return call


def perceptron(nn: Any) -> Any:
    return nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


def images(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 10),
    )  # fmt: skip


def encoder(nn: Any) -> Any:
    return nn.Sequential(
        nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True), nn.Linear(64, 10)
    )


#: Model builder, input shape, and dynamic axis with its bounds.
MODELS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], tuple[int, int, int]]] = {
    "MLP, batch 64": (perceptron, (64, 784), (0, 17, 64)),
    "MLP, batch 8": (perceptron, (8, 784), (0, 2, 16)),
    "MLP, batch 2": (perceptron, (2, 784), (0, 2, 16)),
    "CNN, batch 16": (images, (16, 3, 32, 32), (0, 2, 16)),
    "encoder, length 64": (encoder, (8, 64, 64), (1, 17, 64)),
}


def gradients(title: str, *, dynamic: bool) -> Call:
    """Build a jitted loss of a model with its gradients."""
    import kernelrt as krt

    build, shape, (axis, least, most) = MODELS[title]
    krt.manual_seed(0)
    model = build(krt.nn)

    def loss_of(x: Any) -> Any:
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    variable = krt.Variable("size", least, most)
    pulled = krt.jit(loss_of, dynamic={"x": {axis: variable}} if dynamic else False)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return lambda: pulled(x).numpy()


@functools.cache
def cases() -> tuple[Case, ...]:
    """Return each function at each size, on one thread."""
    one = functools.partial(kernelrt_side.threads, 1)
    found = []
    for title, function in FUNCTIONS.items():
        for size in SIZES:
            sides = (
                Side(OURS, functools.partial(plan, function, size, dynamic=True), one),
                Side(STATIC, functools.partial(plan, function, size, dynamic=False), one),
            )
            name = f"{title.split('(')[0].split()[0]}-{size}"
            what = f"{title}, {size} of at most {LARGEST} rows of {WIDTH}"
            found.append(Case(name, what, sides, aim=AIM))
    for title in MODELS:
        sides = (
            Side(OURS, functools.partial(gradients, title, dynamic=True), one),
            Side(STATIC, functools.partial(gradients, title, dynamic=False), one),
        )
        name = title.replace(",", "").replace(" ", "-").lower()
        found.append(Case(name, f"loss and gradients of {title}, jitted", sides, aim=AIM))
    return tuple(found)

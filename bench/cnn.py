"""A small CNN on 8x8 images: forward, backward and Adam step of one batch, without dropout."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.cases import OURS, Case, Side
from bench.networks import BETA1, BETA2, EPS
from bench.peers import torch_side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.cases import Call

BATCH = 64
LR = 1e-3
CHANNELS = (1, 16, 32)
FEATURES = 512


def weights() -> dict[str, NDArray[np.float32]]:
    """Return filters, weights and biases by their names in a Sequential."""
    rng = np.random.default_rng(0)

    def draw(fan_in: int, *shape: int) -> NDArray[np.float32]:
        return rng.uniform(-(fan_in**-0.5), fan_in**-0.5, shape).astype(np.float32)

    _, first, second = CHANNELS
    return {
        "0.weight": draw(9, first, 1, 3, 3),
        "0.bias": draw(9, first),
        "2.weight": draw(9 * first, second, first, 3, 3),
        "2.bias": draw(9 * first, second),
        "6.weight": draw(FEATURES, 10, FEATURES),
        "6.bias": draw(FEATURES, 10),
    }


def example() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return one batch of images and labels."""
    rng = np.random.default_rng(1)
    images = rng.standard_normal((BATCH, 1, 8, 8)).astype(np.float32)
    return images, rng.integers(0, 10, BATCH)


def _sequential(nn: Any) -> Any:
    """Return the network, written with the names that kernelrt and torch share."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(FEATURES, 10),
    )


def kernelrt_training() -> Call:
    """Build a forward, backward and Adam step that returns the loss."""
    import kernelrt as krt
    from kernelrt import nn

    model = _sequential(nn)
    model.load_state_dict(weights())
    optimizer = nn.optim.Adam(nn.parameters(model), lr=LR)

    @krt.jit
    def step(x: krt.Tensor, y: krt.Tensor) -> krt.Tensor:
        optimizer.zero_grad()
        loss: krt.Tensor = model(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = example()
    return lambda: step(x, y).item()


def torch_training(*, fused: bool) -> Call:
    """Build the same step in eager PyTorch."""
    import torch
    from torch import nn

    model = _sequential(nn)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights().items()})
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, fused=fused)
    loss_of = nn.CrossEntropyLoss()
    x, y = example()

    def call() -> object:
        optimizer.zero_grad()
        loss = loss_of(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        return loss.item()

    return call


def _jax_logits(params: dict[str, Any], x: Any) -> Any:
    import jax
    from jax import lax

    for name in ("0", "2"):
        x = lax.conv_general_dilated(
            x,
            params[f"{name}.weight"],
            (1, 1),
            "SAME",
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        )
        x = jax.nn.relu(x + params[f"{name}.bias"][:, None, None])
    x = lax.reduce_window(x, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return x.reshape(x.shape[0], -1) @ params["6.weight"].T + params["6.bias"]


def jax_training() -> Call:
    """Build the same step in JAX, jitted as a whole, with donated state."""
    import jax
    import jax.numpy as jnp

    images, targets = example()
    labels = targets.astype(np.int32)

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        scores = jax.nn.log_softmax(_jax_logits(params, x))
        return -jnp.mean(jnp.take_along_axis(scores, y[:, None], axis=1))

    def step(state: Any, x: Any, y: Any) -> Any:
        params, m, v, t = state
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        t = t + 1
        tree_map = jax.tree_util.tree_map
        m = tree_map(lambda m, g: BETA1 * m + (1 - BETA1) * g, m, grads)
        v = tree_map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, v, grads)
        size, root = LR / (1 - BETA1**t), jnp.sqrt(1 - BETA2**t)
        params = tree_map(lambda p, m, v: p - size * m / (jnp.sqrt(v) / root + EPS), params, m, v)
        return (params, m, v, t), loss

    jitted = jax.jit(step, donate_argnums=0)
    params = {name: jnp.asarray(value) for name, value in weights().items()}
    zeros = functools.partial(jax.tree_util.tree_map, jnp.zeros_like)
    state = (params, zeros(params), zeros(params), jnp.float32(0))

    def call() -> object:
        nonlocal state
        state, loss = jitted(state, images, labels)
        return float(np.asarray(loss))

    return call


def cases() -> tuple[Case, ...]:
    """Return the one case."""
    sides = (
        Side(OURS, kernelrt_training),
        *(
            Side(
                f"torch{' fused' if fused else ''}, {n} thread{'s' if n > 1 else ''}",
                functools.partial(torch_training, fused=fused),
                functools.partial(torch_side.threads, n),
                ("torch",),
            )
            for n in (1, 2)
            for fused in (False, True)
        ),
        Side("jax.jit", jax_training, needs=("jax",)),
    )
    return (Case("cnn-training", "CNN 1-16-32 on 8x8, Adam step, batch 64", sides),)

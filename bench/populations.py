"""A population of 256 small networks trained at once, one by one, and with jax.vmap.

JAX's threads cannot be limited from within a process. To give JAX one thread, run this under
``taskset -c 0``.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.cases import OURS, Case, Side
from bench.networks import BETA1, BETA2, CONTROL_TRAIN, EPS
from bench.peers import jax_side, kernelrt_side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.cases import Call
    from bench.networks import Network

MEMBERS = 256


def networks() -> list[Network]:
    """Return the members: one architecture with different weights and batches."""
    return [replace(CONTROL_TRAIN, seed=2 * k) for k in range(MEMBERS)]


def batches() -> tuple[NDArray[np.float32], NDArray[np.generic]]:
    """Return one batch of each member."""
    found = [network.example() for network in networks()]
    return np.stack([x for x, _ in found]), np.stack([y for _, y in found])


def together() -> Call:
    """Build one step of a population that returns the loss of each member."""
    import kernelrt as krt
    from kernelrt import nn

    population = nn.stack_modules(kernelrt_side.model_of(network) for network in networks())
    optimizer = nn.optim.Adam(population.parameters(), lr=CONTROL_TRAIN.lr)

    @krt.jit
    def step(x: krt.Tensor, y: krt.Tensor) -> krt.Tensor:
        optimizer.zero_grad()
        losses: krt.Tensor = krt.vmap(lambda out, y: out.mse_loss(y))(population(x), y)
        losses.sum().backward()
        optimizer.step()
        return losses

    x, y = batches()
    return lambda: step(x, y).numpy()


def alone() -> Call:
    """Build a step of each member, one after the other: each is a model with a plan of its own."""
    calls: list[Any] = [kernelrt_side.training(network) for network in networks()]
    return lambda: np.array([call() for call in calls], np.float32)


def jax_call() -> Call:
    """Build the step of one member under jax.vmap, jitted, with donated state."""
    import jax
    import jax.numpy as jnp

    tree_map = jax.tree_util.tree_map

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jax_side._forward(CONTROL_TRAIN, params, x) - y) ** 2)  # noqa: SLF001

    def step(state: Any, x: Any, y: Any) -> Any:
        params, m, v, t = state
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        t = t + 1
        m = tree_map(lambda m, g: BETA1 * m + (1 - BETA1) * g, m, grads)
        v = tree_map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, v, grads)
        size, root = CONTROL_TRAIN.lr / (1 - BETA1**t), jnp.sqrt(1 - BETA2**t)
        params = tree_map(lambda p, m, v: p - size * m / (jnp.sqrt(v) / root + EPS), params, m, v)
        return (params, m, v, t), loss

    each = [jax_side._params(network) for network in networks()]  # noqa: SLF001
    params = tree_map(lambda *leaves: jnp.stack(leaves), *each)
    zeros = functools.partial(tree_map, jnp.zeros_like)
    state = params, zeros(params), zeros(params), jnp.zeros(MEMBERS)
    jitted = jax.jit(jax.vmap(step), donate_argnums=0)
    x, y = batches()

    def call() -> object:
        nonlocal state
        state, losses = jitted(state, x, y)
        return np.asarray(losses)

    return call


def cases() -> tuple[Case, ...]:
    """Return a step of all members, on one thread and on two."""
    title = f"{MEMBERS} MLPs 8-64-64-4 tanh, Adam step, batch 32 each"
    return tuple(
        Case(
            f"populations-{n}", f"{title}, {n} thread{'s' * (n > 1)}",
            (
                Side(OURS, together, enter),
                Side("kernelrt, one by one", alone, enter),
                Side("jax.vmap", jax_call, needs=("jax",)),
            ),
            aim=1 / 0.7,
        )
        for n in (1, 2)
        for enter in (functools.partial(kernelrt_side.threads, n),)
    )  # fmt: skip
